"""The fault injector: file-system steps of an operation, counted, journalled, made to fail, or the process's last.

A step is a call that changes what is on disk or promises that it stays: creating or opening for writing, write, fsync,
rename, mkdir, unlink. ``fsync`` is counted and made to fail, but not carried
out: a process that dies loses nothing that the kernel has. SQLite's own calls are not seen: its counts may be lost.
The integrity benchmark and the tests of the store share it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

Call = Literal["create", "write", "fsync", "rename", "mkdir", "unlink"]
CALLS: tuple[Call, ...] = get_args(Call)
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
    """Notes the steps below ``root`` (None: everywhere) of the kinds ``calls``.

    ``act(number, step, done)`` is called before and after each of them, ``number`` from 0 in the order of beginning.
    """

    def __init__(
        self,
        root: Path | None,
        act: Callable[[int, Step, bool], None] | None = None,
        calls: Collection[Call] = CALLS,
    ) -> None:
        self.root, self._act, self._calls = root, act, calls
        self._lock = threading.Lock()
        self.count = 0
        self.journal: list[Step] = []

    def around(self, step: Step, work: Callable[[], Any]) -> Any:
        """Carry out one step."""
        if step.call not in self._calls:
            return work()
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
        """The path, if it is below the root."""
        place = Path(os.fspath(path))
        return place if self.root is None or place.is_relative_to(self.root) else None


class _Through:
    """The system's functions that change files, going through a watch where the path is one of the store's."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.real: dict[str, Any] = {name: getattr(os, name) for name in _FUNCTIONS}
        self._paths: dict[int, Path] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of the system's own, by name."""
        single: dict[str, Callable[..., Any]] = {name: self._single(name) for name in _SINGLE}
        files: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "close": self._close,
            "write": self._write,
            "fsync": self._sync,
        }
        return {**single, **files, "replace": self._replace}

    def _open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        place = self._watch.below(path)
        if place is None:
            return int(self.real["open"](path, flags, *rest, **options))

        def work() -> int:
            fd = int(self.real["open"](path, flags, *rest, **options))
            self._paths[fd] = place
            return fd

        return int(self._watch.around(Step("create", place), work)) if flags & os.O_CREAT else work()

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
        place = self._watch.below(source)
        if place is None:
            self.real["replace"](source, target, **options)
            return
        step = Step("rename", place, target=Path(os.fspath(target)))
        self._watch.around(step, lambda: self.real["replace"](source, target, **options))

    def _single(self, name: Literal["mkdir", "unlink"]) -> Callable[..., None]:
        def run(path: Any, *rest: Any, **options: Any) -> None:
            place = self._watch.below(path)
            if place is None:
                self.real[name](path, *rest, **options)
            else:
                self._watch.around(Step(name, place), lambda: self.real[name](path, *rest, **options))

        return run


@contextlib.contextmanager
def replaced(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Functions of :mod:`os` in the place of the system's own, for a while."""
    real = {name: getattr(os, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(os, name, function)
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """Every step of this process goes through ``watch`` for a while."""
    with replaced(_Through(watch).functions()):
        yield watch


def without_syncs() -> contextlib.AbstractContextManager[None]:
    """``fsync`` returns at once: a process that dies loses nothing that it wrote, so waiting shows nothing."""
    return replaced({"fsync": lambda fd: None})


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
