"""The figures of ``widen``: how much is stored, how fast it was read, and against which windows.

``corpus``, ``store`` and ``sitting/NNN`` are as the benchmark kept them; rates are of tokens of the documents alone.
"""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import aim

PAPER = {"tokens": 2_854_766, "blocks": 88, "ratio": 87.1, "bytes": 40.6e9, "window": 32_768}
"""arXiv 2607.14431: with a serving window of 32,768 tokens."""


@measured("widen")
def figures(raw: Raw) -> dict[str, Any]:
    """``blocks``, ``tokens``, ``bytes``, ``ratio`` and the rates."""
    corpus, store = raw["corpus"], raw["store"]
    sittings = [_sitting(key, record) for key, record in raw.items() if key.startswith("sitting/")]
    seconds = sum(row["seconds"] for row in sittings)
    total = sum(store["bytes"].values())
    tokens = store["own_tokens"]
    return {
        "corpus": corpus,
        "blocks": store["blocks"],
        "levels": store["levels"],
        "tokens": tokens,
        "tokens_with_headers": store["tokens"],
        "complete": store["blocks"] == corpus["windows"],
        "bytes": total,
        "bytes_by_folder": store["bytes"],
        "bytes_a_token": total / tokens if tokens else None,
        "bytes_of_raw": total / store["raw_bytes"] if store["raw_bytes"] else None,
        "ratio": {"trained window": tokens / corpus["train_window"], "serving window": tokens / corpus["context"]},
        "sittings": sittings,
        "seconds": seconds,
        "tokens_a_second": sum(row["own_tokens"] for row in sittings) / seconds if seconds else None,
        "prefill_share": _share(sittings, seconds),
        "reproved": store["reproved"],
        "paper": PAPER,
        "aims": [
            aim("tokens", tokens, PAPER["tokens"], least=True),
            aim("trained windows", tokens / corpus["train_window"], PAPER["ratio"], least=True),
        ],
    }


def _sitting(key: str, record: dict[str, Any]) -> dict[str, Any]:
    seconds = record["seconds"]
    return {
        "sitting": key.partition("/")[2],
        **{name: record[name] for name in ("started", "ended", "windows", "own_tokens", "seconds")},
        "tokens_a_second": record["own_tokens"] / seconds if seconds else None,
        "prefill_share": record["engine_seconds"]["prefill"] / seconds if seconds else None,
        "probe_share": record["engine_seconds"]["steps"] / seconds if seconds else None,
        "prefill_tokens_a_second": _rate(record),
    }


def _rate(record: dict[str, Any]) -> float | None:
    seconds = record["engine_seconds"]["prefill"]
    return record["engine_tokens"]["prefill"] / seconds if seconds else None


def _share(sittings: list[dict[str, Any]], seconds: float) -> float | None:
    if not seconds:
        return None
    return float(sum((row["prefill_share"] or 0.0) * row["seconds"] for row in sittings) / seconds)
