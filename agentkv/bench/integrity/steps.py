"""The file-system steps of an operation: counted, made to fail, journalled, or the process's last.

A step is a call that changes what is on disk or promises that it stays: creating or opening for writing, write, fsync,
rename, mkdir, unlink. Only paths below one root count. SQLite's own are not seen: its counts may be lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

Call = Literal["create", "write", "fsync", "rename", "mkdir", "unlink"]
_FUNCTIONS = ("open", "close", "write", "fsync", "replace", "mkdir", "unlink")


@dataclass(frozen=True)
class Step:
    """One step. ``data``: what a write wrote; ``target``: of a rename; ``done``: False if nothing was to unlink."""

    call: Call
    path: Path
    data: bytes = b""
    target: Path | None = None
    directory: bool = False
    done: bool = True


class Watch:
    """Notes the steps below ``root``. ``act(number, step, done)`` is called before and after each of them."""

    def __init__(self, root: Path, act: Callable[[int, Step, bool], None] | None = None) -> None:
        self.root, self._act = root, act
        self._lock = threading.Lock()
        self.count = 0
        self.journal: list[Step] = []

    def around(self, step: Step, work: Callable[[], Any]) -> Any:
        """Carry out one step."""
        with self._lock:
            number, self.count = self.count, self.count + 1
        if self._act:
            self._act(number, step, False)
        try:
            result = work()
        except FileNotFoundError:  # nothing to unlink: a step all the same
            with self._lock:
                self.journal.append(replace(step, done=False))
            if self._act:
                self._act(number, step, True)
            raise
        with self._lock:
            self.journal.append(step)
        if self._act:
            self._act(number, step, True)
        return result

    def below(self, path: Any) -> Path | None:
        """The path, if it is one of the store's."""
        found = Path(os.fspath(path))
        return found if found.is_relative_to(self.root) else None


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """Every step of this process goes through ``watch`` for a while."""
    real: dict[str, Any] = {name: getattr(os, name) for name in _FUNCTIONS}
    paths: dict[int, Path] = {}

    def opening(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        found = watch.below(path)
        if found is None:
            return int(real["open"](path, flags, *rest, **options))

        def work() -> int:
            fd = int(real["open"](path, flags, *rest, **options))
            paths[fd] = found
            return fd

        return int(watch.around(Step("create", found), work)) if flags & os.O_CREAT else work()

    def closing(fd: int) -> None:
        paths.pop(fd, None)
        real["close"](fd)

    def writing(fd: int, data: Any) -> int:
        if fd not in paths:
            return int(real["write"](fd, data))
        return int(watch.around(Step("write", paths[fd], bytes(data)), lambda: real["write"](fd, data)))

    def syncing(fd: int) -> None:
        if fd in paths:
            step = Step("fsync", paths[fd], directory=paths[fd].is_dir())
            watch.around(step, lambda: None)

    def renaming(source: Any, target: Any, **options: Any) -> None:
        found = watch.below(source)
        if found is None:
            real["replace"](source, target, **options)
            return
        step = Step("rename", found, target=Path(os.fspath(target)))
        watch.around(step, lambda: real["replace"](source, target, **options))

    def single(name: str, call: Call) -> Callable[..., None]:
        def run(path: Any, *rest: Any, **options: Any) -> None:
            found = watch.below(path)
            if found is None:
                real[name](path, *rest, **options)
            else:
                watch.around(Step(call, found), lambda: real[name](path, *rest, **options))

        return run

    replaced = {
        "open": opening,
        "close": closing,
        "write": writing,
        "fsync": syncing,
        "replace": renaming,
        "mkdir": single("mkdir", "mkdir"),
        "unlink": single("unlink", "unlink"),
    }
    try:
        for name, function in replaced.items():
            setattr(os, name, function)
        yield watch
    finally:
        for name, function in real.items():
            setattr(os, name, function)


Mode = Literal["EIO", "ENOSPC", "EIO for ever", "Ctrl-C before", "Ctrl-C after", "SIGKILL before", "SIGKILL after"]
FAILURES: tuple[Mode, ...] = ("EIO", "ENOSPC", "EIO for ever", "Ctrl-C before", "Ctrl-C after")
KILLS: tuple[Mode, ...] = ("SIGKILL before", "SIGKILL after")


def breaking(mode: Mode, at: int) -> Callable[[int, Step, bool], None]:
    """What :class:`Watch` does at step ``at``. With ENOSPC half of a write still gets through."""

    def act(number: int, step: Step, done: bool) -> None:
        if number != at and not (mode == "EIO for ever" and number > at):
            return
        if done != mode.endswith("after"):
            return
        match mode:
            case "EIO" | "EIO for ever":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "ENOSPC":
                if step.call == "write":
                    with step.path.open("ab") as file:
                        file.write(step.data[: len(step.data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case "Ctrl-C before" | "Ctrl-C after":
                raise KeyboardInterrupt
            case _:
                os.kill(os.getpid(), signal.SIGKILL)

    return act
