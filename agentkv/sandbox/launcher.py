"""The trusted process between agentkv and a candidate: isolates it, starts it, watches it, ends all of it.

Runs as ``python -I -S`` in a new process, so it holds nothing that a candidate should not see. When its standard input
closes, everything ends. It reports on the control pipe, one JSON object a line: ``ready`` (with the isolation reached)
or ``refused``, then ``ended``. A candidate never has that pipe.

```
agentkv ── launcher ── process 1 of the namespaces ── candidate     method "namespaces"
        └─ launcher ── candidate                                    method "limits"
        └─ launcher ── bwrap ── its process 1 ── candidate          method "bubblewrap"
```
Orphans come to the launcher or to process 1, wherever they fled; with process 1 the kernel ends all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from agentkv.sandbox import linux, namespaces, processes
from agentkv.sandbox.candidate import Candidate, become

_STANDARD_INPUT = 0
_TICK_S = 0.05
_SHELL_SIGNAL = 128
_SPARE_PROCESSES, _SPARE_CPU_S = 4, 0.25


class Refused(Exception):
    """This method is not available here."""


class Started(NamedTuple):
    """What runs. ``root``: the process whose end ends the run; ``reports``: where process 1 reports the candidate's.

    ``uid``: the candidate's own user. ``kernel_ends_all``: nothing outlives ``root``.
    """

    root: int
    isolation: dict[str, Any]
    reports: int | None = None
    uid: int | None = None
    kernel_ends_all: bool = False


def main(text: str) -> None:
    """Run one candidate. ``text``: the configuration as JSON, written by :mod:`agentkv.sandbox.sandbox`."""
    config = json.loads(text)
    try:
        if sys.platform == "linux":
            linux.die_with_parent()
            linux.become_subreaper()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        started = _METHODS[config["method"]](config)
    except (Refused, OSError, ImportError, AttributeError) as error:
        processes.sweep(None)
        _say(config["control"], {"refused": str(error) or type(error).__name__})
        return
    _say(config["control"], {"ready": started.isolation})
    _say(config["control"], {"ended": _watch(started, config)})


def _say(fd: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, json.dumps(message).encode() + b"\n")


# --- the methods ----------------------------------------------------------------------------------


def _in_namespaces(config: dict[str, Any]) -> Started:
    """Fork a stage that leaves the namespaces, and process 1 from it; the stage ends and process 1 comes to us."""
    reports, reporting = os.pipe()
    going, go = os.pipe()
    uid = namespaces.unused_uid() if os.geteuid() == 0 else None
    stage = os.fork()
    if stage == 0:
        os.close(reports)
        os.close(go)
        _stage(config, uid, reporting, going)
    os.close(reporting)
    os.close(going)
    messages = _Lines(reports)
    first = messages.next()
    os.waitpid(stage, 0)
    if "init" not in first:
        raise Refused(first.get("refused", "the stage ended without a word"))
    os.write(go, b"g")  # `go` stays open: its end tells process 1 that we are gone
    second = messages.next()
    if "ready" not in second:
        raise Refused(second.get("refused", "process 1 ended without a word"))
    isolation = {
        "level": "namespaces",
        "descendants": "pid namespace",
        "network": "none",
        "files": "read-only selection",
        "identity": "user of its own" if uid is not None else "user namespace",
        "system_calls": _filtered(),
        "processes": "rlimit, watched",
        "memory": "rlimit a process, watched sum",
    }
    return Started(first["init"], isolation, reports, uid, kernel_ends_all=True)


def _stage(config: dict[str, Any], uid: int | None, reporting: int, going: int) -> NoReturn:
    try:
        linux.die_with_parent()
        namespaces.leave()
        init = os.fork()
        if init == 0:
            _process_1(config, uid, reporting, going)
        _say(reporting, {"init": init})
    except BaseException as error:  # noqa: BLE001 - a forked process must not run on into its parent's code
        _say(reporting, {"refused": str(error)})
    os._exit(0)


def _process_1(config: dict[str, Any], uid: int | None, reporting: int, going: int) -> NoReturn:
    try:
        if os.read(going, 1) != b"g":
            os._exit(1)
        linux.die_with_parent()
        if select.select([going], [], [], 0)[0]:  # the launcher ended between its go and our vow
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 is deaf to what it has no handler for
        owner = uid if uid is not None else namespaces.NOBODY
        namespaces.furnish(config["place"], config["readable"], config["disk_bytes"], owner)
        own = 0 if uid is not None else 1  # without a user of its own, process 1 counts too
        child = _start(_candidate(config, uid, own, namespaces.WORK, signals=True))
        _say(reporting, {"ready": True})
        while True:
            pid, status = os.wait()
            if pid == child:
                _say(reporting, {"status": status})
                break
    except BaseException as error:  # noqa: BLE001 - as above
        _say(reporting, {"refused": str(error) or type(error).__name__})
    os._exit(0)


def _by_limits(config: dict[str, Any]) -> Started:
    """A plain child: rlimits, a filter of system calls, and a sweep by ancestry."""
    work = Path(config["place"]) / "work"
    work.mkdir(mode=0o700)
    uid = None
    if os.geteuid() == 0 and all(_open_to_all(path) for path in (config["command"][0], config["prefix"], work.parent)):
        uid = namespaces.unused_uid()
        os.chown(work, uid, uid)
    own = 0 if uid is not None and uid != namespaces.NOBODY else _threads_of_user(os.geteuid())
    os.chdir(work)
    child = _start(_candidate(config, uid, own, str(work), signals=False))
    filtered = _filtered()
    on_linux = sys.platform == "linux"
    bound = uid is not None or os.geteuid() != 0  # no limit on processes binds root
    isolation = {
        "level": "limits" if on_linux and bound else "process",
        "descendants": "sweep by ancestry" if on_linux else "process group",
        "network": "none" if filtered == "filtered" else "open",
        "files": "open",
        "identity": "user of its own" if uid is not None else "the caller's",
        "system_calls": filtered,
        "processes": "rlimit, watched" if bound else "watched",
        "memory": "rlimit a process, watched sum" if on_linux else "rlimit where the system has it",
    }
    return Started(child, isolation, None, uid)


def _in_bubblewrap(config: dict[str, Any]) -> Started:
    """``bwrap`` makes the namespaces; the limits are set on it and pass to all below."""
    if os.geteuid() == 0:
        raise Refused("as root a limit on processes would not bind inside bwrap")
    program = linux.filter_program(signals=True)
    filtered, fds = _filtered(), list[int]()
    if program is not None:
        reading, writing = os.pipe()
        os.write(writing, program)
        os.close(writing)
        fds = [reading]
    own = _threads_of_user(os.geteuid()) + _SPARE_PROCESSES
    candidate = _candidate(config, None, own, namespaces.WORK, signals=None)
    filter_fd = 5 if fds else None
    command = namespaces.bubblewrap_command(config["bwrap"], config["readable"], config["disk_bytes"], filter_fd)
    candidate = Candidate(
        [*command, *candidate.command],
        candidate.environment,
        candidate.limits,
        candidate.streams,
        None,
        None,
        tuple(fds),
    )
    child = _start(candidate)
    isolation = {
        "level": "bubblewrap",
        "descendants": "pid namespace",
        "network": "none",
        "files": "read-only selection",
        "identity": "user namespace",
        "system_calls": filtered,
        "processes": "rlimit, watched",
        "memory": "rlimit a process, watched sum",
    }
    return Started(child, isolation)


_METHODS: dict[str, Callable[[dict[str, Any]], Started]] = {
    "namespaces": _in_namespaces,
    "limits": _by_limits,
    "bubblewrap": _in_bubblewrap,
}


def _candidate(config: dict[str, Any], uid: int | None, own: int, work: str, signals: bool | None) -> Candidate:
    limits = dict(config["rlimits"])
    limits["RLIMIT_NPROC"] = own + config["processes"]
    environment = {**config["environment"], "HOME": work, "TMPDIR": work}
    return Candidate(config["command"], environment, limits, config["streams"], uid, signals)


def _start(candidate: Candidate) -> int:
    """Fork and become the candidate there; its pid once it has. Raises Refused."""
    complaints, complaining = os.pipe()
    child = os.fork()
    if child == 0:
        become(candidate, complaining)
    os.close(complaining)
    with os.fdopen(complaints, "rb") as pipe:
        reason = pipe.read()
    if reason:
        os.waitpid(child, 0)
        raise Refused(reason.decode(errors="replace"))
    return child


def _filtered() -> str:
    return "filtered" if sys.platform == "linux" and linux.filter_program(signals=True) is not None else "all"


def _open_to_all(path: str | os.PathLike[str]) -> bool:
    """Whether any user may enter the folders above ``path`` and read it."""
    place = Path(path).resolve()
    return bool(place.stat().st_mode & 0o005 == 0o005 or place == Path(path).parent) and all(
        above.stat().st_mode & 0o001 for above in place.parents
    )


def _threads_of_user(uid: int) -> int:
    """How many threads the limit on processes counts already: the user's everywhere."""
    seen = processes.snapshot()
    return sum(seen[pid].threads for pid in processes.of_user(uid) if pid in seen)


class _Lines:
    """JSON objects, one a line, from a pipe; an empty one at its end."""

    def __init__(self, fd: int) -> None:
        self._fd, self._rest = fd, b""

    def next(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            chunk = os.read(self._fd, 4096)
            if not chunk:
                return {}
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


# --- watching -------------------------------------------------------------------------------------


def _watch(started: Started, config: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end, or enforce it. The report for ``ended``; ``left``: a process of it may be left."""
    woken = _wake_on_children()
    status, over, seen_cpu_s = None, None, 0.0
    while True:
        ready, _, _ = select.select([_STANDARD_INPUT, woken], [], [], _TICK_S)
        if woken in ready:
            os.read(woken, 4096)
        ended = processes.reap()
        if started.root in ended:
            status = ended[started.root]
            break
        used, over = _over(started, config)
        seen_cpu_s = max(seen_cpu_s, used)
        over = "stopped" if _STANDARD_INPUT in ready else over
        if over is not None:
            break
    gone = _end_all(started, over is not None)
    if started.reports is not None:
        status = _Lines(started.reports).next().get("status")
    if config["method"] == "bubblewrap" and status is not None and status >> 8 > _SHELL_SIGNAL:
        status = (status >> 8) - _SHELL_SIGNAL  # bwrap says as shells do that a signal ended the candidate
    cpu_s, max_rss_bytes = _used_by_children()
    cpu_s = max(cpu_s, seen_cpu_s)  # the kernel forgets what those used that it has ended
    return {"status": status, "over": over, "left": not gone, "cpu_s": cpu_s, "max_rss_bytes": max_rss_bytes}


def _wake_on_children() -> int:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.kill(os.getpid(), signal.SIGCHLD)  # one may have ended before
    return reading


def _over(started: Started, config: dict[str, Any]) -> tuple[float, str | None]:
    """Seconds of CPU used, and which limit on all of it together was passed; None if none, or if it cannot be seen."""
    seen = processes.snapshot()
    top = started.root if started.kernel_ends_all else os.getpid()
    below = processes.descendants(top, seen)
    waited = seen[top].cpu_s if top in seen else 0.0
    used = sum(process.cpu_s for process in below) + waited
    if sum(process.threads for process in below) > config["processes"] + _SPARE_PROCESSES:
        return used, "processes"
    if sum(process.rss_bytes for process in below) > config["memory_bytes"]:
        return used, "memory"
    return used, "cpu" if used > config["cpu_s"] + _SPARE_CPU_S else None


def _end_all(started: Started, kill: bool) -> bool:
    if kill:
        with contextlib.suppress(OSError):
            os.kill(started.root, signal.SIGKILL)
        if not started.kernel_ends_all:
            with contextlib.suppress(OSError):
                os.killpg(started.root, signal.SIGKILL)
    if started.kernel_ends_all:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(started.root, 0)  # returns when the kernel has ended everyone in the namespace
        return True
    if sys.platform != "linux":  # there ancestry cannot be seen
        with contextlib.suppress(OSError):
            os.killpg(started.root, signal.SIGKILL)
    return processes.sweep(started.uid if started.uid != namespaces.NOBODY else None)


def _used_by_children() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    return used.ru_utime + used.ru_stime, used.ru_maxrss * unit
