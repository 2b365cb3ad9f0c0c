"""``Sandbox``: run an untrusted Python script, and report what it did and how far it was isolated.

What comes from the answer pipe is untrusted bytes, whatever they say. Everything is bounded while it runs; the verdict
comes within a second of the limit whatever the candidate does. The package's docstring lists what is not prevented.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agentkv
from agentkv.errors import IsolationTooLow, SandboxUnavailable, UsageError
from agentkv.sandbox import namespaces, processes
from agentkv.sandbox.base import Captured, Ending, Isolation, Level, Limits, Policy, Run
from agentkv.sandbox.processes import ANSWER, MARK

_SETUP_S = 20.0
_SCRIPT_BYTES = 48 << 10
_CHUNK = 1 << 16
_GRACE_S, _FORCED_S = 0.5, 0.2
_METHODS = {Level.BUBBLEWRAP: "bubblewrap", Level.NAMESPACES: "namespaces", Level.LIMITS: "limits"}
_BOOT = "import sys; sys.path.append(sys.argv[1]); from agentkv.sandbox.launcher import main; main(sys.argv[2])"
_PROBE = f"import os; os.write({ANSWER}, b'here')"
# No folder of packages (-S), no user's folder (-s), not the working folder (-P), no compiled files written (-B).
_FLAGS = ("-s", "-S", "-P", "-B")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",  # sets in the same order each time: a re-check computes the same
    "PYTHONUTF8": "1",
    "MALLOC_ARENA_MAX": "1",  # else each thread's arena takes 64 MB of address space
}


class Stream:
    """The reading end ``fd`` of a pipe, never waited for: its first and last bytes are kept, at most ``keep``."""

    def __init__(self, fd: int, keep: int) -> None:
        self.fd, self.total, self.ended = fd, 0, False
        self._head, self._tail = bytearray(), bytearray()
        self._each = max(1, keep // 2)
        os.set_blocking(fd, False)

    def read(self) -> int:
        """Take what is there, one chunk at most; how many bytes. 0: nothing now, or ``ended``."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        self.ended = not chunk
        self.total += len(chunk)
        room = self._each - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(0, room) :]
        del self._tail[: -self._each]
        return len(chunk)

    def drain(self, at_most: int) -> None:
        """Take what is there, ``at_most`` bytes about."""
        taken = 0
        while taken < at_most and (got := self.read()):
            taken += got

    @property
    def whole(self) -> bytes | None:
        """Every byte, or None if some are gone."""
        complete = self.total == len(self._head) + len(self._tail)
        return bytes(self._head + self._tail) if complete else None

    def captured(self, *, more: bool) -> Captured:
        """What is kept. ``more``: it was cut off while more was to come."""
        if self.whole is not None and not more:
            return Captured(self.whole, b"", self.total, truncated=False)
        return Captured(bytes(self._head), bytes(self._tail), self.total, truncated=True)


@dataclass
class _Pipes:
    """Reading ends by name, writing ends for the launcher."""

    reading: dict[str, int] = field(default_factory=dict)
    writing: dict[str, int] = field(default_factory=dict)

    @classmethod
    def opened(cls) -> _Pipes:
        pipes = cls()
        for name in ("stdout", "stderr", "answer", "control"):
            pipes.reading[name], pipes.writing[name] = os.pipe()
        return pipes

    def close_writing(self) -> None:
        while self.writing:
            os.close(self.writing.popitem()[1])

    def close(self) -> None:
        self.close_writing()
        while self.reading:
            os.close(self.reading.popitem()[1])


class Sandbox:
    """Runs scripts under ``limits``, isolated as far as this system can, and at least as far as ``policy`` says.

    ``ceiling``: no higher level is tried. ``readable``: folders that a candidate may read besides the interpreter's
    and the system's. Which level is available is found by one trial run, before the first. Threads may share it.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        policy: Policy | None = None,
        *,
        ceiling: Level = Level.BUBBLEWRAP,
        readable: Sequence[Path] = (),
    ) -> None:
        self.limits, self.policy, self.ceiling = limits or Limits(), policy or Policy(), ceiling
        self._python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
        prefixes = [os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.base_exec_prefix)]
        shown = [*namespaces.system_paths(), *prefixes, *(str(path.resolve()) for path in readable)]
        self._readable = [path for path in dict.fromkeys(shown) if not _is_below_another(path, shown)]
        self._isolation: Isolation | None = None
        self._lock = threading.Lock()

    def isolation(self) -> Isolation:
        """The isolation that runs get here. Raises SandboxUnavailable where nothing can be run at all."""
        with self._lock:
            if self._isolation is None:
                self._isolation = self._probe()
            return self._isolation

    def run(self, script: str, payload: bytes = b"", *, limits: Limits | None = None) -> Run:
        """Run Python source; it reads ``payload`` from descriptor 3 and writes its answer to descriptor 4.

        Raises IsolationTooLow, with nothing run, below the policy's level for running; SandboxUnavailable; UsageError
        for a script that is too long for a command line (put what is long into the payload).
        """
        if len(script.encode()) > _SCRIPT_BYTES:
            raise UsageError(f"a script of more than {_SCRIPT_BYTES:,} bytes; pass what is long as its payload")
        isolation = self.isolation()
        if isolation.level.rank < self.policy.run.rank:
            raise IsolationTooLow(isolation.level, self.policy.run, isolation.not_reached)
        method = _METHODS.get(isolation.level, "limits")
        return self._run(method, script, payload, limits or self.limits, isolation.not_reached)

    def _probe(self) -> Isolation:
        if not hasattr(os, "fork"):
            raise SandboxUnavailable("this system has no fork; candidates are run on Linux and macOS")
        not_reached: dict[str, str] = {}
        limits = Limits(wall_s=_SETUP_S, cpu_s=_SETUP_S, processes=4)
        for level, method in _METHODS.items():
            if level.rank > max(self.ceiling.rank, Level.LIMITS.rank):
                not_reached[level] = f"not tried: the ceiling is {self.ceiling}"
                continue
            try:
                run = self._run(method, _PROBE, b"", limits, not_reached)
            except SandboxUnavailable as error:
                not_reached[level] = error.reason
                continue
            if run.answer == b"here" and run.ending is Ending.EXIT and run.code == 0:
                return run.isolation
            not_reached[level] = f"a trial run ended with {run.ending} {run.code}: {run.stderr.text.strip()[-200:]}"
        raise SandboxUnavailable("; ".join(f"{level}: {why}" for level, why in not_reached.items()))

    # --- one run ----------------------------------------------------------------------------------

    def _run(self, method: str, script: str, payload: bytes, limits: Limits, not_reached: dict[str, str]) -> Run:
        mark = f"{MARK}={secrets.token_hex(16)}"
        with _folder() as place, contextlib.closing(_Pipes.opened()) as pipes, _readable_once(payload) as payload_fd:
            config = self._config(method, script, limits, place, pipes, payload_fd, mark)
            with tempfile.TemporaryFile() as complaints:
                command = [self._python, *("-I", "-S", "-c", _BOOT), str(_package_root()), json.dumps(config)]
                launcher = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    pass_fds=[*pipes.writing.values(), payload_fd],
                    start_new_session=True,
                    env=_ENVIRONMENT,
                    cwd="/",
                )
                pipes.close_writing()
                watched = _Watched(launcher, pipes, limits, mark)
                try:
                    watched.follow()
                finally:
                    watched.finish()
                complaints.seek(0)
                reason = watched.refused or complaints.read(4096).decode(errors="replace").strip()[-300:]
        return watched.run(reason, not_reached)

    def _config(
        self, method: str, script: str, limits: Limits, place: Path, pipes: _Pipes, payload_fd: int, mark: str
    ) -> dict[str, Any]:
        name, _, value = mark.partition("=")
        return {
            "method": method,
            "command": [self._python, *_FLAGS, "-c", script],
            "prefix": os.path.realpath(sys.base_prefix),
            "environment": {**_ENVIRONMENT, name: value},
            "place": str(place),
            "readable": self._readable,
            "bwrap": self._bwrap(method),
            "control": pipes.writing["control"],
            "streams": {**pipes.writing, "payload": payload_fd},
            "rlimits": {
                "RLIMIT_CPU": max(1, int(limits.cpu_s + 0.999)),
                "RLIMIT_AS": limits.memory_bytes,
                "RLIMIT_FSIZE": limits.file_bytes,
                "RLIMIT_NOFILE": limits.open_files,
                "RLIMIT_CORE": 0,
                "RLIMIT_MEMLOCK": 0,
                "RLIMIT_MSGQUEUE": 0,
            },
            "processes": limits.processes,
            "memory_bytes": limits.memory_bytes,
            "cpu_s": limits.cpu_s,
            "disk_bytes": limits.disk_bytes,
        }

    @staticmethod
    def _bwrap(method: str) -> str | None:
        found = shutil.which("bwrap") if method == "bubblewrap" else None
        if method == "bubblewrap" and found is None:
            raise SandboxUnavailable("bwrap is not installed")
        return found


def _package_root() -> Path:
    return Path(agentkv.__file__).resolve().parent.parent


def _is_below_another(path: str, others: Sequence[str]) -> bool:
    return any(path.startswith(other.rstrip("/") + "/") for other in others if not Path(other).is_symlink())


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for one run; removed with whatever a candidate has put into it."""
    place = Path(tempfile.mkdtemp(prefix="agentkv-sandbox-"))
    place.chmod(0o711)
    try:
        yield place
    finally:
        _remove(place)


def _remove(place: Path) -> None:
    for folder, names, _ in os.walk(place):  # a candidate may have closed its own folders
        for name in names:
            inner = Path(folder, name)
            if not inner.is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _readable_once(payload: bytes) -> Iterator[int]:
    """A read-only descriptor of ``payload``, in a file that has no name any more."""
    fd, name = tempfile.mkstemp(prefix="agentkv-payload-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(payload)
        reading = os.open(name, os.O_RDONLY)
    finally:
        Path(name).unlink()
    try:
        yield reading
    finally:
        os.close(reading)


class _Watched:
    """The parent's side of one run: reads, counts, looks at the clock, and ends it."""

    def __init__(self, launcher: subprocess.Popen[bytes], pipes: _Pipes, limits: Limits, mark: str) -> None:
        self._launcher, self._limits, self._mark = launcher, limits, mark
        keep = limits.output_bytes
        self._streams = {
            "stdout": Stream(pipes.reading["stdout"], keep),
            "stderr": Stream(pipes.reading["stderr"], keep),
            "answer": Stream(pipes.reading["answer"], 2 * limits.answer_bytes + 2),
            "control": Stream(pipes.reading["control"], 1 << 20),
        }
        self._isolation: dict[str, Any] | None = None
        self._ended: dict[str, Any] | None = None
        self._ending: Ending | None = None
        self._began = self._verdict = time.monotonic()
        self._lines_read = 0
        self.refused = ""

    # 1. Follow it until the launcher says that all has ended, or until the grace after a stop is over.

    def follow(self) -> None:
        deadline = time.monotonic() + _SETUP_S
        with selectors.DefaultSelector() as selector:
            for stream in self._streams.values():
                selector.register(stream.fd, selectors.EVENT_READ, stream)
            while self._ended is None and not self._streams["control"].ended:
                started = self._isolation is not None
                for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                    key.data.read()
                    if key.data.ended:
                        selector.unregister(key.fd)
                self._read_reports()
                if self._isolation is not None and not started:
                    self._began = time.monotonic()
                    deadline = self._began + self._limits.wall_s
                if self._ended is not None or self.refused:
                    break
                passed = self._passed(deadline)
                if passed is None:
                    continue
                if self._ending is not None:
                    break  # the grace is over
                self._ending, deadline = passed, time.monotonic() + _GRACE_S
                self._stop()
                for name in ("stdout", "stderr", "answer"):
                    with contextlib.suppress(KeyError):
                        selector.unregister(self._streams[name].fd)

    def _passed(self, deadline: float) -> Ending | None:
        streams = self._streams
        if self._ending is None:
            if streams["stdout"].total + streams["stderr"].total > self._limits.output_bytes:
                return Ending.OUTPUT
            if streams["answer"].total > self._limits.answer_bytes:
                return Ending.ANSWER
        return Ending.TIMEOUT if time.monotonic() >= deadline else None

    def _read_reports(self) -> None:
        lines = (self._streams["control"].whole or b"").split(b"\n")[:-1]
        for line in lines[self._lines_read :]:
            message = json.loads(line)
            self._isolation = message.get("ready", self._isolation)
            self._ended = message.get("ended", self._ended)
            self.refused = message.get("refused", self.refused)
        self._lines_read = len(lines)

    def _stop(self) -> None:
        """Close the launcher's standard input: it ends everything and reports."""
        if self._launcher.stdin is not None:
            with contextlib.suppress(OSError):
                self._launcher.stdin.close()

    # 2. Make sure that nothing is left, within a bounded time.

    def finish(self) -> None:
        self._stop()
        if self._ended is None and not self.refused:
            self._force()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(_FORCED_S)
        if self._launcher.poll() is None:
            self._force()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(_FORCED_S)
        self._verdict = time.monotonic()
        for name in ("stdout", "stderr", "answer"):
            if self._ending is None:  # what the pipe still holds of a run that ended by itself
                self._streams[name].drain(self._limits.output_bytes + self._limits.answer_bytes)

    def _force(self) -> None:
        """The launcher does not answer: end its descendants, those that carry the mark, and itself."""
        if self._launcher.poll() is None:
            processes.end([process.pid for process in processes.descendants(self._launcher.pid)])
            with contextlib.suppress(OSError):
                self._launcher.send_signal(signal.SIGKILL)
        processes.end(processes.carrying(self._mark))

    # 3. Report.

    def run(self, reason: str, not_reached: dict[str, str]) -> Run:
        if self._isolation is None:
            raise SandboxUnavailable(reason or "the launcher was not ready in time")
        self._began = min(self._began, self._verdict)
        ended = self._ended or {}
        ending, code = self._how(ended)
        total = self._streams["stdout"].total + self._streams["stderr"].total
        if ending in (Ending.EXIT, Ending.SIGNAL) and total > self._limits.output_bytes:
            ending, code = Ending.OUTPUT, None
        if ending in (Ending.EXIT, Ending.SIGNAL) and self._streams["answer"].total > self._limits.answer_bytes:
            ending, code = Ending.ANSWER, None
        cut = ending is Ending.OUTPUT
        answer = b"" if ending is Ending.ANSWER else self._streams["answer"].whole or b""
        return Run(
            ending=ending,
            code=code,
            stdout=self._captured("stdout", cut),
            stderr=self._captured("stderr", cut),
            answer=answer,
            wall_s=self._verdict - self._began,
            cpu_s=float(ended.get("cpu_s", 0.0)),
            max_rss_bytes=int(ended.get("max_rss_bytes", 0)),
            isolation=Isolation.model_validate_json(json.dumps({**self._isolation, "not_reached": not_reached})),
            survivors=bool(ended.get("left", not ended)),
        )

    def _captured(self, name: str, cut: bool) -> Captured:
        stream = self._streams[name]
        return stream.captured(more=cut and stream.total > 0)

    def _how(self, ended: dict[str, Any]) -> tuple[Ending, int | None]:
        if self._ending is not None:
            return self._ending, None
        over = ended.get("over")
        if over in ("cpu", "memory", "processes"):
            return Ending(over), None
        status = ended.get("status")
        if status is None:
            return Ending.LOST, None
        if os.WIFEXITED(status):
            return Ending.EXIT, os.WEXITSTATUS(status)
        number = os.WTERMSIG(status)
        at_limit = number in (signal.SIGKILL, signal.SIGXCPU) and float(ended["cpu_s"]) >= self._limits.cpu_s
        return (Ending.CPU, None) if at_limit else (Ending.SIGNAL, number)
