"""Arms that stand in: on the fake engine, with the faults that the benchmark is there to find. And their processes."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np

from agentkv.engine.base import State
from agentkv.engine.fake import LAYOUT
from tests.benchmarks.peers import worker
from tests.benchmarks.peers.arm import Answer, ArmDied, Outcome, Report, Spec, Task, open_arm
from tests.benchmarks.peers.ours import FromDisk

HERE = "tests.benchmarks.peers.standins"


def spec(name: str, kind: str, files: tuple[str, ...] = ("*.raw",), **more: Any) -> Spec:
    """An arm of this module."""
    return Spec(name, name.title(), f"{HERE}:{kind}", "agentkv", "bits", files, **more)


class Naive(FromDisk):
    """Keeps the state's bytes as they are and sets whatever it finds there."""

    def store(self) -> dict[str, float]:
        ms = {"read": self.read()}
        self.folder.mkdir(exist_ok=True)
        (self.folder / "state.raw").write_bytes(self.engine.capture().blob.tobytes())
        return {**ms, "write": 1.0}

    def restore(self) -> dict[str, float]:
        blob = np.frombuffer((self.folder / "state.raw").read_bytes(), np.uint8).copy()
        self.engine.restore(State(tuple(self.block), LAYOUT, blob))
        return {"read": 1.0}


class Forgetful(Naive):
    """Deletes what it reads, and keeps it again after each whole turn, under another name."""

    def restore(self) -> dict[str, float]:
        file = next(iter(sorted(self.folder.glob("*.raw"))), None)
        if file is None:
            self.engine.clear()
            self.engine.extend(self.block)
            return {"read again": 1.0}
        file.rename(self.folder / "state.raw")
        ms = super().restore()
        (self.folder / "state.raw").unlink()
        return ms

    def ask(self, turn: int, steps: int) -> Answer:
        held = self.engine.counters.restored
        answer = super().ask(turn, steps)
        if not held:
            answer = answer.model_copy(update={"evaluated": answer.evaluated + len(self.block)})
        if steps:
            self.engine.clear()
            self.engine.extend(self.block)
            (self.folder / f"turn-{turn}.raw").write_bytes(self.engine.capture().blob.tobytes())
        return answer


class Spoiling(FromDisk):
    """Refuses by raising, and from then on answers from what it should not have."""

    spoiled = False

    def restore(self) -> dict[str, float]:
        try:
            return super().restore()
        except Exception:
            self.spoiled = True
            raise

    def read(self) -> float:
        ms = super().read()
        if self.spoiled:
            self.engine.extend([0])
        return ms


class Aborting(Naive):
    """Ends its process where it should refuse."""

    def restore(self) -> dict[str, float]:
        os.abort()


class Orphaned(Naive):
    """Has lost its server."""

    def restore(self) -> dict[str, float]:
        raise ArmDied("the server ended with signal 6")


def here(task: Task) -> Outcome:
    """A phase in this process. A kill leaves every file cut in half, and no manifest."""
    if task.step.phase == "broken":
        arm = open_arm(task)
        arm.forget()
        with contextlib.suppress(Exception):
            arm.restore()
            arm.ask(task.step.turn, 0)
        arm.close()
        return Outcome(result=Report(refused=None))
    report = Report.model_validate(worker.work(task.model_dump()))
    if task.step.kill_at is None:
        return Outcome(result=report)
    for file in task.folder.rglob("*"):
        if file.suffix in (".raw", ".seg"):
            os.truncate(file, file.stat().st_size // 2)
        elif file.suffix == ".json" and "manifests" in file.parts:
            file.unlink()
    return Outcome(result=None, code=-9, killed_at=task.step.kill_at)
