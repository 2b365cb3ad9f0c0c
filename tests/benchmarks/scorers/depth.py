"""The figures of ``depth``: are times flat over depth and over the store's size, is memory.

``point/WINDOWS/DEPTH`` has every time of a window, in milliseconds; ``memory`` the peaks of each process, in bytes.
"""

from __future__ import annotations

import statistics
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import aim

FLAT, MEMORY, PREFILLED = 1.3, 1.03, 60


@measured("depth")
def figures(raw: Raw) -> dict[str, Any]:
    """``points``, ``stores``, ``flat``, ``memory`` and aims."""
    points = [_point(record) for key, record in raw.items() if key.startswith("point/")]
    kinds = ["warm"] if any(point["cold_pages_left"] for point in points) else ["cold", "warm"]
    flat = {f"{kind} {stage}": _flat(points, kind, stage) for kind in kinds for stage in ("restore", "first", "both")}
    memory = _memory(raw.get("memory"))
    prefilled = max((point["prefilled"] for point in points), default=0)
    aims = [aim(name, one["max_of_median"], FLAT) for name, one in flat.items()]
    aims += [aim("memory of many windows, of one", memory["ratio"], MEMORY)] if memory else []
    aims += [aim("tokens prefilled", prefilled, PREFILLED)]
    return {
        "points": points,
        "stores": [_store(count, points, kinds) for count in raw["windows"]],
        "flat": flat,
        "cold": len(kinds) == 2,
        "memory": memory,
        "prefilled": prefilled,
        "aims": aims,
    }


def _point(record: dict[str, Any]) -> dict[str, Any]:
    ms = {}
    for kind, stages in record["ms"].items():
        both = [restore + first for restore, first in zip(stages["restore"], stages["first"], strict=True)]
        ms[kind] = {stage: statistics.median(times) for stage, times in {**stages, "both": both}.items()}
    kept = {
        name: record[name] for name in ("windows", "depth", "of", "tokens", "bytes", "prefilled", "cold_pages_left")
    }
    return {**kept, "find_ms": statistics.median(record["find"]), "ms": ms}


def _flat(points: list[dict[str, Any]], kind: str, stage: str) -> dict[str, float]:
    """The largest and the smallest median of all points, against the median of them."""
    medians = [point["ms"][kind][stage] for point in points]
    middle = statistics.median(medians)
    return {"median": middle, "max_of_median": max(medians) / middle, "min_of_median": min(medians) / middle}


def _store(count: int, points: list[dict[str, Any]], kinds: list[str]) -> dict[str, Any]:
    own = [point for point in points if point["windows"] == count]
    ms = {
        f"{kind} {stage}": statistics.median(point["ms"][kind][stage] for point in own)
        for kind in kinds
        for stage in ("restore", "first", "both")
    }
    depths = [point["depth"] for point in own]
    return {
        "windows": count,
        "points": len(own),
        "depths": [min(depths), max(depths)],
        "tokens": statistics.median(point["tokens"] for point in own),
        "find_ms": statistics.median(point["find_ms"] for point in own),
        "ms": ms,
    }


def _memory(record: dict[str, Any] | None) -> dict[str, Any] | None:
    if record is None:
        return None
    one, many = statistics.median(record["one"]), statistics.median(record["many"])
    return {"windows": record["windows"], "one_bytes": one, "many_bytes": many, "ratio": many / one}
