from __future__ import annotations

import math
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.blocks.blocks import Blocks
from agentkv.engine.embed import FakeEmbedder
from agentkv.engine.fake import FakeEngine
from agentkv.engine.prompt import PromptBuilder
from agentkv.errors import InvalidPick
from agentkv.router.base import NONE, Candidate, Classification, Classifier
from agentkv.router.baselines import EmbeddingClassifier
from agentkv.router.classifier import ChannelClassifier, Shortlist
from agentkv.router.decision import Fallback, decide, given, normalised
from agentkv.router.lexical import LexicalIndex, grams
from agentkv.router.similarity import Similarity
from agentkv.router.vectors import Vectors
from agentkv.router.weights import default_prune_ratio, default_weights
from agentkv.store.catalog import BlockStore

LABELS = {
    "csv": Candidate("Comma separated files.", "delimiter, rows and columns"),
    "csv-export": Candidate("Writing files.", "export a report to a file"),
    "refunds": Candidate("Giving money back.", "a customer returns a till within 21 days"),
}


class Says:
    name, version = "says", "1"

    def __init__(self, pick: str) -> None:
        self.pick = pick

    def classify(self, question: str, candidates: object) -> Classification:
        return Classification(self.pick, {self.pick: 1.0}, 3)


@pytest.mark.parametrize(
    "raw", ["csv_export", "csv-exports", "the csv skill", "exports", "csv\nexport", "DEFAULT", "0", ""]
)
def test_what_is_no_live_label_falls_back(raw: str) -> None:
    decision = decide(Says(raw), "q", LABELS)
    assert (decision.raw_pick, decision.pick) == (raw, None)
    assert decision.fallback


@pytest.mark.parametrize(("raw", "pick"), [("CSV", "csv"), (" csv-export\n", "csv-export"), ("refunds", "refunds")])
def test_one_documented_normalisation(raw: str, pick: str) -> None:
    decision = decide(Says(raw), "q", LABELS)
    assert (decision.raw_pick, decision.pick, decision.fallback) == (raw, pick, None)


def test_a_skill_named_none_is_not_no_skill() -> None:
    labels = {"none": Candidate("Nothing at all.")}
    assert decide(Says("none"), "q", labels).pick == "none"
    assert decide(Says(NONE), "q", labels).pick is None
    assert decide(Says(NONE), "q", labels).fallback is None
    assert normalised("straße", {"strasse": 1}) == "strasse"
    assert normalised("a", {"a": 1, "A": 2}) == "a"
    assert normalised(" a", {"a": 1, "A": 2}) is None
    assert given(None).raw_pick == NONE


class ClassifierContract:
    """What every classifier promises."""

    @pytest.fixture
    def classifier(self, tmp_path: Path) -> Classifier:
        raise NotImplementedError

    def test_the_pick_is_a_live_label_or_none(self, classifier: Classifier) -> None:
        for question in ("how do I get my money back?", "🙂", "x " * 500, "csv", "\n\n refunds \0"):
            result = classifier.classify(question, LABELS)
            assert result.raw_pick in {*LABELS, NONE}
            assert set(result.scores) == {*LABELS, NONE}
            assert max(result.scores, key=lambda label: result.scores[label]) == result.raw_pick
            assert all(map(math.isfinite, result.scores.values()))

    def test_the_order_of_candidates_does_not_matter(self, classifier: Classifier) -> None:
        backwards = dict(reversed(LABELS.items()))
        assert classifier.classify("a till", LABELS) == classifier.classify("a till", backwards)

    def test_nothing_to_pick_from_is_none(self, classifier: Classifier) -> None:
        assert classifier.classify("a till", {}).raw_pick == NONE
        assert classifier.classify("  ", LABELS).raw_pick == NONE


class TestMeaning(ClassifierContract):
    @pytest.fixture
    def classifier(self) -> EmbeddingClassifier:
        return EmbeddingClassifier(Vectors(FakeEmbedder()), margin=0.1)

    def test_the_nearest_card_is_picked(self, classifier: EmbeddingClassifier) -> None:
        result = classifier.classify(
            "Cleaning a table of values", {"csv": Candidate("Cleaning tables of values."), "x": Candidate("Music.")}
        )
        assert (result.raw_pick, result.tokens) == ("csv", 0)


class TestChannel(ClassifierContract):
    @pytest.fixture
    def classifier(self, tmp_path: Path) -> ChannelClassifier:
        return ChannelClassifier(Blocks(FakeEngine(), BlockStore(tmp_path)), prune_ratio=0.0)

    def test_stored_cards_change_the_cost_and_not_the_scores(self, classifier: ChannelClassifier) -> None:
        cold = classifier.classify("how do I return it?", LABELS)
        classifier.deposit_card("", "")
        for label, candidate in LABELS.items():
            classifier.deposit_card(label, candidate.description)
        warm = classifier.classify("how do I return it?", LABELS)
        assert warm.scores == pytest.approx(cold.scores)
        assert warm.tokens < cold.tokens
        assert warm.tokens == 4 * (1 + len(" how do I return it?") + 1), "three cards, and the one without content"

    def test_whether_a_card_fits_is_asked_where_that_has_weight(self, classifier: ChannelClassifier) -> None:
        silent = classifier.features("how do I return it?", LABELS)
        asking = classifier.with_learned(classifier.weights.model_copy(update={"fits": 1.0}), {})
        asked = asking.features("how do I return it?", LABELS)
        end = PromptBuilder(FakeEngine()).question("")[1]
        assert asked.tokens - silent.tokens == 4 * (len(end) - 1)
        assert asked.rows[:, 0] == pytest.approx(silent.rows[:, 0])
        assert not silent.rows[:, 1].any()
        assert asked.labels == silent.labels


class TestDoubt:
    """What is scored is what lexical and embedding similarity leave within the prune ratio."""

    QUESTION = "export a report to a file, write a file"

    def classifier(self, tmp_path: Path, **options: Any) -> ChannelClassifier:
        return ChannelClassifier(Blocks(FakeEngine(), BlockStore(tmp_path)), **options)

    def test_how_many_are_in_doubt(self) -> None:
        near = (5.0, 5.0 + math.log(0.11), 5.0 + math.log(0.09), -9.0)
        short = Shortlist(("a", "b", "c", "d"), np.zeros((4, 4)), near)
        assert [short.within(ratio) for ratio in (1.0, 0.1, 0.05, 0.0)] == [1, 2, 3, 4]

    def test_a_sure_question_reads_one_card_and_ranks_the_rest_behind_it(self, tmp_path: Path) -> None:
        some, every = self.classifier(tmp_path, prune_ratio=0.5), self.classifier(tmp_path, prune_ratio=0.0)
        known, whole = some.features(self.QUESTION, LABELS), every.features(self.QUESTION, LABELS)
        assert known.labels == whole.labels[:1] == ("csv-export",)
        assert tuple(known.unread) == whole.labels[1:]
        assert known.rows == pytest.approx(whole.rows[:1])
        assert known.tokens < whole.tokens
        found = some.classify(self.QUESTION, LABELS)
        near = some.nearest(self.QUESTION, LABELS).near
        for index, label in enumerate(whole.labels):
            assert found.scores["csv-export"] - found.scores[label] == pytest.approx(near[0] - near[index])

    def test_to_learn_the_whole_shortlist_is_read(self, tmp_path: Path) -> None:
        known = self.classifier(tmp_path, prune_ratio=1.0).features(self.QUESTION, LABELS, leave_one_out=True)
        assert set(known.labels) == set(LABELS)
        assert not known.unread

    def test_a_known_model_has_weights_and_doubt_of_its_own(self) -> None:
        qwen = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
        assert default_weights(qwen, True).fits > 1 > default_weights("", True).fits == 0.0
        assert default_prune_ratio(qwen) < default_prune_ratio("")


def test_lexical_similarity_finds_the_text_that_shares_words() -> None:
    index = LexicalIndex({label: c.text for label, c in LABELS.items()})
    scores = index.similarity("Can I RETURN the tills?")
    assert max(scores, key=lambda label: scores[label]) == "refunds"
    assert all(0 <= score <= 1 + 1e-9 for score in scores.values())
    assert set(index.similarity("").values()) == {0.0}
    assert LexicalIndex({}).similarity("x") == {}
    assert index.similarity(LABELS["csv"].text)["csv"] == pytest.approx(1)


def test_what_a_question_says_beyond_the_texts_counts_against_all_of_them() -> None:
    index = LexicalIndex({label: c.text for label, c in LABELS.items()})
    known, unknown = "the till and the refunds", "xylophone zebra quixotic"
    plain, whole = index.similarity(f"{known} {unknown}"), index.similarity(f"{known} {unknown}", whole=True)
    share = {round(whole[label] / plain[label], 9) for label in LABELS if plain[label]}
    assert len(share) == 1  # of all alike: the order stays
    assert 0.2 < share.pop() < 0.8
    own = LABELS["csv"].text
    assert index.similarity(own, whole=True) == pytest.approx(index.similarity(own))
    assert set(index.similarity(unknown, whole=True).values()) == {0.0}
    assert set(index.similarity("", whole=True).values()) == {0.0}
    assert LexicalIndex({}).similarity("x", whole=True) == {}


LINES = {
    "returns": Candidate("Bringing goods back", "Goods can be returned within 14 days, with the receipt, at any till."),
    "parking": Candidate("Where visitors park", "Visitors park on level 2 and get their ticket stamped at reception."),
    "coffee": Candidate("Care of the coffee machine", "Descale the coffee machine every Friday with two tablets."),
    "wifi": Candidate("The guest network", "The guest network is called Bluebird; its password changes each Monday."),
    "leave": Candidate("How to apply for leave", "Ask your team lead for leave at least two weeks ahead, by e-mail."),
    "colour": Candidate("Printing in colour", "The colour printer on floor 3 starts when you hold your badge to it."),
}
"""Manuals of a line each: next to nothing of a question about something else stands in them."""


@pytest.mark.parametrize(
    "question",
    [
        *("What is the capital of France?", "How do I train for a marathon?", "What is the boiling point of water?"),
        *("Give me a recipe for pancakes.", "Where do penguins live?", "Why is the sky blue?", "How do magnets work?"),
    ],
)
def test_an_unrelated_question_is_little_alike_to_one_line_manuals(question: str) -> None:
    rows = Similarity(LINES, {}, None).of(question)
    assert rows[:, 1].max() < 0.08
    assert Similarity(LINES, {}, None).of("what is the")[:, 1].max() > rows[:, 1].min()  # nothing else: they count
    for asked, label in [("When can goods be returned?", "returns"), ("Where do visitors park?", "parking")]:
        rows = Similarity(LINES, {}, None).of(asked)
        assert rows[:, 1].argmax() == list(LINES).index(label)
        assert rows[:, 1].max() > 0.2


def test_grams_are_of_words_with_their_ends() -> None:
    assert grams("To, to!") == {" to": 2, "to ": 2, " to ": 2}


@pytest.mark.parametrize(
    ("question", "label"),
    [
        ("逾期违约金是多少？", "penalty"),
        ("Prufung der MASSNAHME", "works"),
        (unicodedata.normalize("NFD", "Prüfung"), "works"),
        ("القسط", "rate"),
        ("회의실은?", "room"),
    ],
)
def test_lexical_similarity_is_of_words_in_any_script(question: str, label: str) -> None:
    texts = {
        "penalty": "逾期违约金为合同总额的百分之十。",
        "reset": "按住电源键八秒，直到指示灯闪烁两次。",
        "works": "Eine Maßnahme nach der Prüfung.",
        "rate": "يجب سداد القِسْط خلال ثلاثين يوماً",
        "room": "회의실이 넓다",
    }
    scores = LexicalIndex(texts).similarity(question)
    assert max(scores, key=lambda label: scores[label]) == label
    assert scores[label] > 0.1


def test_the_fallback_is_a_policy() -> None:
    class Unsure(Says):
        def classify(self, question: str, candidates: object) -> Classification:
            return Classification("csv_export", {"csv_export": 2.0, "refunds": 1.0, "csv": 0.5, NONE: 3.0}, 3)

    def picked(policy: Fallback, question: str = "export it") -> tuple[str | None, str | None]:
        decision = decide(Unsure(""), question, LABELS, policy)
        assert decision.raw_pick == "csv_export"
        return decision.pick, decision.fallback

    assert picked(Fallback.NO_BLOCK) == (None, "'csv_export' is not a live label: no-block")
    assert picked(Fallback.RUNNER_UP) == ("refunds", "'csv_export' is not a live label: runner-up")
    assert picked(Fallback.LEXICAL) == ("csv-export", "'csv_export' is not a live label: lexical")
    nothing = "'csv_export' is not a live label: lexical, and there is none: no block"
    assert picked(Fallback.LEXICAL, "Ωμέγα") == (None, nothing)
    with pytest.raises(InvalidPick) as caught:
        picked(Fallback.ERROR)
    assert (caught.value.raw_pick, caught.value.labels) == ("csv_export", sorted(LABELS))
    assert decide(Says("elsewhere"), "q", LABELS, Fallback.RUNNER_UP).pick is None
    assert decide(Says(NONE), "q", LABELS, Fallback.ERROR).pick is None, "that none fits is a pick"
