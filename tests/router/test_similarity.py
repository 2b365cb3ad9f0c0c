"""Lexical and embedding similarity, and the file of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from agentkv import AgentMemory, FakeEmbedder, FakeEngine
from agentkv.engine.embed import Vectors as Rows
from agentkv.notices import AgentKVWarning
from agentkv.router.base import NONE, Candidate
from agentkv.router.evaluate import Labelled
from agentkv.router.similarity import COLUMNS, Similarity
from agentkv.router.vectors import Vectors
from agentkv.router.weights import FEATURES

LIBRARY = {
    "refunds": Candidate("Taking goods back and paying money out."),
    "csv": Candidate("Cleaning tables of values."),
    "empty": Candidate(""),
}
ASKED = {"csv": ["a semicolon inside quotes", "which delimiter"], "gone": ["no such label"]}


class Counting(FakeEmbedder):
    """Remembers what it was asked to embed."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Rows:
        self.asked += texts
        return super().embed(texts)


def test_columns_are_the_features_that_need_no_model() -> None:
    assert len(FEATURES) == COLUMNS + 2


def test_without_an_embedder_meaning_is_nothing() -> None:
    rows = Similarity(LIBRARY, ASKED, None).of("which delimiter is it?")
    assert rows.shape == (3, COLUMNS)
    assert not rows[:, 3:].any()
    assert rows[1, 2] > 0.5 > rows[0, 2] == 0.0


def unit(vector: Rows) -> Rows:
    return vector / np.linalg.norm(vector)


def test_meaning_is_compared_with_the_centre_of_card_and_labelled_questions() -> None:
    embedder = FakeEmbedder()
    rows = Similarity(LIBRARY, ASKED, Vectors(embedder)).of("taking goods back")
    assert rows[0, 3] > rows[1, 3]
    named, described, *asked = embedder.embed(
        ["csv: Cleaning tables of values.", LIBRARY["csv"].description, *ASKED["csv"]]
    )
    question = embedder.embed(["which delimiter is it?"])[0]
    centre = unit((named + described) / 2 + (asked[0] + asked[1]) / 2)
    taught = Similarity(LIBRARY, ASKED, Vectors(embedder)).of("which delimiter is it?")
    untaught = Similarity(LIBRARY, {}, Vectors(embedder)).of("which delimiter is it?")
    assert taught[1, 3] == pytest.approx(centre @ question, abs=1e-6)
    assert untaught[1, 3] == pytest.approx(unit(named + described) @ question, abs=1e-6)
    assert taught[1, 3] > untaught[1, 3] + 0.2
    assert taught[[0, 2], 3] == pytest.approx(untaught[[0, 2], 3]), "the others have no labelled questions"


def test_a_question_can_be_left_out_of_the_labelled_ones() -> None:
    rows = Similarity(LIBRARY, ASKED, Vectors(FakeEmbedder())).of("which delimiter", leave_one_out=True)
    without = Similarity(LIBRARY, {"csv": ASKED["csv"][:1]}, Vectors(FakeEmbedder())).of("which delimiter")
    assert rows[1, 2] < 0.9
    assert rows[:, 3] == pytest.approx(without[:, 3])
    assert rows[1, 3] < Similarity(LIBRARY, ASKED, Vectors(FakeEmbedder())).of("which delimiter")[1, 3]


def test_an_empty_library() -> None:
    assert Similarity({}, ASKED, Vectors(FakeEmbedder())).of("what?").shape == (0, COLUMNS)


class TestVectors:
    def test_a_text_is_embedded_once_ever(self, tmp_path: Path) -> None:
        first = Counting()
        made = Vectors(first, tmp_path).of(["a", "b", "a"])
        assert first.asked == ["a", "b"]
        second = Counting()
        again = Vectors(second, tmp_path).of(["b", "c", "a"])
        assert second.asked == ["c"]
        assert np.array_equal(again[[2, 0]], made[:2])

    def test_another_embedder_has_a_file_of_its_own(self, tmp_path: Path) -> None:
        Vectors(FakeEmbedder(), tmp_path).of(["a"])
        other = Counting()
        other.identity = "f" * 64
        Vectors(other, tmp_path).of(["a"])
        assert other.asked == ["a"]
        assert len(list(tmp_path.glob("vectors-*.npy"))) == 2

    @pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"PK\x03\x04 no zip", b"\x80\x04K\x01.", b"x" * 5000])
    def test_a_damaged_file_is_made_again(self, tmp_path: Path, damage: bytes) -> None:
        made = Vectors(FakeEmbedder(), tmp_path).of(["a"])
        (file,) = tmp_path.iterdir()
        file.write_bytes(damage)
        counting = Counting()
        with pytest.warns(AgentKVWarning, match="made again"):
            assert np.array_equal(Vectors(counting, tmp_path).of(["a"]), made)
        assert counting.asked == ["a"]
        file_again = Counting()
        Vectors(file_again, tmp_path).of(["a"])
        assert file_again.asked == []

    def test_every_cut_of_the_file_is_made_again(self, tmp_path: Path) -> None:
        made = Vectors(FakeEmbedder(), tmp_path).of(["a", "b"])
        (file,) = tmp_path.iterdir()
        whole = file.read_bytes()
        for length in range(0, len(whole), 97):
            file.write_bytes(whole[:length])
            with pytest.warns(AgentKVWarning, match="made again"):
                assert np.array_equal(Vectors(FakeEmbedder(), tmp_path).of(["a", "b"]), made)

    def test_a_place_that_cannot_be_written_costs_no_decision(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        assert Vectors(FakeEmbedder(), tmp_path / "file").of(["a"]).shape == (1, 256)


def test_a_memory_routes_with_meaning_and_says_so(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, FakeEngine(), embedder=FakeEmbedder()) as memory:
        memory.deposit_text("refunds", "Within 7 days.", "Taking goods back and paying money out.")
        memory.deposit_text("csv", "Commas.", "Cleaning tables of values.")
        decision = memory.route("taking goods back, paying money out")
        assert decision.pick == "refunds"
        assert decision.classifier == "channel+lexical+fake-embedder/5"
        assert set(decision.scores) == {"refunds", "csv", NONE}
    assert list((tmp_path / "router").glob("vectors-*.npy"))


def test_what_was_learned_with_an_embedder_is_not_taken_without(tmp_path: Path) -> None:
    questions = [Labelled("who pays me out", "refunds"), Labelled("a semicolon", "csv"), Labelled("the sky", None)]
    with AgentMemory(tmp_path, FakeEngine(), embedder=FakeEmbedder()) as memory:
        memory.deposit_text("refunds", "Within 7 days.", "Taking goods back.")
        memory.deposit_text("csv", "Commas.", "Cleaning tables.")
        memory.learn(questions)
    with pytest.warns(AgentKVWarning, match="learned by .*, and this is .* left out.*`agentkv route learn`"):
        memory = AgentMemory(tmp_path, FakeEngine())
    assert memory.classifier.labelled == {}  # type: ignore[attr-defined]
    with AgentMemory(tmp_path, FakeEngine(), embedder=FakeEmbedder()) as memory:
        assert set(memory.classifier.labelled) == {"refunds", "csv"}  # type: ignore[attr-defined]


def test_another_model_routes_and_the_answering_one_is_left_alone(tmp_path: Path) -> None:
    answering, small = FakeEngine(), FakeEngine()
    with AgentMemory(tmp_path, answering, router_model=small) as memory:
        memory.deposit_text("refunds", "Within 7 days.", "Taking goods back and paying money out.")
        memory.deposit_text("csv", "Commas.", "Cleaning tables of values.")
        before = answering.counters.decoded, small.counters.decoded
        decision = memory.route("taking goods back, paying money out")
        assert decision.pick == "refunds"
        assert answering.counters.decoded == before[0]
        assert small.counters.decoded - before[1] == decision.tokens > 0
        learned = memory.learn([Labelled("who pays me out", "refunds"), Labelled("the sky", None)])
        assert learned.fingerprint_id == small.fingerprint().id
        assert answering.counters.decoded == before[0]
