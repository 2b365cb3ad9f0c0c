"""The process in which one arm lives: what it does there, by phase. ``work`` is the function that the process runs.

``uninterrupted``: read the block, go on; nothing is kept: what all else is compared with, and the cold prefill.
``one_pass``: block and turn read at once, as an arm does that reads again. ``store``: read it and keep it. ``ask``: a
new process brings it back and goes on. ``resident``: for states in memory, store and then ask in the same process.
``turns``: twenty turns from one block. ``broken``: as ``ask``, but the process ends behind the first token with nothing
closed.

Whatever an arm raises is its refusal. Then the block is read in the same process and the turn asked again, for a
refusal must not spoil what comes after it. Times are milliseconds, memory is in bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.arm import Answer, Arm, ArmDied, open_arm

TURN_STEPS = 4
"""Steps of each of the twenty turns but the last."""


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """One phase of one arm; its record. A server that died is told as ``died``."""
    try:
        arm = open_arm(payload)
    except ArmDied as error:
        return {"died": str(error)}
    try:
        return PHASES[payload["phase"]](arm, payload)
    except ArmDied as error:
        return {"died": str(error)}
    finally:
        arm.close()


def _uninterrupted(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    arm.forget()
    with _memory(arm) as memory:
        read_ms = arm.read()
        answer = arm.ask(payload["turn"], payload["steps"])
    return {"read_ms": read_ms, **dataclasses.asdict(answer), "memory": memory}


def _one_pass(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    return dataclasses.asdict(arm.whole(payload["turn"], payload["steps"]))


def _store(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    arm.forget()
    with _memory(arm) as memory:
        ms = arm.store()
    return {"ms": ms, "note": arm.note(), "memory": memory}


def _ask(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    return _restored(arm, payload)


def _resident(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    stored = _store(arm, payload)
    return {"store": stored, "asks": [_restored(arm, {**payload, "turn": turn}) for turn in payload["asked"]]}


def _turns(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    """All turns but the first, then the first, which is compared."""
    if payload["resident"]:
        arm.forget()
        arm.store()
    before = arm.digest()
    for turn in range(1, len(payload["turns"])):
        refused, _, _ = _attempt(arm, payload, turn, TURN_STEPS)
        if refused is not None:
            return {"refused": f"at turn {turn}: {refused}", **_read_anew(arm, payload)}
    row = _restored(arm, payload, forget=False)
    return {**row, "digests": [before, arm.digest()]}


def _broken(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    arm.forget()
    refused, _, _ = _attempt(arm, payload, payload["turn"], 0)
    sys.stdout.write(json.dumps({"refused": refused}))
    sys.stdout.flush()
    os._exit(0)


PHASES: dict[str, Callable[[Arm, dict[str, Any]], dict[str, Any]]] = {
    "uninterrupted": _uninterrupted,
    "one_pass": _one_pass,
    "store": _store,
    "ask": _ask,
    "resident": _resident,
    "turns": _turns,
    "broken": _broken,
}


# --- one restore and one turn ------------------------------------------------------------------------


def _restored(arm: Arm, payload: dict[str, Any], *, forget: bool = True) -> dict[str, Any]:
    if forget:
        arm.forget()
    left = _evicted(payload)
    with _memory(arm) as memory:
        refused, ms, answer = _attempt(arm, payload, payload["turn"], payload["steps"])
    if answer is None:
        return {"refused": refused, **_read_anew(arm, payload)}
    note = arm.note()
    return {"refused": None, "ms": ms, **dataclasses.asdict(answer), "note": note, "memory": memory, "left": left}


def _attempt(
    arm: Arm, payload: dict[str, Any], turn: int, steps: int
) -> tuple[str | None, dict[str, float], Answer | None]:
    try:
        ms = arm.restore()
        return None, ms, arm.ask(turn, steps)
    except ArmDied:
        raise
    except Exception as error:
        return _told(error, payload), {}, None


def _read_anew(arm: Arm, payload: dict[str, Any]) -> dict[str, Any]:
    """What the same process answers after a refusal, by reading."""
    try:
        arm.forget()
        arm.read()
        return dataclasses.asdict(arm.ask(payload["turn"], payload["steps"]))
    except ArmDied:
        raise
    except Exception as error:
        return {"after": _told(error, payload), "evidence": []}


def _told(error: Exception, payload: dict[str, Any]) -> str:
    """Type and message, without the folder's place on this machine."""
    return f"{type(error).__name__}: {error}".replace(payload["folder"], "FOLDER")[:300]


def _evicted(payload: dict[str, Any]) -> float | None:
    """Put the arm's files out of the page cache where they are to be cold; the share of pages that stayed."""
    if payload.get("home") != "cold":
        return None
    from agentkv.bench.pagecache import evict

    files = [path for path in Path(payload["folder"]).rglob("*") if path.is_file() and path.stat().st_size]
    return evict(files) if files else 0.0


# --- memory -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _memory(arm: Arm) -> Iterator[dict[str, int]]:
    """Resident bytes before, and the most within, over all processes of the arm; empty where Linux's /proc is not."""
    told: dict[str, int] = {}
    for pid in arm.pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets the high-water mark to what it is now
    before = _resident_bytes(arm.pids, "VmRSS")
    try:
        yield told
    finally:
        peak = _resident_bytes(arm.pids, "VmHWM")
        if before is not None and peak is not None:
            told |= {"before": before, "peak": max(peak, before)}


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
