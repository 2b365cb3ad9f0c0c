"""Each file-system step of each operation fails, is interrupted, or is the last one of a killed process.

After every case the store is opened again and everything in it read back: no earlier block lost, none half there, no
file left over, and the same operation works. ``fsync`` is counted and failed but not carried out: a process that
dies loses nothing that the kernel has (``power.py`` asks what a power failure would do).
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.bench.base import Row
from agentkv.bench.faults import FAILURES, KILLS, Mode, Watch, breaking, watched, without_syncs
from agentkv.bench.integrity.material import Findings, bytes_of, copy, counts, look, make, named
from agentkv.bench.results import say
from agentkv.errors import GuaranteeViolated, OverBudget, StoreError
from agentkv.notices import AgentKVWarning
from agentkv.records import Import
from agentkv.store.budget import stored_bytes
from agentkv.store.catalog import BlockStore

ROOT = make(list(range(6)))
OLD = make(list(range(20, 34)), ROOT)
OTHER = make(list(range(40, 51)))
NEW = make(list(range(60, 67)), ROOT)
EVERY = (ROOT, OLD, OTHER, NEW)
TEXT, OLD_TEXT = "A text that a name keeps.\n", "An older text.\n"


@dataclass(frozen=True)
class Operation:
    """``prepare`` makes the store before, ``run`` is what is broken; ``keeps``: ids that must outlive it."""

    name: str
    prepare: Callable[[BlockStore], object]
    run: Callable[[BlockStore], object]
    keeps: tuple[str, ...] = (ROOT.id, OLD.id, OTHER.id)
    has: tuple[str, ...] = ()
    """Ids that are there once it is done."""
    gone: tuple[str, ...] = ()
    """Ids that are not there once it is done."""
    is_done: Callable[[BlockStore], bool] = lambda _: True
    """What else shows that it is done."""

    def again(self, store: BlockStore) -> None:
        """Do it once more, after a crash. What was cut off between a commit and its eviction, that makes good."""
        self.run(store)
        if store.budget is not None:
            store.evict()


def _base(store: BlockStore) -> None:
    for made in (ROOT, OLD, OTHER):
        store.put(made.manifest, made.segments)
    store.set_name(named(OLD, "old", OLD_TEXT), OLD_TEXT)
    long_ago = time.time() - 1000
    for made in (ROOT, OLD):  # the least recently used are known, whatever the clock does
        os.utime(store.files.manifests.path(made.id), (long_ago, long_ago))


def _with_budget(store: BlockStore) -> None:
    _base(store)
    store.set_budget(stored_bytes(store.files))  # NEW takes less than OLD


def _with_all_pinned(store: BlockStore) -> None:
    _base(store)
    for made in (ROOT, OLD, OTHER):
        store.pin(made.id)
    store.set_budget(stored_bytes(store.files))


def _put(store: BlockStore) -> None:
    store.put(NEW.manifest, NEW.segments)


def _refused(store: BlockStore) -> None:
    with suppress(OverBudget):
        store.put(NEW.manifest, NEW.segments)


def _remove(store: BlockStore) -> None:
    store.remove_block(OLD.id)
    store.collect()


_IMPORT = Import(block_id=OTHER.id, pack_sha256="ab" * 32, signed_by=None, decision="unsigned")


def _is_named(store: BlockStore) -> bool:
    new = store.name("text", "new", OTHER.manifest.fingerprint.id)
    return new is not None and store.text(new.source_sha256 or "") == TEXT


def _is_imported(store: BlockStore) -> bool:
    return store.imported(OTHER.id) == _IMPORT


OPERATIONS = (
    Operation("deposit", _base, _put, has=(NEW.id,)),
    Operation(
        "name with text", _base, lambda store: store.set_name(named(OTHER, "new", TEXT), TEXT), is_done=_is_named
    ),
    Operation("pin", _base, lambda store: store.pin(OTHER.id), is_done=lambda store: OTHER.id in store.pinned()),
    Operation("import record", _base, lambda store: store.set_import(_IMPORT), is_done=_is_imported),
    Operation("settings", _base, lambda store: store.set_budget(10**9), is_done=lambda store: store.budget == 10**9),
    Operation("deposit that evicts", _with_budget, _put, keeps=(ROOT.id, OTHER.id), has=(NEW.id,), gone=(OLD.id,)),
    Operation("deposit over budget", _with_all_pinned, _refused, gone=(NEW.id,)),
    Operation("remove and collect", _base, _remove, keeps=(ROOT.id, OTHER.id), gone=(OLD.id,)),
)


@dataclass
class Tally(Findings):
    """What came of one case; the lists hold only what must not be."""

    end: str = ""
    lost: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    leftovers_at_once: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    not_repeatable: list[str] = field(default_factory=list)
    foreign_errors: list[str] = field(default_factory=list)


class FaultRow(Row):
    """An operation in one mode: how many cases, how they ended, and how often what must not be was."""

    operation: str
    steps: int
    mode: str
    cases: int
    ends: dict[str, int]
    lost: int
    half: int
    leftovers_at_once: int
    leftovers: int
    not_repeatable: int
    foreign_errors: int
    examples: dict[str, list[str]]

    @property
    def wrong(self) -> int:
        """Everything that must not be."""
        return sum(getattr(self, kind) for kind in KINDS)


KINDS = ("lost", "half", "leftovers_at_once", "leftovers", "not_repeatable", "foreign_errors")


def figures(record: list[dict[str, Any]]) -> list[FaultRow]:
    """One row an operation and mode, from an operation's ``steps`` and ``cases`` as [mode, step, end, wrong]."""
    rows = []
    for part in record:
        modes: dict[str, list[Any]] = {}
        for mode, _, end, wrong in part["cases"]:
            modes.setdefault(mode, []).append((end, wrong))
        for mode, cases in modes.items():
            how = {"operation": part["operation"], "steps": part["steps"], "mode": mode, "cases": len(cases)}
            ends = dict(Counter(end for end, _ in cases))
            rows.append(FaultRow(**how, ends=ends, **counts(KINDS, [wrong for _, wrong in cases], 3)))
    return rows


def cases(folder: Path, operations: Sequence[Operation] = OPERATIONS, *, every: int = 1) -> list[dict[str, Any]]:
    """All cases, or each ``every``-th step: a raw record an operation, of each case the mode, step, end, and wrong."""
    raw = []
    with without_syncs(), warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentKVWarning)  # of what cannot be removed for the budget
        for number, operation in enumerate(operations):
            place = folder / f"op{number}"
            case = _Case(operation, place)
            seen: list[list[Any]] = []
            for mode in (*FAILURES, *KILLS):
                for at in range(0, case.steps, every):
                    tally = case.run(mode, at)
                    seen.append([mode, at, tally.end, tally.wrong])
            raw.append({"operation": operation.name, "steps": case.steps, "cases": seen})
            bad = sum(bool(wrong) for *_, wrong in seen)
            say(f"faults: {operation.name}, {case.steps} steps, {bad} cases wrong")
    return raw


def check(rows: Sequence[FaultRow]) -> None:
    """Raise GuaranteeViolated if any case lost a block or left something."""
    for row in rows:
        if row.wrong or not row.cases:
            raise GuaranteeViolated(f"{row.operation}, {row.mode}: {row.examples or 'no case was run'}")


class _Case:
    """An operation with its store before and its store after, made once without a fault."""

    def __init__(self, operation: Operation, folder: Path) -> None:
        self.operation, self.folder = operation, folder
        folder.mkdir(parents=True)
        self.before, self.after = folder / "before", folder / "after"
        with BlockStore(self.before) as store:
            operation.prepare(store)
            store.collect()
        copy(self.before, self.after)
        with BlockStore(self.after) as store, watched(Watch(self.after)) as watch:
            operation.run(store)
        self.journal = watch.journal
        self.steps = watch.count
        self.files_after = bytes_of(self.after)
        with BlockStore(self.after, create=False) as store:
            # What is left without any fault: a removal leaves segments and texts to `collect`, an eviction texts.
            self.left_by_design = set(look(store, EVERY, ()).leftovers)

    def run(self, mode: Mode, at: int) -> Tally:
        root, tally = self.folder / "case", Tally()
        copy(self.before, root)
        case = f"step {at}, {mode}"
        broken = self._killed if mode in KILLS else self._failed
        broken(root, mode, at, tally, case)
        self.examine(root, tally, case)
        shutil.rmtree(root)
        return tally

    def _failed(self, root: Path, mode: Mode, at: int, tally: Tally, case: str) -> None:
        with BlockStore(root) as store:
            try:
                with watched(Watch(root, breaking(mode, at))):
                    self.operation.run(store)
                tally.end = "went on"
            except (StoreError, KeyboardInterrupt) as error:
                tally.end = type(error).__name__
            except Exception as error:  # noqa: BLE001 - what no caller expects is what is looked for
                tally.end = type(error).__name__
                tally.foreign_errors.append(f"{case}: {error!r}")
            if mode != "EIO for ever" and not self._was_cleaning(at):
                left = look(store, EVERY, ()).leftovers
                tally.leftovers_at_once += [f"{case}: {name}" for name in left if not self._by_design(name)]

    def _was_cleaning(self, at: int) -> bool:
        """Whether the step that failed is one that takes away: what it did not take is there until the next open."""
        return self.journal[at].call == "unlink"

    def _killed(self, root: Path, mode: Mode, at: int, tally: Tally, case: str) -> None:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with watched(Watch(root, breaking(mode, at))):
                    self.operation.run(BlockStore(root))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tally.end = "killed" if code == -signal.SIGKILL else f"exit code {code}"
        if code != -signal.SIGKILL:
            tally.foreign_errors.append(f"{case}: the process was not killed there")

    def examine(self, root: Path, tally: Tally, case: str) -> None:
        """Open, look, do the operation again, look again."""
        operation = self.operation
        with BlockStore(root, create=False, verify="always") as store:
            seen = look(store, EVERY, operation.keeps)
            tally.lost += [f"{case}: {found[:12]}" for found in seen.lost]
            tally.half += [f"{case}: {found}" for found in seen.half]
            tally.leftovers += [f"{case}: {name}" for name in seen.leftovers if not self._by_design(name)]
            try:
                operation.again(store)
            except (StoreError, OSError) as error:
                tally.not_repeatable.append(f"{case}: {error}")
        files = bytes_of(root)
        if files != self.files_after:
            differs = sorted(set(files) ^ set(self.files_after)) or ["bytes differ"]
            tally.not_repeatable.append(f"{case}: {differs[:3]}")

    def _by_design(self, name: str) -> bool:
        """A removal leaves segments and texts to ``collect``, which is its second half here; an eviction texts."""
        return name in self.left_by_design or (
            self.operation.run is _remove and name.startswith(("segments/", "texts/"))
        )
