"""The exactness probe: a chain of greedy steps whose every logit byte goes into one SHA-256.

One step proves nothing: on sliding-window models the first step usually agrees and the divergence begins 2 to 40
steps later. Two probes that agree have seen identical float32 logits at each step.
"""

from __future__ import annotations

import hashlib

from agentkv.engine.base import Cancellation, Engine
from agentkv.io.hashing import sha256

PROBE_STEPS = 32


def greedy_hashes(engine: Engine, token: int, steps: int, cancellation: Cancellation | None = None) -> list[str]:
    """SHA-256 of the float32 logits after each of ``steps`` greedy steps, the first of which decodes ``token``."""
    hashes = []
    for _ in range(steps):
        logits = engine.extend([token], cancellation)
        hashes.append(sha256(logits.data))
        token = int(logits.argmax())
    return hashes


def chained(hashes: list[str]) -> str:
    """One SHA-256 over the steps' hashes, in order."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def first_difference(fresh: list[str], graft: list[str]) -> int | None:
    """The first step (from 1) at which two probes differ, None if they agree."""
    return next((i + 1 for i, (a, b) in enumerate(zip(fresh, graft, strict=True)) if a != b), None)
