"""Looking at processes through ``/proc``, and ending them. Where there is no ``/proc``, none is seen.

Not guaranteed: to see a process that lives for less than one look, nor, without a pid namespace, one that broke away
before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

PAYLOAD, ANSWER = 3, 4
"""Numbers of the descriptors from which a candidate reads its payload and to which it writes its answer."""
MARK = "AGENTKV_SANDBOX"
"""The variable in a candidate's environment by which its processes are found; see :func:`carrying`."""

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SWEEP_S = 2.0


class Process(NamedTuple):
    """One process. ``cpu_s`` includes what its children used that it has waited for."""

    pid: int
    parent: int
    threads: int
    cpu_s: float
    rss_bytes: int


def snapshot() -> dict[int, Process]:
    """Every process that can be seen now, by pid."""
    found = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - twenty times a second
    except OSError:
        return {}
    for name in names:
        with contextlib.suppress(OSError, IndexError, ValueError):
            found[int(name)] = _read(int(name))
    return found


def _read(pid: int) -> Process:
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        fields = os.read(fd, 4096).rpartition(b")")[2].split()
    finally:
        os.close(fd)
    if fields[0] in b"ZX":
        return Process(pid, int(fields[1]), 0, sum(map(int, fields[11:15])) / _TICKS, 0)
    return Process(pid, int(fields[1]), int(fields[17]), sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE)


def descendants(root: int, seen: dict[int, Process] | None = None) -> list[Process]:
    """``root``'s children, theirs, and so on; without ``root``."""
    seen = snapshot() if seen is None else seen
    children: dict[int, list[Process]] = {}
    for process in seen.values():
        children.setdefault(process.parent, []).append(process)
    found, front = [], [root]
    while front:
        below = children.pop(front.pop(), [])
        found += below
        front += [process.pid for process in below]
    return found


def of_user(uid: int) -> list[int]:
    """Pids of every process of that user."""
    found = []
    for pid in snapshot():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:  # noqa: PTH116
                found.append(pid)
    return found


def carrying(mark: str) -> list[int]:
    """Pids of processes that were started with ``mark`` in their environment."""
    found, encoded = [], mark.encode()
    for pid in snapshot():
        with contextlib.suppress(OSError):
            if encoded in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def end(pids: list[int]) -> None:
    """Stop them all first, so that none forks while others are killed; then kill them."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def sweep(uid: int | None) -> bool:
    """End every descendant of this process, and every process of ``uid``; whether none is left after two seconds."""
    until = time.monotonic() + _SWEEP_S
    while True:
        reap()
        left = [process.pid for process in descendants(os.getpid()) if process.threads]
        if uid is not None:
            left += of_user(uid)
        if not left:
            return True
        if time.monotonic() > until:
            return False
        end(left)
        time.sleep(0.002)


def reap() -> dict[int, int]:
    """Wait for children that have ended; their wait statuses by pid."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended
