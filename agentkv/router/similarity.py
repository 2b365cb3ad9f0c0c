"""Lexical and embedding similarity of a question with each candidate; no language model is asked.

Lexical: cosines of character n-grams (``lexical.py``) with the whole text where there is one, else with the card, and
with the labelled questions. A text shares some of its n-grams with any question; that much is taken off. With texts
the whole question is compared, what stands in none of them too: where manuals are long that is little of a question
that one of them answers (6 % of its vector's length on the skills here) and more of others (34 %); where they are a
line each, it is most of what has nothing to do with them. English stop words are left out of the question then: in a
few lines "what is the" is as rare as any other word. Embedding:
an embedder's cosine with the candidate's centre, which lies between its card and the mean of its labelled questions.
The centre was measured against the nearest labelled question, on the questions in ``bench/data/routing``: with three a
tool and no model it routes 92 of 144 that were kept out, the nearest one 91, neither 73; with smollm2-135m, of 144 that
its weights were fitted on, 102, 97 and 91. A card is embedded twice, with its name and without, and the two are
averaged: a name helps where it says something, and misleads where it is a brand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agentkv.router.base import Candidate
from agentkv.router.lexical import LexicalIndex
from agentkv.router.vectors import Vectors
from agentkv.text import STOP_WORDS, stream

COLUMNS = 4
"""Of :meth:`Similarity.of`: card, text, asked, meaning, as in ``weights.FEATURES[2:]``."""

BACKGROUND = 0.08
"""Cosine of the n-grams of a question and the likeliest of some manuals that have nothing in common with it. Medians of
single ones are 0.03 to 0.07; with 0.08 one weight of NONE suits candidates with a text and those without."""


class Similarity:
    """The indices of one library, each made when it is first asked. ``labelled``: questions by their label.

    ``whole``: compare all of a question but its stop words with texts; else what stands in one of them.
    """

    def __init__(
        self,
        candidates: Mapping[str, Candidate],
        labelled: Mapping[str, Sequence[str]],
        vectors: Vectors | None,
        *,
        whole: bool = True,
    ) -> None:
        self.labels, self._whole = tuple(candidates), whole
        self._candidates, self._vectors = candidates, vectors
        self._has_text = np.array([bool(known.text) for known in candidates.values()], bool)
        pairs = [(row, asked) for row, label in enumerate(candidates) for asked in labelled.get(label, ())]
        self._asked = [question for _, question in pairs]
        self._asked_rows = np.array([row for row, _ in pairs], np.intp)

    def of(self, question: str, leave_one_out: bool = False) -> NDArray[np.float64]:
        """Shape (labels, COLUMNS). ``leave_one_out``: as if this very question were not among the labelled ones."""
        rows = np.zeros((len(self.labels), COLUMNS))
        if not self.labels:
            return rows
        if not self._has_text.all():
            rows[:, 0] = np.where(self._has_text, 0.0, _cosines(self._cards, question))
        if self._has_text.any():
            alike = _cosines(self._texts, _content(question) if self._whole else question, whole=self._whole)
            rows[:, 1] = np.where(self._has_text, alike - BACKGROUND, 0.0)
        rows[:, 2] = self._nearest(question, _cosines(self._asked_words, question), leave_one_out)
        if self._vectors is not None:
            rows[:, 3] = self.meaning(question, leave_one_out)
        return rows

    def meaning(self, question: str, leave_one_out: bool = False) -> NDArray[np.float32]:
        """The embedder's cosines with the centres, shape (labels,); there has to be an embedder."""
        assert self._vectors is not None
        kept = self._others(question, leave_one_out)
        centres = self._centres if len(kept) == len(self._asked) else self._centres_of(kept)
        cosines: NDArray[np.float32] = centres @ self._vectors.embedder.embed([question])[0]
        return cosines

    # --- the indices ---

    @cached_property
    def _cards(self) -> LexicalIndex:
        return LexicalIndex({label: f"{label} {known.description}" for label, known in self._candidates.items()})

    @cached_property
    def _texts(self) -> LexicalIndex:
        return LexicalIndex({label: known.words(label) for label, known in self._candidates.items()})

    @cached_property
    def _asked_words(self) -> LexicalIndex:
        return LexicalIndex({f"{index}": question for index, question in enumerate(self._asked)})

    @cached_property
    def _embedded(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors of the cards and of the labelled questions, made in one go."""
        assert self._vectors is not None
        n = len(self.labels)
        named = [f"{label}: {known.description}" for label, known in self._candidates.items()]
        described = [known.description or label for label, known in self._candidates.items()]
        made = self._vectors.of([*named, *described, *self._asked])
        return np.asarray((made[:n] + made[n : 2 * n]) / 2, np.float32), made[2 * n :]

    @cached_property
    def _centres(self) -> NDArray[np.float32]:
        return self._centres_of(list(range(len(self._asked))))

    def _centres_of(self, kept: list[int]) -> NDArray[np.float32]:
        """By candidate, the unit vector of its card plus the mean of these labelled questions that are its own."""
        cards, asked = self._embedded
        totals = np.zeros_like(cards)
        np.add.at(totals, self._asked_rows[kept], asked[kept])
        counts = np.bincount(self._asked_rows[kept], minlength=len(cards))[:, None]
        centres = cards + totals / np.maximum(counts, 1).astype(np.float32)
        lengths = np.linalg.norm(centres, axis=1, keepdims=True)
        units: NDArray[np.float32] = np.divide(centres, lengths, out=np.zeros_like(centres), where=lengths > 0)
        return units

    def _others(self, question: str, leave_one_out: bool) -> list[int]:
        """The labelled questions, with ``leave_one_out`` without this very one."""
        return [index for index, asked in enumerate(self._asked) if not (leave_one_out and asked == question)]

    def _nearest(self, question: str, cosines: NDArray[np.float64], leave_one_out: bool) -> NDArray[np.float64]:
        """By candidate, the largest cosine with one of its labelled questions; 0 without one."""
        nearest = np.zeros(len(self.labels))
        kept = self._others(question, leave_one_out)
        np.maximum.at(nearest, self._asked_rows[kept], cosines[kept])
        return nearest


class Library:
    """The similarity of whatever candidates it is asked for, made again when one of them has changed."""

    def __init__(self, labelled: Mapping[str, Sequence[str]], vectors: Vectors | None, *, whole: bool = True) -> None:
        self._labelled, self._vectors, self._whole = labelled, vectors, whole
        self._candidates: Mapping[str, Candidate] = {}
        self._similarity = Similarity({}, labelled, vectors)

    def of(self, candidates: Mapping[str, Candidate]) -> Similarity:
        """Of these; its labels may stand in another order."""
        if candidates is not self._candidates and candidates != self._candidates:
            self._candidates = candidates
            self._similarity = Similarity(candidates, self._labelled, self._vectors, whole=self._whole)
        return self._similarity


def _content(question: str) -> str:
    """The words of a question but the stop words; all where there is nothing else."""
    spoken = stream(question)
    return " ".join([word for word in spoken if word not in STOP_WORDS] or spoken)


def _cosines(index: LexicalIndex, question: str, *, whole: bool = False) -> NDArray[np.float64]:
    return np.array(list(index.similarity(question, whole=whole).values()), np.float64)
