"""The figures of ``reread``: one record a window size, times in milliseconds to the first token."""

from __future__ import annotations

import statistics
from typing import Any

from agentkv.bench.base import Timing
from agentkv.bench.measured import Raw, measured


@measured("reread")
def figures(raw: Raw) -> dict[str, Any]:
    """``sizes``: one row each; ``growth``: the largest size's time over the smallest's, of each way."""
    rows = [_row(record) for record in raw.values()]
    first, last = rows[0], rows[-1]
    ways = [way for way in ("reread", "warm", "cold") if first[way] and last[way]]
    return {
        "sizes": rows,
        "range": last["tokens"] / first["tokens"],
        "growth": {way: last[way]["median"] / first[way]["median"] for way in ways},
    }


def _row(record: dict[str, Any]) -> dict[str, Any]:
    reread = statistics.median(record["reread_ms"])
    ways = {way: record[f"{way}_ms"] for way in ("warm", "cold")}
    return {
        "window": record["window"],
        "tokens": record["tokens"],
        "windows": record["windows"],
        "stored_bytes": record["stored_bytes"],
        "reread": Timing.of(record["reread_ms"]).model_dump(),
        **{way: Timing.of(times).model_dump() if times else None for way, times in ways.items()},
        "ratio": {way: reread / statistics.median(times) for way, times in ways.items() if times},
        "logits_equal": all(len(set(digests.values())) == 1 for digests in record["logits_sha256"]),
        "pages_left": record["pages_left"],
    }
