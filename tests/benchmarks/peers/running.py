"""Makes the records of ``peers``: environments, references, speed and faults of one arm after another."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import orjson
from pydantic import Field

from agentkv._version import __version__
from agentkv.bench.base import Row
from agentkv.bench.results import say
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, file_sha256, sha256
from tests.benchmarks.peers import environments, faults
from tests.benchmarks.peers.altered import altered_copy
from tests.benchmarks.peers.arm import ALTERED, FAKE, OWN, Note, Outcome, Report, Spec, Step, Task
from tests.benchmarks.peers.faults import Case, Planned, Scene, reference_key
from tests.benchmarks.peers.launch import folder_bytes
from tests.benchmarks.peers.material import Material

Launch = Callable[[Task], Outcome]
R = TypeVar("R", "Outcome", "Speed", "Case")


class Ask(Row):
    """One process that asked a stored block. ``bytes``: of the folder after it; ``home``: where the state was."""

    home: str
    turn: int
    bytes: int | None = None
    outcome: Outcome


class Speed(Row):
    """The raw record of an arm at one length: a store of ``bytes``, and what processes got from it."""

    family: str
    store: Outcome
    bytes: int
    asks: list[Ask]
    note: Note = Field(default_factory=Note)
    resumed: bool = False


class Runner:
    """The records so far, and how one more is made. A record that ``work`` holds is taken from there.

    ``asks``: fresh processes that ask each stored block; ``steps``: compared in a turn; ``few``: of a fault's cases.
    """

    def __init__(
        self, given: Material, launch: Launch, work: Path | None, temporary: Path, *, asks: int, steps: int, few: bool
    ) -> None:
        self._given, self._launch = given, launch
        self._asks, self._steps, self._few = asks, steps, few
        self._temporary, self._work = temporary, work
        self._python = ""
        self._packages: list[dict[str, str | None]] = []
        self.raw: dict[str, object] = {}

    def arm(self, spec: Spec, lengths: Sequence[int], *, with_faults: bool) -> None:
        """Everything of one arm: environment, speed at each length, faults at the shortest."""
        made = environments.environment(spec.packages, (self._work or self._temporary) / "environments")
        self.raw[f"environment/{spec.name}"] = {"label": spec.label, "evidence": spec.evidence, **made.record()}
        if made.python is None:
            say(f"{spec.name}: left out: {made.unavailable}")
            return
        self._python, self._packages = made.python, made.packages
        for n in lengths:
            if n in self._given.left_out:
                self.raw[f"left out/{n}"] = self._given.left_out[n]
                continue
            self._reference(spec, n, OWN)
            self._speed(spec, n)
        fit = [n for n in lengths if n not in self._given.left_out]
        if with_faults and fit:
            self._faults(spec, min(fit))

    # --- records --------------------------------------------------------------------------------------

    def _file(self, key: str, spec: Spec, n: int) -> Path | None:
        """Where a record is kept; the name is of all that it depends on but the code, of which it has the version."""
        if self._work is None:
            return None
        plan = [self._asks, self._steps]
        whose = spec.family if key.startswith("reference/") else dataclasses.asdict(spec)
        about = [__version__, key, self._given.digest(n), plan, whose, self._packages]
        return self._work / "records" / f"{sha256(canonical_json(about))}.json"

    def _record(self, kind: type[R], key: str, spec: Spec, n: int, make: Callable[[], R]) -> R:
        if key in self.raw:
            return kind.model_validate(self.raw[key])
        file = self._file(key, spec, n)
        if file is not None and file.exists():
            record = kind.model_validate({**orjson.loads(file.read_bytes()), "resumed": True})
        else:
            record = make()
            if file is not None:
                fsio.write_durably(file, [record.model_dump_json(exclude_unset=True, by_alias=True).encode()])
        self.raw[key] = record.model_dump(exclude_unset=True, by_alias=True)
        return record

    def _reference(
        self, spec: Spec, n: int, variant: str, turn: int = 0, *, one_pass: bool = False, note: Note | None = None
    ) -> Report:
        step = Step("one_pass" if one_pass else "uninterrupted", variant, turn)

        def make() -> Outcome:
            say(f"{spec.name}: {n:,} tokens, {step.phase.replace('_', ' ')}, {variant}, turn {turn}")
            folder = self._temporary / "reference"
            folder.mkdir(exist_ok=True)
            try:
                return self._phase(spec, n, step, folder, note)
            finally:
                shutil.rmtree(folder)

        key = reference_key(spec.family, n, variant, turn, one_pass)
        return self._record(Outcome, key, spec, n, make).result or Report()

    def _speed(self, spec: Spec, n: int) -> None:
        asks = max(spec.least_asks, self._asks)
        turns = list(range(asks)) if spec.keeps_turns else [0] * asks

        def make() -> Speed:
            folder = self._temporary / f"{spec.name}-{n}"
            folder.mkdir()
            try:
                return (self._resident if spec.resident else self._stored)(spec, n, folder, turns)
            finally:
                shutil.rmtree(folder)

        record = self._record(Speed, f"speed/{spec.name}/{n}", spec, n, make)
        for ask in record.asks:
            self._hold(spec, n, OWN, ask.turn, ask.outcome, record.note)

    def _resident(self, spec: Spec, n: int, folder: Path, turns: list[int]) -> Speed:
        say(f"{spec.name}: {n:,} tokens, in memory")
        outcome = self._phase(spec, n, Step("resident", asked=tuple(turns)), folder)
        whole = outcome.result
        pairs = zip(whole.asks, turns, strict=True) if whole and whole.asks else ()
        asked = [Ask(home="RAM", turn=turn, outcome=Outcome(result=report)) for report, turn in pairs]
        stored = outcome.model_copy(update={"result": whole and (whole.store or whole)})
        return Speed(family=spec.family, store=stored, bytes=0, asks=asked)

    def _stored(self, spec: Spec, n: int, folder: Path, turns: list[int]) -> Speed:
        say(f"{spec.name}: {n:,} tokens, stored")
        stored = self._phase(spec, n, Step("store"), folder)
        size = folder_bytes(folder)
        note = stored.result.note if stored.result else Note()
        asks = []
        for home in ("warm", "cold"):
            own = folder.with_name(f"{folder.name}-{home}")
            shutil.copytree(folder, own)
            for number, turn in enumerate(turns, 1):
                say(f"{spec.name}: {n:,} tokens, {home}, process {number} of {len(turns)}")
                outcome = self._phase(spec, n, Step(home=home, turn=turn), own, note)
                asks.append(Ask(home=home, turn=turn, bytes=folder_bytes(own), outcome=outcome))
            shutil.rmtree(own)
        return Speed(family=spec.family, store=stored, bytes=size, asks=asks, note=note)

    def _faults(self, spec: Spec, n: int) -> None:
        folder = self._temporary / f"{spec.name}-faults"
        folder.mkdir()

        @functools.cache
        def save() -> Note:
            """A whole save, made when the first case asks for it."""
            if spec.resident:
                return Note()
            (folder / "saved").mkdir()
            stored = self._phase(spec, n, Step("store"), folder / "saved").result
            return stored.note if stored else Note()

        def phase(step: Step, where: Path) -> Outcome:
            return self._phase(spec, n, step, where, save())

        def saved() -> Path:
            save()
            return folder / "saved"

        scene = Scene(spec, phase, saved, folder / "scratch")
        for planned in faults.planned(spec, few=self._few):
            file = self._file(f"fault/{spec.name}/{planned[0]}/{planned[1]}", spec, n)
            undone = not spec.resident and not (file is not None and file.exists())
            if undone and not faults.files(spec, saved()):
                say(f"{spec.name}: it stored nothing, so there is nothing to damage")
                break
            self._fault(spec, n, scene, planned, save)
        shutil.rmtree(folder)

    def _fault(self, spec: Spec, n: int, scene: Scene, planned: Planned, save: Callable[[], Note]) -> None:
        fault, name, make = planned

        def done() -> Case:
            say(f"{spec.name}: {fault}, {name}")
            known = {"family": spec.family, "n": n, "fault": fault, "case": name, "note": save()}
            return make(scene).model_copy(update=known)

        record = self._record(Case, f"fault/{spec.name}/{fault}/{name}", spec, n, done)
        self._hold(spec, n, record.variant, 0, record.outcome, record.note)

    def _hold(self, spec: Spec, n: int, variant: str, turn: int, outcome: Outcome, note: Note) -> None:
        """What an outcome will be held against: also one pass, if the arm has prefilled everything again."""
        expected, found = self._reference(spec, n, variant, turn), outcome.result
        if found and found.evaluated >= n and not found.refused and found.evidence != expected.evidence:
            self._reference(spec, n, variant, turn, one_pass=True, note=note)

    # --- one process ----------------------------------------------------------------------------------

    def _phase(self, spec: Spec, n: int, step: Step, folder: Path, note: Note | None = None) -> Outcome:
        task = Task(
            spec=spec,
            step=step,
            python=self._python,
            folder=folder,
            steps=self._steps,
            note=note or Note(),
            **self._given.task(n),
        )
        if step.variant == ALTERED:
            model, digest = self._altered
            task = task.model_copy(update={"model": model, "model_sha256": digest})
        outcome = self._launch(task)
        if outcome.result is None and step.kill_at is None:
            say(f"{spec.name}: {step.phase} ended with code {outcome.code}: {outcome.stderr}")
        return outcome

    @functools.cached_property
    def _altered(self) -> tuple[str, str]:
        """Path and SHA-256 of the other model."""
        if self._given.path == FAKE:
            return FAKE, sha256(b"another")
        copy = altered_copy(Path(self._given.path), (self._work or self._temporary) / "altered")
        return str(copy), file_sha256(copy)
