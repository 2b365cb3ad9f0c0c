"""What a sync would cost, measured: two small deposits into a store that is thrown away.

A deposit takes a time and room of its own (the proof, the router's card) and some for each token. The first measured
deposit is next to empty and gives the one, the second is a block of the plan and gives the other. Knows plans; whose
memory it is measured with is the caller's. Not guaranteed: the seconds of long blocks, whose tokens each take longer
than those of the measured one, and of a machine that does other things later; bytes are closer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from agentkv.skills.library import Depositor
from agentkv.skills.manual import Manual
from agentkv.skills.pieces import SkillBlock
from agentkv.skills.report import Plan

ENOUGH = 256
"""Tokens of the block that is measured, if there is one of so many; else the longest is."""


@dataclass(frozen=True)
class Forecast:
    """What carrying out a plan takes: ``seconds``, and ``n_bytes`` on disk, by a measured block of ``measured`` tokens.

    ``n_tokens``: to be read, in ``n_blocks``, without proofs and cards.
    """

    n_blocks: int
    n_tokens: int
    seconds: float
    n_bytes: float
    measured: int


def forecast(plan: Plan, scratch: Depositor) -> Forecast | None:
    """Measure in the memory ``scratch``, whose store is thrown away; None if the plan reads nothing.

    Raises what a deposit raises.
    """
    pieces = [piece for work in plan.work for piece in work.missing]
    alone = sorted((piece for piece in pieces if piece.parent is None), key=lambda piece: piece.n_tokens)
    if not alone:
        return None
    sample = next((piece for piece in alone if piece.n_tokens >= ENOUGH), alone[-1])
    _measured(scratch, replace(sample.manual, name="a", text="a"))  # which reads the prefix, too
    own = _measured(scratch, replace(sample.manual, name="b", text="b"))
    whole = _measured(scratch, sample.manual)
    n_tokens = sum(piece.n_tokens for piece in pieces)
    seconds, n_bytes = (_scaled(o, w, sample, n_tokens, len(pieces)) for o, w in zip(own, whole, strict=True))
    return Forecast(len(pieces), n_tokens, seconds, n_bytes, sample.n_tokens)


def _scaled(own: float, whole: float, sample: SkillBlock, n_tokens: int, n_blocks: int) -> float:
    return own * n_blocks + max(0.0, whole - own) / max(sample.n_tokens, 1) * n_tokens


def _measured(scratch: Depositor, manual: Manual) -> tuple[float, float]:
    """Seconds, and bytes of segments and records, that depositing it takes."""
    before, start = _stored_bytes(scratch), time.perf_counter()
    scratch.deposit_skill(manual, allow_inexact=True)
    return time.perf_counter() - start, float(_stored_bytes(scratch) - before)


def _stored_bytes(scratch: Depositor) -> int:
    return sum(path.stat().st_size for path in scratch.store.root.rglob("*") if path.is_file())
