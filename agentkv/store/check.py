"""What is wrong in a store: every file below its root looked at, every segment decoded and hashed.

Knows where files belong and what they need of each other; changes nothing (``repair.py`` does). A read that the system
refuses is *unreadable*, never called damage of the bytes. The lock is held for one block or record at a time, so
deposits and collections go on; what they do meanwhile is no finding. Not guaranteed: that a state belongs to its
tokens (``agentkv verify --prove`` repeats the proof), nor that what was sound a moment ago still is.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from agentkv import fsio
from agentkv.errors import CorruptBlock, StoreError, StoreReadError
from agentkv.records import Manifest, SegmentRef
from agentkv.store import format as formats
from agentkv.store.deposit import distinct
from agentkv.store.files import SETTINGS, StoreFiles
from agentkv.store.format import HEADER_BYTES, TRAILER_BYTES, Malformed, is_digest
from agentkv.store.gc import UNLOCKED_AGE_S
from agentkv.store.lock import GATE, LOCK
from agentkv.store.marker import MARKER
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import FileSegmentStore, SegmentStore
from agentkv.store.uses import USES
from agentkv.store.workers import Workers

R = TypeVar("R")

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all and a label; from worker threads, one at a time."""

_SEGMENT_SUFFIX = ".seg"
_USES_FILES = {USES, f"{USES}-journal", f"{USES}-wal", f"{USES}-shm"}
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Finding:
    """One file, link or folder, and what is wrong with it.

    ``blocks`` and ``names``: which cannot be used because of it, children included. ``bytes``: what it takes up.
    """

    kind: Kind
    path: Path
    reason: str
    blocks: tuple[str, ...]
    names: tuple[str, ...]
    bytes: int

    @property
    def damage(self) -> bool:
        """Whether something that was stored cannot be used; else it only lies about."""
        return self.kind in DAMAGE

    def __str__(self) -> str:
        return f"{self.path} is {self.kind}: {self.reason}"


@dataclass(frozen=True)
class Report:
    """What a check looked at and found, damage first. ``bytes``: of the segments that blocks need."""

    root: Path
    deep: bool
    blocks: int
    segments: int
    bytes: int
    findings: tuple[Finding, ...]

    @property
    def damage(self) -> tuple[Finding, ...]:
        """The findings that are damage."""
        return tuple(finding for finding in self.findings if finding.damage)

    def of(self, *kinds: Kind) -> tuple[Finding, ...]:
        """The findings of these kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)


def check(files: StoreFiles, *, deep: bool = True, progress: Progress | None = None) -> Report:
    """Look at the whole store. ``deep`` decodes and hashes every segment, else only files' own digests are compared.

    Raises StoreReadError if the store cannot be looked at at all (its lock, say); what concerns one file is a finding.
    """
    workers = Workers()
    try:
        return _Check(files, deep, progress, workers).run()
    finally:
        workers.close()


# --- the whole store ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A regular file in a place of the store's."""

    digest: str
    path: Path
    bytes: int
    mtime: float
    identity: fsio.Identity


@dataclass
class _Draft:
    """A finding to be; ``ref``: the segment that it is about."""

    reason: str
    bytes: int
    blocks: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    ref: SegmentRef | None = None


class _Check:
    def __init__(self, files: StoreFiles, deep: bool, progress: Progress | None, workers: Workers) -> None:
        self._files, self._deep, self._progress, self._workers = files, deep, progress, workers
        self._drafts: dict[tuple[Kind, Path], _Draft] = {}
        self._blocks: dict[str, Link] = {}
        self._names: dict[str, set[str]] = {}  # by block
        self._names_of_texts: dict[str, set[str]] = {}
        self._sound: set[bytes] = set()
        self._bad: dict[bytes, _Draft] = {}
        self._sizes: dict[str, tuple[int, float]] = {}
        self._done = self._total = 0

    def run(self) -> Report:
        # 1. what might be needed, listed before what needs it: else a deposit in between looks like a leftover
        segments = self._sizes = self._segments()
        texts = self._entries(self._files.texts)
        self._total = sum(size for size, _ in segments.values())
        # 2. blocks with their segments
        for entry in self._entries(self._files.manifests, of_blocks=True):
            self._block(entry.digest)
        self._parents()
        # 3. what points at blocks
        self._all_names()
        self._marks()
        self._texts(texts)
        self._settings()
        # 4. what nothing needs, what is no part of a store
        self._root()
        self._leftovers(segments, texts)
        # 5. once more, as of now
        self._confirm()
        return self._report()

    # --- listing: every entry is one of ours, or a finding ---

    def _segments(self) -> dict[str, tuple[int, float]]:
        store = self._files.segments
        if not isinstance(store, FileSegmentStore):
            return {digest: (size, time.time()) for digest, size in store.all()}
        entries = self._files_of(store.root, _SEGMENT_SUFFIX, sharded=True)
        return {entry.digest: (entry.bytes, entry.mtime) for entry in entries}

    def _entries(self, folder: RecordFiles[R], *, sharded: bool = True, of_blocks: bool = False) -> list[_Entry]:
        return list(self._files_of(folder.root, folder.suffix, sharded=sharded, of_blocks=of_blocks))

    def _files_of(self, root: Path, suffix: str, *, sharded: bool, of_blocks: bool = False) -> Iterator[_Entry]:
        for directory in self._shards(root) if sharded else [root]:
            for path, info in self._listed(directory):
                digest = path.name.removesuffix(suffix)
                ours = is_digest(digest) and path.name == digest + suffix
                other = other_kind(info.st_mode)
                if not ours or (sharded and digest[:2] != directory.name):
                    self._foreign(path)
                elif other is None:
                    yield _Entry(digest, path, info.st_size, info.st_mtime, fsio.identity_of(info))
                else:
                    blocks = [digest] if of_blocks else []
                    self._note(Kind.CORRUPT, path, f"{other} in the place of a file", tree_bytes(path), blocks)

    def _shards(self, root: Path) -> list[Path]:
        found = []
        for path, info in self._listed(root):
            if len(path.name) != 2 or not _HEX.issuperset(path.name):
                self._foreign(path)
            elif stat.S_ISDIR(info.st_mode):
                found.append(path)
            else:
                self._no_folder(path, info)
        return found

    def _listed(self, directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
        """What a folder of the store holds, by name; nothing where there is none, or where it cannot be looked at."""
        try:
            info = os.lstat(directory)
            if not stat.S_ISDIR(info.st_mode):
                self._no_folder(directory, info)
                return
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(Kind.UNREADABLE, directory, error.strerror or str(error))
            return
        for entry in entries:
            path = Path(entry.path)
            try:
                yield path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                self._note(Kind.UNREADABLE, path, error.strerror or str(error))

    def _no_folder(self, path: Path, info: os.stat_result) -> None:
        """Not moved aside: behind a link the whole content may be waiting."""
        what = other_kind(info.st_mode) or "a file"
        self._note(Kind.UNREADABLE, path, f"{what} in the place of a folder; put the folder itself there")

    def _foreign(self, path: Path) -> None:
        what = other_kind_at(path) or "a file"
        self._note(Kind.FOREIGN, path, f"{what} that is no part of a store", tree_bytes(path))

    # --- blocks ---

    def _block(self, block_id: str) -> None:
        with self._files.lock.shared():  # so that a segment removed meanwhile has lost its block before
            loaded = self._load(self._files.manifests, block_id, [block_id])
            if loaded is None:
                return
            manifest = loaded[0]
            self._blocks[block_id] = Link.of(*loaded)
            refs = distinct(manifest)
            new = [ref for ref in refs if _key(ref) not in self._sound and _key(ref) not in self._bad]
            self._workers.each(self._segment, new)
        for ref in refs:
            draft = self._bad.get(_key(ref))
            if draft is not None:
                draft.blocks.add(block_id)

    def _segment(self, ref: SegmentRef) -> None:
        fault = segment_fault(self._files.segments, ref, deep=self._deep)
        size = self._sizes.get(ref.sha256, (0, 0.0))[0]
        if fault is None:
            self._sound.add(_key(ref))
        else:
            draft = self._note(fault.kind, fault.path, fault.reason, size)
            draft.ref = draft.ref or ref
            self._bad[_key(ref)] = draft
        self._done += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total, f"segment {ref.sha256[:12]}")

    def _parents(self) -> None:
        for block_id, block in self._blocks.items():
            if block.parent_id is None:
                continue
            parent, path = self._blocks.get(block.parent_id), self._files.manifests.path(block_id)
            if parent is not None:
                reason = mismatch(block, parent)
                if reason is not None:
                    self._note(Kind.CORRUPT, path, reason, block.identity[2], [block_id])
                continue
            with self._files.lock.shared():
                gone = is_absent(self._files, block.parent_id) and not is_absent(self._files, block_id)
            if gone and not self._is_noted(self._files.manifests.path(block.parent_id)):
                reason = f"its parent {block.parent_id[:12]} is gone, so it cannot be read"
                self._note(Kind.DANGLING, path, reason, block.identity[2], [block_id])

    # --- what points at blocks ---

    def _all_names(self) -> None:
        for entry in self._entries(self._files.names, sharded=False):
            with self._files.lock.shared():
                loaded = self._load(self._files.names, entry.digest)
                if loaded is None:
                    continue
                named = loaded[0]
                gone = is_absent(self._files, named.block_id)
            self._names.setdefault(named.block_id, set()).add(named.name)
            if named.source_sha256 is not None:
                self._names_of_texts.setdefault(named.source_sha256, set()).add(named.name)
            if gone and not self._is_noted(self._files.manifests.path(named.block_id)):
                reason = f"the block {named.block_id[:12]} that {named.name!r} points to is gone"
                self._note(Kind.DANGLING, entry.path, reason, entry.bytes).names.add(named.name)

    def _marks(self) -> None:
        marks: list[tuple[RecordFiles[Any], bool, str]]
        marks = [(self._files.pins, False, "pinned"), (self._files.imports, True, "imported")]
        for folder, sharded, what in marks:
            for entry in self._entries(folder, sharded=sharded):
                with self._files.lock.shared():
                    loaded = self._load(folder, entry.digest)
                    gone = loaded is not None and is_absent(self._files, entry.digest)
                if gone and not self._is_noted(self._files.manifests.path(entry.digest)):
                    self._note(Kind.DANGLING, entry.path, f"the {what} block is gone", entry.bytes)

    def _texts(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            with self._files.lock.shared():
                fault = record_fault(self._files.texts, entry.digest)
            if fault is not None:
                draft = self._note(fault.kind, fault.path, fault.reason, entry.bytes)
                draft.names |= self._names_of_texts.get(entry.digest, set())

    def _settings(self) -> None:
        try:
            self._files.read_settings()
        except StoreError as error:
            fault = fault_of(error, self._files.root / SETTINGS)
            self._note(fault.kind, fault.path, fault.reason, tree_bytes(fault.path))

    def _load(self, folder: RecordFiles[R], digest: str, blocks: Iterable[str] = ()) -> tuple[R, fsio.Identity] | None:
        try:
            return folder.load(digest)
        except StoreError as error:
            fault = fault_of(error, folder.path(digest))
            self._note(fault.kind, fault.path, fault.reason, tree_bytes(fault.path), blocks)
            return None

    # --- what nothing needs ---

    def _root(self) -> None:
        files = self._files
        folders = {files.temporaries, files.quarantine, files.root / "segments"}
        folders |= {folder.root for folder in (files.manifests, files.names, files.texts, files.pins, files.imports)}
        for path, info in self._listed(files.root):
            temporary = path.name.startswith(MARKER) and path.suffix == fsio.TEMP_SUFFIX
            if path in folders or path.name in {MARKER, LOCK, GATE, SETTINGS} or temporary:
                continue
            if path.name not in _USES_FILES or not stat.S_ISREG(info.st_mode):
                self._foreign(path)
        for _ in self._listed(files.quarantine):  # only that it is a folder: what is in it is nobody's
            break

    def _leftovers(self, segments: dict[str, tuple[int, float]], texts: Iterable[_Entry]) -> None:
        """Under the lock alone if nobody else is there now; else only what is old counts."""
        files = self._files
        with files.lock.exclusive(wait_s=0) as alone:
            age = 0.0 if alone else UNLOCKED_AGE_S
            self._temporaries(files.temporaries, age)
            self._temporaries(files.root, UNLOCKED_AGE_S)
            needed = self._needed_now()
            wanted = self._wanted_now()
        oldest = time.time() - age
        for digest, (size, mtime) in segments.items():
            path = Path(files.segments.where(digest))
            if needed is not None and digest not in needed and mtime <= oldest:
                self._note(Kind.ORPHAN, path, "no block needs it", size)
        for entry in texts:
            noted = self._is_noted(entry.path)
            if wanted is not None and entry.digest not in wanted and entry.mtime <= oldest and not noted:
                self._note(Kind.ORPHAN, entry.path, "no name needs it", entry.bytes)

    def _temporaries(self, directory: Path, min_age_s: float) -> None:
        for path, info in self._listed(directory):
            if directory == self._files.root and path.suffix != fsio.TEMP_SUFFIX:
                continue
            if not stat.S_ISREG(info.st_mode):
                self._foreign(path)
            elif info.st_mtime <= time.time() - min_age_s:
                self._note(Kind.STALE_TEMP, path, "left by a write that did not end", info.st_size)

    def _needed_now(self) -> set[str] | None:
        """Every segment that a block needs; None if some block cannot tell."""
        files = self._files
        needed = {key[:32].hex() for key in (*self._sound, *self._bad)}
        try:
            for entry in self._entries(files.manifests, of_blocks=True):
                block = self._blocks.get(entry.digest)
                if block is None or block.identity != entry.identity:  # new since it was looked at
                    summary = files.summary(entry.digest)
                    needed |= summary.segments.keys() if summary else set()
        except StoreError:
            return None
        return None if self._is_blind(files.manifests.root) else needed

    def _wanted_now(self) -> set[str] | None:
        """Every text that a name needs; None if some name cannot tell."""
        damaged: list[StoreError] = []
        wanted = {named.source_sha256 or "" for named in self._files.names.all(damaged.append)}
        return None if damaged or self._is_blind(self._files.names.root) else wanted | self._names_of_texts.keys()

    def _is_blind(self, root: Path) -> bool:
        blind = (Kind.CORRUPT, Kind.WRONG_SIZE, Kind.UNREADABLE)
        return any(kind in blind and (path == root or root in path.parents) for kind, path in self._drafts)

    # --- the result ---

    def _note(self, kind: Kind, path: Path, reason: str, size: int = 0, blocks: Iterable[str] = ()) -> _Draft:
        draft = self._drafts.setdefault((kind, path), _Draft(reason, size))
        draft.blocks.update(blocks)
        return draft

    def _is_noted(self, path: Path) -> bool:
        return any((kind, path) in self._drafts for kind in Kind)

    def _confirm(self) -> None:
        """Segments once more: a deposit may have mended one, and a block that needed it may be gone."""
        for key, draft in list(self._drafts.items()):
            if draft.ref is None or key[0] is Kind.UNREADABLE:
                continue
            with self._files.lock.shared():
                draft.blocks -= {block_id for block_id in draft.blocks if is_absent(self._files, block_id)}
                sound = segment_fault(self._files.segments, draft.ref, deep=self._deep) is None
            if sound or not draft.blocks:
                del self._drafts[key]

    def _report(self) -> Report:
        children: dict[str, list[str]] = {}
        for block_id, block in self._blocks.items():
            if block.parent_id is not None:
                children.setdefault(block.parent_id, []).append(block_id)
        findings = []
        for (kind, path), draft in self._drafts.items():
            blocks = with_children(draft.blocks, children)
            names = draft.names.union(*(self._names.get(block_id, set()) for block_id in blocks))
            size = draft.bytes
            findings.append(Finding(kind, path, draft.reason, tuple(sorted(blocks)), tuple(sorted(names)), size))
        order = list(Kind)
        findings.sort(key=lambda finding: (order.index(finding.kind), finding.path))
        read = {key[:32].hex() for key in (*self._sound, *self._bad)}
        size = sum(self._sizes[digest][0] for digest in read if digest in self._sizes)
        return Report(self._files.root, self._deep, len(self._blocks), len(read), size, tuple(findings))


def with_children(block_ids: Iterable[str], children: dict[str, list[str]]) -> set[str]:
    """These blocks and all that cannot be read without them."""
    found, pending = set[str](), list(block_ids)
    while pending:
        block_id = pending.pop()
        if block_id not in found:
            found.add(block_id)
            pending += children.get(block_id, [])
    return found


def _key(ref: SegmentRef) -> bytes:
    """A reference's digest and length, small: a large store has a million."""
    return bytes.fromhex(ref.sha256) + ref.n_bytes.to_bytes(8, "little")
