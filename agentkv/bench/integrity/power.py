"""What a power failure may leave: the steps of an operation replayed, with what was not synced lost in every way.

The model, stricter than ext4: bytes of a file that were not synced may be there, be zeros of nothing, or be garbage; an
entry of a directory (made, renamed, unlinked) that was not synced may be there or not, whatever came after it. A rename
is atomic. After each state: open, read everything, collect. An intent is not synced, so segments may wait for
``collect``: those are counted, and must be gone after it.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.bench.base import Row
from agentkv.bench.faults import Call, Step, Watch, watched, without_syncs
from agentkv.bench.integrity.faults import EVERY, OPERATIONS, Operation
from agentkv.bench.integrity.material import copy, counts, files_of, look
from agentkv.bench.results import say
from agentkv.errors import GuaranteeViolated, StoreError
from agentkv.io.lock import GATE, LOCK
from agentkv.store.catalog import BlockStore
from agentkv.store.uses import USES

_ALL_SUBSETS_OF = 7
_SAMPLED = 48
_CONTENTS = ("whole", "empty", "garbage")


@dataclass
class _File:
    data: bytes = b""
    synced: bool = False


@dataclass(frozen=True)
class _Change:
    """One entry made, moved or taken away; durable once ``directory`` is synced."""

    directory: Path
    entry: Path
    file: _File | None = None
    moved_from: Path | None = None
    is_directory: bool = False
    gone: bool = False


@dataclass
class _Disk:
    """Everything since the operation began: all changes in order, and which of them are durable."""

    changes: list[_Change] = field(default_factory=list)
    durable: set[int] = field(default_factory=set)
    live: dict[Path, _File] = field(default_factory=dict)

    def apply(self, step: Step) -> None:
        """One more step of the journal."""
        match step:
            case Step(call="create", path=path):
                if path not in self.live:
                    self.live[path] = _File()
                    self._change(_Change(path.parent, path, self.live[path]))
            case Step(call="write", path=path, data=data):
                self.live[path].data += data
                self.live[path].synced = False
            case Step(call="fsync", path=path, directory=False):
                self.live[path].synced = True
            case Step(call="fsync", path=path):
                self.durable |= {i for i, change in enumerate(self.changes) if change.directory == path}
            case Step(call="rename", path=path, target=target) if target is not None:
                self.live[target] = self.live.pop(path)
                self._change(_Change(target.parent, target, self.live[target], moved_from=path))
            case Step(call="mkdir", path=path):
                self._change(_Change(path.parent, path, is_directory=True))
            case Step(call="unlink", path=path) if step.done:
                self.live.pop(path, None)
                self._change(_Change(path.parent, path, gone=True))
            case _:
                pass

    def _change(self, change: _Change) -> None:
        self.changes.append(change)

    def subsets(self, rng: random.Random) -> Iterator[set[int]]:
        """Which changes survived: the durable ones and, of the others, all subsets or a sample of them."""
        pending = [i for i in range(len(self.changes)) if i not in self.durable]
        if len(pending) <= _ALL_SUBSETS_OF:
            for count in range(len(pending) + 1):
                for chosen in itertools.combinations(pending, count):
                    yield self.durable | set(chosen)
            return
        yield set(self.durable)
        yield self.durable | set(pending)
        for one in pending:
            yield self.durable | {one}
            yield self.durable | (set(pending) - {one})
        for _ in range(_SAMPLED):
            yield self.durable | {i for i in pending if rng.random() < 0.5}

    def survived(self, kept: set[int]) -> tuple[dict[Path, _File | None], set[Path]]:
        """Files by path (None: gone since the operation began) and the directories that were made."""
        files: dict[Path, _File | None] = {}
        lacking = {c.entry for i, c in enumerate(self.changes) if c.is_directory and i not in kept}
        directories = {c.entry for i, c in enumerate(self.changes) if c.is_directory and i in kept}
        for i, change in enumerate(self.changes):
            if i not in kept or change.is_directory:
                continue
            if change.moved_from is not None:
                files[change.moved_from] = None
            files[change.entry] = None if change.gone else change.file
        reachable = {
            path: file for path, file in files.items() if not lacking.intersection(path.parents) and _is_stores(path)
        }
        return reachable, {path for path in directories if not lacking.intersection(path.parents)}


def _is_stores(path: Path) -> bool:
    return path.name not in (LOCK, GATE) and not path.name.startswith(USES)


KINDS = ("lost", "half", "leftovers", "not_durable", "not_repeatable")


class PowerRow(Row):
    """An operation: moments of failure, states that a disk may be left in, and how often what must not be was."""

    operation: str
    prefixes: int
    possible: int
    states: int
    waited_for_collect: int
    lost: int
    half: int
    leftovers: int
    not_durable: int
    not_repeatable: int
    examples: dict[str, list[str]]

    @property
    def wrong(self) -> int:
        """Everything that must not be."""
        return sum(getattr(self, kind) for kind in KINDS)


def figures(record: list[dict[str, Any]]) -> list[PowerRow]:
    """One row an operation, from its cases as [step, unsynced bytes, whether something waited for `collect`, wrong]."""
    return [
        PowerRow(
            **{key: part[key] for key in ("operation", "prefixes", "possible")},
            states=len(part["cases"]),
            waited_for_collect=sum(waited for _, _, waited, _ in part["cases"]),
            **counts(KINDS, [wrong for *_, wrong in part["cases"]], 3),
        )
        for part in record
    ]


def cases(
    folder: Path,
    operations: Sequence[Operation] = OPERATIONS,
    *,
    sample: int | None = None,
    without: Collection[Call] = (),
) -> list[dict[str, Any]]:
    """Every state of every operation, or ``sample`` of each operation's, drawn at random: a raw record an operation.

    Of each state the step, the unsynced bytes, and what was found. ``without``: steps left out of the journal, as if
    the store did not take them: to see that the model would notice.
    """
    raw = []
    with without_syncs():
        for number, operation in enumerate(operations):
            replay = _Replay(operation, folder / f"op{number}")
            replay.journal = [step for step in replay.journal if step.call not in without]
            row = replay.run(sample, random.Random(number))
            raw.append(row)
            bad = sum(bool(wrong) for *_, wrong in row["cases"])
            say(f"power: {operation.name}, {len(row['cases'])} states of {row['prefixes']} moments, {bad} wrong")
    return raw


def check(rows: Sequence[PowerRow]) -> None:
    """Raise GuaranteeViolated if any state lost a block, or something that had been promised to stay."""
    for row in rows:
        if row.wrong or not row.states:
            raise GuaranteeViolated(f"power failure, {row.operation}: {row.examples or 'no state was tried'}")


Key = frozenset[tuple[str, bytes | None]]


class _Replay:
    """One operation, journalled once; its states are laid over hard links to the store before."""

    def __init__(self, operation: Operation, folder: Path) -> None:
        self.operation, self.before, self.case = operation, folder / "before", folder / "case"
        folder.mkdir(parents=True)
        with BlockStore(self.before) as store:
            operation.prepare(store)
            store.collect()
        ran = folder / "ran"
        copy(self.before, ran)
        with BlockStore(ran) as store, watched(Watch(ran)) as watch:
            operation.run(store)
        self.root, self.journal = ran, watch.journal
        self.bad: dict[str, list[str]] = {}
        self.waited = False

    def run(self, sample: int | None, rng: random.Random) -> dict[str, Any]:
        states = list(self._states(rng))
        total = len(states)
        if sample is not None and total > sample:
            states = rng.sample(states, sample)
        seen = []
        for number, (done, files, directories, content) in enumerate(states):
            self.bad = {kind: [] for kind in KINDS}
            self._try(f"state {number} after step {done}", done, files, directories, content)
            seen.append([done, content, self.waited, {kind: found for kind, found in self.bad.items() if found}])
        return {"operation": self.operation.name, "prefixes": len(self.journal) + 1, "possible": total, "cases": seen}

    def _states(self, rng: random.Random) -> Iterator[tuple[int, dict[str, bytes | None], set[Path], str]]:
        seen: set[tuple[Key, bool]] = set()
        disk = _Disk()
        for done in range(len(self.journal) + 1):
            if done:
                disk.apply(self.journal[done - 1])
            finished = done == len(self.journal)
            for kept in disk.subsets(rng):
                found, directories = disk.survived(kept)
                unsynced = any(file is not None and not file.synced for file in found.values())
                for content in _CONTENTS if unsynced else _CONTENTS[:1]:
                    files = {str(path.relative_to(self.root)): _content(file, content) for path, file in found.items()}
                    key = frozenset(files.items()), finished
                    if key not in seen:
                        seen.add(key)
                        yield done, files, directories, content

    def _try(self, case: str, done: int, files: dict[str, bytes | None], directories: set[Path], content: str) -> None:
        case += f", unsynced bytes {content}"
        self._lay(files, directories)
        operation = self.operation
        with BlockStore(self.case, create=False, verify="always") as store:
            seen = look(store, EVERY, operation.keeps)
            self.bad["lost"] += [f"{case}: {found[:12]}" for found in seen.lost]
            self.bad["half"] += [f"{case}: {found}" for found in seen.half]
            self.waited = bool(seen.leftovers)
            if done == len(self.journal):
                self.bad["not_durable"] += [f"{case}: {what}" for what in self._undone(store, seen.blocks)]
            try:
                store.collect()
                self.bad["leftovers"] += [f"{case}: {name}" for name in look(store, EVERY, ()).leftovers]
                operation.again(store)
                self.bad["not_repeatable"] += [
                    f"{case}: {what}" for what in self._undone(store, set(store.block_ids()))
                ]
            except (StoreError, OSError) as error:
                self.bad["not_repeatable"].append(f"{case}: {error}")
        shutil.rmtree(self.case)

    def _undone(self, store: BlockStore, blocks: set[str]) -> list[str]:
        """What the operation had promised to be so when it returned, and is not."""
        operation = self.operation
        missing = [f"{block[:12]} is not there" for block in operation.has if block not in blocks]
        missing += [f"{block[:12]} is still there" for block in operation.gone if block in blocks]
        if not operation.is_done(store):
            missing.append("it is not done")
        return missing

    def _lay(self, files: dict[str, bytes | None], directories: set[Path]) -> None:
        for name in files_of(self.before) - files.keys():
            path = self.case / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(self.before / name, path)
        for directory in directories:
            (self.case / directory.relative_to(self.root)).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            if data is not None:
                path = self.case / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def _content(file: _File | None, content: str) -> bytes | None:
    if file is None or file.synced or content == "whole":
        return None if file is None else file.data
    return b"" if content == "empty" else bytes(len(file.data) // 2) + b"\xa5" * (len(file.data) - len(file.data) // 2)
