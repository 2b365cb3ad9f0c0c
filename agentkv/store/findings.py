"""What can be wrong with a file of a store, for ``check.py`` and ``repair.py``.

A read that the system refuses says nothing about the bytes: *unreadable*, never *corrupt*.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentkv.errors import CorruptBlock, StoreError, StoreReadError
from agentkv.io import fsio
from agentkv.records import Ancestor, Manifest, SegmentRef
from agentkv.store import format as formats
from agentkv.store.files import StoreFiles
from agentkv.store.format import HEADER_BYTES, TRAILER_BYTES, Malformed
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import SegmentStore


class Kind(StrEnum):
    """What a finding is; the first five are damage. What is *missing* is a segment, or the source text of a name."""

    CORRUPT = "corrupt"
    WRONG_SIZE = "wrong-size"
    MISSING = "missing"
    DANGLING = "dangling"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"
    ORPHAN = "orphan"
    STALE_TEMP = "stale-temp"


DAMAGE = frozenset({Kind.CORRUPT, Kind.WRONG_SIZE, Kind.MISSING, Kind.DANGLING, Kind.UNREADABLE})
LEFT_OVER = frozenset({Kind.ORPHAN, Kind.STALE_TEMP})


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
        """Whether something that was stored cannot be used; else it only takes up space."""
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


@dataclass(frozen=True)
class Fault:
    """Why one file is not what it should be. ``path`` may be the folder that it is in."""

    kind: Kind
    path: Path
    reason: str


def record_fault(folder: RecordFiles[Any], digest: str) -> Fault | None:
    """What is wrong with a record's file as it is now; None if it is valid or not there."""
    try:
        folder.load(digest)
    except StoreError as error:
        return fault_of(error, folder.path(digest))
    return None


def segment_fault(segments: SegmentStore, ref: SegmentRef, *, deep: bool) -> Fault | None:
    """What is wrong with a segment that a block needs; None if it is valid."""
    path = Path(segments.where(ref.sha256))
    try:
        if segments.check(ref, deep=deep):
            return None
    except StoreError as error:
        fault = fault_of(error, path)
        if fault.kind is Kind.CORRUPT and _has_another_size(path, ref):
            return Fault(Kind.WRONG_SIZE, path, fault.reason)
        return fault
    return Fault(Kind.MISSING, path, "a block needs it, and it is not there")


def is_absent(files: StoreFiles, block_id: str) -> bool:
    """Whether there is certainly no manifest: not when its place cannot be looked at."""
    try:
        return files.manifests.stored_bytes(block_id) is None
    except StoreReadError:
        return False


def lacks_ids(files: StoreFiles, block_id: str) -> bool:
    """Whether nothing at all is left of a block, neither its manifest nor its ids; a corrupt file is not nothing."""
    try:
        return is_absent(files, block_id) and files.ancestors.stored_bytes(block_id) is None
    except StoreReadError:
        return False


def lacks_text(files: StoreFiles, name_key: str, text_sha256: str) -> bool:
    """Whether the name in that file needs that text, and it is certainly not there.

    Not so for blocks that came with a pack: it may have been made without texts. Raises CorruptBlock, StoreReadError.
    """
    loaded = files.names.load(name_key)
    if loaded is None or loaded[0].source_sha256 != text_sha256 or files.texts.stored_bytes(text_sha256) is not None:
        return False
    return files.imports.stored_bytes(loaded[0].block_id) is None


def refusal_of(files: StoreFiles, block_id: str) -> str | None:
    """Why a block whose files are whole could not be restored, if that is on record for the state that it has now."""
    with contextlib.suppress(StoreError):
        record, manifest = files.refused.read(block_id), files.manifests.read(block_id)
        if record is not None and manifest is not None and record.state_sha256 == manifest.state_sha256:
            return record.reason
    return None


def fault_of(error: StoreError, path: Path) -> Fault:
    """What an error of reading ``path`` says about it."""
    if isinstance(error, CorruptBlock):
        return Fault(Kind.CORRUPT, path, error.reason)
    place = error.path if isinstance(error, StoreReadError) else path
    other = other_kind_at(path) if place == path else None
    if other is not None:
        return Fault(Kind.CORRUPT, path, f"{other} in the place of a file")
    return Fault(Kind.UNREADABLE, place, error.reason if isinstance(error, StoreReadError) else error.message)


def tree_bytes(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are counted, not followed."""
    try:
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode):
            return info.st_size if stat.S_ISREG(info.st_mode) else 0
        return sum(tree_bytes(inner) for inner in path.iterdir())
    except OSError:
        return 0


def other_kind_at(path: Path) -> str | None:
    """What is at ``path`` if it is not a regular file; None if it is one, or cannot be looked at."""
    try:
        return other_kind(os.lstat(path).st_mode)
    except OSError:
        return None


def other_kind(mode: int) -> str | None:
    """What a file of that mode is; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    names = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO"}
    return names.get(stat.S_IFMT(mode), "a socket or device")


def _has_another_size(path: Path, ref: SegmentRef) -> bool:
    """Whether the file's size is the only thing that its header has against it."""
    try:
        with fsio.open_regular(path) as opened:
            head = bytearray(HEADER_BYTES)
            if opened is None:
                return False
            got = fsio.read_fully(opened[0], memoryview(head))
            size = opened[1].st_size
    except StoreReadError:
        return False
    expected = HEADER_BYTES + int.from_bytes(head[24:32], "little") + TRAILER_BYTES
    try:
        formats.read_header(bytes(head), ref, expected)
    except Malformed:
        return got < HEADER_BYTES
    return size != expected


@dataclass(frozen=True)
class Link:
    """A manifest as one of a chain: what the checks of others need of it."""

    parent_id: str | None
    fingerprint_id: str
    n_tokens: int
    own_tokens: int
    identity: fsio.Identity = (0, 0, 0, 0)

    @classmethod
    def of(cls, manifest: Manifest, identity: fsio.Identity = (0, 0, 0, 0)) -> Link:
        fingerprint = sys.intern(manifest.fingerprint.id)
        return cls(manifest.parent_id, fingerprint, manifest.n_tokens, len(manifest.tokens), identity)

    @classmethod
    def of_ids(cls, ancestor: Ancestor, identity: fsio.Identity = (0, 0, 0, 0)) -> Link:
        fingerprint = sys.intern(ancestor.fingerprint_id)
        return cls(ancestor.parent_id, fingerprint, ancestor.n_tokens, len(ancestor.tokens), identity)


def mismatch(child: Link, parent: Link) -> str | None:
    """Why ``child`` cannot follow ``parent``; None if it can."""
    if child.fingerprint_id != parent.fingerprint_id:
        return "its parent has another fingerprint"
    if parent.n_tokens + child.own_tokens != child.n_tokens:
        return f"{parent.n_tokens:,} + {child.own_tokens:,} tokens are not {child.n_tokens:,}"
    return None
