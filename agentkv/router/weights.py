"""What a router has learned: one weight a feature, fitted on labelled questions.

The model is a conditional logit: a candidate's score is the weighted sum of its features, its probability the softmax
over the candidates and NONE, whose score is the weight ``none``. With eight weights a few dozen questions suffice. The
fit is Newton's method on a convex function, so it is the same on every run; the result is JSON. Refuses to know where
features come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentkv.records import Record

FEATURES = ("channel", "fits", "card", "text", "asked", "meaning", "asked_meaning")
"""In the order of a feature row: log P(question | card) - log P(question) in nats a token; log P(yes) - log P(no) in
nats, when the model is asked behind the question whether the skill fits; cosine of words with name and description
where there is no text, with the whole text where there is one; the largest with a question that is labelled so; the
embedder's cosine with name and description; its largest with a question that is labelled so (both 0 without one)."""

_SPREAD = (2.0, 0.5, 10.0, 10.0, 10.0, 10.0, 10.0, 2.0)
"""How far a weight (NONE's last) may be expected to lie from its start: cosines count in tenths, nats in ones."""

_STEPS = 50
_TINY = 1e-9

Rows = NDArray[np.float64]


class Weights(Record):
    """One weight for each of FEATURES, and the score of NONE. ``fitted_on``: labelled questions; 0: set by hand."""

    format: Literal[1] = 1
    channel: float
    fits: float = 0.0
    card: float
    text: float
    asked: float
    meaning: float = 0.0
    asked_meaning: float = 0.0
    none: float
    fitted_on: int = 0

    def scores(self, rows: Rows) -> list[float]:
        """Scores of candidates, shape (n, 7) in the order of FEATURES."""
        vector = np.array([getattr(self, name) for name in FEATURES])
        found: list[float] = (rows @ vector).tolist()
        return found


def probability(scores: Sequence[float], index: int) -> float:
    """The softmax's share of ``scores[index]``."""
    wide = np.asarray(scores, np.float64)
    powers = np.exp(wide - wide.max())
    return float(powers[index] / powers.sum())


Examples = Sequence[tuple[Rows, int | None]]
"""Questions as feature rows, shape (n, 7), with the index of the right one, None for none of them."""


def fit(examples: Examples, start: Weights) -> Weights:
    """Weights that make the right candidates likeliest.

    A normal prior around ``start`` keeps few questions from changing much. No likeness may count against a candidate:
    a feature whose weight would be negative is left out.
    """
    out: frozenset[int] = frozenset()
    while True:
        weights = _newton(examples, start, out)
        negative = frozenset(index for index in range(len(FEATURES)) if weights[index] < 0)
        if not negative:
            break
        out |= negative
    values = zip((*FEATURES, "none"), (round(float(value), 6) for value in weights), strict=True)
    return Weights.model_validate({**dict(values), "fitted_on": len(examples)})


def held_out(examples: Examples, start: Weights, folds: int = 5) -> tuple[int, int]:
    """How many examples ``start`` gets right, and how many weights that were fitted on the other folds."""
    before = sum(_is_right(rows, right, start) for rows, right in examples)
    after = 0
    for fold in range(folds):
        others = [example for index, example in enumerate(examples) if index % folds != fold]
        weights = fit(others, start) if others else start
        after += sum(_is_right(rows, right, weights) for rows, right in examples[fold::folds])
    return before, after


def _is_right(rows: Rows, right: int | None, weights: Weights) -> bool:
    scores = [*weights.scores(rows), weights.none]
    return int(np.argmax(scores)) == (len(rows) if right is None else right)


def _newton(examples: Examples, start: Weights, out: frozenset[int]) -> NDArray[np.float64]:
    """The weights, NONE's last; those of the features ``out`` are 0."""
    designs = [_design(rows) for rows, _ in examples]
    right = [len(rows) if index is None else index for rows, index in examples]
    centre = np.array([*(getattr(start, name) for name in FEATURES), start.none])
    ridge = np.array(_SPREAD) ** -2
    weights = centre.copy()
    fixed = sorted(out)
    weights[fixed] = 0.0
    for _ in range(_STEPS):
        gradient, hessian = ridge * (weights - centre), np.diag(ridge)
        for design, index in zip(designs, right, strict=True):
            scores = design @ weights
            powers = np.exp(scores - scores.max())
            shares = powers / powers.sum()
            mean = shares @ design
            gradient += mean - design[index]
            hessian += (design * shares[:, None]).T @ design - np.outer(mean, mean)
        gradient[fixed] = 0.0
        hessian[fixed, :] = hessian[:, fixed] = 0.0
        hessian[fixed, fixed] = 1.0
        step = np.linalg.solve(hessian, gradient)
        weights -= step / max(1.0, float(np.abs(step).max()) / 5.0)
        if float(np.abs(step).max()) < _TINY:
            break
    return weights


def _design(rows: Rows) -> Rows:
    """The rows with a column for NONE, which is its own last row."""
    design = np.zeros((len(rows) + 1, len(FEATURES) + 1))
    design[:-1, :-1] = rows
    design[-1, -1] = 1.0
    return design
