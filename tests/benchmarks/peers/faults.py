"""The fault arms: what is done to a stored state, or to the process, before it is asked for again.

Each case has a copy of the arm's folder and processes of its own. What the case came to is judged later, from its
record alone, by :mod:`tests.benchmarks.scorers.peers`.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.io.hashing import file_sha256
from tests.benchmarks.peers.arm import Spec, state_span
from tests.benchmarks.peers.launch import folder_bytes
from tests.benchmarks.scorers.peers import CUT, FLIPPED, KILLED, OTHER, SECOND, SETTINGS, TWENTY

PLACES, FEW_PLACES = (0.25, 0.5, 0.75, 0.97), (0.5, 0.97)
"""Where a byte is flipped, as a share of the KV state in the largest file."""
MOMENTS, FEW_MOMENTS = (0.1, 0.5, 0.9), (0.5,)
"""When the saving process is killed, as a share of the bytes of a whole save."""
OWN, ALTERED, ROPE, FLASH = "own", "altered", "rope base", "flash attention"
VARIANTS: dict[str, dict[str, Any]] = {
    OWN: {},
    ALTERED: {"altered": True},
    ROPE: {"settings": {"rope_freq_base": 54_321.0, "flash_attention": False}},
    FLASH: {"settings": {"rope_freq_base": 0.0, "flash_attention": True}},
}
"""What differs from the usual model and settings."""
_MASK = 0x10
"""The bit that is flipped: in a half float's low byte a change of the mantissa, in its high byte of the exponent."""

Phase = Callable[..., dict[str, Any]]
"""``phase(name, folder, variant=…, kill_at=…, **payload)``: one phase of the arm in a new process; its outcome."""


@dataclass
class Case:
    """One case, done. ``variant``: what its answer is held against. ``same``: whether the state is still the same."""

    outcome: dict[str, Any]
    variant: str = OWN
    must_restore: bool = False
    same: bool | None = None
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """Where a case takes place. ``saved``: gives the folder of a whole save; ``scratch``: the case's own, its copy."""

    spec: Spec
    phase: Phase
    saved: Callable[[], Path]
    scratch: Path

    def fresh(self) -> Path:
        """``scratch`` as a copy of what was saved."""
        saved = self.saved()
        self.empty().rmdir()
        shutil.copytree(saved, self.scratch)
        return self.scratch

    def empty(self) -> Path:
        """``scratch`` with nothing in it."""
        if self.scratch.exists():
            shutil.rmtree(self.scratch)
        self.scratch.mkdir(parents=True)
        return self.scratch

    def run(self, name: str = "ask", **how: Any) -> dict[str, Any]:
        """One phase on ``scratch``."""
        return self.phase(name, self.scratch, **how)


Planned = tuple[str, str, Callable[[Scene], Case]]
"""Fault, case, and how it is done."""


def planned(spec: Spec, *, few: bool = False) -> list[Planned]:
    """The cases of an arm, or a ``few`` of each fault."""
    if spec.resident:
        return [
            (SECOND, "in the same process", _second_in_memory),
            (TWENTY, "the last, and its hash", _twenty_in_memory),
        ]
    flips = FEW_PLACES if few else PLACES
    cuts = (("half", 0.5, 0), ("16 bytes less", 1.0, 16))[: 1 if few else 2]
    others = ((OTHER, ALTERED), (SETTINGS, ROPE), (SETTINGS, FLASH))
    seconds = (("after one broken off", "broken"), ("after a whole turn", "ask"))[: 1 if few else 2]
    moments = FEW_MOMENTS if few else MOMENTS
    return [
        *((FLIPPED, f"at {place:.0%}", functools.partial(_flipped, place=place)) for place in flips),
        *((CUT, name, functools.partial(_shorter, share=share, less=less)) for name, share, less in cuts),
        *((fault, name, functools.partial(_elsewhere, variant=name)) for fault, name in others),
        *((SECOND, name, functools.partial(_second, first=first)) for name, first in seconds),
        *((KILLED, f"at {share:.0%}", functools.partial(_killed, share=share)) for share in moments),
        (TWENTY, "the last, and its hash", _twenty),
    ]


def _flipped(scene: Scene, place: float) -> Case:
    target = largest(scene.spec, scene.fresh())
    start, stop = state_span(scene.spec, target)
    offset = start + int((stop - start) * place)
    with target.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ _MASK]))
    where = {"file": target.name, "offset": offset, "mask": _MASK, "state": [start, stop]}
    return Case(scene.run(), told=where)


def _shorter(scene: Scene, share: float, less: int) -> Case:
    target = largest(scene.spec, scene.fresh())
    size = int(target.stat().st_size * share) - less
    os.truncate(target, size)
    return Case(scene.run(), told={"file": target.name, "bytes": size})


def _elsewhere(scene: Scene, variant: str) -> Case:
    scene.fresh()
    return Case(scene.run(variant=variant), variant)


def _second(scene: Scene, first: str) -> Case:
    scene.fresh()
    scene.run(first, turn=1)
    return Case(scene.run(), must_restore=True)


def _killed(scene: Scene, share: float) -> Case:
    whole = folder_bytes(scene.saved())
    scene.empty()
    killed = scene.run("store", kill_at=int(whole * share))
    told = {"killed_at": killed.get("killed_at"), "whole": whole}
    return Case(scene.run(), told=told)


def _twenty(scene: Scene) -> Case:
    before = digests(scene.spec, scene.fresh())
    outcome = scene.run("turns")
    after = digests(scene.spec, scene.scratch)
    same = all(after.get(name) == digest for name, digest in before.items())
    return Case(outcome, must_restore=True, same=same)


def _second_in_memory(scene: Scene) -> Case:
    scene.empty()
    outcome = scene.run("resident", asked=[1, 0])
    asks = (outcome["result"] or {}).get("asks")
    second = {**outcome, "result": asks[1]} if asks else outcome
    return Case(second, must_restore=True)


def _twenty_in_memory(scene: Scene) -> Case:
    scene.empty()
    outcome = scene.run("turns")
    kept = (outcome["result"] or {}).get("digests")
    same = None if kept is None else kept[0] is not None and kept[0] == kept[1]
    return Case(outcome, must_restore=True, same=same)


# --- files --------------------------------------------------------------------------------------------


def files(spec: Spec, folder: Path) -> list[Path]:
    """The files that are the arm's state."""
    return sorted({path for pattern in spec.files for path in folder.glob(pattern) if path.is_file()})


def digests(spec: Spec, folder: Path) -> dict[str, str]:
    """SHA-256 of each of them, by its path in the folder."""
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in files(spec, folder)}


def largest(spec: Spec, folder: Path) -> Path:
    """The largest of them, the last by name of equals: there the state lies."""
    return max(files(spec, folder), key=lambda path: (path.stat().st_size, path))
