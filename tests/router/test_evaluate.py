"""The evaluation's own arithmetic, on decisions that are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentkv.errors import UsageError
from agentkv.records import Decision
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.evaluate import (
    Labelled,
    Routed,
    calibration_error,
    confusions,
    filler,
    load_questions,
    load_tools,
    route_all,
    summary,
    trade_off,
)

TOOLS = {name: Candidate(f"All about {name}.") for name in ("ants", "bees", "cats", "dogs", "elks", "frogs")}


class Keyword:
    """Picks the label that stands in the question, with a fixed confidence; else none."""

    name, version = "keyword", "1"

    def __init__(self, confidence: float | None = 0.9) -> None:
        self.confidence = confidence
        self.sizes: list[int] = []

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        self.sizes.append(len(candidates))
        scores = {label: float(label in question) for label in candidates}
        ranked = dict(sorted({**scores, NONE: 0.5}.items(), key=lambda item: (-item[1], item[0])))
        return Classification(next(iter(ranked)), ranked, len(candidates), self.confidence)


QUESTIONS = [Labelled("ants?", "ants"), Labelled("bees?", "bees"), Labelled("dogs!", "cats"), Labelled("x", None)]


def _routed(label: str | None, **scores: float) -> Routed:
    ranked = dict(sorted(scores.items(), key=lambda item: -item[1]))
    pick = next(iter(ranked))
    named = {NONE if name == "none" else name: score for name, score in ranked.items()}
    decision = Decision(
        raw_pick=pick,
        pick=None if pick == "none" else pick,
        fallback=None,
        scores=named,
        classifier="x/1",
        tokens=0,
        ms=0.0,
    )
    return Routed(f"{label} {scores}", label, decision)


def test_what_another_score_of_none_would_trade() -> None:
    covered = [_routed("ants", ants=float(ahead), bees=-50.0, none=0.0) for ahead in range(1, 99)]
    covered += [_routed("ants", bees=9.0, ants=8.0, none=0.0), _routed("ants", none=5.0, ants=4.0)]
    uncovered = [_routed(None, ants=ahead, none=0.0) for ahead in (-1.0, 0.5, 3.5, 99.0)]
    by_lost = {row["lost"]["k"]: row for row in trade_off(covered + uncovered)}
    assert [row["lost"]["n"] for row in by_lost.values()] == [100] * 6
    assert [by_lost[k]["abstained_on_uncovered"]["k"] for k in (0, 1, 3, 5, 10, 20)] == [0, 2, 2, 3, 3, 3]
    assert [by_lost[k]["none_by"] for k in (0, 1, 3)] == [-1.0, 1.0, 3.0]
    assert trade_off(covered) == trade_off(uncovered) == []


def test_the_figures_are_those_of_the_decisions() -> None:
    figures = summary(list(route_all(Keyword(), QUESTIONS, TOOLS)))
    assert (figures["right"]["k"], figures["right"]["n"]) == (2, 3)
    assert figures["abstained_on_uncovered"]["k"] == 1
    assert figures["abstained_on_covered"]["k"] == 0
    assert figures["wrong_when_confident"] | {"wilson_95": 0} == {"k": 1, "n": 3, "share": 1 / 3, "wilson_95": 0}
    assert figures["expected_calibration_error"] == pytest.approx(abs(0.9 - 3 / 4))
    assert figures["confusions"] == [{"label": "cats", "pick": "dogs", "n": 1}]
    assert figures["tokens"] == {"median": 6, "min": 6, "max": 6}
    assert figures["invalid_picks"]["k"] == 0


def test_top_5_leaves_none_aside() -> None:
    scores = {NONE: 9.0, "a": 5.0, "b": 4.0, "c": 3.0, "d": 2.0, "e": 1.0, "f": 0.0}
    decision = Decision(raw_pick=NONE, pick=None, fallback=None, scores=scores, classifier="x/1", tokens=0, ms=0.0)
    assert Routed("q", "e", decision).in_top_5
    assert not Routed("q", "f", decision).in_top_5


def test_a_library_of_a_size_holds_the_label_and_is_drawn_alike() -> None:
    first, again = Keyword(), Keyword()
    rows = list(route_all(first, QUESTIONS, TOOLS, size=3))
    assert first.sizes == [3, 3, 3, 3]
    for row in rows[:2]:
        assert row.right
        assert len(row.decision.scores) == 4
    assert [r.decision.scores for r in route_all(again, QUESTIONS, TOOLS, size=3)] == [r.decision.scores for r in rows]
    other = route_all(Keyword(), QUESTIONS, TOOLS, size=3, seed=2)
    assert [r.decision.scores for r in other] != [r.decision.scores for r in rows]


def test_filler_is_marked_distinct_and_the_same_each_time() -> None:
    made = filler(1000)
    assert len(made) == 1000
    assert all(name.startswith("made-up-") for name in made)
    assert made == filler(1000)


def test_without_confidence_there_is_no_calibration() -> None:
    rows = list(route_all(Keyword(None), QUESTIONS, TOOLS))
    assert calibration_error(rows) is None
    assert summary(rows)["wrong_when_confident"]["n"] == 0
    assert confusions([]) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [("{", "expected"), ('{"query": "q"}', "expected"), ('{"query": "", "tool": "a"}', "a text"), ("[]", "expected")],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"query": "fine", "tool": null}\n\n' + line + "\n")
    with pytest.raises(UsageError, match=rf"questions.jsonl:3: .*{reason}"):
        load_questions(file)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"a": 1}', '{" ": "x"}'])
def test_bad_tools_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tools.json").write_text(text)
    with pytest.raises(UsageError, match=r"tools\.json"):
        load_tools(tmp_path / "tools.json")
    with pytest.raises(UsageError, match="nothing"):
        load_questions(tmp_path / "nothing.jsonl")
