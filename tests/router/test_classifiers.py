"""The other classifiers: by words alone, and by prompting for a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.blocks.blocks import Blocks
from agentkv.engine.fake import FakeEngine
from agentkv.router.base import NONE, Classifier
from agentkv.router.baselines import PromptClassifier
from agentkv.router.decision import decide
from agentkv.router.lexical import LexicalClassifier
from agentkv.store.catalog import BlockStore
from tests.router.test_router import LABELS, ClassifierContract


class TestLexical(ClassifierContract):
    @pytest.fixture
    def classifier(self, tmp_path: Path) -> Classifier:
        return LexicalClassifier()

    def test_words_in_common_decide_and_none_in_common_is_none(self, classifier: Classifier) -> None:
        assert classifier.classify("may I give the till back?", LABELS).raw_pick == "refunds"
        assert classifier.classify("zzz qqq", LABELS).raw_pick == NONE
        assert classifier.classify("a till", LABELS).tokens == 0


def prompting(tmp_path: Path, says: str, window: int = 4096) -> tuple[PromptClassifier, FakeEngine, list[str]]:
    seen: list[str] = []

    def reply(prompt: str) -> str:
        seen.append(prompt)
        return says

    engine = FakeEngine(window=window, replies=reply)
    return PromptClassifier(Blocks(engine, BlockStore(tmp_path))), engine, seen


@pytest.mark.parametrize(
    ("says", "raw", "pick"),
    [
        ("csv-export", "csv-export", "csv-export"),
        ("Refunds\nbecause", "Refunds", "refunds"),
        ("None of these.", NONE, None),
        ("2 or 3", "2 or 3", None),
        ("", "", None),
    ],
)
def test_what_the_model_says_is_the_raw_pick(tmp_path: Path, says: str, raw: str, pick: str | None) -> None:
    classifier, _, seen = prompting(tmp_path, says)
    decision = decide(classifier, "how do I get my money back?", LABELS)
    assert (decision.raw_pick, decision.pick) == (raw, pick)
    assert (decision.fallback is None) == (pick is not None or raw == NONE)
    assert all(f"- {label}: {known.description}" in seen[0] for label, known in LABELS.items())


def test_the_catalogue_is_read_once(tmp_path: Path) -> None:
    classifier, engine, _ = prompting(tmp_path, "csv")
    first = classifier.classify("one?", LABELS).tokens
    second = classifier.classify("two?", LABELS).tokens
    assert second < first / 2
    assert engine.tokens == ()
    fewer = {"csv": LABELS["csv"]}
    assert classifier.classify("two?", fewer).tokens > second


def test_a_catalogue_over_the_window_is_no_pick(tmp_path: Path) -> None:
    classifier, engine, _ = prompting(tmp_path, "csv", window=256)
    assert classifier.classify("one?", LABELS).raw_pick == NONE
    assert engine.counters.decoded == 0
