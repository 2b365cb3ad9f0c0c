"""``peers``: agentkv beside what people use today: same model file, prompts, threads and machine.

Each arm has processes of its own, one at a time, and where it needs other packages an environment of its own, made by
the benchmark. Before each measured step the process has read an unrelated text, so that the model is in memory; then
every step counts: opening, reading, deserialising, verifying, setting the state, and reading the turn up to its first
token. The page cache holds the files (*warm*), or was told to drop them (*cold*).

What an arm answers is compared with its own *uninterrupted run*: the same engine or server with the same settings has
just read the block and goes on. Flash attention is off for all, for it is an exact state that is compared; builds of
llama.cpp differ between the wheels, so an arm's cold prefill is that of its own family.

``run`` collects records; what follows from them: ``scorers/peers.py``. Not covered: GPUs, Windows, more
than one slot, and arms in other ways of use than the ones that their modules name.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv._version import __version__
from agentkv.bench.measured import result
from agentkv.bench.results import now, origin, say
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, file_sha256, sha256
from tests.benchmarks.peers import environments, faults
from tests.benchmarks.peers.altered import altered_copy
from tests.benchmarks.peers.arm import ARMS, FAKE, SPECS, Spec
from tests.benchmarks.peers.launch import folder_bytes, launch
from tests.benchmarks.peers.material import Material, material

__all__ = ["ARMS", "FAKE", "LENGTHS", "SMALL", "Plan", "check", "run"]

LENGTHS = (512, 2048, 5569)
Launch = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """Lengths in tokens; ``asks``: fresh processes that ask each stored block; ``steps`` compared a turn.

    ``faults``: whether there are fault arms; ``few``: of the cases of a fault.
    """

    lengths: tuple[int, ...] = LENGTHS
    asks: int = 3
    steps: int = 48
    turns: int = 20
    faults: bool = True
    few: bool = False
    threads: int | None = None


SMALL = Plan(lengths=(1024,), asks=1, few=True)


def run(
    model: str,
    texts: Sequence[str],
    plan: Plan,
    *,
    chosen: Sequence[str] = (),
    work: Path | None = None,
    launch: Launch = launch,
    specs: Sequence[Spec] = SPECS,
) -> dict[str, Any]:
    """Every chosen arm at every length, then its faults at the shortest; the result with its records.

    ``texts``: what the block is made of. ``work``: a folder where environments and finished records are kept.
    ``launch`` and ``specs`` are for arms that stand in. Raises UsageError for an arm that there is not.
    """
    known = {spec.name: spec for spec in specs}
    if unknown := [name for name in chosen if name not in known]:
        raise UsageError(f"{unknown[0]!r} is no arm; there are: {', '.join(known)}")
    if not plan.lengths or min(plan.lengths) < 64:
        raise UsageError("a block here has 64 tokens or more")
    started = now()
    if work is not None:
        work = work.absolute()
        work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="agentkv-peers-", dir=work) as folder:
        temporary = Path(folder)
        given = material(model, list(texts), plan.lengths, plan.turns, plan.threads)
        bench = _Bench(given, plan, launch, work, temporary)
        for spec in [known[name] for name in chosen] or list(specs):
            bench.arm(spec)
    asked = {"arms": list(chosen) or list(known), **dataclasses.asdict(plan), "lengths": list(plan.lengths)}
    header = origin("peers", model, given.model_sha256, given.inputs, started=started, **asked)
    return result(header, bench.raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless every graft of agentkv was exact and each of its fault arms passed."""
    for row in result["failed"]:
        if row["arm"].startswith("agentkv"):
            raise GuaranteeViolated(f"{row['label']}, n = {row['n']}: {row['reason']}")
    for row in result["rows"]:
        if row["arm"].startswith("agentkv") and row["steps_equal"] != row["steps"]:
            raise GuaranteeViolated(f"{row['label']}, n = {row['n']}: {row['steps_equal']} of {row['steps']} steps")
        if row["arm"].startswith("agentkv") and row["evaluated"] > row["turn_tokens"]:
            raise GuaranteeViolated(f"{row['label']}, n = {row['n']}: {row['evaluated']} tokens were evaluated")
    for row in result["faults"]:
        if row["arm"].startswith("agentkv") and not row["passed"]:
            raise GuaranteeViolated(f"{row['label']}: {row['fault']}: {row['outcome']}")


class _Bench:
    """The records so far, and how one more is made. A record that ``work`` holds is taken from there."""

    def __init__(self, given: Material, plan: Plan, launch: Launch, work: Path | None, temporary: Path) -> None:
        self._given, self._plan, self._launch = given, plan, launch
        self._temporary, self._work = temporary, work
        self._environments = (work or temporary) / "environments"
        self._python = ""
        self._packages: list[dict[str, Any]] = []
        self._altered: tuple[str, str] | None = None
        self.raw: dict[str, Any] = {}

    def arm(self, spec: Spec) -> None:
        """Everything of one arm: environment, speed at each length, faults at the shortest."""
        made = environments.environment(spec.packages, self._environments)
        self.raw[f"environment/{spec.name}"] = {"label": spec.label, "evidence": spec.evidence, **made.record()}
        if made.python is None:
            say(f"{spec.name}: left out: {made.unavailable}")
            return
        self._python, self._packages = made.python, made.packages
        for n in self._plan.lengths:
            if self._given.left_out.get(n):
                self.raw[f"left out/{n}"] = self._given.left_out[n]
                continue
            self._reference(spec, n, faults.OWN)
            self._speed(spec, n)
        fit = [n for n in self._plan.lengths if n not in self._given.left_out]
        if self._plan.faults and fit:
            self._faults(spec, min(fit))

    # --- records --------------------------------------------------------------------------------------

    def _file(self, key: str, spec: Spec, n: int) -> Path | None:
        """Where a record is kept; the name is of all that it depends on but the code, of which it has the version."""
        if self._work is None:
            return None
        plan = [self._plan.asks, self._plan.steps]
        whose = spec.family if key.startswith("reference/") else dataclasses.asdict(spec)
        about = [__version__, key, self._given.digest(n), plan, whose, self._packages]
        return self._work / "records" / f"{sha256(canonical_json(about))}.json"

    def _kept(self, key: str, spec: Spec, n: int) -> bool:
        file = self._file(key, spec, n)
        return file is not None and file.exists()

    def _record(self, key: str, spec: Spec, n: int, make: Callable[[], Any]) -> Any:
        if key not in self.raw:
            file = self._file(key, spec, n)
            if file is not None and file.exists():
                self.raw[key] = {**orjson.loads(file.read_bytes()), "resumed": True}
                return self.raw[key]
            self.raw[key] = make()
            if file is not None:
                fsio.write_durably(file, [orjson.dumps(self.raw[key])])
        return self.raw[key]

    def _reference(self, spec: Spec, n: int, variant: str, *, turn: int = 0, one_pass: bool = False, **how: Any) -> Any:
        phase = "one_pass" if one_pass else "uninterrupted"
        key = reference_key(spec.family, n, variant, turn, one_pass)

        def make() -> Any:
            say(f"{spec.name}: {n:,} tokens, {phase.replace('_', ' ')}, {variant}, turn {turn}")
            folder = self._temporary / "reference"
            folder.mkdir(exist_ok=True)
            try:
                return self._phase(spec, n, phase, folder, variant=variant, turn=turn, **how)
            finally:
                shutil.rmtree(folder)

        return self._record(key, spec, n, make)

    def _speed(self, spec: Spec, n: int) -> None:
        asks = max(spec.least_asks, self._plan.asks)
        turns = list(range(asks)) if spec.keeps_turns else [0] * asks

        def make() -> dict[str, Any]:
            folder = self._temporary / f"{spec.name}-{n}"
            folder.mkdir()
            try:
                return self._resident(spec, n, folder, turns) if spec.resident else self._stored(spec, n, folder, turns)
            finally:
                shutil.rmtree(folder)

        record = self._record(f"speed/{spec.name}/{n}", spec, n, make)
        for ask in record["asks"]:
            self._hold(spec, n, faults.OWN, ask["turn"], ask["outcome"], record["note"])

    def _resident(self, spec: Spec, n: int, folder: Path, turns: list[int]) -> dict[str, Any]:
        say(f"{spec.name}: {n:,} tokens, in memory")
        outcome = self._phase(spec, n, "resident", folder, asked=turns)
        whole = outcome["result"]
        rows = whole["asks"] if whole and "asks" in whole else []
        pairs = zip(rows, turns, strict=True) if rows else ()
        asked = [{"home": "RAM", "turn": turn, "outcome": {"result": row}} for row, turn in pairs]
        stored = {**outcome, "result": whole.get("store", whole) if whole else None}
        return {"family": spec.family, "store": stored, "bytes": 0, "asks": asked, "note": {}}

    def _stored(self, spec: Spec, n: int, folder: Path, turns: list[int]) -> dict[str, Any]:
        say(f"{spec.name}: {n:,} tokens, stored")
        stored = self._phase(spec, n, "store", folder)
        size = folder_bytes(folder)
        note = (stored["result"] or {}).get("note", {})
        rows = []
        for home in ("warm", "cold"):
            own = folder.with_name(f"{folder.name}-{home}")
            shutil.copytree(folder, own)
            for number, turn in enumerate(turns, 1):
                say(f"{spec.name}: {n:,} tokens, {home}, process {number} of {len(turns)}")
                outcome = self._phase(spec, n, "ask", own, home=home, turn=turn, note=note)
                rows.append({"home": home, "turn": turn, "bytes": folder_bytes(own), "outcome": outcome})
            shutil.rmtree(own)
        return {"family": spec.family, "store": stored, "bytes": size, "asks": rows, "note": note}

    def _faults(self, spec: Spec, n: int) -> None:
        folder = self._temporary / f"{spec.name}-faults"
        folder.mkdir()
        saved: dict[str, Any] = {}

        def save() -> dict[str, Any]:
            """A whole save, made when the first case asks for it."""
            if not saved and not spec.resident:
                where = folder / "saved"
                where.mkdir()
                saved.update(self._phase(spec, n, "store", where)["result"] or {"failed": True})
            return saved

        def phase(name: str, where: Path, **how: Any) -> dict[str, Any]:
            return self._phase(spec, n, name, where, note=save().get("note", {}), **how)

        def whole() -> Path:
            save()
            return folder / "saved"

        scene = faults.Scene(spec, phase, whole, folder / "scratch")
        for fault, name, make in faults.planned(spec, few=self._plan.few):
            undone = not spec.resident and not self._kept(f"fault/{spec.name}/{fault}/{name}", spec, n)
            if undone and not faults.files(spec, whole()):
                say(f"{spec.name}: it stored nothing, so there is nothing to damage")
                break
            self._fault(spec, n, scene, (fault, name, make), save)
        shutil.rmtree(folder)

    def _fault(
        self, spec: Spec, n: int, scene: faults.Scene, case: faults.Planned, save: Callable[[], dict[str, Any]]
    ) -> None:
        fault, name, make = case

        def done() -> dict[str, Any]:
            say(f"{spec.name}: {fault}, {name}")
            known = {"family": spec.family, "n": n, "fault": fault, "case": name, "note": save().get("note", {})}
            return {**known, **dataclasses.asdict(make(scene))}

        record = self._record(f"fault/{spec.name}/{fault}/{name}", spec, n, done)
        self._hold(spec, n, record["variant"], 0, record["outcome"], record["note"])

    def _hold(self, spec: Spec, n: int, variant: str, turn: int, outcome: dict[str, Any], note: dict[str, Any]) -> None:
        """What the scorer will hold this outcome against: also one pass, if the arm has read everything again."""
        expected = self._reference(spec, n, variant, turn=turn)["result"] or {}
        found = outcome["result"] or {}
        read_again = found.get("evaluated", 0) >= n and not found.get("refused")
        if read_again and found.get("evidence") != expected.get("evidence"):
            self._reference(spec, n, variant, turn=turn, one_pass=True, note=note)

    # --- one process ----------------------------------------------------------------------------------

    def _phase(
        self, spec: Spec, n: int, phase: str, folder: Path, *, variant: str = faults.OWN, **how: Any
    ) -> dict[str, Any]:
        kill_at = how.pop("kill_at", None)
        changed = faults.VARIANTS[variant]
        payload: dict[str, Any] = {
            "arm": spec.name,
            "target": spec.target,
            "phase": phase,
            "resident": spec.resident,
            "options": dict(spec.options),
            "python": self._python,
            "folder": str(folder),
            "steps": self._plan.steps,
            "turn": 0,
            "note": {},
            "altered": False,
            "settings": {"rope_freq_base": 0.0, "flash_attention": False},
            **self._given.payload(n),
            **changed,
            **how,
        }
        if payload["altered"]:
            payload["model"], payload["model_sha256"] = self._altered_model()
        outcome = self._launch(payload, kill_at)
        if outcome["result"] is None and kill_at is None:
            say(f"{spec.name}: {phase} ended with code {outcome['code']}: {outcome['stderr']}")
        return outcome

    def _altered_model(self) -> tuple[str, str]:
        if self._given.path == FAKE:
            return FAKE, sha256(b"another")
        if self._altered is None:
            folder = (self._work or self._temporary) / "altered"
            copy = altered_copy(Path(self._given.path), folder)
            self._altered = (str(copy), file_sha256(copy))
        return self._altered


def reference_key(family: str, n: int, variant: str, turn: int = 0, one_pass: bool = False) -> str:
    """The key of a record that others are held against."""
    return f"reference/{family}/{n}/{variant}/{turn}" + ("/one pass" if one_pass else "")
