"""Reciprocal rank fusion: several rankings of the same things in one, without comparing scores of unlike scales.

An item of one ranking alone has what it gets there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

CONSTANT = 60.0
"""The usual one: the sum of 1 / (this + rank) over the rankings, the first rank being 0."""


def ranked(scores: Mapping[T, float]) -> list[tuple[int, T]]:
    """Items with their ranks, the highest score first; equal ones share a rank and stay in their order.

    >>> ranked({"a": 0.1, "b": 0.7, "c": 0.7})
    [(0, 'b'), (0, 'c'), (2, 'a')]
    """
    found: list[tuple[int, T]] = []
    before = None
    for place, (item, score) in enumerate(sorted(scores.items(), key=lambda each: -each[1])):
        found.append((found[-1][0] if score == before else place, item))
        before = score
    return found


def reciprocal_rank_fusion(
    rankings: Iterable[tuple[float | Mapping[T, float], Iterable[tuple[int, T]]]], constant: float = CONSTANT
) -> list[tuple[T, float]]:
    """Items of several rankings by the sum of weight / (constant + rank), highest first.

    Each ranking is its weight, or one for each of its items, and its ranks with items. Of equals the one that came
    first stays first.

    >>> reciprocal_rank_fusion([(1, enumerate("ab")), ({"b": 2, "c": 0.5}, enumerate("bc"))], constant=1)
    [('b', 2.5), ('a', 1.0), ('c', 0.25)]
    """
    scores: dict[T, float] = {}
    for weight, ranking in rankings:
        for rank, item in ranking:
            of_item = weight[item] if isinstance(weight, Mapping) else weight
            scores[item] = scores.get(item, 0.0) + of_item / (constant + rank)
    return sorted(scores.items(), key=lambda each: -each[1])
