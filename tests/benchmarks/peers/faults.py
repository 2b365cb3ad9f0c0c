"""The fault arms: what is done to a stored state, or to the process, before it is asked for again, and the verdict.

Each case has a copy of the arm's folder and processes of its own; what it came to follows from its record alone.

An outcome is *exact* if the evidence of every step is that of the uninterrupted run (of the model and the settings that
the asking process has); *exact, read again* likewise, but it evaluated the whole block; *refused* if it raised an
error, and after that the same process prefills and answers exactly. These pass. *Something else*, *spoiled* (refused,
but the process answers otherwise or not at all after that) and *crash* do not. Where the state has to be there still,
in a second read and after 20 turns, *read again* or an error means *lost*, and a state that is no longer the same is
*changed*; neither passes.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from agentkv.bench.base import Row
from agentkv.bench.measured import Raw
from agentkv.io.hashing import file_sha256
from tests.benchmarks.peers.arm import ALTERED, FLASH, OWN, ROPE, Note, Outcome, Report, Spec, Step, state_span
from tests.benchmarks.peers.launch import folder_bytes

FLIPPED, CUT, OTHER, SETTINGS = "one flipped byte", "a truncated file", "another model", "changed settings"
SECOND, KILLED, TWENTY = "a second read", "a kill during the save", "20 turns from one block"
FAULTS = (FLIPPED, CUT, OTHER, SETTINGS, SECOND, KILLED, TWENTY)
PASSES = ("exact", "exact, read again", "refused")
PLACES, FEW_PLACES = (0.25, 0.5, 0.75, 0.97), (0.5, 0.97)
"""Where a byte is flipped, as a share of the KV state in the largest file."""
MOMENTS, FEW_MOMENTS = (0.1, 0.5, 0.9), (0.5,)
"""When the saving process is killed, as a share of the bytes of a whole save."""
_MASK = 0x10
"""The bit that is flipped: in a half float's low byte a change of the mantissa, in its high byte of the exponent."""


class Case(Row):
    """The raw record of one case. ``variant``: what its answer is held against; ``same``: whether the state still is.

    ``details``: where a byte was flipped, a file cut, a process killed.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    family: str = ""
    n: int = 0
    fault: str = ""
    case: str = ""
    note: Note = Field(default_factory=Note)
    outcome: Outcome
    variant: str = OWN
    must_restore: bool = False
    same: bool | None = None
    details: dict[str, int | str | list[int] | None] = Field(
        default_factory=dict, validation_alias="told", serialization_alias="told"
    )
    resumed: bool = False


@dataclass(frozen=True)
class Scene:
    """Where a case takes place.

    ``phase``: one step in a folder; ``saved``: gives the folder of a whole save; ``scratch``: the case's own, its copy.
    """

    spec: Spec
    phase: Callable[[Step, Path], Outcome]
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

    def run(self, step: Step | None = None) -> Outcome:
        """One step on ``scratch``: it is asked, unless another was given."""
        return self.phase(step or Step(), self.scratch)


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
    return Case(outcome=scene.run(), details=where)


def _shorter(scene: Scene, share: float, less: int) -> Case:
    target = largest(scene.spec, scene.fresh())
    size = int(target.stat().st_size * share) - less
    os.truncate(target, size)
    return Case(outcome=scene.run(), details={"file": target.name, "bytes": size})


def _elsewhere(scene: Scene, variant: str) -> Case:
    scene.fresh()
    return Case(outcome=scene.run(Step(variant=variant)), variant=variant)


def _second(scene: Scene, first: str) -> Case:
    scene.fresh()
    scene.run(Step(first, turn=1))
    return Case(outcome=scene.run(), must_restore=True)


def _killed(scene: Scene, share: float) -> Case:
    whole = folder_bytes(scene.saved())
    scene.empty()
    killed = scene.run(Step("store", kill_at=int(whole * share)))
    return Case(outcome=scene.run(), details={"killed_at": killed.killed_at, "whole": whole})


def _twenty(scene: Scene) -> Case:
    before = digests(scene.spec, scene.fresh())
    outcome = scene.run(Step("turns"))
    after = digests(scene.spec, scene.scratch)
    same = all(after.get(name) == digest for name, digest in before.items())
    return Case(outcome=outcome, must_restore=True, same=same)


def _second_in_memory(scene: Scene) -> Case:
    scene.empty()
    outcome = scene.run(Step("resident", asked=(1, 0)))
    asks = outcome.result.asks if outcome.result else []
    return Case(outcome=outcome.model_copy(update={"result": asks[1]}) if asks else outcome, must_restore=True)


def _twenty_in_memory(scene: Scene) -> Case:
    scene.empty()
    outcome = scene.run(Step("turns"))
    kept = outcome.result.digests if outcome.result else []
    return Case(outcome=outcome, must_restore=True, same=kept[0] is not None and kept[0] == kept[1] if kept else None)


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


# --- the verdict --------------------------------------------------------------------------------------


def verdict(case: Case, references: Sequence[Report], n: int) -> tuple[str, str]:
    """The kind of outcome of one case, and its detail. ``references``: runs with which its evidence may agree."""
    report = case.outcome.result
    if not references:
        return "nothing to compare with", "the uninterrupted run failed"
    if report is None or report.died is not None:
        return "crash", str(case.outcome.trouble())
    exact = any(report.evidence == one.evidence for one in references)
    if report.refused:
        if not exact:
            after = report.after or f"then {_first_difference(report.evidence, references)}"
            return "spoiled", f"{report.refused}; {after}"
        return ("lost" if case.must_restore else "refused"), report.refused
    if not exact:
        return "something else", _first_difference(report.evidence, references)
    if report.evaluated >= n:
        return ("lost" if case.must_restore else "exact, read again"), f"{report.evaluated} tokens were evaluated"
    if case.same is False:
        return "changed", "every answer exact, but the stored block is not the same as before, or gone"
    return "exact", f"{report.evaluated} tokens were evaluated"


def _first_difference(evidence: Sequence[str], references: Sequence[Report]) -> str:
    best = max(_agreement(evidence, one.evidence) for one in references)
    return f"other than the uninterrupted run from step {best + 1} on, with no error"


def _agreement(first: Sequence[str], second: Sequence[str]) -> int:
    """Steps until the first difference."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


class Judged(Row):
    """One case of a fault; where it was done is beside it."""

    model_config = ConfigDict(frozen=True, extra="allow")
    case: str
    outcome: str
    detail: str
    passed: bool


class Fault(Row):
    """One arm and fault; it passes if each of its cases does."""

    arm: str
    label: str
    n: int
    fault: str
    cases: list[Judged]
    passed: bool
    outcome: str

    @classmethod
    def of(cls, cases: Sequence[Judged], arm: str, label: str, n: int, fault: str) -> Fault:
        """From its cases."""
        outcome = "; ".join(dict.fromkeys(case.outcome for case in cases))
        passed = all(case.passed for case in cases)
        return cls(arm=arm, label=label, n=n, fault=fault, cases=list(cases), passed=passed, outcome=outcome)

    def verdict(self) -> str:
        """Passed or failed, how many cases, and how each ended."""
        passed = sum(case.passed for case in self.cases)
        counted = f"{passed} of {len(self.cases)}" if len(self.cases) > 1 else ""
        return ": ".join(filter(None, ("pass" if self.passed else "**fail**", counted, self.outcome)))


def below(raw: Raw, prefix: str) -> dict[str, Any]:
    """The records whose key begins with ``prefix``, by the rest of it."""
    return {key.removeprefix(prefix): record for key, record in raw.items() if key.startswith(prefix)}


def reference_key(family: str, n: int, variant: str, turn: int = 0, one_pass: bool = False) -> str:
    """The key of a record that others are held against."""
    return f"reference/{family}/{n}/{variant}/{turn}" + ("/one pass" if one_pass else "")


def references(raw: Raw, family: str, n: int, variant: str, turn: int) -> list[Report]:
    """The uninterrupted run that an outcome is held against, and the one pass if there is one."""
    keys = [reference_key(family, n, variant, turn, one_pass) for one_pass in (False, True)]
    reports = [Outcome.model_validate(raw[key]).result for key in keys if key in raw]
    return [report for report in reports if report is not None and report.evidence]


def judged(raw: Raw) -> list[Fault]:
    """A row an arm and fault."""
    cases: dict[tuple[str, str, int, str], list[Judged]] = {}
    for key, record in below(raw, "fault/").items():
        arm, fault, _ = key.split("/")
        case = Case.model_validate(record)
        kind, detail = verdict(case, references(raw, case.family, case.n, case.variant, 0), case.n)
        known = {"case": case.case, "outcome": kind, "detail": detail, "passed": kind in PASSES, **case.details}
        place = (arm, raw[f"environment/{arm}"]["label"], case.n, fault)
        cases.setdefault(place, []).append(Judged.model_validate(known))
    return [Fault.of(found, *place) for place, found in cases.items()]
