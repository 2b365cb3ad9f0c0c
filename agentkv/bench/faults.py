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
_SINGLE: tuple[Literal["mkdir", "unlink"], ...] = ("mkdir", "unlink")
_FUNCTIONS = ("open", "close", "write", "fsync", "replace", *_SINGLE)


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


class _Through:
    """The system's functions that change files, going through a watch where the path is one of the store's."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.real: dict[str, Any] = {name: getattr(os, name) for name in _FUNCTIONS}
        self._paths: dict[int, Path] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of the system's own, by name."""
        found: dict[str, Callable[..., Any]] = {name: self._single(name) for name in _SINGLE}
        found |= {"open": self._open, "close": self._close, "write": self._write}
        return {**found, "fsync": self._sync, "replace": self._replace}

    def _open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        found = self._watch.below(path)
        if found is None:
            return int(self.real["open"](path, flags, *rest, **options))

        def work() -> int:
            fd = int(self.real["open"](path, flags, *rest, **options))
            self._paths[fd] = found
            return fd

        return int(self._watch.around(Step("create", found), work)) if flags & os.O_CREAT else work()

    def _close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        self.real["close"](fd)

    def _write(self, fd: int, data: Any) -> int:
        if fd not in self._paths:
            return int(self.real["write"](fd, data))
        step = Step("write", self._paths[fd], bytes(data))
        return int(self._watch.around(step, lambda: self.real["write"](fd, data)))

    def _sync(self, fd: int) -> None:
        if fd in self._paths:
            step = Step("fsync", self._paths[fd], directory=self._paths[fd].is_dir())
            self._watch.around(step, lambda: None)

    def _replace(self, source: Any, target: Any, **options: Any) -> None:
        found = self._watch.below(source)
        if found is None:
            self.real["replace"](source, target, **options)
            return
        step = Step("rename", found, target=Path(os.fspath(target)))
        self._watch.around(step, lambda: self.real["replace"](source, target, **options))

    def _single(self, name: Literal["mkdir", "unlink"]) -> Callable[..., None]:
        def run(path: Any, *rest: Any, **options: Any) -> None:
            found = self._watch.below(path)
            if found is None:
                self.real[name](path, *rest, **options)
            else:
                self._watch.around(Step(name, found), lambda: self.real[name](path, *rest, **options))

        return run


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """Every step of this process goes through ``watch`` for a while."""
    through = _Through(watch)
    try:
        for name, function in through.functions().items():
            setattr(os, name, function)
        yield watch
    finally:
        for name, function in through.real.items():
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
