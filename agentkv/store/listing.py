"""What lies where in a store: every entry of its folders is a file of the store's, or a finding.

Opens no record and follows no link. A file that is listed may be gone a moment later.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentkv.errors import StoreError, StoreReadError
from agentkv.io import fsio
from agentkv.io.lock import GATE, LOCK
from agentkv.records import SegmentRef
from agentkv.store.files import SETTINGS, StoreFiles
from agentkv.store.findings import Fault, Kind, fault_of, other_kind, other_kind_at, tree_bytes
from agentkv.store.format import is_digest
from agentkv.store.gc import UNLOCKED_AGE_S, is_leftover, needless_ancestors
from agentkv.store.index import INDEX
from agentkv.store.indexcheck import index_fault
from agentkv.store.marker import MARKER, marker_fault
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.registry import ANNEXES, Annex
from agentkv.store.segments import FileSegmentStore
from agentkv.store.uses import USES

R = TypeVar("R")

_HEX = frozenset("0123456789abcdef")
_SEGMENT_SUFFIX = ".seg"
_SQLITE_FILES = {f"{name}{suffix}" for name in (USES, INDEX) for suffix in ("", "-journal", "-wal", "-shm")}


@dataclass
class Draft:
    """A finding in the making; ``ref``: the segment that it is about."""

    reason: str
    bytes: int
    blocks: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    ref: SegmentRef | None = None


class Drafts(dict[tuple[Kind, Path], Draft]):
    """What a check has found so far, by kind and path."""

    def note(self, kind: Kind, path: Path, reason: str, size: int = 0, blocks: Iterable[str] = ()) -> Draft:
        """Add a finding, or more ``blocks`` to it: those that cannot be used because of it. ``size`` in bytes."""
        draft = self.setdefault((kind, path), Draft(reason, size))
        draft.blocks.update(blocks)
        return draft

    def note_fault(self, fault: Fault, size: int, blocks: Iterable[str] = ()) -> Draft:
        """The same for a file that was read."""
        return self.note(fault.kind, fault.path, fault.reason, size, blocks)

    def has(self, path: Path) -> bool:
        """Whether something was found about ``path``."""
        return any((kind, path) in self for kind in Kind)

    def hide_some_of(self, root: Path) -> bool:
        """Whether something below ``root`` did not read, so that not all is known of what it needs."""
        unread = (Kind.CORRUPT, Kind.WRONG_SIZE, Kind.UNREADABLE)
        return any(kind in unread and (path == root or root in path.parents) for kind, path in self)


@dataclass(frozen=True)
class Entry:
    """A regular file in a place of the store's; ``mtime`` in seconds since 1970."""

    digest: str
    path: Path
    bytes: int
    mtime: float
    identity: fsio.Identity


class Listing:
    """Looks into the folders of a store; what does not belong there goes to ``drafts``."""

    def __init__(self, files: StoreFiles, drafts: Drafts) -> None:
        self._files, self._drafts = files, drafts

    def segments(self) -> dict[str, tuple[int, float]]:
        """Stored bytes and mtime of each segment, by digest."""
        store = self._files.segments
        if not isinstance(store, FileSegmentStore):
            return {digest: (size, time.time()) for digest, size in store.all()}
        entries = self._named(store.root, _SEGMENT_SUFFIX, sharded=True)
        return {entry.digest: (entry.bytes, entry.mtime) for entry in entries}

    def records(self, folder: RecordFiles[Any], *, of_blocks: bool = False) -> list[Entry]:
        """The files of a folder of records. ``of_blocks``: they are called by the ids of blocks."""
        return list(self._named(folder.root, folder.suffix, sharded=folder.sharded, of_blocks=of_blocks))

    def load(self, folder: RecordFiles[R], digest: str, blocks: Iterable[str] = ()) -> tuple[R, fsio.Identity] | None:
        """A record as it is on disk now; None if it is gone, or does not read, which is a finding."""
        try:
            return folder.load(digest)
        except StoreError as error:
            fault = fault_of(error, folder.path(digest))
            self._drafts.note_fault(fault, tree_bytes(fault.path), blocks)
            return None

    def entries(self, directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
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
            self._drafts.note(Kind.UNREADABLE, directory, error.strerror or str(error))
            return
        for entry in entries:
            path = Path(entry.path)
            try:
                yield path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                self._drafts.note(Kind.UNREADABLE, path, error.strerror or str(error))

    def foreign(self, path: Path) -> None:
        """Note something that is not the store's, whatever it is."""
        what = other_kind_at(path) or "a file"
        self._drafts.note(Kind.FOREIGN, path, f"{what} that does not belong to the store", tree_bytes(path))

    def _named(self, root: Path, suffix: str, *, sharded: bool, of_blocks: bool = False) -> Iterator[Entry]:
        """Regular files called by a digest and ``suffix``."""
        for directory in self._shards(root) if sharded else [root]:
            for path, info in self.entries(directory):
                digest = path.name.removesuffix(suffix)
                ours = is_digest(digest) and path.name == digest + suffix
                other = other_kind(info.st_mode)
                if not ours or (sharded and digest[:2] != directory.name):
                    self.foreign(path)
                elif other is None:
                    yield Entry(digest, path, info.st_size, info.st_mtime, fsio.identity_of(info))
                else:
                    blocks = [digest] if of_blocks else []
                    reason = f"{other} in the place of a file"
                    self._drafts.note(Kind.CORRUPT, path, reason, tree_bytes(path), blocks)

    def _shards(self, root: Path) -> list[Path]:
        shards = []
        for path, info in self.entries(root):
            if len(path.name) != 2 or not _HEX.issuperset(path.name):
                self.foreign(path)
            elif stat.S_ISDIR(info.st_mode):
                shards.append(path)
            else:
                self._no_folder(path, info)
        return shards

    def _no_folder(self, path: Path, info: os.stat_result) -> None:
        """Not moved to the quarantine: a link may lead to the whole content."""
        what = other_kind(info.st_mode) or "a file"
        self._drafts.note(Kind.UNREADABLE, path, f"{what} in the place of a folder; put the folder itself there")


class Surplus:
    """What no block needs, what features keep beside the blocks, and what does not belong to a store."""

    def __init__(self, files: StoreFiles, listing: Listing, drafts: Drafts, *, deep: bool) -> None:
        self._files, self._listing, self._drafts, self._deep = files, listing, drafts, deep

    def look_at_root(self) -> None:
        """The marker, and every entry of the store's root."""
        files = self._files
        with contextlib.suppress(StoreError):  # who cannot read the marker has not opened the store
            reason = marker_fault(files.root)
            if reason is not None:
                kind = Kind.CORRUPT if (files.root / MARKER).exists() else Kind.MISSING
                self._drafts.note(kind, files.root / MARKER, f"{reason}; the records around it are a store's")
        known = {files.temporaries, files.quarantine, files.root / "segments"}
        known |= {folder.root for folder in files.folders}
        annexes = {annex.folder: annex for annex in ANNEXES}
        for path, info in self._listing.entries(files.root):
            is_file = stat.S_ISREG(info.st_mode)
            if path.name in annexes and stat.S_ISDIR(info.st_mode):
                annex = annexes[path.name]
                (self._look_at_flat if annex.is_flat else self._look_at_nested)(annex)
            elif path in known or path.name in {MARKER, LOCK, GATE, SETTINGS}:
                continue
            elif not is_file or not (fsio.is_temporary(path) or path.name in _SQLITE_FILES):
                self._listing.foreign(path)
        try:
            reason = index_fault(files.index)
        except OSError as error:
            self._drafts.note(Kind.UNREADABLE, files.index.path, str(error))
        else:
            if reason is not None:
                self._drafts.note(
                    Kind.CORRUPT, files.index.path, f"{reason}; it is made again", files.index.path.stat().st_size
                )
        for _ in self._listing.entries(files.quarantine):  # only that it is a folder: nothing in it counts
            break

    def _look_at_flat(self, annex: Annex) -> None:
        for path, info in self._listing.entries(self._files.root / annex.folder):
            if not stat.S_ISREG(info.st_mode):
                self._listing.foreign(path)
                continue
            try:
                reason = None if annex.is_slow and not self._deep else annex.fault(self._files, path)
            except (OSError, StoreError) as error:
                self._drafts.note(Kind.UNREADABLE, path, str(error))
            else:
                if reason is not None:
                    self._drafts.note(Kind.CORRUPT, path, reason, info.st_size)

    def _look_at_nested(self, annex: Annex) -> None:
        try:
            for path, size, own in annex.entries(self._files.root):
                if not own:
                    self._listing.foreign(path)
                elif annex.is_slow and not self._deep:
                    continue
                elif (reason := annex.fault(self._files, path)) is not None:
                    self._drafts.note(Kind.CORRUPT, path, reason, size)
        except StoreReadError as error:
            self._drafts.note(Kind.UNREADABLE, error.path, error.reason)

    # --- what nothing needs ---

    def look_at_temporaries(self, min_age_s: float) -> None:
        """Files of writes that did not end, at least ``min_age_s`` old."""
        for directory, age_s in ((self._files.temporaries, min_age_s), (self._files.root, UNLOCKED_AGE_S)):
            for path, info in self._listing.entries(directory):
                if not stat.S_ISREG(info.st_mode) or not is_leftover(path):
                    if directory == self._files.temporaries:
                        self._listing.foreign(path)
                elif info.st_mtime <= time.time() - age_s:
                    self._drafts.note(Kind.STALE_TEMP, path, "left by a write that did not end", info.st_size)

    def look_at_segments(self, listed: dict[str, tuple[int, float]], needed: Collection[str], newest: float) -> None:
        """Of the segments ``listed`` before, those that no block needs and that were written before ``newest``."""
        for digest, (size, mtime) in listed.items():
            if digest not in needed and mtime <= newest and self._has_segment(digest):
                where = Path(self._files.segments.where(digest))
                self._drafts.note(Kind.ORPHAN, where, "no block needs it", size)

    def look_at_ids(self, newest: float) -> None:
        """Ids of evicted blocks that are the parents of no block any longer."""
        with contextlib.suppress(StoreError):  # a corrupt one: that is another finding
            needless = needless_ancestors(self._files)
            for entry in self._listing.records(self._files.ancestors):
                if entry.digest in needless and entry.mtime <= newest and not self._drafts.has(entry.path):
                    self._drafts.note(Kind.ORPHAN, entry.path, "it is the parent of no block", entry.bytes)

    def look_at_texts(self, listed: Iterable[Entry], needed: Collection[str], newest: float) -> None:
        """Of the texts ``listed`` before, those that no name needs."""
        for entry in listed:
            orphan = entry.digest not in needed and entry.mtime <= newest
            if orphan and not self._drafts.has(entry.path) and entry.path.exists():
                self._drafts.note(Kind.ORPHAN, entry.path, "no name needs it", entry.bytes)

    def _has_segment(self, digest: str) -> bool:
        with contextlib.suppress(StoreError):  # not a file: that is another finding
            return self._files.segments.has(digest)
        return False
