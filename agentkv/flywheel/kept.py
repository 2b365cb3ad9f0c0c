"""The tasks that solutions were kept for, so that a check can be run again and a block be made for another model.

One sealed file a task, called by its identity, in the store's ``flywheel/tasks``. Written after the solution, and it
names it: a crash between the two leaves a solution that nobody answers from until the task is learned again. Refuses
to know blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentkv.flywheel import sealed
from agentkv.flywheel.files import FLYWHEEL, MAX_RECORD_BYTES, TASK_MAGIC, TASKS
from agentkv.flywheel.task import Parameters, Task
from agentkv.notices import warn
from agentkv.records import Record, Sha256
from agentkv.store.files import TEMPORARIES
from agentkv.store.format import Malformed
from agentkv.store.recordfiles import RecordFiles


class Kept(Record):
    """A task, and the parameters with which the solution ``solution_id`` gave the answer."""

    task: Task
    parameters: Parameters
    solution_id: Sha256 | None = None


class KeptTasks:
    """The tasks kept in the store at ``store``."""

    def __init__(self, store: Path) -> None:
        self._files: RecordFiles[Kept] = RecordFiles(
            store / FLYWHEEL, TASKS, "task", _decode, MAX_RECORD_BYTES, sharded=True, temporaries=store / TEMPORARIES
        )

    def keep(self, kept: Kept) -> None:
        """Keep a task, in place of the same task with other parameters or another check. Raises StoreFull."""
        self._files.write(kept.task.task_id, sealed.encode(TASK_MAGIC, kept))

    def find(self, task_id: str) -> Kept | None:
        """The task of that identity. Raises CorruptBlock, StoreReadError."""
        return self._files.read(task_id)

    def all(self) -> Iterator[Kept]:
        """Every kept task, whether its solution is live or not. A damaged one is passed over with a warning."""
        yield from self._files.all(
            lambda error: warn(f"passed over: {error.message} `agentkv check` lists it; learning it again mends it.")
        )


def _decode(data: bytes, name: str) -> Kept:
    kept = sealed.decode(TASK_MAGIC, data, Kept, "task")
    if kept.task.task_id != name:
        raise Malformed(f"it is task {kept.task.task_id[:12]}")
    return kept
