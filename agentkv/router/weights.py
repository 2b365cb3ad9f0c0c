"""What a router has learned: one weight a feature, fitted on labelled questions.

The model is a conditional logit: a candidate's score is the weighted sum of its features, its probability the softmax
over the candidates and NONE, whose score is the weight ``none``. With seven weights a few dozen questions suffice. The
fit is Newton's method on a convex function, so it is the same on every run; the result is JSON. The weight of NONE is
not left to the likelihood, which would set it by how many of the questions happen to fit no candidate: it is the
highest that costs no more than a share of those that do (:func:`none_losing`). So it takes no question that none fits,
and a router that was taught without any says none as willingly as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentkv.records import Record

FEATURES = ("channel", "fits", "card", "text", "asked", "meaning")
"""In the order of a feature row: log P(question | card) - log P(question) in nats a token; log P(yes) - log P(no) in
nats, when the model is asked after the question whether the skill fits; cosine of words with name and description
where there is no text, with the whole text where there is one; the largest with a question that is labelled so; the
embedder's cosine with the centre of card and labelled questions (0 without an embedder)."""

LOSE = 0.03
"""The share of questions that may lose the right candidate so that others, which none fits, get none."""

_SPREAD = (2.0, 0.5, 10.0, 10.0, 10.0, 10.0, 2.0)
"""How far a weight (NONE's last) may be expected to lie from its start: cosines count in tenths, nats in ones."""

_STEPS = 50
_TINY = 1e-9
_MARGIN = 0.1

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
    none: float
    fitted_on: int = 0

    def scores(self, rows: Rows) -> list[float]:
        """Scores of candidates, shape (n, 6) in the order of FEATURES."""
        found: list[float] = (rows @ self.vector).tolist()
        return found

    @property
    def vector(self) -> NDArray[np.float64]:
        """The weights of FEATURES, in their order; NONE's is not among them."""
        return np.array([getattr(self, name) for name in FEATURES])


def probability(scores: Sequence[float], index: int) -> float:
    """The softmax's share of ``scores[index]``."""
    wide = np.asarray(scores, np.float64)
    powers = np.exp(wide - wide.max())
    return float(powers[index] / powers.sum())


Examples = Sequence[tuple[Rows, int | None]]
"""Questions as feature rows, shape (n, 6), with the index of the right one, None for none of them."""


def fit(examples: Examples, start: Weights) -> Weights:
    """Weights that make the right candidates likeliest.

    A normal prior around ``start`` keeps few questions from changing much. No similarity may count against a candidate:
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


def none_losing(examples: Examples, weights: Weights, share: float = LOSE) -> float:
    """The highest score of NONE with which at most ``share`` of the questions lose a candidate that is rightly picked.

    Where that is less than one question, too few to tell, the weight of NONE as it is, or less if that loses one.
    """
    covered = [(weights.scores(rows), right) for rows, right in examples if right is not None and len(rows)]
    won = sorted(scores[right] for scores, right in covered if max(scores) == scores[right])
    lost = int(share * len(covered))
    if not won:
        return weights.none
    if lost == 0:
        return min(weights.none, won[0] - _MARGIN)
    return (won[lost - 1] + won[lost]) / 2 if lost < len(won) else won[-1] + _MARGIN


def taught(examples: Examples, start: Weights, share: float = LOSE) -> Weights:
    """Weights that make the right candidates likeliest, and NONE's by :func:`none_losing`."""
    return _with_none(examples, fit(examples, start).model_copy(update={"none": start.none}), share)


def _with_none(examples: Examples, weights: Weights, share: float) -> Weights:
    return weights.model_copy(update={"none": round(none_losing(examples, weights, share), 6)})


def held_out(examples: Examples, start: Weights, share: float = LOSE, folds: int = 5) -> tuple[int, int]:
    """How many examples ``start`` gets right, and how many weights that were taught by the other folds.

    NONE's weight comes from the other folds in both, so that it is the rest that is compared.
    """
    before = after = 0
    for fold in range(folds):
        others = [example for index, example in enumerate(examples) if index % folds != fold]
        same, weights = (_with_none(others, start, share), taught(others, start, share)) if others else (start, start)
        before += sum(_is_right(rows, right, same) for rows, right in examples[fold::folds])
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


# --- weights of a router that has learned nothing yet ----------------------------------------------

_QWEN_CODER = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"

NARROWING = Weights(channel=0.0, card=6.0, text=20.0, asked=6.0, none=0.0)
NARROWING_BY_EMBEDDING = Weights(channel=0.0, card=4.0, text=28.0, asked=2.0, meaning=24.0, none=0.0)
"""What words and meaning say alone, without and with an embedder, in nats. Fitted on the same questions, but words of
cards alone: fitted, they (20) put aside what they know nothing of, 62 of 144 right in place of 74."""

_PRUNE_RATIO = 0.1
_PRUNE_RATIO_OF_MODEL = {_QWEN_CODER: 0.02}

_PLAIN = Weights(channel=3.8, card=8.0, text=30.0, asked=4.0, none=0.25)
_WITH_EMBEDDER = Weights(channel=2.6, card=0.0, text=36.0, asked=2.0, meaning=17.0, none=3.5)
_OF_MODEL = {
    (_QWEN_CODER, False): Weights(channel=4.0, fits=1.25, card=6.0, text=36.0, asked=4.0, none=1.0),
    (_QWEN_CODER, True): Weights(channel=3.5, fits=1.25, card=4.0, text=38.0, asked=2.0, meaning=10.0, none=3.25),
}


def default_prune_ratio(model_sha256: str) -> float:
    """What a model reads: candidates that are, by words and meaning, at least so many times as likely as the likeliest.

    The word of a better model overrules more. Of five, smollm2-135m reads 3.3 on the questions above, with 89 of 144
    before NONE (88 if it reads all, 90 at 0.2); qwen2.5-coder-1.5b of four 3.5, with 63 of 72 (all: 63, at 0.1: 59).
    """
    return _PRUNE_RATIO_OF_MODEL.get(model_sha256, _PRUNE_RATIO)


def default_weights(model_sha256: str, with_embedder: bool) -> Weights:
    """For a model, by the SHA-256 of its file, and for a router with or without an embedder."""
    return _OF_MODEL.get((model_sha256, with_embedder)) or (_WITH_EMBEDDER if with_embedder else _PLAIN)
