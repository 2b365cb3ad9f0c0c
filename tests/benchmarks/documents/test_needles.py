"""Needles on the fake engine: what counts as found and said, the controls, and what breaks the guarantee."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.documents.answer import END, EVIDENCE
from agentkv.errors import GuaranteeViolated, UsageError
from tests.benchmarks.documents import needles
from tests.benchmarks.documents.needles import Needles, Settings, is_value
from tests.benchmarks.documents.planting import Needle
from tests.benchmarks.documents.prepared import prepared
from tests.benchmarks.documents.widen import Widen


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("22 August 1985", True),
        (' "22  august 1985." ', True),
        ("It was finished on 22 August 1985.", False),
        ("22 August 1985, or 23 August 1985", False),
        ("2 August 1985", False),
        ("", False),
        (None, False),
    ],
)
def test_the_value_alone_is_right(answer: str | None, right: bool) -> None:
    assert is_value(answer, "22 August 1985") is right


class Quoting(FakeEngine):
    """Gives the value of each needle whose sentence and question stand in its context."""

    def __init__(self, known: Sequence[Needle] = (), *, always: bool = False) -> None:
        self.known, self.always = list(known), always
        super().__init__(window=4096, replies=self.reply)

    def reply(self, prompt: str) -> str:
        """The value of the needle asked for, if the passage holds it."""
        for needle in self.known:
            if needle.question in prompt and (self.always or needle.sentence in prompt):
                return f" {needle.value}.{EVIDENCE}{needle.sentence}{END}"
        return " nothing"


@pytest.fixture(autouse=True)
def _long_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake's tokens are bytes."""
    monkeypatch.setattr(needles, "_MAX_NEW", 200)


@pytest.fixture
def asked(folder: Path, tmp_path: Path) -> dict[str, Any]:
    return {"work": tmp_path / "work", "window": 512, "needles": 6, "folder": folder}


@pytest.fixture
def filled(asked: dict[str, Any], engine: FakeEngine) -> dict[str, Any]:
    """With a store that is filled."""
    Widen(**asked, engine=engine).run()
    return asked


def known(asked: dict[str, Any]) -> list[Needle]:
    return [Needle(**record) for record in orjson.loads((asked["work"] / "needles.json").read_bytes())]


def test_every_needle_is_found_and_given_and_no_control_gives_it(filled: dict[str, Any]) -> None:
    result = Needles(**filled, engine=Quoting(known(filled))).run()
    seen = [record for record in result["raw"] if record["key"].startswith("needle/")]
    assert result["asked"] == len(seen) == 6
    assert (result["depth"]["first"], result["depth"]["last"]) == (0, result["depth"]["of"] - 1)
    assert [row["depth"] for row in result["needles"]] == sorted(row["depth"] for row in result["needles"])
    assert result["retrieved"]["k"] == result["quote_right"]["k"] == 6
    assert all(needle.value in row["raw"]["own"]["text"] for needle, row in zip(known(filled), seen, strict=True))
    assert all(row["raw"]["other"]["text"] == "nothing" for row in seen)
    assert [row["answer"] for row in result["needles"]] == [f"{needle.value}." for needle in known(filled)]
    assert result["said"]["k"] == 6
    Needles.check(result)
    assert measured.rescore(orjson.loads(orjson.dumps(result))) == []


def test_a_model_that_knows_without_the_chunk_is_a_violation(filled: dict[str, Any]) -> None:
    result = Needles(**filled, engine=Quoting(known(filled), always=True)).run()
    assert len(result["leaked"]) == 6
    with pytest.raises(GuaranteeViolated, match="without its chunk"):
        Needles.check(result)


def test_the_other_chunk_is_stored_and_holds_no_such_sentence(filled: dict[str, Any], engine: FakeEngine) -> None:
    with prepared(Settings(**filled, engine=engine)) as found:
        for item in needles.placed(found):
            index = needles.far_from(item, needles.stored_chunks(found))
            assert index not in item.chunks
            assert item.needle.sentence not in needles.hit(found, index).text


def test_needles_in_chunks_that_are_not_stored_are_left_out(asked: dict[str, Any], engine: FakeEngine) -> None:
    Widen(**asked, engine=engine, enough=1500).run()
    result = Needles(**asked, engine=Quoting(known(asked))).run()
    assert 0 < result["asked"] < 6
    assert result["left_out"] == 6 - result["asked"]


def test_an_empty_store_is_refused(asked: dict[str, Any], engine: FakeEngine) -> None:
    with pytest.raises(UsageError, match="comes first"):
        Needles(**asked, engine=engine).run()


class TestFigures:
    RECORD: dict[str, Any] = {  # noqa: RUF012
        "question": "Where?", "sentence": "In Oslo.", "value": "Oslo", "path": "a", "depth": 3, "holding": [3, 4],
        "ranked": [9, 4], "find_ms": 1.0, "answer": "Oslo", "quote": "In Oslo.", "verified": True, "confidence": 1.0,
        "tokens": {"restored": 9, "prefilled": 40, "generated": 2}, "restore_ms": 2.0, "answer_ms": 3.0,
        "read_now": False, "own": {"depth": 3, "text": "Oslo"}, "other": {"depth": 1, "text": "no"},
    }  # fmt: skip
    CORPUS: dict[str, Any] = {  # noqa: RUF012
        "windows": 10, "stored": 10, "needles": 1, "placed": 1, "documents_sha256": "d", "plan_sha256": "p",
    }  # fmt: skip

    def row(self, **changes: Any) -> dict[str, Any]:
        figures = Needles.figures({"corpus": self.CORPUS, "needle/000": {**copy.deepcopy(self.RECORD), **changes}})
        return {**figures, **figures["needles"][0]}

    def test_any_window_that_holds_it_counts_at_its_rank(self) -> None:
        assert self.row()["rank"] == 2
        assert self.row()["retrieved"]["k"] == 0
        assert self.row(ranked=[3])["retrieved"]["k"] == 1
        assert self.row(ranked=[7, 8])["rank"] is None

    def test_an_echo_is_not_an_answer(self) -> None:
        assert self.row(answer="In Oslo.")["retrieved_and_said"]["k"] == 0
        assert self.row(ranked=[3])["retrieved_and_said"]["k"] == 1

    def test_a_quote_counts_only_if_it_is_the_sentence_and_verified(self) -> None:
        assert self.row()["quote_right"]
        assert not self.row(quote="In Paris.")["quote_right"]
        assert not self.row(verified=False)["quote_right"]

    def test_a_value_within_a_controls_text_is_a_leak(self) -> None:
        row = self.row(other={"depth": 1, "text": "It is oslo, I think"})
        assert row["leaked"] == ["000"] or row["leaked"] is True
        assert not self.row()["other"]

    def test_more_than_sixty_tokens_miss_the_aim(self) -> None:
        aims = {aim["aim"]: aim["met"] for aim in self.row(tokens={**self.RECORD["tokens"], "prefilled": 61})["aims"]}
        assert not aims["tokens prefilled, at most"]
