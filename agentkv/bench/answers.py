"""``agentkv bench answers``: the labelled questions of every skill, routed, answered from a graft and from re-reading.

What is shown: routed rightly, answered rightly (the accepted string is in the reply), both with Wilson 95 % intervals,
and whether the grafted turn, with prefix and manual restored, is the re-read one: the same token ids and the same
SHA-256 over every step's logits. Questions that no skill covers show how often the router abstains.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentkv.bench import measured, scores
from agentkv.bench.grading import Route, load_routes
from agentkv.bench.report import now, origin, say
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.evidence import Item, Ledger, Run
from agentkv.hashing import canonical_json
from agentkv.memory import AgentMemory
from agentkv.skills.manual import Manual, load_manuals

UNCOVERED = "uncovered.jsonl"


def run(
    model: str,
    skills: Path,
    *,
    n_skills: int | None = None,
    per_skill: int | None = None,
    uncovered: int | None = None,
    reread: bool = True,
    max_new: int = 48,
    store: Path | None = None,
    settings: dict[str, Any] | None = None,
    ledger: Ledger | None = None,
) -> dict[str, Any]:
    """The whole benchmark over the skill folders below ``skills``.

    ``n_skills`` takes the first so many, ``per_skill`` the first so many questions of each, ``uncovered`` of those that
    no skill covers.
    With a ``ledger`` every raw generation goes there as soon as a skill is done.
    """
    started = now()
    manuals = load_manuals([skills]).loaded[:n_skills]
    questions = [(m, load_routes(m.path)[:per_skill]) for m in manuals]
    others = load_routes(skills / UNCOVERED)[:uncovered] if (skills / UNCOVERED).exists() else []
    if not any(routes for _, routes in questions):
        raise UsageError(f"no labelled questions (routes.jsonl) in the skills at {skills}")
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-answers-") as temporary,
        AgentMemory(store or Path(temporary) / "store", model, **(settings or {})) as memory,
    ):
        for manual in manuals:
            memory.deposit_skill(manual)
            say(f"deposited {manual.name}")
        inputs = canonical_json([[m.sha256, [[r.query, *r.answers] for r in routes]] for m, routes in questions])
        result = origin(
            "answers", model, memory.engine.info.sha256, inputs, started=started, max_new=max_new, reread=reread
        )
        items: list[Item] = []
        with contextlib.ExitStack() as held:
            run = None
            if ledger is not None:
                known = {"settings": result["settings"] | {"model": model}, "inputs": {"questions": inputs}}
                known["inputs"] |= {"model": result["model_sha256"]}
                prints = {"engine": memory.engine.fingerprint()}
                run = held.enter_context(ledger.run(scores.ANSWERS, **known, fingerprints=prints))
                result["ledger_run"] = run.id
            for m, routes in questions:
                items += _recorded(run, _skill(memory, m, routes, reread, max_new))
            asked = [(f"{UNCOVERED}/{i}", route, memory.route(route.query)) for i, route in enumerate(others)]
            items += _recorded(run, [scores.abstention_item(*what) for what in asked])
            result["skills"] = len(manuals)
            whole = measured.result(result, items, under="summary")
            if run is not None:
                run.scores(whole["summary"])
    return whole


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each question that a skill covers, from the result's raw records."""
    return [scores.answer_row(item) for item in measured.items_of(result) if item.expected["skill"] is not None]


def _recorded(run: Run | None, items: list[Item]) -> list[Item]:
    if run is not None:
        run.record_all(items)
    return items


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if any grafted turn was not the re-read one."""
    different = [row["query"] for row in rows(result) if row["identical"] is False]
    if different:
        raise GuaranteeViolated(f"{len(different)} grafted answers differ from re-read ones, first: {different[0]!r}")


def _skill(memory: AgentMemory, manual: Manual, routes: Sequence[Route], reread: bool, max_new: int) -> list[Item]:
    items = []
    for number, route in enumerate(routes):
        turn = memory.ask(route.query, max_new=max_new)
        again = memory.ask(route.query, skill=turn.decision.pick, graft=False, max_new=max_new) if reread else None
        items.append(scores.answer_item(f"{manual.name}/{number}", manual.name, route, turn, again))
    rows = [scores.answer_row(item) for item in items]
    right = sum(row["right"] for row in rows)
    say(f"{manual.name}: routed {sum(r['routed'] for r in rows)}, right {right} of {len(rows)}")
    return items
