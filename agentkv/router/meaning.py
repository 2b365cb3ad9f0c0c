"""``MeaningClassifier``: the label nearest in meaning, by an embedder alone; a router that asks no language model."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.likeness import COLUMN_OF_MEANING, Likeness
from agentkv.router.vectors import Vectors


class MeaningClassifier:
    """The label whose card is nearest, if it is nearer than ``margin`` (a cosine). Costs no tokens of a model."""

    version = "1"

    def __init__(self, vectors: Vectors, margin: float = 0.25) -> None:
        self._vectors, self._margin = vectors, margin
        self.name = f"meaning+{vectors.embedder.name}"
        self._of: tuple[Mapping[str, Candidate] | None, Likeness] = (None, Likeness({}, {}, vectors))

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are cosines."""
        if candidates is not self._of[0] and candidates != self._of[0]:
            self._of = (candidates, Likeness(candidates, {}, self._vectors))
        likeness = self._of[1]
        cosines = likeness.of(question)[:, COLUMN_OF_MEANING].tolist()
        scores = {**dict(zip(likeness.labels, cosines, strict=True)), NONE: self._margin}
        ranked = dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        return Classification(next(iter(ranked)), ranked, 0)
