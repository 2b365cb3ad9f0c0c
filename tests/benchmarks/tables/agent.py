"""An agent's conversation, beside what people use today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkv.bench.base import markdown
from agentkv.bench.results import Result
from tests.benchmarks.tables.base import duration


def agent(results: Sequence[Result]) -> str:
    """The conversation: a row a model and arm; arms that were skipped are left out."""
    rows = []
    for one in results:
        if one.data["settings"]["part"] != "conversation":
            continue
        for name, arm in one.data["arms"].items():
            if "skipped" not in arm:
                rows.append([one.model, *_agent_row(arm, one.data["against"].get(name))])
    headings = ("model", "arm", "tokens read a turn", "first token", "after the kill: tokens read", "first token")
    rest = ("whole conversation", "reading before it", "its time / agentkv's", "answers as agentkv's")
    return markdown((*headings, *rest), rows)


def _agent_row(arm: dict[str, Any], against: dict[str, Any] | None) -> list[str]:
    whole = arm.get("whole_ms")
    ratio = against["whole_ms"]["measured"] if against and "whole_ms" in against else None
    equal = against["answers_equal"] if against else None
    return [
        arm["label"],
        f"{arm['usual']['evaluated']:,.0f}",
        duration(arm["usual"]["first_ms"]),
        f"{arm['restarted']['evaluated']:,}",
        duration(arm["restarted"]["first_ms"]),
        "not every turn" if whole is None else duration(whole["measured"]),
        "" if not arm["prepare"] else duration(arm["prepare"]["total_ms"]),
        "" if ratio is None else f"{ratio:.2f}",
        "" if equal is None else f"{equal['k']} of {equal['n']}",
    ]
