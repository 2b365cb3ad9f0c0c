"""Starts a worker process, waits for it, and kills it with all that it has started.

Every worker leads a process group of its own, so that servers end with it and Ctrl-C reaches this process only, which
then ends the group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from agentkv.bench.process import command
from tests.benchmarks.peers.arm import Outcome, Report, Task

TARGET = "tests.benchmarks.peers.worker:work"
_LIMIT_S = 3600.0
_LOOK_S = 0.0005
_TAIL = 4
_MARKS = ("ASSERT", "rror", "GGML", "terminate")


def launch(task: Task) -> Outcome:
    """Run one step in a new process.

    Where it is to be killed: SIGKILL for the whole group as soon as the task's folder holds that many bytes;
    ``killed_at`` says how many there were then, None if it was done before.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command(TARGET), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
        )
        killed_at = None
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended, and its code says how
                process.stdin.write(task.model_dump_json())
                process.stdin.close()
            process.stdin = None
            if task.step.kill_at is not None:
                killed_at = _killed(process, task.folder, task.step.kill_at)
            out, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            out = ""
        finally:
            _end(process)
        if process.returncode == 0 and out:
            return Outcome(result=Report.model_validate_json(out), killed_at=killed_at)
        return Outcome(result=None, code=process.returncode, stderr=_reason(log, task), killed_at=killed_at)


def _killed(process: subprocess.Popen[str], folder: Path, size: int) -> int | None:
    while process.poll() is None:
        there = folder_bytes(folder)
        if there >= size:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return there
        time.sleep(_LOOK_S)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    """The group, not only the leader: a server may outlive a worker that crashed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _reason(log: IO[str], task: Task) -> str:
    """The lines of the log that look like a reason, or its last ones, without places on this machine."""
    log.seek(0)
    lines = [line.strip() for line in log if line.strip()]
    marked = [line for line in lines if any(mark in line for mark in _MARKS)]
    reason = "\n".join((marked or lines)[-_TAIL:])
    return reason.replace(str(task.folder), "FOLDER").replace(task.model, "MODEL")


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below ``folder``, however far they are written."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total
