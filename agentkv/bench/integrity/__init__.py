"""``agentkv bench integrity``: whether a store loses anything when what can go wrong does.

Four parts, each on the fake engine or on blocks of numbers, none with a model: every file-system step of every
operation failing, interrupted or the last of a killed process (``faults``); what a power failure may leave (``power``);
many processes at once (``concurrency``); files corrupted in every region (``corruption``).

Covered: process crashes, full disks, failing disks, Ctrl-C, a model of power failures, races, corrupt bytes. Not
covered: a disk that says "synced" and has not, memory that flips bits before they are hashed, programs that change
a store on purpose, file systems without ``flock``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench.base import Benchmark, Column, Row, Table, option, small_option
from agentkv.bench.faults import without_syncs
from agentkv.bench.integrity import concurrency, corruption, faults, power
from agentkv.bench.integrity.concurrency import Together
from agentkv.bench.integrity.corruption import DamageRow, Damages
from agentkv.bench.integrity.faults import FaultRow
from agentkv.bench.integrity.power import PowerRow
from agentkv.bench.measured import Raw
from agentkv.errors import UsageError

PARTS = ("faults", "power", "concurrency", "corruption")
_RAM = Path("/dev/shm")
_SMALL_OPERATIONS = faults.OPERATIONS[:2]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``folder``: on the file system to be tried. Without one, what does not sync is done in RAM where there is a place
    for it, and the rest in the temporary folder."""

    parts: tuple[str, ...] = option(
        PARTS, f"Of {', '.join(PARTS)}; by default all.", name="only", metavar="PART,…", shown="all"
    )
    folder: Path | None = option(
        None, "A folder on the disk that is meant.", metavar="DIR", shown="the system's temporary folder"
    )
    small: bool = small_option()


@dataclass(frozen=True)
class _Operation:
    """All modes of one operation, as one row of a table."""

    rows: tuple[FaultRow, ...]

    @property
    def name(self) -> str:
        return self.rows[0].operation

    def cases(self) -> str:
        killed = sum(row.cases for row in self.rows if row.mode.startswith("SIGKILL"))
        return f"{sum(row.cases for row in self.rows) - killed:,} / {killed:,}"


def _total(rows: Sequence[Row], *kinds: str) -> list[int]:
    return [sum(getattr(row, kind) for row in rows) for kind in kinds]


def _operations(result: Mapping[str, Any]) -> Iterator[_Operation | tuple[str, ...]]:
    """A row an operation, and one for the power failures in all of them."""
    rows = [FaultRow.model_validate(row) for row in result.get("faults", ())]
    for operation in dict.fromkeys(row.operation for row in rows):
        yield _Operation(tuple(row for row in rows if row.operation == operation))
    if "power" in result:
        failures = [PowerRow.model_validate(row) for row in result["power"]]
        waited, states, moments = _total(failures, "waited_for_collect", "states", "prefixes")
        lost, half, left = (f"{n:,}" for n in _total(failures, "lost", "half", "leftovers"))
        left += f" after `gc` (in {waited:,} of them something waited for it)"
        label = f"power failures at {moments:,} moments of these: states that a disk may be left in"
        yield label, "", f"{states:,}, more or fewer by the order in which threads write", lost, half, left


def _damages(result: Mapping[str, Any]) -> list[tuple[str, DamageRow]]:
    known = result.get("corruption")
    return [] if known is None else list(Damages.model_validate(known).damages.items())


def _sum(kind: str) -> Callable[[_Operation], str]:
    return lambda one: f"{_total(one.rows, kind)[0]:,}"


class Integrity(Benchmark[Settings]):
    """Whether a store loses anything: failing disks, kills, power failures, many processes, corrupt files. No model."""

    name = "integrity"
    tables = (
        Table(
            _operations,
            (
                Column[_Operation]("", lambda one: one.name, left=True),
                Column("file-system steps", lambda one: f"{one.rows[0].steps}"),
                Column(
                    "each fails (EIO, disk full, EIO for ever, Ctrl-C before and after) / SIGKILL before and after",
                    _Operation.cases,
                    left=True,
                ),
                Column("lost blocks", _sum("lost")),
                Column("half blocks", _sum("half")),
                Column("left over after the next open", _sum("leftovers"), left=True),
            ),
            name="integrity",
            by_model=False,
        ),
        Table(
            _damages,
            (
                Column("damage", lambda one: one[0], left=True),
                Column("cases", lambda one: f"{one[1].cases:,}"),
                Column("refused", lambda one: f"{sum(one[1].refused.values()):,}"),
                Column("reached the engine", lambda one: f"{one[1].engine_called}"),
                Column("other answers", lambda one: f"{one[1].other_answers}"),
                Column("as", lambda one: " ".join(f"{e} {n:,}" for e, n in sorted(one[1].refused.items())), left=True),
            ),
        ),
    )

    def __init__(self, settings: Settings | None = None, **given: Any) -> None:
        super().__init__(settings, **given)
        unknown = [part for part in self.settings.parts if part not in PARTS]
        if unknown:
            raise UsageError(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")

    def run(self) -> dict[str, Any]:
        """Every part, or a part of it that takes seconds."""
        small, folder, parts = self.settings.small, self.settings.folder, self.settings.parts
        raw: dict[str, Any] = {}
        quick = folder or (_RAM if os.access(_RAM, os.W_OK) else None)
        operations = _SMALL_OPERATIONS if small else faults.OPERATIONS
        with (
            tempfile.TemporaryDirectory(prefix="agentkv-integrity-", dir=quick) as in_ram,
            tempfile.TemporaryDirectory(prefix="agentkv-integrity-", dir=folder) as on_disk,
        ):
            place = Path(in_ram).resolve()
            if "faults" in parts:
                raw["faults"] = faults.cases(place / "faults", operations, every=4 if small else 1)
            if "power" in parts:
                raw["power"] = power.cases(place / "power", operations, sample=40 if small else None)
            if "concurrency" in parts:
                plan = concurrency.SMALL if small else concurrency.Plan()
                raw["concurrency"] = concurrency.run(Path(on_disk).resolve(), plan)
            if "corruption" in parts:
                with without_syncs():
                    damages = corruption.SMALL if small else corruption.Plan()
                    raw["corruption"] = corruption.cases(place / "corruption", damages)
        inputs = [part for part in PARTS if part in parts]
        return self.result(raw, model="fake", inputs=inputs, settings={"small": small})

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Each part that was run, and ``totals``."""
        fault_rows, power_rows = faults.figures(raw.get("faults", [])), power.figures(raw.get("power", []))
        damages = corruption.figures(raw["corruption"]) if "corruption" in raw else Damages(files={}, damages={})
        parts: dict[str, Callable[[], Any]] = {
            "faults": lambda: [row.model_dump() for row in fault_rows],
            "power": lambda: [row.model_dump() for row in power_rows],
            "concurrency": lambda: raw["concurrency"],
            "corruption": damages.model_dump,
        }
        both = [*fault_rows, *power_rows]
        totals = {
            "fault_cases": sum(row.cases for row in fault_rows),
            "power_states": sum(row.states for row in power_rows),
            **dict(zip(_WRONG, _total(both, *_WRONG), strict=True)),
            "damages": sum(row.cases for row in damages.damages.values()),
            "refused": sum(sum(row.refused.values()) for row in damages.damages.values()),
        }
        return {**{name: part() for name, part in parts.items() if name in raw}, "totals": totals}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Nothing was lost, half there or left over, and everything corrupt was refused."""
        faults.check([FaultRow.model_validate(row) for row in result.get("faults", ())])
        power.check([PowerRow.model_validate(row) for row in result.get("power", ())])
        if "concurrency" in result:
            concurrency.check(Together.model_validate(result["concurrency"]))
        if "corruption" in result:
            corruption.check(Damages.model_validate(result["corruption"]))

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Many processes at once."""
        if "concurrency" in result:
            part = Together.model_validate(result["concurrency"])
            rounds = ", ".join(f"{role} {count:,}" for role, count in part.rounds.items())
            yield (
                f"{part.processes} processes, {part.deposits:,} deposits of {part.blocks:,} blocks: "
                f"{part.errors} errors, {part.missing} missing, {part.unexpected} unexpected, "
                f"{part.temporaries + part.leftovers} left over; "
                f"rounds: {rounds}; longest {max(part.longest_ms.values()):,.0f} ms, "
                f"collector {part.longest_ms['collect']:,.0f} ms"
            )


_WRONG = ("lost", "half", "leftovers")
