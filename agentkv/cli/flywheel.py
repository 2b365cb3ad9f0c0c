"""``agentkv flywheel report``: every task that was learned, its live solution, its proof, and what became of others.
``agentkv flywheel retire``: a live solution becomes history; nothing answers from it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.command import Result
from agentkv.cli.learn import answer_text
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, count, number, one_line, say, show_rows
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.flywheel.book import KeptTask, KeptTasks
    from agentkv.flywheel.solution import Solution


def report(*, store: StoreOptions) -> Result:
    """What was learned: tasks, live solutions, proofs, history. No model is loaded."""
    from agentkv.flywheel.book import KeptTasks, SolutionBook

    with store.open() as opened:
        book, rows = SolutionBook(opened.root), []
        for kept in KeptTasks(opened.root).all():
            standing = book.standing(kept.task.task_id)
            history = [] if standing is None else [event.model_dump(mode="json") for event in standing.history]
            rows.append(_row(kept, book.live(kept.task.task_id), history))
    rows.sort(key=lambda row: row["id"])
    return Result({"tasks": rows}, lambda: _show(rows))


_COLUMNS = (
    Column("task", "id"),
    Column("solution", lambda row: "live" if row["live"] else "none"),
    Column("answer", lambda row: one_line(answer_text(row["answer"]), 30)),
    Column("solved by", "solver"),
    Column("proof", "proof", wraps=True),
    Column("transfers", "transfers", wraps=True),
    number("events", lambda row: len(row["history"])),
)


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("nothing was learned yet; `agentkv learn TASKS` does it")
        return
    show_rows(_COLUMNS, rows)
    live, transfer = sum(row["live"] for row in rows), sum(row["transfers"] == "yes" for row in rows)
    say(f"\n{count(len(rows), 'task')}, {live} with a live solution, {transfer} transfer")


def _row(kept: KeptTask, solution: Solution | None, history: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": kept.task.id,
        "task": kept.task.task_id,
        "prompt": kept.task.prompt,
        "live": solution is not None,
        "history": history,
        **dict.fromkeys(("solution", "answer", "solver", "proof", "tokens")),
        "transfers": "",
        "baked_in": [],
    }
    if solution is None:
        return row
    proof, parametric = solution.proof, solution.parametric
    isolation = "" if proof.isolation is None else f", {proof.isolation.level}"
    constants = [] if parametric is None else [one.model_dump() for one in parametric.hard_coded]
    why = f"no: {', '.join(str(one['value']) for one in constants)} hard-coded" if constants else "no"
    return row | {
        "solution": solution.solution_id,
        "answer": solution.answer,
        "solver": solution.provenance.solver,
        "tokens": solution.provenance.tokens,
        "proof": f"{proof.verdict}: {proof.checks_run} of {proof.checks_expected} checks{isolation}",
        "transfers": "yes" if parametric is not None and parametric.transferable else why,
        "baked_in": constants,
    }


# --- retire ---------------------------------------------------------------------------------------


_DIGITS = 6


def retire(
    *,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id, or the first digits of its identity.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it goes on record.")] = "retired by hand",
    store: StoreOptions,
) -> Result:
    """Take a live solution back: it stays on record, and answers nothing. No model is loaded."""
    from agentkv.flywheel.book import KeptTasks
    from agentkv.flywheel.library import retire as retire_task

    with store.open() as opened:
        kept = _named(KeptTasks(opened.root), task)
        retire_task(opened, kept.task.task_id, reason)
    record = {"id": kept.task.id, "task": kept.task.task_id, "retired": True, "reason": reason}
    text = f"retired the solution of {kept.task.id} ({kept.task.task_id[:12]}); `agentkv learn` solves it again"
    return Result(record, lambda: say(text))


def _named(tasks: KeptTasks, key: str) -> KeptTask:
    """The one kept task that is called so. Raises UnknownTask, UsageError for several."""
    from agentkv.errors import UnknownTask

    known = list(tasks.all())
    found = [kept for kept in known if kept.task.id == key]
    if not found and len(key) >= _DIGITS:
        found = [kept for kept in known if kept.task.task_id.startswith(key.lower())]
    if len(found) > 1:
        several = ", ".join(kept.task.task_id[:12] for kept in found)
        raise UsageError(f"{len(found)} tasks are called {key!r}; name one by its identity: {several}")
    if not found:
        raise UnknownTask(key)
    return found[0]
