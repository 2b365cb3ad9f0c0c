"""The figures of ``agentkv bench size``: ratios and speeds from bytes and times.

``store``: the model, the store's default setting and the sliding window; ``shared_prefix`` and ``thread``: bytes;
``codecs/N``: bytes and milliseconds of each codec, the bound, other arrangements.
"""

from __future__ import annotations

import statistics
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import aim

MAX_SHARED, MAX_THREAD, MAX_OVER_BOUND = 1.05, 1.1, 1.03
AIMS_OF_RAW = {("gemma-3-270m", 3000): 0.30}


@measured("size")
def figures(raw: Raw) -> dict[str, Any]:
    """``shared_prefix``, ``thread``, ``codecs``, ``sliding_window`` and ``aims``."""
    parts = {"shared_prefix": shared_prefix, "thread": thread}
    found: dict[str, Any] = {name: part(raw[name]) for name, part in parts.items() if name in raw}
    found["codecs"] = [codecs(record) for key, record in raw.items() if key.startswith("codecs/")]
    found["sliding_window"] = raw["store"]["sliding_window"]
    return {**found, "aims": _aims(found, raw["store"])}


def shared_prefix(record: dict[str, Any]) -> dict[str, Any]:
    """Bytes of everything, and of all segments, over own rows + one prefix."""
    least = record["own_rows_bytes"] + record["prefix_bytes"]
    ratios = {"ratio": record["bytes"]["total"] / least, "ratio_segments": record["bytes"]["segments"] / least}
    return {**record, **ratios}


def thread(record: dict[str, Any]) -> dict[str, Any]:
    """Bytes of all checkpoints over those of the final state alone, and what the excess is made of."""
    here, there = record["bytes"], record["final_alone_bytes"]
    return {
        **record,
        "ratio": here["total"] / there["total"],
        "ratio_segments": here["segments"] / there["segments"],
        "excess": {
            "small_segments": (record["last_segments_bytes"] - record["one_block_segments_bytes"]) / there["total"],
            "superseded": record["superseded_bytes"] / there["total"],
            "manifests": (here["manifests"] - there["manifests"]) / there["total"],
            "other": (here["other"] - there["other"]) / there["total"],
        },
    }


def codecs(record: dict[str, Any]) -> dict[str, Any]:
    """Each codec's share of raw and of the bound, and its speeds in MB/s of raw state."""
    raw, live, bound = record["raw_bytes"], record["live_bytes"], record["bound_bytes"]
    rows = [{"codec": "raw", "bytes": raw, "of_raw": 1.0}, {"codec": "live rows", "bytes": live, "of_raw": live / raw}]
    for one in record["codecs"]:
        times = {key: statistics.median(one[key]) for key in ("encode_ms", "decode_ms")}
        rows.append(
            {
                **one,
                **times,
                "of_raw": one["bytes"] / raw,
                "over_bound": one["bytes"] / bound if bound else None,
                "encode_mb_s": raw / 1e3 / times["encode_ms"],
                "decode_mb_s": raw / 1e3 / times["decode_ms"],
            }
        )
    rows += [{"codec": "order-0 bound", "bytes": round(bound), "of_raw": bound / raw, "over_bound": 1.0}]
    return {
        "n": record["n"],
        "raw_bytes": raw,
        "raw_bytes_per_token": raw / record["n"],
        "segments": record["segments"],
        "codecs": rows,
        "variants": record["variants"],
    }


def _aims(found: dict[str, Any], store: dict[str, Any]) -> list[dict[str, Any]]:
    """What is aimed at and reported, with the value found."""
    aims = []
    for row in found["codecs"]:
        limit = AIMS_OF_RAW.get((store["model"], row["n"]))
        value = next((one["of_raw"] for one in row["codecs"] if one["codec"] == store["default"]), None)
        if limit is not None and value is not None:
            aims.append(aim(f"{row['n']:,} tokens, share of raw", value, limit))
    if "thread" in found and found["sliding_window"]:
        aims.append(aim("thread, share of its final state", found["thread"]["ratio"], MAX_THREAD))
    return aims
