"""Make the k-th call that changes the disk, or every call on some paths, fail; also a program that test_faults runs.

Over the package's own injector, :mod:`agentkv.bench.faults`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from agentkv.bench.faults import Call, Step, Watch, replaced
from agentkv.bench.faults import watched as injected

__all__ = ["CALLS", "Fault", "injected", "refused"]

CALLS: tuple[Call, ...] = ("write", "fsync", "rename", "mkdir")


class Fault(Watch):
    """Notes calls with their paths, wherever they are; at number ``at`` (from 0) calls ``act``."""

    def __init__(self, at: int | None, act: Callable[[], None]) -> None:
        super().__init__(None, self._break, CALLS)
        self.at, self._work = at, act

    def _break(self, number: int, step: Step, done: bool) -> None:
        if number == self.at and not done:
            self._work()

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Each that was carried out, and its path; of a rename the target."""
        return [(step.call, str(step.target or step.path)) for step in self.journal]


@contextlib.contextmanager
def refused(number: int, *parts: str, calls: tuple[str, ...] = ("open",)) -> Iterator[list[str]]:
    """Every ``os`` call of these names raises OSError ``number`` for paths that hold one of ``parts``; lists them."""
    real, seen = {name: getattr(os, name) for name in calls}, list[str]()

    def wrapper(name: str) -> Callable[..., object]:
        def call(path: object, *rest: object, **options: object) -> object:
            if isinstance(path, str | os.PathLike) and any(part in os.fspath(path) for part in parts):
                seen.append(os.fspath(path))
                raise OSError(number, os.strerror(number), os.fspath(path))
            return real[name](path, *rest, **options)

        return call

    with replaced({name: wrapper(name) for name in calls}):
        yield seen


def crash_at_every_call(root: Path, limit: int) -> None:
    """For k = 0, 1, …: a child deposits into ``root/k`` and dies at its k-th call, until one does not."""
    from agentkv.store.catalog import BlockStore
    from tests.store.blocks import block, named

    os.fsync = lambda fd: None  # a process that dies loses nothing that it wrote
    earlier, earlier_segments = block(list(range(6)))
    child, child_segments = block([6, 7, 8], parent=earlier)
    with BlockStore(root / "0") as store:
        store.put(earlier, earlier_segments)
        store.set_name(named(earlier))
    template = shutil.move(root / "0", root.with_name(f"{root.name}-template"))
    for k in range(limit):
        shutil.copytree(template, root / str(k))
        pid = os.fork()
        if pid == 0:
            store = BlockStore(root / str(k))
            with injected(Fault(k, lambda: os._exit(9))):
                store.put(child, child_segments)
                store.set_name(named(child))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
            return
    raise SystemExit(f"still dying at call {limit}")


if __name__ == "__main__":
    crash_at_every_call(Path(sys.argv[1]), int(sys.argv[2]))
