"""``agentkv flywheel retire``: a live solution becomes history; nothing answers from it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import print_json, say
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.flywheel.book import KeptTask, KeptTasks

_DIGITS = 6


def retire(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id, or the first digits of its identity.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it goes on record.")] = "retired by hand",
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Take a live solution back: it stays on record, and answers nothing. No model is loaded."""
    from agentkv.flywheel.book import KeptTasks
    from agentkv.flywheel.library import retire as retire_task

    with options.open_store(store) as opened:
        kept = _named(KeptTasks(opened.root), task)
        retire_task(opened, kept.task.task_id, reason)
    if as_json:
        print_json({"id": kept.task.id, "task": kept.task.task_id, "retired": True, "reason": reason})
    else:
        say(f"retired the solution of {kept.task.id} ({kept.task.task_id[:12]}); `agentkv learn` solves it anew")


def _named(tasks: KeptTasks, wanted: str) -> KeptTask:
    """The one kept task that is called so. Raises UnknownTask, UsageError for several."""
    from agentkv.errors import UnknownTask

    known = list(tasks.all())
    found = [kept for kept in known if kept.task.id == wanted]
    if not found and len(wanted) >= _DIGITS:
        found = [kept for kept in known if kept.task.task_id.startswith(wanted.lower())]
    if len(found) > 1:
        several = ", ".join(kept.task.task_id[:12] for kept in found)
        raise UsageError(f"{len(found)} tasks are called {wanted!r}; name one by its identity: {several}")
    if not found:
        raise UnknownTask(wanted)
    return found[0]
