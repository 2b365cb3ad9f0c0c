"""``agentkv flywheel report``: every task that was learned, its live solution, its proof, and what became of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv.cli import options
from agentkv.cli.flywheel import common
from agentkv.cli.output import count, one_line, print_json, say, table

if TYPE_CHECKING:
    from agentkv.flywheel.book import KeptTask
    from agentkv.flywheel.solution import Solution


def report(store: options.Store = None, as_json: options.Json = False) -> None:
    """What was learned: tasks, live solutions, proofs, history. No model is loaded."""
    from agentkv.flywheel.book import KeptTasks, SolutionBook

    with options.open_store(store) as opened:
        book, rows = SolutionBook(opened.root), []
        for kept in KeptTasks(opened.root).all():
            standing = book.standing(kept.task.task_id)
            history = [] if standing is None else [event.model_dump(mode="json") for event in standing.history]
            rows.append(_row(kept, book.live(kept.task.task_id), history))
    rows.sort(key=lambda row: row["id"])
    if as_json:
        print_json({"tasks": rows})
        return
    cells = [
        (
            row["id"],
            "live" if row["live"] else "none",
            one_line(common.shown(row["answer"]), 30),
            row["solver"] or "",
            row["proof"] or "",
            row["transfers"],
            f"{len(row['history'])}",
        )
        for row in rows
    ]
    if not cells:
        say("nothing was learned yet; `agentkv learn TASKS` does it")
        return
    columns = ("task", "solution", "answer", "solved by", "proof", "transfers", "events")
    table(columns, cells, right=("events",), wraps=("proof", "transfers"))
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
