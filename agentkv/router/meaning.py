"""``MeaningClassifier``: the label nearest in meaning, by an embedder alone; a router that asks no language model."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.likeness import Library
from agentkv.router.vectors import Vectors


class MeaningClassifier:
    """The label whose card is nearest, if it is nearer than ``margin`` (a cosine). Costs no tokens of a model."""

    version = "1"

    def __init__(self, vectors: Vectors, margin: float = 0.25) -> None:
        self.name = f"meaning+{vectors.embedder.name}"
        self._margin, self._library = margin, Library({}, vectors)

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are cosines."""
        likeness = self._library.of(candidates)
        cosines = likeness.meaning(question).tolist() if candidates else []
        return Classification.best({**dict(zip(likeness.labels, cosines, strict=True)), NONE: self._margin})
