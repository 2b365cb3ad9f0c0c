"""What restoring saved, from a store's turn log: tokens, and an estimate of seconds.

Tokens are counted: those restored instead of read. Seconds are estimated: restored tokens times what a token of reading
took here, less what the restore itself took. What a token of reading took is the median over the readings on record of
the same model and settings, weighted by their tokens, of ``LONG`` tokens or more each (a few tokens take longer each;
shorter ones count only where there is nothing else). The log's whole length counts for it, whatever days are asked for.

Not taken off, but told beside it: routing, storing conversations, and what deposits took to read. Refuses to know
names and files. Not guaranteed: a state of any length is taken to read alike, though tokens far back in a long text
take longer than that; so long blocks save more than is said here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Generic, TypeVar

from agentkv.blocks.turnlog import LoggedTurn

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
    """Sums over turns. ``hits``: turns that restored a block; ``asked_to_read``: turns that were told not to.

    ``saved_ms``: None where turns restored something, and what reading takes is not known for any of them;
    ``unknown``: turns of which it is not known.
    """

    turns: int = 0
    hits: int = 0
    asked_to_read: int = 0
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
        self.asked_to_read += not line.graft
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
