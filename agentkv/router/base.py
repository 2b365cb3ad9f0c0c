"""What a classifier is: it picks one of the live labels or none of them, and says how it came to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

NONE = "none of these"
"""The label for "no skill fits"; a skill or text of this name is refused at deposit."""


@dataclass(frozen=True)
class Candidate:
    """What is known of a live label: its description, and the text that its block was made from."""

    description: str
    text: str = ""

    def words(self, label: str) -> str:
        """All that is known of it under its label, for lexical similarity."""
        return f"{label} {self.description} {self.text}"


@dataclass(frozen=True)
class Classification:
    """``raw_pick``: the unedited answer. ``scores``: by label, NONE among them, best first, in the classifier's unit.

    ``tokens``: evaluated for it. ``confidence``: its probability of being right, 0 to 1, if the classifier is
    calibrated.
    """

    raw_pick: str
    scores: dict[str, float]
    tokens: int
    confidence: float | None = None

    @classmethod
    def best(cls, scores: Mapping[str, float], tokens: int = 0) -> Classification:
        """The pick with the largest score, the first by label on a tie."""
        ranked = dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        return cls(next(iter(ranked)), ranked, tokens)


class Classifier(Protocol):
    """Picks among ``candidates``, a mapping of live label to what is known of it."""

    name: str
    version: str

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """One decision; ``candidates`` may be empty. Never raises on account of what a model said."""
        ...
