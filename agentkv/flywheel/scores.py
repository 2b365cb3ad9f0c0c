"""The scorer of ``agentkv learn``'s runs: figures from recorded outcomes, with no model present."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agentkv.evidence.records import Item
from agentkv.evidence.scoring import scorer

LEARN = "flywheel learn"


def learned(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tasks by state, and what they cost."""
    return {
        "tasks": len(rows),
        "states": dict(sorted(Counter(row["state"] for row in rows).items())),
        "attempts": sum(row["attempts"] for row in rows),
        "tokens": sum(row["tokens"] for row in rows),
        "transferable": sum(bool(row["transferable"]) for row in rows),
    }


@scorer(LEARN, 1)
def _score(items: Sequence[Item]) -> dict[str, Any]:
    return learned([item.raw for item in items if item.key.startswith("outcome/")])
