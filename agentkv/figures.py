"""Small statistics that every figure is reported with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson 95 % interval of a proportion; (0, 1) for no trials."""
    if n == 0:
        return 0.0, 1.0
    p, denominator = successes / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / denominator
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / denominator
    return max(0.0, centre - half), min(1.0, centre + half)


def share(successes: int, n: int) -> dict[str, Any]:
    """k of n with the Wilson 95 % interval; the share is None for no trials."""
    low, high = wilson(successes, n)
    return {"k": successes, "n": n, "share": successes / n if n else None, "wilson_95": [low, high]}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum; zeros for no values."""
    if not values:
        return {"median": 0.0, "min": 0.0, "max": 0.0}
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def quantile(values: Sequence[float], q: float) -> float:
    """The value at or below which a share ``q`` of ``values`` lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def aim(name: str, value: float, limit: float, *, least: bool = False) -> dict[str, Any]:
    """A target that is only reported: a value of at most ``limit``, or of at least it if ``least``."""
    return {"aim": name, "limit": limit, "value": value, "met": value >= limit if least else value <= limit}
