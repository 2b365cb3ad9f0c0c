"""The turn log: what each turn restored and what it read, and how long that took, by which savings are counted.

    turns/turns.jsonl, turns/turns-000001.jsonl …    see ``lines.py``; 17 files of 4 MB, about 200,000 turns

Knows counts, milliseconds, block ids and the names of skills. Holds no question, no answer, no other text and no token.
No block depends on it: a line that is lost is a turn that is not counted. Not guaranteed: turns of a process that was
killed before their end, and those older than what is kept.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from agentkv.io.hashing import canonical_json
from agentkv.io.lines import LineLog, is_on
from agentkv.records import Count, Record, Sha256
from agentkv.store.files import TURNS

STEM = "turns"
SWITCH = "AGENTKV_TURN_LOG"
"""Environment variable: ``0`` keeps no turn log."""
_MAX_BYTES, _KEEP, _WAIT_S = 4 << 20, 16, 0.5

Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LoggedTurn(Record):
    """One line. ``time``: UTC, ISO 8601, when it was written.

    ``kind``: a turn of a memory, a window of a document that was asked, or a deposit, which only tells what reading
    takes. ``restored``, ``read`` and ``generated`` are tokens; ``read_ms`` is what the read ones took, and nothing
    else. ``restore_ms`` is also what looking for a block took that was not there. ``graft``: False where the caller
    asked for no restore. ``keep_ms``: storing the conversation's state.
    """

    format: Literal[1] = 1
    time: Annotated[str, Field(min_length=10, max_length=40)]
    kind: Literal["turn", "window", "deposit"]
    fingerprint_id: Sha256
    model_sha256: Annotated[str, Field(max_length=128)] = ""
    skill: Annotated[str, Field(max_length=512)] | None = None
    block_id: Sha256 | None = None
    graft: bool = True
    restored: Count = 0
    read: Count = 0
    generated: Count = 0
    route_ms: Milliseconds = 0.0
    restore_ms: Milliseconds = 0.0
    read_ms: Milliseconds = 0.0
    generate_ms: Milliseconds = 0.0
    keep_ms: Milliseconds = 0.0

    @property
    def day(self) -> str:
        """The day of ``time``, in UTC: ``2026-10-14``."""
        return self.time[:10]


class TurnLog:
    """The log of the store in ``root``. ``on``: whether it is kept; None goes by ``AGENTKV_TURN_LOG``, which is yes.

    ``lost`` counts lines that could not be written. Raises UsageError for a variable that says neither.
    """

    def __init__(self, root: Path, on: bool | None = None) -> None:
        self.on = bool(is_on(SWITCH, "turn log")) if on is None else on
        self._lines = LineLog(root / TURNS, STEM, max_bytes=_MAX_BYTES, keep=_KEEP, wait_s=_WAIT_S, within=root)

    @property
    def lost(self) -> int:
        """How many lines could not be written."""
        return self._lines.lost

    def add(self, **fields: Any) -> None:
        """Write one line, as :class:`LoggedTurn` has it; never raises for what the file system says."""
        if self.on:
            line = LoggedTurn(time=datetime.now(UTC).isoformat(timespec="milliseconds"), **fields)
            record = line.model_dump(mode="json", exclude_defaults=True) | {"format": line.format}
            self._lines.append(canonical_json(record))

    def rewrite(self, keep: Callable[[bytes], bool], *, dry_run: bool = False) -> int:
        """Leave out lines, see :meth:`LineLog.rewrite`."""
        return self._lines.rewrite(keep, dry_run=dry_run)

    def read(self) -> Iterator[LoggedTurn]:
        """All that is kept, oldest first; lines that are cut short or of another format are left out.

        Raises StoreReadError.
        """
        for line in self._lines.lines():
            with contextlib.suppress(ValidationError):
                yield LoggedTurn.model_validate_json(line)


# --- what restoring saved --------------------------------------------------------------------------

K = TypeVar("K", bound=Hashable)

LONG = 64


@dataclass(frozen=True)
class Rate:
    """Milliseconds that a token of reading took, over how many readings of how many tokens; ``shortest`` of them."""

    model_sha256: str
    ms: float
    readings: int
    tokens: int
    shortest: int


@dataclass
class Saved:
    """Sums over turns. ``hits``: turns that restored a block; ``ungrafted``: turns with ``graft=False``.

    ``saved_ms``: None where turns restored something, and what reading takes is not known for any of them;
    ``unknown``: turns of which it is not known.
    """

    turns: int = 0
    hits: int = 0
    ungrafted: int = 0
    restored: int = 0
    read: int = 0
    generated: int = 0
    restore_ms: float = 0.0
    route_ms: float = 0.0
    keep_ms: float = 0.0
    saved_ms: float | None = 0.0
    unknown: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Turns that restored a block, of all; None for no turns."""
        return self.hits / self.turns if self.turns else None

    def _count(self, line: LoggedTurn) -> None:
        self.turns += 1
        self.hits += line.restored > 0
        self.ungrafted += not line.graft
        self.restored += line.restored
        self.read += line.read
        self.generated += line.generated
        self.restore_ms += line.restore_ms
        self.route_ms += line.route_ms
        self.keep_ms += line.keep_ms

    def _add(self, other: Saved) -> None:
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SUMMED = [entry.name for entry in fields(Saved) if entry.name != "saved_ms"]


@dataclass(frozen=True)
class Savings(Generic[K]):
    """``rows``: by key, in no order; ``rates``: by fingerprint.

    ``oldest``: the time of the oldest turn on record, ISO 8601, UTC; None if there is none. ``deposits``, ``deposited``
    and ``deposit_ms``: readings for deposits, their tokens, and what they took.
    """

    rows: dict[K, Saved]
    total: Saved
    rates: dict[str, Rate]
    oldest: str | None
    deposits: int
    deposited: int
    deposit_ms: float


def savings(lines: Iterable[LoggedTurn], key: Callable[[LoggedTurn], K], since: str = "") -> Savings[K]:
    """Add up a log by ``key``, from the day ``since`` on (``YYYY-MM-DD``, UTC; empty: all of it)."""
    groups: dict[K, dict[str, Saved]] = defaultdict(lambda: defaultdict(Saved))
    readings: dict[str, list[tuple[float, int]]] = defaultdict(list)
    models: dict[str, str] = {}
    oldest, deposits, deposited, deposit_ms = None, 0, 0, 0.0
    for line in lines:
        models[line.fingerprint_id] = line.model_sha256
        if line.read and line.read_ms:
            readings[line.fingerprint_id].append((line.read_ms / line.read, line.read))
        if line.kind == "deposit":
            if line.day >= since:
                deposits, deposited, deposit_ms = deposits + 1, deposited + line.read, deposit_ms + line.read_ms
            continue
        oldest = min(oldest or line.time, line.time)
        if line.day >= since:
            groups[key(line)][line.fingerprint_id]._count(line)
    rates = {fingerprint: _rate(models[fingerprint], found) for fingerprint, found in readings.items()}
    rows = {name: _total(sums, rates) for name, sums in groups.items()}
    whole: dict[str, Saved] = defaultdict(Saved)
    for sums in groups.values():
        for fingerprint, saved in sums.items():
            whole[fingerprint]._add(saved)
    return Savings(rows, _total(whole, rates), rates, oldest, deposits, deposited, deposit_ms)


def _rate(model_sha256: str, found: list[tuple[float, int]]) -> Rate:
    """The median of ms a token, each reading weighted by its tokens."""
    used = sorted([reading for reading in found if reading[1] >= LONG] or found)
    tokens = sum(n for _, n in used)
    passed = accumulate(n for _, n in used)
    median = next(ms for (ms, _), so_far in zip(used, passed, strict=True) if 2 * so_far >= tokens)
    return Rate(model_sha256, median, len(used), tokens, min(n for _, n in used))


def _total(by_fingerprint: dict[str, Saved], rates: dict[str, Rate]) -> Saved:
    total, saved, known = Saved(), 0.0, False
    for fingerprint, sums in by_fingerprint.items():
        total._add(sums)
        rate = rates.get(fingerprint)
        if rate is None and sums.hits:
            total.unknown += sums.hits
            continue
        known |= sums.hits > 0
        saved += sums.restored * (rate.ms if rate else 0.0) - sums.restore_ms
    total.saved_ms = saved if known or not total.hits else None
    return total
