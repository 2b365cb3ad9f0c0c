"""The ledger: an append-only, hash-chained log of runs, with their raw generations, in one folder.

>>> import tempfile, pathlib
>>> ledger = Ledger(pathlib.Path(tempfile.mkdtemp()) / "ledger")
>>> with ledger.run("demo", settings={"seed": 1}, inputs={"questions": b"1 + 1 = ?"}) as run:
...     run.record("sum", {"text": "It is 2."}, expected={"answers": ["2"]})
...     run.verdict("answered", True)
...     run.scores({"right": 1})
>>> [(found.kind, found.status, len(found.items)) for found in ledger.runs()]
[('demo', 'finished', 1)]

A call that returns is durable; several processes may append to one ledger, entry by entry. Not guaranteed: that what is
recorded is true, which a replay can show, and anything against someone with write access who makes the whole ledger
again (see :mod:`agentkv.evidence.verify`).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.errors import LedgerDamaged, NotScorable, UnknownRun, UsageError
from agentkv.evidence import files
from agentkv.evidence.environment import machine, source_code
from agentkv.evidence.files import MODES, Absent, Draft, PayloadFiles, Payloads
from agentkv.evidence.records import (
    Anchor,
    EndBody,
    Entry,
    EntryType,
    Item,
    ItemBody,
    PlanBody,
    RunBody,
    ScoresBody,
    VerdictBody,
    plain,
)
from agentkv.evidence.verify import verify
from agentkv.io.forks import OwnedLock
from agentkv.io.hashing import file_sha256, sha256
from agentkv.records import Fingerprint, Record, TokenCounts
from agentkv.store.format import Malformed


@dataclass
class RecordedRun:
    """A run as the ledger has it. ``status``: ``finished``, ``failed``, or ``unfinished`` where there is no end."""

    id: str
    seq: int
    time: str
    body: RunBody
    items: list[ItemBody] = field(default_factory=list)
    verdicts: list[VerdictBody] = field(default_factory=list)
    scores: dict[str, Any] | None = None
    status: str = "unfinished"
    error: str | None = None

    @property
    def kind(self) -> str:
        """What was run; with the version it names the scorer."""
        return self.body.kind


class Run:
    """A run that is being recorded; made by :meth:`Ledger.run`. Methods may be called from several threads."""

    def __init__(self, ledger: Ledger, run_id: str, items: int = 0, verdicts: int = 0) -> None:
        self.id = run_id
        self._ledger = ledger
        self._items, self._verdicts = items, verdicts
        self._lock = OwnedLock("run of the ledger")

    def record(
        self,
        key: str,
        raw: Any,
        *,
        expected: Any = None,
        tokens: TokenCounts | Mapping[str, int] | None = None,
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        """Record one raw generation; see :class:`Item`. Raises UsageError for what is not JSON, and append's errors."""
        counts = tokens.model_dump() if isinstance(tokens, TokenCounts) else tokens
        self.record_all(
            [Item(key, raw, expected, dict(counts) if counts else None, dict(figures) if figures else None)]
        )

    def record_all(self, items: Sequence[Item]) -> None:
        """Record many in one write: all of them or, after a crash, the first so many."""
        if not items:
            return
        bodies = [self._ledger.body_of(item) for item in items]
        with self._lock:
            self._ledger.append(self.id, "item", bodies)
            self._items += len(bodies)

    def verdict(self, name: str, passed: bool, detail: Any = None) -> None:
        """Record a decision; nothing private belongs in ``detail``."""
        with self._lock:
            body = VerdictBody(name=name, passed=bool(passed), detail=plain(detail, f"the verdict {name!r}"))
            self._ledger.append(self.id, "verdict", [body])
            self._verdicts += 1

    def scores(self, scores: Mapping[str, Any]) -> None:
        """Record the scores that the run reports; the run's scorer has to give the same from the raw generations."""
        self._ledger.append(self.id, "scores", [ScoresBody(scores=plain(dict(scores), "the scores"))])

    def end(self, error: BaseException | None = None) -> None:
        """Record the end; nothing can be recorded after it."""
        status: Any = "finished" if error is None else "failed"
        text = None if error is None else f"{type(error).__name__}: {error}"[:2000].encode("utf-8", "replace").decode()
        with self._lock:
            body = EndBody(status=status, items=self._items, verdicts=self._verdicts, error=text)
            self._ledger.append(self.id, "end", [body])


class Ledger:
    """The ledger in ``folder``, made when the first run begins. ``payloads``: where raw generations go (files.py).

    Raises UsageError for an unknown ``payloads``.
    """

    def __init__(self, folder: Path, *, payloads: Payloads = "inline") -> None:
        if payloads not in MODES:
            raise UsageError(f"payloads are kept {', '.join(MODES)}, not {payloads!r}")
        self.folder, self.payloads = folder, payloads
        self._files = PayloadFiles(folder)

    @contextlib.contextmanager
    def run(
        self,
        kind: str,
        *,
        version: int = 1,
        settings: Mapping[str, Any] | None = None,
        inputs: Mapping[str, bytes | Path | str] | None = None,
        fingerprints: Mapping[str, Fingerprint] | None = None,
    ) -> Iterator[Run]:
        """Record a run: its beginning now, its end when the body ends, ``failed`` if that raises.

        ``kind`` and ``version`` name the scorer. ``inputs``: what was read, as bytes, a file, or the SHA-256 of it;
        only digests are kept. Raises UsageError, LedgerDamaged, StoreFull, StoreReadError.
        """
        run = self.begin(kind, version=version, settings=settings, inputs=inputs, fingerprints=fingerprints)
        try:
            yield run
        except BaseException as error:
            run.end(error)
            raise
        run.end()

    def begin(
        self,
        kind: str,
        *,
        version: int = 1,
        settings: Mapping[str, Any] | None = None,
        inputs: Mapping[str, bytes | Path | str] | None = None,
        fingerprints: Mapping[str, Fingerprint] | None = None,
        plan: str | None = None,
    ) -> Run:
        """Like :meth:`run`, but its end is the caller's to record; see :meth:`resume`.

        ``version``: the scorer's number.
        """
        body = RunBody(
            kind=kind,
            version=version,
            settings=plain(dict(settings or {}), "the settings"),
            inputs={name: _digest(value) for name, value in (inputs or {}).items()},
            fingerprints={name: print_.model_dump(mode="json") for name, print_ in (fingerprints or {}).items()},
            code=source_code(),
            machine=machine(),
            plan=plan,
        )
        run = Run(self, secrets.token_hex(8))
        self.append(run.id, "run", [body])
        return run

    def resume(self, found: RecordedRun) -> Run:
        """Continue a run that has no end."""
        if found.status != "unfinished":
            raise UsageError(f"run {found.id} has ended; begin another")
        return Run(self, found.id, len(found.items), len(found.verdicts))

    def register_plan(self, plan: str, name: str) -> None:
        """Enter a plan's digest, once, before its runs."""

        def draw() -> list[Draft]:
            known = any(entry.type == "plan" and entry.body["plan"] == plan for entry in self.entries())
            return [] if known else [(None, "plan", PlanBody(plan=plan, name=name))]

        files.append(self.folder, draw)

    def append(self, run: str, kind: EntryType, bodies: Sequence[Record]) -> list[Entry]:
        """Append entries of a run; for this package's own use."""
        drafts: list[Draft] = [(run, kind, body) for body in bodies]
        return files.append(self.folder, lambda: drafts)

    def body_of(self, item: Item) -> ItemBody:
        """The entry's body of an item, its payloads written to files where that is the mode."""
        name = f"the item {item.key!r}"
        raw, expected = plain(item.raw, name), plain(item.expected, name)
        return ItemBody(
            key=item.key,
            raw=self._files.put(raw, self.payloads),
            expected=self._files.put(expected, self.payloads),
            tokens=item.tokens,
            figures=plain(item.figures, name),
        )

    def head(self) -> Anchor | None:
        """The anchor of the ledger as it is; None for a ledger of no records. Raises LedgerDamaged."""
        report = verify(self.folder, payloads=False)
        report.require_sound()
        if not report.entries:
            return None
        ledger = report.entries[0].body["ledger"]
        return Anchor(ledger=ledger, count=len(report.entries), head=report.head, time=files.now())

    def entries(self) -> list[Entry]:
        """Every record, after a check of all but payload files. Raises LedgerDamaged, StoreReadError."""
        report = verify(self.folder, payloads=False)
        report.require_sound()
        return report.entries

    def runs(self) -> list[RecordedRun]:
        """Every run, in the order in which they began. Raises LedgerDamaged, StoreReadError."""
        return runs_of(self.entries())

    def find(self, run: str) -> RecordedRun:
        """The run whose id begins with ``run``. Raises UnknownRun for none or several."""
        return find_run(self.runs(), run)

    def items(self, run: RecordedRun) -> list[Item]:
        """The run's raw generations, payloads read. Raises NotScorable if one is absent, LedgerDamaged."""
        found, absent = [], 0
        for body in run.items:
            try:
                raw, expected = self._files.get(body.raw), self._files.get(body.expected)
            except Malformed as error:
                raise LedgerDamaged(self.folder, [f"a payload of run {run.id}: {error}"]) from error
            absent += isinstance(raw, Absent) or isinstance(expected, Absent)
            found.append(Item(body.key, raw, expected, body.tokens, body.figures))
        if absent:
            what = f"{absent:,} of {len(found):,} raw generations were left out; their digests are in the ledger"
            raise NotScorable(run.id, what)
        return found


def runs_of(entries: Sequence[Entry]) -> list[RecordedRun]:
    """The runs in the records of a valid ledger, in the order in which they began."""
    found: dict[str, RecordedRun] = {}
    for entry in entries:
        if entry.run is None:
            continue
        if entry.type == "run":
            found[entry.run] = RecordedRun(entry.run, entry.seq, entry.time, RunBody.model_validate(entry.body))
        run = found[entry.run]
        match entry.type:
            case "item":
                run.items.append(ItemBody.model_validate(entry.body))
            case "verdict":
                run.verdicts.append(VerdictBody.model_validate(entry.body))
            case "scores":
                run.scores = entry.body["scores"]
            case "end":
                run.status, run.error = entry.body["status"], entry.body["error"]
            case _:
                pass
    return list(found.values())


def find_run(runs: Sequence[RecordedRun], run: str) -> RecordedRun:
    """The run whose id begins with ``run``, or the ``last``. Raises UnknownRun for none or several."""
    found = [known for known in runs if known.id.startswith(run)] if run != "last" else list(runs[-1:])
    if len(found) != 1:
        raise UnknownRun(run, [known.id for known in found])
    return found[0]


def _digest(value: bytes | Path | str) -> str:
    if isinstance(value, Path):
        try:
            return file_sha256(value)
        except OSError as error:
            raise UsageError(f"cannot read {value}: {error.strerror or error}") from error
    return sha256(value) if isinstance(value, bytes) else value
