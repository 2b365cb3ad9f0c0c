"""The last steps of a process before it becomes the candidate: limits, identity, descriptors, then ``exec``.

A candidate gets an empty standard input, pipes for its output, its payload on descriptor 3 to read and its answer on 4
to write, a clean environment, and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys
from typing import Any, NamedTuple, NoReturn

from agentkv.sandbox import linux
from agentkv.sandbox.processes import ANSWER, PAYLOAD


class Candidate(NamedTuple):
    """What the process becomes. ``limits``: rlimit name → value. ``uid``: None keeps the user that it is.

    ``filtered``: None for no seccomp filter, else whether signals are allowed. ``kept``: more descriptors, from 5 on.
    """

    command: list[str]
    environment: dict[str, str]
    limits: dict[str, int]
    streams: dict[str, int]
    uid: int | None = None
    filtered: bool | None = None
    kept: tuple[int, ...] = ()


def become(candidate: Candidate, complaints: int) -> NoReturn:
    """Never returns. ``complaints``: a pipe that closes silently on success, or gets the reason for a failure."""
    try:
        os.setsid()
        _reset_signals()
        complaints = _arrange(candidate, complaints)
        _limit(candidate.limits)
        if candidate.uid is not None:
            os.setgroups([])
            os.setresgid(candidate.uid, candidate.uid, candidate.uid)
        if sys.platform == "linux":
            linux.drop_capability_bounds()
        if candidate.uid is not None:
            os.setresuid(candidate.uid, candidate.uid, candidate.uid)
        if sys.platform == "linux":
            linux.die_with_parent()
            linux.forbid_new_privileges()
            _filter(candidate.filtered)
        os.umask(0o077)
        os.execve(candidate.command[0], candidate.command, candidate.environment)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must be reported and the process must end here
        with contextlib.suppress(OSError):
            os.write(complaints, f"{type(error).__name__}: {error}".encode()[:500])
    os._exit(127)


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _arrange(candidate: Candidate, complaints: int) -> int:
    """Put each stream on its number and close all else. Those numbers may be taken, so all are moved up first."""
    streams = candidate.streams
    high = {name: _moved_up(streams[name]) for name in ("stdout", "stderr", "payload", "answer")}
    complaints = _moved_up(complaints)
    kept = [_moved_up(fd) for fd in candidate.kept]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(high["stdout"], 1)
    os.dup2(high["stderr"], 2)
    os.dup2(high["payload"], PAYLOAD)
    os.dup2(high["answer"], ANSWER)
    for at, fd in enumerate(kept, ANSWER + 1):
        os.dup2(fd, at)
    last = ANSWER + len(kept)
    _close_between(last, complaints)
    _close_between(complaints, None)
    return complaints


def _moved_up(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)


def _close_between(above: int, below: int | None) -> None:
    os.closerange(above + 1, 4096 if below is None else below)


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number: Any = getattr(resource, name, None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):  # a limit that this system does not know (macOS: address space)
            resource.setrlimit(number, (bound, bound))


def _filter(signals: bool | None) -> None:
    program = None if signals is None else linux.filter_program(signals=signals)
    if program is not None:
        linux.install_filter(program)
