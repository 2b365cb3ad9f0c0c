"""``agentkv skills test``: each skill's ``routes.jsonl`` is its test: its questions routed and answered.

A question is routed rightly if the pick is the skill that it is labelled with, or a part of it; one labelled ``null``
if no block was picked. It is answered rightly as the benchmark ``answers`` grades it. All that is stored competes, also
what is not in the folders.

The questions are read before anything else. What is stored is tested as it is stored, whole or in parts, also where its
file has changed since, and the command says so; only what is not stored at all, or is corrupt, is deposited.
Nothing is retired or cut otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import Column, count, number, one_line, say, show_rows, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, steps_bar
from agentkv.cli.skills import Folders, MaxTokens, fault_record, folders_of, open_library
from agentkv.cli.skills_deposit import carried_out
from agentkv.errors import AgentKVError, GuaranteeViolated, UsageError

if TYPE_CHECKING:
    from agentkv.engine.base import Cancellation
    from agentkv.memory.memory import AgentMemory
    from agentkv.skills.library import SkillLibrary
    from agentkv.skills.questions import Route
    from agentkv.skills.report import SyncReport, Work


_DUE = ("added", "mended")


@dataclass(frozen=True)
class Row:
    """One question. ``skill``: in whose folder it is asked; ``right`` is None where no answer was asked for."""

    skill: str
    query: str
    expected: str | None
    raw_pick: str
    pick: str | None
    fallback: str | None
    routed: bool
    answer: str | None
    right: bool | None


def ask_routes(
    *,
    folders: Folders,
    no_answers: Annotated[bool, typer.Option("--no-answers", help="Route only; generate nothing.")] = False,
    min_routed: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="SHARE", help="Fail if fewer are routed rightly.")
    ] = None,
    min_right: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="SHARE", help="Fail if fewer are answered rightly.")
    ] = None,
    max_new: Annotated[int, typer.Option(metavar="N", min=1, help=options.MAX_NEW_HELP)] = 48,
    max_tokens: MaxTokens = None,
    embedder: options.Embedder = None,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Route and answer every labelled question of the skills; what is not stored at all is deposited first."""
    if no_answers and min_right is not None:
        raise UsageError("--min-right needs answers; leave --no-answers out")
    questions = _questions(folders)
    model, settings = engine.chosen(store)
    with options.open_memory(store, model, settings, create=True, embedder=embedder) as memory:
        library = open_library(memory, folders, max_tokens)
        report, as_stored = _completed(library)
        rows = _rows(memory, questions, None if no_answers else max_new)
    failures: list[AgentKVError] = [entry.error for entry in report.broken]
    failures += _shortfalls(rows, min_routed, min_right)
    record = {
        "model": model,
        "skills": [_sums(name, [row for row in rows if row.skill == name]) for name in dict.fromkeys(_names(rows))],
        "total": _sums("total", rows),
        "rows": [asdict(row) for row in rows],
        "deposited": [*report.added, *report.mended],
        "as_stored": as_stored,
        "broken": [fault_record(entry.error, entry) for entry in report.broken],
    }
    return Result(record, lambda: _show(record, rows), failures)


def _questions(folders: Sequence[Path]) -> list[tuple[str, Route]]:
    """Every question with the skill in whose folder it is. Raises UsageError, InvalidManual if no skill is valid."""
    from agentkv.skills.inventory import Inventory
    from agentkv.skills.questions import load_routes

    inventory = Inventory(folders_of(folders))
    inventory.read()
    manuals, broken = inventory.resolved({})
    found = [(manual.name, route) for manual in manuals for route in load_routes(manual.path)]
    if found:
        return found
    if broken and not manuals:
        raise broken[0]
    raise UsageError("no skill there has labelled questions in a routes.jsonl")


def _completed(library: SkillLibrary) -> tuple[SyncReport, dict[str, str]]:
    """Deposit what is not stored in any form, or is corrupt; the rest of what a sync would deposit, with the reason."""
    import dataclasses

    plan = library.plan()
    library.announce(plan)
    due = tuple(work for work in plan.work if work.kind in _DUE)
    as_stored = {work.manual.name: _difference(library, work) for work in plan.work if work.kind not in _DUE}
    for name, how in as_stored.items():
        tell(f"{name}: tested as it is stored, {how}")
    report = carried_out(library, dataclasses.replace(plan, work=due, removed=()))
    deposited = [*report.added, *report.mended]
    if deposited:
        tell(f"deposited first: {', '.join(deposited)}", dim=True)
    return report, as_stored


def _difference(library: SkillLibrary, work: Work) -> str:
    """How what is stored of a skill is other than what a deposit with these options would store."""
    from agentkv.skills.stored import is_current

    if work.was is not None:
        return f"from {work.was}"
    if not is_current(library.memory.store, work.manual, work.before):
        return "and its file has changed since; `agentkv skills deposit` takes it"
    return f"in {count(len(work.before), 'block')}; `agentkv skills deposit` would cut it otherwise"


def _rows(memory: AgentMemory, questions: Sequence[tuple[str, Route]], max_new: int | None) -> list[Row]:
    with cancelled_by_ctrl_c() as cancellation:
        asked = (_row(memory, skill, route, max_new, cancellation) for skill, route in questions)
        return list(steps_bar(asked, len(questions), "question", lambda i: questions[i][1].query))


def _row(memory: AgentMemory, skill: str, route: Route, max_new: int | None, cancellation: Cancellation) -> Row:
    from agentkv.skills.pieces import owner
    from agentkv.skills.questions import contains_answer

    answer: str | None = None
    if max_new is None or route.skill is None:
        decision = memory.route(route.query)
    else:
        turn = memory.ask(route.query, max_new=max_new, cancellation=cancellation)
        decision, answer = turn.decision, turn.text
    return Row(
        skill=skill,
        query=route.query,
        expected=route.skill,
        raw_pick=decision.raw_pick,
        pick=decision.pick,
        fallback=decision.fallback,
        routed=(None if decision.pick is None else owner(decision.pick)) == route.skill,
        answer=answer,
        right=None if answer is None else contains_answer(answer, route.answers),
    )


def _names(rows: Sequence[Row]) -> list[str]:
    return [row.skill for row in rows]


def _sums(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    graded = [row.right for row in rows if row.right is not None]
    return {
        "name": name,
        "questions": len(rows),
        "routed": sum(row.routed for row in rows),
        "answered": len(graded),
        "right": sum(graded),
    }


def _shortfalls(rows: Sequence[Row], min_routed: float | None, min_right: float | None) -> list[AgentKVError]:
    sums = _sums("total", rows)
    asked = [("routed", sums["routed"], sums["questions"], min_routed)]
    asked.append(("answered", sums["right"], sums["answered"], min_right))
    return [
        GuaranteeViolated(f"{good} of {n} questions were {what} rightly, fewer than the {least:.0%} asked for")
        for what, good, n, least in asked
        if least is not None and n and good / n < least
    ]


def _show(record: dict[str, Any], rows: Sequence[Row]) -> None:
    sums = [*record["skills"], record["total"]]
    show_rows(_COLUMNS, sums)
    failing = [row for row in rows if not row.routed or row.right is False]
    if failing:
        say(f"\n{count(len(failing), 'question')} failed:")
    for row in failing:
        say(f"  {row.skill}: {row.query}")
        if not row.routed:
            say(f"      routed to {row.pick or 'no block'}, not to {row.expected or 'no block'}", dim=True)
        if row.right is False:
            say(f"      answered: {one_line(row.answer or '', 96)}", dim=True)


_COLUMNS = (
    Column("skill", "name"),
    number("questions"),
    number("routed"),
    number("right", lambda sums: f"{sums['right']} of {sums['answered']}" if sums["answered"] else None),
)
