"""The figures of ``agentkv bench exactness``.

``length/N``: SHA-256 of every step's logits, fresh and grafted, and of the state as it was and as captured again; on
sliding-window models the control's two lists. ``sample/I``: SHA-256 of the reference's logits, and for each variant
SHA-256, KL against the reference in nats, and whether the largest logit is another. KL is recorded, not computed again:
that needs all logits.
"""

from __future__ import annotations

import statistics
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import quantile

_NONE = {"n": 0, "kl_median": 0.0, "kl_p99": 0.0, "kl_max": 0.0, "argmax_flips": 0, "equal": 0}


@measured("exactness")
def figures(raw: Raw) -> dict[str, Any]:
    """``lengths``: steps that are equal; ``samples``: by variant."""
    lengths = [_length(record) for key, record in raw.items() if key.startswith("length/")]
    samples = [record for key, record in raw.items() if key.startswith("sample/")]
    names = sorted(samples[0]["variants"], key=_place) if samples else []
    return {"lengths": lengths, "samples": {name: _sample(name, samples) for name in names} or {"0": dict(_NONE)}}


def _length(record: dict[str, Any]) -> dict[str, Any]:
    fresh, graft, control = record["fresh"], record["graft"], record["control"]
    unequal = [step for step, pair in enumerate(zip(fresh, graft, strict=True), 1) if pair[0] != pair[1]]
    return {
        "n": record["n"],
        "equal_steps": len(fresh) - len(unequal),
        "first_difference": unequal[0] if unequal else None,
        "recaptured_equal": record["state_sha256"] == record["recaptured_sha256"],
        "control_equal_steps": None if control is None else sum(a == b for a, b in zip(*control, strict=True)),
    }


def _place(name: str) -> tuple[bool, int, str]:
    """Readings first, then distances by size."""
    return name.isdigit(), int(name) if name.isdigit() else 0, name


def _sample(name: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    found = [sample["variants"][name] for sample in samples]
    divergences = [one["kl"] for one in found]
    return {
        "n": len(found),
        "kl_median": statistics.median(divergences),
        "kl_p99": quantile(divergences, 0.99),
        "kl_max": max(divergences),
        "argmax_flips": sum(one["flipped"] for one in found),
        "equal": sum(one["sha256"] == sample["sha256"] for one, sample in zip(found, samples, strict=True)),
    }
