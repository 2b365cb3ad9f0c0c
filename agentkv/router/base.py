"""What a classifier is: it picks one of the live labels or none of them, and says how it came to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

NONE = "none of these"
"""The label for "no skill fits". It holds spaces, which a skill's name cannot."""


@dataclass(frozen=True)
class Classification:
    """``raw_pick``: the unedited answer. ``scores``: nats by label, NONE at 0. ``tokens``: evaluated for it."""

    raw_pick: str
    scores: dict[str, float]
    tokens: int


class Classifier(Protocol):
    """Picks among ``candidates``, a mapping of live label to description."""

    name: str
    version: str

    def classify(self, question: str, candidates: Mapping[str, str]) -> Classification:
        """One decision; ``candidates`` may be empty. Never raises on account of what a model said."""
        ...
