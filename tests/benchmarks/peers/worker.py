"""The process in which one arm lives: what it does there, by phase. ``work`` is the function that the process runs.

``uninterrupted``: prefill the block, go on; nothing is kept: what all else is compared with, and the cold prefill.
``one_pass``: block and turn prefilled at once, as by an arm that has lost the block. ``store``: prefill it and keep it.
``ask``: a new process brings it back and goes on. ``resident``: for states in memory, store and then ask in the same
process. ``turns``: twenty turns from one block. ``broken``: as ``ask``, but the process ends after the first token with
nothing closed.

Whatever an arm raises is its refusal. Then the block is prefilled in the same process and the turn asked again, for a
refusal must not spoil what comes after it. Times are milliseconds, memory is in bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.arm import Answer, Arm, ArmDied, Report, Task, open_arm

TURN_STEPS = 4
"""Steps of each of the twenty turns but the last."""


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """The phase of a :class:`Task` as JSON; its :class:`Report`."""
    return report(Task.model_validate(payload)).model_dump(exclude_unset=True)


def report(task: Task) -> Report:
    """One phase of one arm."""
    try:
        arm = open_arm(task)
    except ArmDied as error:
        return Report(died=str(error))
    try:
        return PHASES[task.step.phase](arm, task)
    except ArmDied as error:
        return Report(died=str(error))
    finally:
        arm.close()


def _uninterrupted(arm: Arm, task: Task) -> Report:
    arm.forget()
    with _memory(arm) as memory:
        read_ms = arm.read()
        answer = arm.ask(task.step.turn, task.steps)
    return Report(read_ms=read_ms, **answer.model_dump(), memory=memory)


def _one_pass(arm: Arm, task: Task) -> Report:
    return Report(**arm.whole(task.step.turn, task.steps).model_dump())


def _store(arm: Arm, task: Task) -> Report:
    arm.forget()
    with _memory(arm) as memory:
        ms = arm.store()
    return Report(ms=ms, note=arm.note(), memory=memory)


def _resident(arm: Arm, task: Task) -> Report:
    stored = _store(arm, task)
    asks = [dataclasses.replace(task.step, turn=turn) for turn in task.step.asked]
    return Report(store=stored, asks=[_ask(arm, task.model_copy(update={"step": step})) for step in asks])


def _turns(arm: Arm, task: Task) -> Report:
    """All turns but the first, then the first, which is compared."""
    if task.spec.resident:
        arm.forget()
        arm.store()
    before = arm.digest()
    for turn in range(1, len(task.turns)):
        refused, _, _ = _attempt(arm, task, turn, TURN_STEPS)
        if refused is not None:
            return _prefilled(arm, task, f"at turn {turn}: {refused}")
    report = _restored(arm, task)
    return report.model_copy(update={"digests": [before, arm.digest()]})


def _broken(arm: Arm, task: Task) -> Report:
    arm.forget()
    refused, _, _ = _attempt(arm, task, task.step.turn, 0)
    sys.stdout.write(Report(refused=refused).model_dump_json(exclude_unset=True))
    sys.stdout.flush()
    os._exit(0)


# --- one restore and one turn ------------------------------------------------------------------------


def _ask(arm: Arm, task: Task) -> Report:
    arm.forget()
    return _restored(arm, task)


PHASES: dict[str, Callable[[Arm, Task], Report]] = {
    "uninterrupted": _uninterrupted,
    "one_pass": _one_pass,
    "store": _store,
    "ask": _ask,
    "resident": _resident,
    "turns": _turns,
    "broken": _broken,
}


def _restored(arm: Arm, task: Task) -> Report:
    left = _evicted(task)
    with _memory(arm) as memory:
        refused, ms, answer = _attempt(arm, task, task.step.turn, task.steps)
    if answer is None:
        return _prefilled(arm, task, refused)
    return Report(refused=None, ms=ms, **answer.model_dump(), note=arm.note(), memory=memory, left=left)


def _attempt(arm: Arm, task: Task, turn: int, steps: int) -> tuple[str | None, dict[str, float], Answer | None]:
    try:
        ms = arm.restore()
        return None, ms, arm.ask(turn, steps)
    except ArmDied:
        raise
    except Exception as error:
        return _message(error, task), {}, None


def _prefilled(arm: Arm, task: Task, refused: str | None) -> Report:
    """What the same process answers after a refusal, by a prefill."""
    try:
        arm.forget()
        arm.read()
        return Report(refused=refused, **arm.ask(task.step.turn, task.steps).model_dump())
    except ArmDied:
        raise
    except Exception as error:
        return Report(refused=refused, after=_message(error, task))


def _message(error: Exception, task: Task) -> str:
    """Type and message, without the folder's place on this machine."""
    return f"{type(error).__name__}: {error}".replace(str(task.folder), "FOLDER")[:300]


def _evicted(task: Task) -> float | None:
    """Put the arm's files out of the page cache where they are to be cold; the share of pages that stayed."""
    if task.step.home != "cold":
        return None
    from agentkv.bench.pagecache import evict

    files = [path for path in task.folder.rglob("*") if path.is_file() and path.stat().st_size]
    return evict(files) if files else 0.0


# --- memory -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _memory(arm: Arm) -> Iterator[dict[str, int]]:
    """Resident bytes before, and the most within, over all processes of the arm; empty where Linux's /proc is not."""
    measured: dict[str, int] = {}
    for pid in arm.pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets the high-water mark to what it is now
    before = _resident_bytes(arm.pids, "VmRSS")
    try:
        yield measured
    finally:
        peak = _resident_bytes(arm.pids, "VmHWM")
        if before is not None and peak is not None:
            measured |= {"before": before, "peak": max(peak, before)}


def _resident_bytes(pids: tuple[int, ...], field: str) -> int | None:
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return None
        found = next((line for line in lines if line.startswith(field + ":")), None)
        if found is None:
            return None
        total += int(found.split()[1]) * 1024
    return total
