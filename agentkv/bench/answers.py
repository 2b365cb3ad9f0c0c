"""``agentkv bench answers``: the labelled questions of every skill, routed, answered from a graft and from re-reading.

What is shown: routed rightly, answered rightly (the accepted string is in the reply), both with Wilson 95 % intervals,
and whether the grafted turn, with prefix and manual restored, is the re-read one: the same token ids and the same
SHA-256 over every step's logits. Questions that no skill covers show how often the router abstains.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentkv.bench.grading import Route, contains_answer, load_routes
from agentkv.bench.report import origin, say
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.figures import share
from agentkv.hashing import canonical_json
from agentkv.memory import AgentMemory
from agentkv.skills.manual import Manual, load_manuals

UNCOVERED = "uncovered.jsonl"


def run(
    model: str,
    skills: Path,
    *,
    per_skill: int | None = None,
    reread: bool = True,
    max_new: int = 48,
    store: Path | None = None,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole benchmark over the skill folders below ``skills``; ``per_skill`` takes the first so many."""
    manuals = load_manuals([skills]).loaded
    questions = [(m, load_routes(m.path)[:per_skill]) for m in manuals]
    uncovered = load_routes(skills / UNCOVERED) if (skills / UNCOVERED).exists() else []
    if not any(routes for _, routes in questions):
        raise UsageError(f"no labelled questions (routes.jsonl) in the skills at {skills}")
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-answers-") as temporary,
        AgentMemory(store or Path(temporary) / "store", model, **(settings or {})) as memory,
    ):
        for manual in manuals:
            memory.deposit_skill(manual)
            say(f"deposited {manual.name}")
        rows = [row for m, routes in questions for row in _skill(memory, m, routes, reread, max_new)]
        abstained = [memory.route(route.query).pick is None for route in uncovered]
        inputs = canonical_json([[m.sha256, [[r.query, *r.answers] for r in routes]] for m, routes in questions])
        result = origin("answers", model, memory.engine.info.sha256, inputs, max_new=max_new, reread=reread)
    return {**result, "skills": len(manuals), "rows": rows, "summary": _summary(rows, abstained)}


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if any grafted turn was not the re-read one."""
    different = [row["query"] for row in result["rows"] if row["identical"] is False]
    if different:
        raise GuaranteeViolated(f"{len(different)} grafted answers differ from re-read ones, first: {different[0]!r}")


def _skill(
    memory: AgentMemory, manual: Manual, routes: Sequence[Route], reread: bool, max_new: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for route in routes:
        turn = memory.ask(route.query, max_new=max_new)
        again = memory.ask(route.query, skill=turn.decision.pick, graft=False, max_new=max_new) if reread else None
        rows.append(
            {
                "query": route.query,
                "skill": manual.name,
                "raw_pick": turn.decision.raw_pick,
                "pick": turn.decision.pick,
                "fallback": turn.decision.fallback,
                "scores": turn.decision.scores,
                "routed": turn.decision.pick == manual.name,
                "text": turn.text,
                "right": contains_answer(turn.text, route.answers),
                "identical": None
                if again is None
                else turn.not_restored is None
                and (again.token_ids, again.logits_sha256) == (turn.token_ids, turn.logits_sha256),
                "logits_sha256": turn.logits_sha256,
                "tokens": turn.tokens.model_dump(),
                "ms": turn.ms.model_dump(),
                "reread_ms": None if again is None else again.ms.model_dump(),
                "router_tokens": turn.decision.tokens,
            }
        )
    right = sum(row["right"] for row in rows)
    say(f"{manual.name}: routed {sum(r['routed'] for r in rows)}, right {right} of {len(rows)}")
    return rows


def _summary(rows: list[dict[str, Any]], abstained: Sequence[bool]) -> dict[str, Any]:
    compared = [row for row in rows if row["identical"] is not None]
    routed = [row for row in rows if row["routed"]]
    return {
        "routed": share(len(routed), len(rows)),
        "answered": share(sum(row["right"] for row in rows), len(rows)),
        "answered_when_routed": share(sum(row["right"] for row in routed), len(routed)),
        "identical": share(sum(row["identical"] for row in compared), len(compared)),
        "abstained_on_covered": share(sum(row["pick"] is None for row in rows), len(rows)),
        "abstained_on_uncovered": share(sum(abstained), len(abstained)),
        "median_ms_to_first_token": {
            "graft": statistics.median(row["ms"]["restore"] + row["ms"]["prefill"] for row in rows),
            "reread": statistics.median(row["reread_ms"]["prefill"] for row in compared) if compared else None,
        },
        "median_router_tokens": statistics.median(row["router_tokens"] for row in rows),
        "median_router_ms": statistics.median(row["ms"]["route"] for row in rows),
    }
