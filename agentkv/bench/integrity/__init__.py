"""``agentkv bench integrity``: whether a store loses anything when what can go wrong does.

Four parts, each on the fake engine or on blocks of numbers, none with a model: every file-system step of every
operation failing, interrupted or the last of a killed process (``faults``); what a power failure may leave (``power``);
many processes at once (``concurrency``); files damaged in every region (``corruption``).

Covered: process crashes, full disks, failing disks, Ctrl-C, a model of power failures, races, damaged bytes. Not
covered: a disk that says "synced" and has not, memory that flips bits before they are hashed, programs that change
a store on purpose, file systems without ``flock``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.integrity import concurrency, corruption, faults, power
from agentkv.bench.integrity.material import without_syncs
from agentkv.bench.report import origin
from agentkv.io.hashing import canonical_json

PARTS = ("faults", "power", "concurrency", "corruption")
_RAM = Path("/dev/shm")
_SMALL_OPERATIONS = faults.OPERATIONS[:2]


def run(*, small: bool = False, parts: tuple[str, ...] = PARTS, folder: Path | None = None) -> dict[str, Any]:
    """The whole benchmark, or a part of it that takes seconds. ``folder``: on the file system to be tried.

    Without one, what does not sync is done in RAM where there is a place for it, and the rest in the temporary folder.
    """
    inputs = canonical_json([part for part in PARTS if part in parts])
    header = origin("integrity", "fake", "", inputs, small=small)
    raw: dict[str, Any] = {}
    quick = folder or next((ram for ram in (_RAM,) if os.access(ram, os.W_OK)), None)
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-integrity-", dir=quick) as in_ram,
        tempfile.TemporaryDirectory(prefix="agentkv-integrity-", dir=folder) as on_disk,
    ):
        place = Path(in_ram).resolve()
        if "faults" in parts:
            operations = _SMALL_OPERATIONS if small else faults.OPERATIONS
            raw["faults"] = faults.cases(place / "faults", operations, every=4 if small else 1)
        if "power" in parts:
            operations = _SMALL_OPERATIONS if small else faults.OPERATIONS
            raw["power"] = power.cases(place / "power", operations, sample=40 if small else None)
        if "concurrency" in parts:
            plan = concurrency.SMALL if small else concurrency.Plan()
            raw["concurrency"] = concurrency.run(Path(on_disk).resolve(), plan)
        if "corruption" in parts:
            with without_syncs():
                damages = corruption.SMALL if small else corruption.Plan()
                raw["corruption"] = corruption.cases(place / "corruption", damages)
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated for the first thing that was lost, half there, left over or not refused."""
    for part in (faults, power, concurrency, corruption):
        name = part.__name__.rpartition(".")[2]
        if name in result:
            part.check(result[name])
