"""``agentkv solve``: one task, answered from what was learned or by the model; says which, and if checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.evidence.common import ledger_path
from agentkv.cli.flywheel import common
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import one_line, print_json, say, tell
from agentkv.errors import UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from agentkv.flywheel import Flywheel
    from agentkv.flywheel.loop import Answered
    from agentkv.flywheel.solution import Solution
    from agentkv.flywheel.task import Task

KIND = "flywheel solve"


def solve(
    prompt: Annotated[str | None, typer.Argument(metavar="TASK", help="The task, in quotes.")] = None,
    task: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: the one task of this file, with its check.")
    ] = None,
    own: Annotated[bool, typer.Option(help="Let the model try by itself where nothing learned fits.")] = True,
    samples: common.Samples = 3,
    agreement: common.Agreement = 1.0,
    max_new: common.MaxNew = 512,
    seed: common.Seed = 0,
    isolation: common.Isolation = "namespaces",
    model: options.Model = None,
    embedder: options.Embedder = None,
    store: options.Store = None,
    ledger: common.LedgerFolder = None,
    window: options.Window = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Answer a task: recalled if it was solved, transferred if its like was, else the model's own."""
    from agentkv.flywheel import Flywheel
    from agentkv.flywheel.task import read_tasks

    policy = common.policy(isolation)
    wanted = _wanted(prompt) if task is None else None
    if wanted is None:
        if prompt is not None or task is None:
            raise UsageError("give a task in quotes or --task FILE, one of the two")
        tasks = read_tasks(task)
        if len(tasks) != 1:
            raise UsageError(f"{task} holds {len(tasks):,} tasks; one is wanted. `agentkv learn` takes many.")
        wanted = tasks[0]
    model, settings = options.chosen(store, model, window, threads)
    opened = options.open_ledger(ledger_path(ledger))
    assert opened is not None
    with (
        options.open_memory(store, model, settings, create=True, embedder=embedder) as memory,
        cancelled_by_ctrl_c() as cancellation,
        opened.run(
            KIND,
            settings={"samples": samples, "agreement": agreement, "max_new": max_new, "seed": seed, "own": own},
            inputs={"task": wanted.prompt.encode(), "model": memory.engine.info.sha256},
            fingerprints={"engine": memory.engine.fingerprint()},
        ) as run,
    ):
        wheel = Flywheel.of(
            memory,
            samples=samples,
            agreement=agreement,
            max_new=max_new,
            seed=seed,
            policy=policy,
            recorder=run,
        )
        known = wheel.library.book.live(wanted.task_id)
        answered = wheel.solve(wanted, own=own, cancellation=cancellation)
        _tell_retired(wheel, wanted, known)
    if as_json:
        print_json({"run": run.id, **answered.plain()})
    else:
        _show(answered)
    if not answered.answered:
        raise typer.Exit(1)


def _wanted(prompt: str | None) -> Task | None:
    if prompt is None:
        return None
    from pydantic import ValidationError

    from agentkv.flywheel.task import Task

    try:
        return Task(id="asked", prompt=prompt)
    except ValidationError as error:
        raise UsageError(f"the task: {error.errors()[0]['msg']}") from error


def _tell_retired(wheel: Flywheel, task: Task, known: Solution | None) -> None:
    """Warn, if the solution that was live has failed what was asked now."""
    standing = None if known is None else wheel.library.book.standing(task.task_id)
    if standing is not None and standing.live is None and standing.history:
        why = one_line(standing.history[-1].reason, 200)
        warn(f"the solution that was learned is retired: {why}. `agentkv learn` solves the task anew.")


def _show(answered: Answered) -> None:
    if answered.answered:
        say(common.shown(answered.answer))
    tell(f"[{answered.origin} | {answered.tokens:,} tokens generated]", dim=True)
    last: Any = answered.transfers[-1] if answered.transfers else None
    if last is not None:
        tell(f"[parameters: {common.shown(last.parameters)}{_why(last)}]", dim=True)
    if not answered.answered:
        tell("no answer: nothing learned fits, and the model's own programs gave none")


def _why(last: Any) -> str:
    return "" if last.answered else f" | {one_line(last.reason, 120)}"
