"""What is told of a task: how it was routed, and what became of an attempt. Knows no benchmark."""

from __future__ import annotations

from typing import Any

from agentkv.flywheel.transfer import Transferred
from agentkv.records import Decision

_BEST = 4


def decided(decision: Decision) -> dict[str, Any]:
    """A decision, of whose scores only the best are kept."""
    best = dict(list(decision.scores.items())[:_BEST])
    return {"raw_pick": decision.raw_pick, "pick": decision.pick, "scores": best}


def outcome(done: Transferred | None) -> dict[str, Any]:
    """What became of an attempt; None where there was no block."""
    if done is None:
        return {"generated": None, "parameters": None, "answered": False, "answer": None, "reason": "no block"}
    return {
        "generated": None if done.turn is None else done.turn.text,
        "parameters": done.parameters,
        "answered": done.answered,
        "answer": done.answer,
        "reason": done.reason,
    }
