"""How well a classifier routes labelled questions: accuracy, abstention, calibration, cost, by size of the library.

Knows classifiers by their protocol. A library of n candidates is, for each question, its own label and n - 1 others,
drawn alike on every run. Where there are not enough, cards that are made up fill it, and the result says how many:
filler is easier to tell apart than what people write, so such figures are an upper bound.

Confidence is the classifier's own probability of its pick, where it gives one. Calibration error (ECE) is over ten
bins of equal width, weighted by their counts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.errors import UsageError
from agentkv.figures import share, spread
from agentkv.records import Decision
from agentkv.router.base import NONE, Candidate, Classifier
from agentkv.router.decision import Fallback, decide

CONFIDENT = 0.8
"""From this probability on a pick counts as confident."""

LOST = (0.0, 0.01, 0.03, 0.05, 0.1, 0.2)
"""Shares of the covered questions that may lose the right pick to NONE, where the two are traded."""

_BINS = 10


@dataclass(frozen=True)
class Labelled:
    """A question and the label that it belongs to; None: no candidate fits."""

    query: str
    label: str | None


@dataclass(frozen=True)
class Routed:
    """One question's outcome."""

    query: str
    label: str | None
    decision: Decision

    @property
    def right(self) -> bool:
        """Whether the pick is the label, or none where none fits."""
        return self.decision.pick == self.label

    @property
    def in_top_5(self) -> bool:
        """Whether the label is among the five best scores, NONE aside."""
        ranked = [label for label in self.decision.scores if label != NONE]
        return self.label in ranked[:5]


def route_all(
    classifier: Classifier,
    questions: Sequence[Labelled],
    candidates: Mapping[str, Candidate],
    *,
    size: int | None = None,
    seed: int = 1,
) -> Iterator[Routed]:
    """Route one question after the other in a library of ``size`` candidates (None: all that there are)."""
    for index, question in enumerate(questions):
        library = candidates if size is None else _library(question.label, candidates, size, f"{seed}/{index}")
        yield Routed(question.query, question.label, decide(classifier, question.query, library, Fallback.NO_BLOCK))


def load_questions(file: Path) -> list[Labelled]:
    """Lines of ``{"query": …, "tool": …}`` (or ``skill``); null where nothing fits. Raises UsageError with the line."""
    found = []
    for number, line in enumerate(_read(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
            query, label = value["query"], value["tool"] if "tool" in value else value["skill"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise UsageError(f'{file}:{number}: expected {{"query": …, "tool": …}} ({error})') from error
        if not isinstance(query, str) or not query.strip() or not isinstance(label, str | None):
            raise UsageError(f"{file}:{number}: `query` takes a text, `tool` a name or null")
        found.append(Labelled(query, label))
    if not found:
        raise UsageError(f"{file} holds no questions")
    return found


def load_tools(file: Path) -> dict[str, Candidate]:
    """A JSON object of name → description. Raises UsageError."""
    try:
        value = orjson.loads(_read(file))
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{file}: not JSON ({error})") from error
    texts = isinstance(value, dict) and all(isinstance(item, str) and name.strip() for name, item in value.items())
    if not texts or not value:
        raise UsageError(f"{file}: expected an object of name → description")
    return {name: Candidate(description) for name, description in value.items()}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error


def filler(count: int, seed: int = 1) -> dict[str, Candidate]:
    """Cards that are made up, to see how cost grows: their names begin with ``made-up-``."""
    rng = random.Random(f"filler/{seed}")
    found: dict[str, Candidate] = {}
    while len(found) < count:
        verb, thing, place = rng.choice(_VERBS), rng.choice(_THINGS), rng.choice(_PLACES)
        name = f"made-up-{len(found):04}-{verb}-{thing}".replace(" ", "-")
        found[name] = Candidate(f"{verb.capitalize()} {thing} {place}.")
    return found


def summary(rows: Sequence[Routed]) -> dict[str, Any]:
    """The figures of one library size; shares come with k, n and the Wilson 95 % interval."""
    covered = [row for row in rows if row.label is not None]
    uncovered = [row for row in rows if row.label is None]
    picked = [row for row in rows if row.decision.pick is not None]
    confident = [row for row in picked if (row.decision.confidence or 0.0) >= CONFIDENT]
    return {
        "right": share(sum(row.right for row in covered), len(covered)),
        "right_in_top_5": share(sum(row.in_top_5 for row in covered), len(covered)),
        "abstained_on_covered": share(sum(row.decision.pick is None for row in covered), len(covered)),
        "abstained_on_uncovered": share(sum(row.right for row in uncovered), len(uncovered)),
        "invalid_picks": share(sum(row.decision.fallback is not None for row in rows), len(rows)),
        "wrong_when_confident": share(sum(not row.right for row in confident), len(confident)),
        "trade_off": trade_off(rows),
        "expected_calibration_error": calibration_error(rows),
        "confusions": confusions(rows),
        "tokens": spread([row.decision.tokens for row in rows]),
        "ms": spread([row.decision.ms for row in rows]),
    }


def trade_off(rows: Sequence[Routed]) -> list[dict[str, Any]]:
    """What another score of NONE would do, from the recorded scores: for each of LOST, the most abstention for it.

    ``none_by``: what is added to NONE's score; ``lost``: covered questions that lose the right pick by it, of all that
    are covered, against a router without NONE; ``abstained_on_uncovered``. Empty where nothing can be lost or gained.
    """
    ahead = [(row, _ahead(row)) for row in rows if NONE in row.decision.scores]
    covered = [(row, by) for row, by in ahead if row.label is not None]
    uncovered = [by for row, by in ahead if row.label is None]
    won = sorted(by for row, by in covered if _first(row) == row.label)
    if not won or not uncovered:
        return []
    found = []
    for most in LOST:
        k = int(most * len(covered))
        shift = won[k] if k < len(won) else max(by for _, by in ahead) + 1.0
        found.append(
            {
                "none_by": shift,
                "lost": share(sum(by < shift for by in won), len(covered)),
                "abstained_on_uncovered": share(sum(by < shift for by in uncovered), len(uncovered)),
            }
        )
    return found


def _first(row: Routed) -> str | None:
    return next((label for label in row.decision.scores if label != NONE), None)


def _ahead(row: Routed) -> float:
    """By how much the best label is ahead of NONE."""
    scores = row.decision.scores
    first = _first(row)
    return float("-inf") if first is None else scores[first] - scores[NONE]


def calibration_error(rows: Sequence[Routed]) -> float | None:
    """Mean distance between confidence and accuracy over the bins; None where no confidence is given."""
    known = [(row.decision.confidence, row.right) for row in rows if row.decision.confidence is not None]
    if not known:
        return None
    bins: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in known:
        bins.setdefault(min(_BINS - 1, int(confidence * _BINS)), []).append((confidence, right))
    total = 0.0
    for members in bins.values():
        mean = sum(confidence for confidence, _ in members) / len(members)
        accuracy = sum(right for _, right in members) / len(members)
        total += abs(mean - accuracy) * len(members)
    return total / len(known)


def confusions(rows: Sequence[Routed], most: int = 10) -> list[dict[str, Any]]:
    """The commonest wrong pairs of label and pick."""
    pairs = Counter((row.label or NONE, row.decision.pick or NONE) for row in rows if not row.right)
    ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    return [{"label": label, "pick": pick, "n": n} for (label, pick), n in ranked[:most]]


def _library(label: str | None, candidates: Mapping[str, Candidate], size: int, seed: str) -> dict[str, Candidate]:
    others = sorted(name for name in candidates if name != label)
    n_others = size - (label is not None)
    chosen = random.Random(seed).sample(others, min(n_others, len(others)))
    names = chosen + ([label] if label is not None else [])
    return {name: candidates[name] for name in sorted(names)}


_VERBS = (
    "book", "compare", "convert", "translate", "schedule", "track", "summarise", "draw", "measure", "order", "repair",
    "label", "archive", "publish", "forecast", "rank", "merge", "audit", "teach", "simulate",
)  # fmt: skip
_THINGS = (
    "train tickets", "tax forms", "bird calls", "garden plans", "court rulings", "ship routes", "chess openings",
    "knitting patterns", "blood tests", "solar panels", "old maps", "wine cellars", "bus timetables", "patent claims",
    "sheet music", "river levels", "dog breeds", "parking permits", "star charts", "invoices", "crop yields",
    "museum tours", "cable drawings", "sewing machines", "radio channels",
)  # fmt: skip
_PLACES = (
    "for small offices", "in mountain towns", "for schools", "by postcode", "from photos", "for night shifts",
    "on request", "for collectors", "across borders", "with a calendar", "for beginners", "from spreadsheets",
)  # fmt: skip
