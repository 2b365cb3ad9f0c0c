"""The figures of ``compose``: a record a sample, each variant's digest and distance."""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import share, spread


@measured("compose")
def figures(raw: Raw) -> dict[str, Any]:
    """``variants``: of each how many samples are equal to one prefill, the KL divergence in nats, argmax flips."""
    names = list(dict.fromkeys(name for record in raw.values() for name in record["variants"]))
    return {"variants": {name: _variant(raw, name) for name in names}}


def _variant(raw: Raw, name: str) -> dict[str, Any]:
    rows = [(record["sha256"], record["variants"][name]) for record in raw.values()]
    kls = [row["kl"] for _, row in rows]
    return {
        "equal": share(sum(row["sha256"] == digest for digest, row in rows), len(rows)),
        "kl": {**spread(kls), "mean": sum(kls) / len(kls)},
        "flips": share(sum(row["flipped"] for _, row in rows), len(rows)),
    }
