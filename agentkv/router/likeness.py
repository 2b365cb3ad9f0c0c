"""How alike a question and each candidate are, in words and in meaning; no language model is asked.

Words: cosines of character n-grams (``lexical.py``) with the whole text where there is one, else with the card, and
with the labelled questions. A text shares some of its n-grams with any question; that much is taken off. Meaning:
an embedder's cosines with the card and the labelled questions. A card is embedded twice, with its name and without, and
the two are averaged: a name helps where it says something, and misleads where it is a brand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agentkv.router.base import Candidate
from agentkv.router.lexical import LexicalIndex
from agentkv.router.vectors import Vectors

COLUMNS = 5
"""Of :meth:`Likeness.of`: card, text, asked, meaning, asked_meaning, as in ``weights.FEATURES[2:]``."""


COLUMN_OF_MEANING = 3

BACKGROUND = 0.05
"""Cosine of the n-grams of a question and a manual that have nothing in common; seen: medians 0.03 to 0.07."""


class Likeness:
    """The indices of one library. ``labelled``: questions by the label that they belong to."""

    def __init__(
        self, candidates: Mapping[str, Candidate], labelled: Mapping[str, Sequence[str]], vectors: Vectors | None
    ) -> None:
        self.labels = tuple(candidates)
        self._n = len(candidates)
        self._cards = LexicalIndex({label: f"{label} {known.description}" for label, known in candidates.items()})
        self._has_text = np.array([bool(known.text) for known in candidates.values()], bool)
        self._texts = LexicalIndex({label: known.words(label) for label, known in candidates.items()})
        pairs = [(row, asked) for row, label in enumerate(candidates) for asked in labelled.get(label, ())]
        self._asked = [question for _, question in pairs]
        self._asked_rows = np.array([row for row, _ in pairs], np.intp)
        self._asked_words = LexicalIndex({f"{index}": question for index, question in enumerate(self._asked)})
        self._vectors = vectors
        if vectors is not None:
            named = [f"{label}: {known.description}" for label, known in candidates.items()]
            described = [known.description or label for label, known in candidates.items()]
            made = vectors.of([*named, *described, *self._asked])
            self._card_vectors = (made[: self._n] + made[self._n : 2 * self._n]) / 2
            self._asked_vectors = made[2 * self._n :]

    def of(self, question: str, aside: bool = False) -> NDArray[np.float64]:
        """Shape (labels, COLUMNS). ``aside``: as if this very question were not among the labelled ones."""
        rows = np.zeros((self._n, COLUMNS))
        if not self._n:
            return rows
        rows[:, 0] = np.where(self._has_text, 0.0, list(self._cards.similarity(question).values()))
        texts = np.array(list(self._texts.similarity(question).values()))
        rows[:, 1] = np.where(self._has_text, texts - BACKGROUND, 0.0)
        rows[:, 2] = self._nearest(question, list(self._asked_words.similarity(question).values()), aside)
        if self._vectors is not None:
            vector = self._vectors.embedder.embed([question])[0]
            rows[:, 3] = self._card_vectors @ vector
            rows[:, 4] = self._nearest(question, self._asked_vectors @ vector, aside)
        return rows

    def _nearest(
        self, question: str, likeness: Sequence[float] | NDArray[np.float32], aside: bool
    ) -> NDArray[np.float64]:
        """By candidate, the largest likeness with one of its labelled questions; 0 without one."""
        nearest = np.zeros(self._n)
        kept = [index for index, asked in enumerate(self._asked) if not (aside and asked == question)]
        np.maximum.at(nearest, self._asked_rows[kept], np.asarray(likeness, np.float64)[kept])
        return nearest
