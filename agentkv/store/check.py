"""What is wrong in a store: every file below its root looked at, every segment decoded and hashed.

Knows where files belong and what they need of each other; changes nothing (``repair.py`` does). A read that the system
refuses is *unreadable*, never called damage of the bytes. A source text that a name needs and that is not there is
*missing*, unless the block came with a pack (packs may be made without texts): its block is whole, but nobody can make
a pack of it or read it for another model. The lock is held for one block or record at a time, so
deposits and collections go on; what they do meanwhile is no finding. Not guaranteed: that a state belongs to its
tokens (``agentkv verify --prove`` repeats the proof), nor that what was sound a moment ago still is.
"""

from __future__ import annotations

import contextlib
import functools
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentkv.errors import CorruptBlock, StoreError, StoreReadError
from agentkv.io import fsio
from agentkv.io.lock import GATE, LOCK
from agentkv.records import SegmentRef
from agentkv.store.adapters import ADAPTERS, DATABASE_SUFFIX, fault
from agentkv.store.annexes import ANNEXES, ROUTER_FILES, Annex
from agentkv.store.deposit import distinct
from agentkv.store.files import DECISIONS, ROUTER, SETTINGS, TURNS, StoreFiles
from agentkv.store.findings import (
    DAMAGE,
    Finding,
    Kind,
    Link,
    Report,
    fault_of,
    is_absent,
    lacks_ids,
    lacks_text,
    mismatch,
    record_fault,
    refusal_of,
    segment_fault,
    tree_bytes,
)
from agentkv.store.gc import UNLOCKED_AGE_S, is_leftover, needless_ancestors
from agentkv.store.listing import Entry, Listing
from agentkv.store.marker import MARKER, marker_fault
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import FileSegmentStore
from agentkv.store.uses import USES
from agentkv.store.workers import Workers

R = TypeVar("R")

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all and a label; from worker threads, one at a time."""

_SEGMENT_SUFFIX = ".seg"
_USES_FILES = {USES, f"{USES}-journal", f"{USES}-wal", f"{USES}-shm"}


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
        self._ids: dict[str, Link] = {}  # of blocks that are gone
        self._gone: set[str] = set()
        self._names: dict[str, set[str]] = {}  # by block
        self._names_of_texts: dict[str, dict[str, str]] = {}  # name by its file's digest, by text
        self._name_files: dict[str, fsio.Identity] = {}
        self._sound: set[bytes] = set()
        self._bad: dict[bytes, _Draft] = {}
        self._sizes: dict[str, tuple[int, float]] = {}
        self._done = self._total = 0
        self._lock = threading.Lock()
        self._listing = Listing(self._note)

    def run(self) -> Report:
        # 1. what might be needed, listed before what needs it: else a deposit in between looks like a leftover
        segments = self._sizes = self._segments()
        texts = self._entries(self._files.texts)
        self._total = sum(size for size, _ in segments.values())
        # 2. blocks with their segments
        for entry in self._entries(self._files.manifests, of_blocks=True):
            self._block(entry.digest)
        for entry in self._entries(self._files.ancestors):
            self._ancestor(entry.digest)
        self._parents()
        # 3. what points at blocks
        self._all_names()
        self._marks()
        for entry in self._entries(self._files.selftests, sharded=False):
            self._load(self._files.selftests, entry.digest)
        for entry in self._entries(self._files.models, sharded=False):
            self._load(self._files.models, entry.digest)
        self._texts(texts)
        self._settings()
        # 4. what nothing needs, what is no part of a store
        self._root()
        self._leftovers(segments, texts)
        # 5. once more, as of now
        self._confirm()
        return self._report()

    def _segments(self) -> dict[str, tuple[int, float]]:
        store = self._files.segments
        if not isinstance(store, FileSegmentStore):
            return {digest: (size, time.time()) for digest, size in store.all()}
        entries = self._listing.files(store.root, _SEGMENT_SUFFIX, sharded=True)
        return {entry.digest: (entry.bytes, entry.mtime) for entry in entries}

    def _entries(self, folder: RecordFiles[R], *, sharded: bool = True, of_blocks: bool = False) -> list[Entry]:
        return list(self._listing.files(folder.root, folder.suffix, sharded=sharded, of_blocks=of_blocks))

    # --- blocks ---

    def _block(self, block_id: str) -> None:
        with self._files.lock.shared():  # so that a segment removed meanwhile has lost its block before
            loaded = self._load(self._files.manifests, block_id, [block_id])
            if loaded is None:
                return
            manifest = loaded[0]
            self._blocks[block_id] = Link.of(*loaded)
            reason = refusal_of(self._files, block_id)
            if reason is not None:
                reason = f"it could not be restored when it was asked for: {reason}"
                self._note(Kind.CORRUPT, self._files.manifests.path(block_id), reason, loaded[1][2], [block_id])
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
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(min(self._done, self._total), self._total, f"segment {ref.sha256[:12]}")

    def _ancestor(self, block_id: str) -> None:
        with self._files.lock.shared():
            loaded = self._load(self._files.ancestors, block_id, [block_id])
            if is_absent(self._files, block_id):
                self._gone.add(block_id)
        if loaded is not None and block_id in self._gone:
            self._ids[block_id] = Link.of_ids(*loaded)

    def _parents(self) -> None:
        chained = {**self._blocks, **{key: self._ids[key] for key in self._above() & self._ids.keys()}}
        for block_id, block in chained.items():
            if block.parent_id is None:
                continue
            parent = self._blocks.get(block.parent_id) or self._ids.get(block.parent_id)
            path = (self._files.ancestors if block_id in self._ids else self._files.manifests).path(block_id)
            if parent is not None:
                reason = mismatch(block, parent)
                if reason is not None:
                    self._note(Kind.CORRUPT, path, reason, block.identity[2], [block_id])
                continue
            with self._files.lock.shared():
                gone = lacks_ids(self._files, block.parent_id) and not lacks_ids(self._files, block_id)
            if gone and not self._is_noted(self._files.manifests.path(block.parent_id)):
                reason = f"its parent {block.parent_id[:12]} is gone, so it cannot be read"
                self._note(Kind.DANGLING, path, reason, block.identity[2], [block_id])

    def _above(self) -> set[str]:
        """Every block that another stands behind, whatever is left of it."""
        found = set[str]()
        for block in self._blocks.values():
            here = block.parent_id
            while here is not None and here not in found:
                found.add(here)
                link = self._blocks.get(here) or self._ids.get(here)
                here = link.parent_id if link else None
        return found

    # --- what points at blocks ---

    def _all_names(self) -> None:
        for entry in self._entries(self._files.names, sharded=False):
            with self._files.lock.shared():
                loaded = self._load(self._files.names, entry.digest)
                if loaded is None:
                    continue
                named, self._name_files[entry.digest] = loaded
                gone = is_absent(self._files, named.block_id)
            self._names.setdefault(named.block_id, set()).add(named.name)
            if named.source_sha256 is not None:
                self._names_of_texts.setdefault(named.source_sha256, {})[entry.digest] = named.name
            if gone and not self._is_noted(self._files.manifests.path(named.block_id)):
                reason = f"the block {named.block_id[:12]} that {named.name!r} points to is gone"
                self._note(Kind.DANGLING, entry.path, reason, entry.bytes).names.add(named.name)

    def _marks(self) -> None:
        marks: list[tuple[RecordFiles[Any], bool, str]]
        marks = [(self._files.pins, False, "pinned"), (self._files.imports, True, "imported")]
        marks.append((self._files.refused, False, "refused"))
        for folder, sharded, what in marks:
            for entry in self._entries(folder, sharded=sharded):
                with self._files.lock.shared():
                    loaded = self._load(folder, entry.digest)
                    gone = loaded is not None and is_absent(self._files, entry.digest)
                if gone and not self._is_noted(self._files.manifests.path(entry.digest)):
                    # An import that a crash cut short leaves a record of nothing.
                    kind = Kind.ORPHAN if folder is self._files.imports else Kind.DANGLING
                    self._note(kind, entry.path, f"the {what} block is gone", entry.bytes)

    def _texts(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            with self._files.lock.shared():
                fault = record_fault(self._files.texts, entry.digest)
            if fault is not None:
                self._note(fault.kind, fault.path, fault.reason, entry.bytes)
        for digest, names in self._names_of_texts.items():
            path = self._files.texts.path(digest)
            if not self._is_noted(path):
                self._missing_text(digest, names)
            for kind in DAMAGE - {Kind.MISSING}:
                if (kind, path) in self._drafts:
                    self._drafts[kind, path].names |= set(names.values())

    def _missing_text(self, digest: str, names: dict[str, str]) -> None:
        """Note a text that is not there, if names still need it now."""
        path = self._files.texts.path(digest)
        with self._files.lock.shared(), contextlib.suppress(CorruptBlock):
            try:
                lacking = {name for key, name in names.items() if lacks_text(self._files, key, digest)}
            except StoreReadError as error:
                fault = fault_of(error, path)
                self._note(fault.kind, fault.path, fault.reason)
                return
            if lacking:
                reason = "the source text that a name needs is not there; the block is whole"
                self._note(Kind.MISSING, path, reason).names.update(lacking)

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
        with contextlib.suppress(StoreError):  # who cannot read the marker has not opened the store
            reason = marker_fault(files.root)
            if reason is not None:
                kind = Kind.CORRUPT if (files.root / MARKER).exists() else Kind.MISSING
                self._note(kind, files.root / MARKER, f"{reason}; the records around it are a store's")
        folders |= {files.ancestors.root, files.selftests.root, files.refused.root, files.models.root}
        parts: dict[Path, Callable[[Path], str | None]]
        parts = dict.fromkeys((files.root / DECISIONS, files.root / TURNS), lambda _: None)
        parts |= {
            files.root / ROUTER: functools.partial(ROUTER_FILES.fault, files),
            files.root / ADAPTERS: self._fault_of_adapter,
        }
        for path, info in self._listing.entries(files.root):
            if path in parts and stat.S_ISDIR(info.st_mode):
                self._of_parts(path, parts[path])
                continue
            annex = next((part for part in ANNEXES if path == files.root / part.folder), None)
            if annex is not None and stat.S_ISDIR(info.st_mode):
                self._of_annex(annex)
                continue
            temporary = fsio.is_temporary(path) and stat.S_ISREG(info.st_mode)
            if path in folders or path.name in {MARKER, LOCK, GATE, SETTINGS} or temporary:
                continue
            if path.name not in _USES_FILES or not stat.S_ISREG(info.st_mode):
                self._listing.foreign(path)
        for _ in self._listing.entries(files.quarantine):  # only that it is a folder: what is in it is nobody's
            break

    def _of_parts(self, folder: Path, fault_of_file: Callable[[Path], str | None]) -> None:
        """Files called as a part likes, which says what is wrong with one; only what is no file is not its own."""
        for path, info in self._listing.entries(folder):
            if not stat.S_ISREG(info.st_mode):
                self._listing.foreign(path)
                continue
            try:
                reason = fault_of_file(path)
            except (OSError, StoreError) as error:
                self._note(Kind.UNREADABLE, path, str(error))
            else:
                if reason is not None:
                    self._note(Kind.CORRUPT, path, reason, info.st_size)

    def _fault_of_adapter(self, path: Path) -> str | None:
        """SQLite is asked about its own, as no digest is known."""
        return fault(path) if self._deep and path.suffix == DATABASE_SUFFIX else None

    def _of_annex(self, annex: Annex) -> None:
        try:
            for path, size, own in annex.entries(self._files.root):
                if not own:
                    self._listing.foreign(path)
                elif (reason := annex.fault(self._files, path)) is not None:
                    self._note(Kind.CORRUPT, path, reason, size)
        except StoreReadError as error:
            self._note(Kind.UNREADABLE, error.path, error.reason)

    def _leftovers(self, segments: dict[str, tuple[int, float]], texts: Iterable[Entry]) -> None:
        """Under the lock alone if nobody else is there now; else only what is old counts."""
        with self._files.lock.exclusive(wait_s=0) as alone:
            if alone:
                self._unneeded(segments, texts, 0.0)
        if not alone:  # outside, so that nobody waits at the gate meanwhile
            self._unneeded(segments, texts, UNLOCKED_AGE_S)

    def _unneeded(self, segments: dict[str, tuple[int, float]], texts: Iterable[Entry], min_age_s: float) -> None:
        self._temporaries(self._files.temporaries, min_age_s)
        self._temporaries(self._files.root, UNLOCKED_AGE_S)
        self._orphans(segments, texts, time.time() - min_age_s)

    def _orphans(self, segments: dict[str, tuple[int, float]], texts: Iterable[Entry], newest: float) -> None:
        files, needed, wanted = self._files, self._needed_now(), self._wanted_now()
        for digest, (size, mtime) in segments.items():
            orphan = needed is not None and digest not in needed and mtime <= newest
            if orphan and self._has(digest):
                self._note(Kind.ORPHAN, Path(files.segments.where(digest)), "no block needs it", size)
        needless = self._needless_now() if needed is not None else set()
        for entry in self._entries(files.ancestors):
            if entry.digest in needless and entry.mtime <= newest and not self._is_noted(entry.path):
                self._note(Kind.ORPHAN, entry.path, "no block stands behind it", entry.bytes)
        for entry in texts:
            orphan = wanted is not None and entry.digest not in wanted and entry.mtime <= newest
            if orphan and not self._is_noted(entry.path) and entry.path.exists():
                self._note(Kind.ORPHAN, entry.path, "no name needs it", entry.bytes)

    def _has(self, digest: str) -> bool:
        with contextlib.suppress(StoreError):  # no file: that is another finding
            return self._files.segments.has(digest)
        return False

    def _temporaries(self, directory: Path, min_age_s: float) -> None:
        for path, info in self._listing.entries(directory):
            if not stat.S_ISREG(info.st_mode) or not is_leftover(path):
                if directory == self._files.temporaries:
                    self._listing.foreign(path)
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

    def _needless_now(self) -> set[str]:
        with contextlib.suppress(StoreError):  # a damaged one: that is another finding
            return needless_ancestors(self._files)
        return set()

    def _wanted_now(self) -> set[str] | None:
        """Every text that a name needs; None if some name cannot tell."""
        wanted = set(self._names_of_texts)
        try:
            for entry in self._entries(self._files.names, sharded=False):
                if self._name_files.get(entry.digest) != entry.identity:  # new since it was looked at
                    loaded = self._files.names.load(entry.digest)
                    wanted.add((loaded[0].source_sha256 if loaded else None) or "")
        except StoreError:
            return None
        return None if self._is_blind(self._files.names.root) else wanted

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
        for block_id, block in (*self._blocks.items(), *self._ids.items()):
            if block.parent_id is not None:
                children.setdefault(block.parent_id, []).append(block_id)
        findings = []
        for (kind, path), draft in self._drafts.items():
            blocks = with_children(draft.blocks, children) - self._gone
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
