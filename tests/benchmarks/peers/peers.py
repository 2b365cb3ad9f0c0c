"""``peers``: agentkv beside what people use today: same model file, prompts, threads and machine.

Each arm has processes of its own, one at a time, and where it needs other packages an environment of its own, made by
the benchmark. Before each measured step the process has prefilled an unrelated text, so that the model is in memory;
then every step counts: opening, reading, deserialising, verifying, setting the state, and the prefill of the turn up to
its first token. The page cache holds the files (*warm*), or was asked to drop them (*cold*).

What an arm answers is compared with its own *uninterrupted run*: the same engine or server with the same settings has
just prefilled the block and goes on. Flash attention is off for all, for it is an exact state that is compared; builds
of llama.cpp differ between the wheels, so an arm's cold prefill is that of its own family.

The raw records: ``reference/FAMILY/N/VARIANT/TURN`` is an uninterrupted run, ``… /one pass`` one that prefilled block
and turn at once; ``speed/ARM/N`` a store and what processes got from it; ``fault/ARM/FAULT/CASE`` one case and its
outcome (:mod:`tests.benchmarks.peers.faults`). Not covered: GPUs, Windows, more than one slot, and arms in other ways
of use than the ones that their modules name.
"""

from __future__ import annotations

import functools
import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agentkv.bench.base import (
    Benchmark,
    Column,
    ModelSettings,
    Row,
    Table,
    Timing,
    duration,
    gigabytes,
    left_out,
    lengths_option,
    megabytes,
    milliseconds,
    option,
    rows_of,
    small_option,
)
from agentkv.bench.measured import Raw
from agentkv.bench.texts import manual_texts
from agentkv.cli.output import size
from agentkv.errors import GuaranteeViolated, UsageError
from tests.benchmarks.peers.arm import ARMS, BITS, OURS, OWN, RIVAL, SPECS, Outcome, Spec
from tests.benchmarks.peers.faults import FAULTS, Fault, below, judged, references
from tests.benchmarks.peers.launch import launch
from tests.benchmarks.peers.material import material
from tests.benchmarks.peers.running import Ask, Launch, Runner, Speed

AIMS = {"restore, of save_state with pickle": 10.0, "bytes on disk, of save_state with pickle": 5.0}
BETTER = {
    "restore_ms": "restores faster",
    "total_ms": "is sooner at the first token",
    "save_ms": "saves faster",
    "bytes": "takes less disk",
    "peak_bytes": "takes less memory",
}
"""Measures of which less is better, and what it is to have less."""
_HOMES = {"RAM": "agentkv-ram", "warm": OURS, "cold": OURS}


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``asks``: fresh processes that ask each stored block, one with ``small``; ``steps`` compared a turn.

    ``texts``: what the block is made of; ``launch`` and ``specs`` are for arms that stand in.
    """

    arms: tuple[str, ...] = option(
        (), f"Only this arm; may be given several times. Of {', '.join(ARMS)}.", name="arm", metavar="NAME"
    )
    lengths: tuple[int, ...] = lengths_option((512, 2048, 5569), (1024,))
    no_faults: bool = option(False, "Speed and size only.")
    small: bool = small_option("One length of 1,024 tokens and few cases a fault: some minutes.")
    work: Path | None = option(
        None, "Keep environments and what is done here, to go on with after a break.", metavar="DIR"
    )
    asks: int = 3
    steps: int = 48
    turns: int = 20
    texts: tuple[str, ...] | None = None
    launch: Launch = launch
    specs: tuple[Spec, ...] = SPECS


# --- figures ----------------------------------------------------------------------------------------


class Cold(Row):
    """A cold prefill, of one family of engines."""

    family: str
    n: int
    read_ms: float
    first_ms: float
    peak_bytes: int | None


class Place(Row):
    """An arm at one length, its state in one home (RAM, warm or cold files)."""

    arm: str
    label: str
    evidence: str = ""
    n: int
    home: str | None


class Failed(Place):
    """Without figures."""

    reason: str


class Restored(Place):
    """The figures. ``first_ms``: the turn's prefill; ``keep_ms``: what follows a request; ``turn_tokens``: least."""

    home: str
    steps_ms: dict[str, float]
    restore_ms: Timing
    first_ms: Timing
    total_ms: Timing
    cold_ms: float
    speed_up: float
    save_ms: float
    keep_ms: float
    bytes: int
    bytes_after: list[int | None]
    peak_bytes: int | None
    rise_bytes: int
    evaluated: int
    evaluated_each: list[int]
    turn_tokens: int
    steps_equal: int
    steps: int
    break_even: int
    pages_left: float
    of_agentkv: dict[str, float | None] = Field(default_factory=dict)

    def measure(self, name: str) -> float | None:
        """One of :data:`BETTER`."""
        value: Timing | float | None = getattr(self, name)
        return value.median if isinstance(value, Timing) else value

    def saving(self) -> str:
        """How long, and against agentkv."""
        return f"{milliseconds(self.save_ms)} ms, {_ratio(self, 'save_ms')}"

    def counts(self) -> str:
        """Tokens that were evaluated in each process, where they differ."""
        return ", ".join(f"{count:,}" for count in dict.fromkeys(self.evaluated_each))

    def equality(self) -> str:
        """How many steps were the uninterrupted run's."""
        return f"{self.steps_equal}/{self.steps}" + ("" if self.evidence == BITS else " tokens*")


class Slower(Place):
    """A measure in which an arm is better than agentkv."""

    measure: str
    theirs: int | float
    agentkv: int | float


class Aim(Row):
    """Reported, not enforced."""

    aim: str
    n: int
    home: str | None
    least: int | float
    value: int | float
    met: bool


def _cold(raw: Raw) -> Iterator[Cold]:
    for key, record in below(raw, "reference/").items():
        family, n, *rest = key.split("/")
        report = Outcome.model_validate(record).result
        if rest == [OWN, "0"] and report is not None and report.read_ms is not None:
            peak = report.memory.get("peak")
            yield Cold(family=family, n=int(n), read_ms=report.read_ms, first_ms=report.first_ms, peak_bytes=peak)


def _places(raw: Raw) -> Iterator[Restored | Failed]:
    for key, record in below(raw, "speed/").items():
        arm, n = key.split("/")
        speed = Speed.model_validate(record)
        known = {"arm": arm, **{name: raw[f"environment/{arm}"][name] for name in ("label", "evidence")}, "n": int(n)}
        for home in dict.fromkeys(ask.home for ask in speed.asks):
            asks = [ask for ask in speed.asks if ask.home == home]
            reasons = [reason for ask in asks if (reason := ask.outcome.trouble())]
            if not all(references(raw, speed.family, int(n), OWN, ask.turn) for ask in asks):
                reasons.append("the uninterrupted run failed, so there is nothing to compare with")
            reasons += filter(None, [speed.store.trouble()])
            if reasons:
                yield Failed(**known, home=home, reason=reasons[0])
            else:
                yield Restored(**known, home=home, **_figures(raw, speed, asks, int(n)))
        if not speed.asks:
            yield Failed(**known, home=None, reason=speed.store.trouble() or "it was not asked")


def _figures(raw: Raw, speed: Speed, asks: Sequence[Ask], n: int) -> dict[str, Any]:
    reports = [ask.outcome.result for ask in asks if ask.outcome.result is not None]
    steps = [{**report.ms, **report.note.steps} for report in reports]
    # Arms that restore within a request have the steps of it in their first token's time already.
    totals = [sum(report.ms.values()) + report.first_ms for report in reports]
    held_against = [references(raw, speed.family, n, OWN, ask.turn) for ask in asks]
    equal = [
        max(sum(a == b for a, b in zip(report.evidence, one.evidence, strict=False)) for one in against)
        for report, against in zip(reports, held_against, strict=True)
    ]
    cold, stored = held_against[0][0], speed.store.result
    assert cold.read_ms is not None
    assert stored is not None
    restored = [sum(one.values()) for one in steps]
    names = dict.fromkeys(name for one in steps for name in one)
    return {
        "steps_ms": {name: statistics.median(one.get(name, 0.0) for one in steps) for name in names},
        "restore_ms": Timing.of(restored),
        "first_ms": Timing.of([total - one for total, one in zip(totals, restored, strict=True)]),
        "total_ms": Timing.of(totals),
        "cold_ms": cold.read_ms + cold.first_ms,
        "speed_up": (cold.read_ms + cold.first_ms) / statistics.median(totals),
        "save_ms": _save_ms(stored.ms, cold.read_ms),
        "keep_ms": statistics.median(report.note.keep_ms for report in reports),
        "bytes": speed.bytes,
        "bytes_after": [ask.bytes for ask in asks],
        "peak_bytes": max(report.memory.get("peak") or 0 for report in reports) or None,
        "rise_bytes": max(report.memory.get("peak", 0) - report.memory.get("before", 0) for report in reports),
        "evaluated": max(report.evaluated for report in reports),
        "evaluated_each": [report.evaluated for report in reports],
        "turn_tokens": cold.evaluated,
        "steps_equal": min(equal),
        "steps": len(cold.evidence),
        "break_even": math.ceil(max(0.0, statistics.median(totals) - cold.first_ms) / (cold.read_ms / n)),
        "pages_left": max((report.left or 0.0 for report in reports), default=0.0),
    }


def _save_ms(ms: Mapping[str, float], read_ms: float) -> float:
    """A store without the prefill; where an arm gives prefill and probe as one, less the family's cold prefill."""
    rest = sum(value for name, value in ms.items() if not name.startswith("read"))
    together = sum(value for name, value in ms.items() if name.startswith("read and"))
    return rest + max(0.0, together - read_ms if together else 0.0)


def _own(rows: Sequence[Restored], row: Restored) -> Restored | None:
    """Agentkv's row of the same length and home."""
    same = (one for one in rows if one.n == row.n and one.home == row.home)
    return next((one for one in same if one.arm == _HOMES[row.home]), None)


def _against(rows: Sequence[Restored]) -> Iterator[Restored]:
    for row in rows:
        ours = _own(rows, row)
        pairs = {measure: (row.measure(measure), ours and ours.measure(measure)) for measure in BETTER}
        ratios = {measure: theirs / own if theirs and own else None for measure, (theirs, own) in pairs.items()}
        yield row.model_copy(update={"of_agentkv": ratios})


def _slower(rows: Sequence[Restored]) -> Iterator[Slower]:
    """Every measure in which an arm is better than agentkv in the same home at the same length."""
    for row in rows:
        ours = _own(rows, row)
        if ours is None or row.arm.startswith(OURS):
            continue
        for measure in BETTER:
            theirs, own = row.measure(measure), ours.measure(measure)
            if theirs is not None and own is not None and theirs < own:
                place = row.model_dump(include={"arm", "label", "n", "home"})
                yield Slower(**place, measure=measure, theirs=theirs, agentkv=own)


def _aims(rows: Sequence[Restored], faults: Sequence[Fault]) -> Iterator[Aim]:
    for row in rows:
        ours = _own(rows, row)
        if row.arm != RIVAL or ours is None:
            continue
        values = [row.restore_ms.median / ours.restore_ms.median, row.bytes / ours.bytes]
        for (aim, least), value in zip(AIMS.items(), values, strict=True):
            if row.home == "warm" or not aim.startswith("bytes"):
                yield Aim(aim=aim, n=row.n, home=row.home, least=least, value=value, met=value >= least)
    own = [fault for fault in faults if fault.arm.startswith(OURS)]
    if own:
        passed, least = sum(fault.passed for fault in own), len(own)
        aim = "fault arms that agentkv passes"
        yield Aim(aim=aim, n=own[0].n, home=None, least=least, value=passed, met=passed == least)


# --- tables -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """An arm and home: its figures by length, and the lengths of the whole result."""

    label: str
    home: str
    rows: dict[int, Restored]
    lengths: tuple[int, ...]

    @property
    def last(self) -> Restored:
        """At the longest that the arm did."""
        return self.rows[max(self.rows)]

    def ms(self, value: Callable[[Restored], float]) -> str:
        """Milliseconds at all lengths."""
        return _each(self.lengths, self.rows, lambda row: milliseconds(value(row))) + " ms"


def _each(lengths: Iterable[int], rows: Mapping[int, Any], cell: Callable[[Any], str]) -> str:
    return " / ".join(cell(rows[n]) if n in rows else "–" for n in lengths)


def _lengths(result: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(sorted({row["n"] for row in result["rows"]}))


def _lines(result: Mapping[str, Any]) -> Iterator[Line | tuple[str, ...]]:
    """Cold prefills by family of engines, each arm and home, what failed."""
    lengths, rows = _lengths(result), rows_of(Restored, "rows")(result)
    cold = rows_of(Cold, "cold_prefill")(result)
    for family in dict.fromkeys(one.family for one in cold):
        mine = {one.n: one for one in cold if one.family == family}
        times = _each(lengths, mine, lambda one: milliseconds(one.read_ms + one.first_ms))
        peak = mine[max(mine)].peak_bytes
        yield (f"cold prefill, {family}", "", "", f"{times} ms", *[""] * 4, gigabytes(peak) if peak else "")
    for label, home in dict.fromkeys((row.label, row.home) for row in rows):
        yield Line(label, home, {row.n: row for row in rows if (row.label, row.home) == (label, home)}, lengths)
    for failed in rows_of(Failed, "failed")(result):
        yield failed.label, failed.home or "", f"{failed.n:,} tokens: {failed.reason}"


def _restore_heading(results: Sequence[Mapping[str, Any]]) -> str:
    found = {_lengths(result) for result in results}
    if len(found) != 1:
        raise ValueError(f"results of other lengths: {sorted(found)}")
    return f"restore, at {' / '.join(f'{n:,}' for n in found.pop())} tokens"


def _ratio(row: Restored, measure: str = "total_ms") -> str:
    ratio = row.of_agentkv[measure]
    if ratio is None:
        return ""
    digits = 2 if ratio < 0.1 else 1 if ratio < 10 else 0
    return f"{ratio:.{digits}f} ×"


def _by_arm(result: Mapping[str, Any]) -> list[dict[str, Fault]]:
    """The faults of each arm, by name."""
    by_arm: dict[str, dict[str, Fault]] = {}
    for fault in rows_of(Fault, "faults")(result):
        by_arm.setdefault(fault.label, {})[fault.fault] = fault
    return list(by_arm.values())


def _fault_cell(name: str, arm: Mapping[str, Fault]) -> str:
    return arm[name].verdict() if name in arm else "in memory only"


class Peers(Benchmark[Settings]):
    """Side by side with llama-cpp-python's states and caches, llama-server's slots, stillwarm and hearth-llm."""

    name = "peers"
    tables = (
        Table(
            _lines,
            (
                Column[Line]("arm", lambda line: line.label, left=True),
                Column("state in", lambda line: line.home, left=True),
                Column(_restore_heading, lambda line: line.ms(lambda row: row.restore_ms.median), left=True),
                Column("restore + first token", lambda line: line.ms(lambda row: row.total_ms.median)),
                Column("of agentkv’s", lambda line: _each(line.lengths, line.rows, _ratio)),
                Column("saving, of agentkv’s", lambda line: line.last.saving()),
                Column("on disk", lambda line: megabytes(line.last.bytes) if line.last.bytes else ""),
                Column("of agentkv’s", lambda line: _ratio(line.last, "bytes")),
                Column("peak memory", lambda line: gigabytes(line.last.peak_bytes) if line.last.peak_bytes else ""),
                Column("tokens evaluated", lambda line: line.last.counts()),
                Column("steps equal", lambda line: line.last.equality()),
                Column("break-even at", lambda line: f"{line.last.break_even:,} tokens"),
            ),
            name="peers",
        ),
        Table(
            _by_arm,
            (
                Column[dict[str, Fault]]("arm", lambda arm: next(iter(arm.values())).label, left=True),
                *(Column[dict[str, Fault]](name, functools.partial(_fault_cell, name), left=True) for name in FAULTS),
            ),
            name="faults",
        ),
    )

    def run(self) -> dict[str, Any]:
        """Every chosen arm at every length, then its faults at the shortest.

        Raises UsageError for an unknown arm, or a length under 64.
        """
        asked, known = self.settings, {spec.name: spec for spec in self.settings.specs}
        if unknown := [name for name in asked.arms if name not in known]:
            raise UsageError(f"{unknown[0]!r} is not an arm; there are: {', '.join(known)}")
        if not asked.lengths or min(asked.lengths) < 64:
            raise UsageError("a block here has 64 tokens or more")
        work = None if asked.work is None else asked.work.absolute()
        if work is not None:
            work.mkdir(parents=True, exist_ok=True)
        asks = 1 if asked.small else asked.asks
        texts, names = list(asked.texts or manual_texts()), asked.arms or tuple(known)
        with tempfile.TemporaryDirectory(prefix="agentkv-peers-", dir=work) as folder:
            given = material(asked.model, texts, asked.lengths, asked.turns, asked.threads)
            runner = Runner(given, asked.launch, work, Path(folder), asks=asks, steps=asked.steps, few=asked.small)
            for name in names:
                runner.arm(known[name], asked.lengths, with_faults=not asked.no_faults)
        return self.result(
            runner.raw,
            model=asked.model,
            model_sha256=given.model_sha256,
            inputs=given.inputs,
            settings={
                **{"arms": list(names), "lengths": list(asked.lengths), "asks": asks, "steps": asked.steps},
                **{"turns": asked.turns, "faults": not asked.no_faults, "few": asked.small, "threads": asked.threads},
            },
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``environments``, ``cold_prefill``, ``rows``, ``faults``, ``slower``, ``aims``, ``failed``, ``left_out``."""
        places, faults = list(_places(raw)), judged(raw)
        rows = [place for place in places if isinstance(place, Restored)]
        found: dict[str, Iterable[Row]] = {
            "cold_prefill": _cold(raw),
            "rows": _against(rows),
            "faults": faults,
            "slower": _slower(rows),
            "aims": _aims(rows, faults),
            "failed": [place for place in places if isinstance(place, Failed)],
        }
        return {
            **{name: [row.model_dump(exclude_unset=True) for row in kind] for name, kind in found.items()},
            "environments": below(raw, "environment/"),
            "left_out": below(raw, "left out/"),
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every graft of agentkv was exact, and each of its fault arms passed."""
        for failed in rows_of(Failed, "failed")(result):
            if failed.arm.startswith(OURS):
                raise GuaranteeViolated(f"{failed.label}, n = {failed.n}: {failed.reason}")
        for row in rows_of(Restored, "rows")(result):
            if row.arm.startswith(OURS) and row.steps_equal != row.steps:
                raise GuaranteeViolated(f"{row.label}, n = {row.n}: {row.steps_equal} of {row.steps} steps")
            if row.arm.startswith(OURS) and row.evaluated > row.turn_tokens:
                raise GuaranteeViolated(f"{row.label}, n = {row.n}: {row.evaluated} tokens were evaluated")
        for fault in rows_of(Fault, "faults")(result):
            if fault.arm.startswith(OURS) and not fault.passed:
                raise GuaranteeViolated(f"{fault.label}: {fault.fault}: {fault.outcome}")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """The steps of each restore, what failed and why, what is better than agentkv, aims, what was left out."""
        yield "tokens*: the token and its five likeliest with their printed log-probabilities; the server has no logits"
        for row in rows_of(Restored, "rows")(result):
            steps = ", ".join(f"{name} {ms:.1f}" for name, ms in row.steps_ms.items())
            keep = f"; then keeps for {duration(row.keep_ms)}" if row.keep_ms else ""
            yield f"{row.label}, {row.n:,} tokens, {row.home}: {steps} ms{keep}"
        for fault in rows_of(Fault, "faults")(result):
            for case in fault.cases:
                if not case.passed:
                    yield f"{fault.label}: {fault.fault}, {case.case}: {case.outcome}: {case.detail}"
        for one in rows_of(Slower, "slower")(result):
            unit = size if one.measure.endswith("bytes") else duration
            values = f"{unit(int(one.theirs))} against {unit(int(one.agentkv))}"
            yield f"better than agentkv: {one.label}, {one.n:,} tokens, {one.home}, {BETTER[one.measure]}: {values}"
        for aim in rows_of(Aim, "aims")(result):
            where = f"{aim.n:,} tokens" + (f", {aim.home}" if aim.home else "")
            met = "met" if aim.met else "NOT MET"
            yield f"aim, {where}: {aim.aim} at least {aim.least:g}, is {aim.value:.1f}: {met}"
        for made in result["environments"].values():
            if "unavailable" in made:
                yield f"{made['label']}: left out: {made['unavailable']}"
        yield from left_out(result)
