"""The figures of ``agentkv bench subsidy``: one record a length, with every time that was taken, in milliseconds.

Of ``disk_ms``: ``whole`` is a read with every hash and the native set; ``hashed``, ``decoded`` and ``placed`` do more
and more of it, so that their differences are what each step takes; ``native`` is the set alone; ``again`` a later read.
"""

from __future__ import annotations

import statistics
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.bench.report import told


@measured("subsidy")
def figures(raw: Raw) -> dict[str, Any]:
    """``lengths``: one row each."""
    return {"lengths": [_row(record) for record in raw.values()]}


def _row(record: dict[str, Any]) -> dict[str, Any]:
    cold, first = record["cold_prefill_ms"], statistics.median(record["first_token_ms"])
    ram, copy = told(record["restore_ram_ms"]), told(record["memcpy_ms"])
    disk = _disk(record["disk_ms"])
    deposit = record["deposit_ms"]
    return {
        "n": record["n"],
        "state_bytes": record["state_bytes"],
        "stored_bytes": record["stored_bytes"],
        "cold_prefill_ms": cold,
        "first_token_ms": first,
        "restore_ram_ms": ram,
        "memcpy_ms": copy,
        **({"clear_cache_ms": told(record["clear_cache_ms"])} if "clear_cache_ms" in record else {}),
        "restore_disk": disk,
        "subsidy_ram": (cold + first) / (ram["median"] + first),
        "subsidy_disk": (cold + first) / (disk["first_read_ms"] + first),
        "ram_share_of_memcpy": copy["median"] / ram["median"],
        "deposit_ms": deposit,
        "deposit_overhead": sum(deposit[stage] for stage in ("capture", "cut", "store")) / deposit["prefill"],
        "logits_equal": record["logits_sha256"]["read"] == record["logits_sha256"]["grafted"],
    }


def _disk(times: dict[str, list[float]]) -> dict[str, Any]:
    total = told(times["whole"])
    whole = total["median"]
    hashed, decoded, placed, native, again = (
        statistics.median(times[step]) for step in ("hashed", "decoded", "placed", "native", "again")
    )
    return {
        "first_read_ms": whole,
        "spread_ms": [total["min"], total["max"]],
        "verified_before_ms": again + native,
        "share": {
            "read + SHA-256": hashed / whole,
            "decompress": max(0.0, decoded - hashed) / whole,
            "place": max(0.0, placed - decoded) / whole,
            "native set": native / whole,
        },
    }
