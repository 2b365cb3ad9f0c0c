"""Moving what a check has found corrupt to the quarantine: the rest is valid again, and what was lost can be deposited.

Corrupt files are moved first, then what points at blocks that they take along, then those blocks' manifests, children
before parents. A crash after any move leaves corruption that the next check finds and the next repair moves. Nothing is
deleted: only :func:`empty_quarantine` empties ``quarantine/``. What cannot be read stays where it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentkv.errors import StoreError
from agentkv.io import fsio
from agentkv.records import Ancestor, Fingerprint, Manifest, NamedBlock, SegmentRef
from agentkv.store.files import SETTINGS, StoreFiles, children_of, with_descendants
from agentkv.store.findings import (
    Fault,
    Kind,
    Link,
    Report,
    fault_of,
    is_absent,
    lacks_ids,
    mismatch,
    other_kind_at,
    record_fault,
    refusal_of,
    segment_fault,
    tree_bytes,
)
from agentkv.store.format import Summary, is_digest
from agentkv.store.marker import MARKER, marker_fault, mend_marker
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.registry import ANNEXES, DATABASE_SUFFIX, JOURNAL_SUFFIX, Annex
from agentkv.store.segments import FileSegmentStore

_LABEL = re.compile(r".+\.[0-9a-f]{12}", re.DOTALL)


@dataclass(frozen=True)
class LostBlock:
    """A block that was moved to the quarantine. What its manifest holds is None if that is corrupt itself."""

    block_id: str
    names: tuple[NamedBlock, ...]
    tokens: int | None
    fingerprint: Fingerprint | None


@dataclass(frozen=True)
class Repaired:
    """What a repair did. ``moved``: from where to where, in order; ``bytes``: of all that.

    ``names``: names that pointed at blocks long gone; ``texts``: names that stay and lack their source text, which is
    damage until they are deposited again: no move mends it; ``settings``: whether the store's settings (its budget)
    were lost; ``left``: findings that it could not judge.
    """

    moved: tuple[tuple[Path, Path], ...]
    bytes: int
    blocks: tuple[LostBlock, ...]
    names: tuple[NamedBlock, ...]
    texts: tuple[NamedBlock, ...]
    settings: bool
    left: tuple[str, ...]


def repair(files: StoreFiles, report: Report) -> Repaired:
    """Move what ``report`` calls damage, if it still is, with all that needs it. Raises StoreReadError, StoreFull.

    Waits for deposits and readers. May be repeated after a crash or an error, with a new report.
    """
    with files.lock.exclusive():
        return _Repair(files, report).run()


def quarantined(files: StoreFiles) -> tuple[int, int]:
    """Files and folders in the quarantine, and their bytes. Raises StoreReadError."""
    found = _in_quarantine(files)
    return len(found), sum(tree_bytes(path) for path in found)


def empty_quarantine(files: StoreFiles) -> tuple[int, int]:
    """Delete what is in the quarantine; how many files and folders, and bytes. Raises StoreReadError."""
    with files.lock.exclusive():
        found = quarantined(files)
        for path in _in_quarantine(files):
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except OSError as error:
                raise fsio.translated(error, path) from error
        return found


def _in_quarantine(files: StoreFiles) -> list[Path]:
    """What a repair has put there; files with names of another form are somebody else's."""
    fsio.refuse_links(files.root, files.quarantine / "x")
    try:
        return sorted(path for path in files.quarantine.iterdir() if _LABEL.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise fsio.translated(error, files.quarantine) from error


class _Repair:
    def __init__(self, files: StoreFiles, report: Report) -> None:
        self._files, self._report = files, report
        self._damaged = {finding.path for finding in report.damage if finding.kind is not Kind.UNREADABLE}
        self._blocks: dict[str, Summary] = {}
        self._moved: list[tuple[Path, Path]] = []
        self._bytes = 0

    def run(self) -> Repaired:
        files = self._files
        # 1. every finding again, now that nobody else is here
        self._blocks = dict(files.summaries(lambda _: None))  # one that does not read is in the report
        segments, users = self._lost_segments()
        children = children_of(files.parents(lambda _: None))
        chained = with_descendants(children, {*users, *self._lost_manifests(), *self._lost_ids()})
        lost = {block_id for block_id in chained if not is_absent(files, block_id)}
        names, name_files = self._lost_names(lost)
        of_blocks: list[RecordFiles[Any]] = [files.pins, files.imports, files.refused]
        marks = [path for folder in of_blocks for path in self._lost_marks(folder, lost)]
        folders: list[RecordFiles[Any]] = [files.texts, files.ancestors, files.selftests, files.models]
        texts = [path for folder in folders for path in self._in(folder) if record_fault(folder, path.stem)]
        settings = [path for path in self._damaged if path == files.root / SETTINGS and self._settings_fault()]
        found = self._found(lost, names)
        # 2. corrupt files: from here on a block that needs one lacks it
        beside = [path for annex in ANNEXES for path in self._lost_of(annex)]
        self._quarantine([*segments, *texts, *settings, *beside])
        if files.index.path in self._damaged:
            files.index.discard()  # nothing is lost: it is made again when it is next needed
        if files.root / MARKER in self._damaged and marker_fault(files.root) is not None:
            self._quarantine([files.root / MARKER])
            mend_marker(files.root)
        # 3. what points at lost blocks: a crash here leaves valid blocks with fewer names
        self._quarantine([*name_files, *marks])
        # 4. their manifests, children first: a child without its parent would be a finding again
        for generation in self._generations(lost):
            self._quarantine([files.manifests.path(block_id) for block_id in generation])
        dangling = tuple(named for named in names if named.block_id not in lost)
        texts_of = tuple(sorted(self._without_text(), key=lambda named: (named.name, named.fingerprint_id)))
        left = tuple(str(finding) for finding in self._report.of(Kind.UNREADABLE))
        return Repaired(tuple(self._moved), self._bytes, found, dangling, texts_of, bool(settings), left)

    # --- what is lost ---

    def _lost_segments(self) -> tuple[list[Path], set[str]]:
        """Paths of corrupt segments, and the blocks that need them or missing ones."""
        suspects = self._suspects()
        users: dict[str, list[str]] = {digest: [] for digest in suspects.values()}
        for block_id, summary in self._blocks.items():
            for digest in users.keys() & summary.segments.keys():
                users[digest].append(block_id)
        paths, lost = [], set[str]()
        for path, digest in sorted(suspects.items()):
            fault = self._segment_fault(path, digest, users[digest])
            if fault is None or fault.kind is Kind.UNREADABLE:
                continue
            lost |= set(users[digest])
            if fault.kind is not Kind.MISSING:
                paths.append(path)
        return paths, lost

    def _suspects(self) -> dict[Path, str]:
        """Digests by path of the segments in the report."""
        where = self._files.segments.where
        digests = {path.stem for path in self._damaged if is_digest(path.stem)}
        if not isinstance(self._files.segments, FileSegmentStore):  # its places hold no digest
            digests = {digest for summary in self._blocks.values() for digest in summary.segments}
        found = {Path(where(digest)): digest for digest in digests}
        return {path: digest for path, digest in found.items() if path in self._damaged}

    def _segment_fault(self, path: Path, digest: str, users: list[str]) -> Fault | None:
        if users:
            n_bytes = self._blocks[users[0]].segments[digest]
            ref = SegmentRef(section=0, start=0, stop=1, sha256=digest, n_bytes=n_bytes, element_bytes=1)
            return segment_fault(self._files.segments, ref, deep=True)
        other = other_kind_at(path)  # nobody needs it, but it is in the way of who will
        return Fault(Kind.CORRUPT, path, other) if other else None

    def _lost_manifests(self) -> list[str]:
        return [path.stem for path in self._in(self._files.manifests) if self._is_lost(path.stem)]

    def _lost_ids(self) -> list[str]:
        """Evicted blocks whose ids are corrupt, or do not fit their parent's."""
        return [path.stem for path in self._in(self._files.ancestors) if self._is_lost(path.stem)]

    def _is_lost(self, block_id: str) -> bool:
        folder: RecordFiles[Any] = self._files.manifests
        if is_absent(self._files, block_id):
            folder = self._files.ancestors
        fault = record_fault(folder, block_id)
        if fault is not None:
            return fault.kind is not Kind.UNREADABLE
        if refusal_of(self._files, block_id) is not None:
            return True
        block = self._ids(block_id)
        if block is None or block.parent_id is None:
            return False
        parent = self._ids(block.parent_id)
        if parent is None:
            return lacks_ids(self._files, block.parent_id)
        return mismatch(Link.of_ids(block), Link.of_ids(parent)) is not None

    def _ids(self, block_id: str) -> Ancestor | None:
        with contextlib.suppress(StoreError):
            return self._files.ancestor_of(block_id)
        return None

    def _manifest(self, block_id: str) -> Manifest | None:
        with contextlib.suppress(StoreError):
            return self._files.manifests.read(block_id)
        return None

    def _lost_names(self, lost: set[str]) -> tuple[list[NamedBlock], list[Path]]:
        """Names that point at lost or absent blocks, and their files with those that do not read at all."""
        names, paths = [], list(self._lost_marks(self._files.names, set()))
        for digest in self._files.names.digests():
            with contextlib.suppress(StoreError):
                loaded, path = self._files.names.load(digest), self._files.names.path(digest)
                if loaded is None:
                    continue
                named = loaded[0]
                gone = path in self._damaged and is_absent(self._files, named.block_id)
                if gone or named.block_id in lost:
                    names.append(named)
                    paths.append(path)
        return names, paths

    def _lost_marks(self, folder: RecordFiles[Any], lost: set[str]) -> list[Path]:
        """Files of ``folder`` that do not read, or are called by a block that is lost or absent."""
        paths = []
        for path in self._in(folder):
            fault = record_fault(folder, path.stem)
            gone = folder is not self._files.names and is_absent(self._files, path.stem)
            if fault.kind is not Kind.UNREADABLE if fault else gone:
                paths.append(path)
        there = {folder.path(block_id) for block_id in lost if _is_there(folder.path(block_id))}
        return [*paths, *sorted(there - set(paths))]

    def _settings_fault(self) -> bool:
        try:
            self._files.read_settings()
        except StoreError as error:
            return fault_of(error, self._files.root / SETTINGS).kind is not Kind.UNREADABLE
        return False

    def _lost_of(self, annex: Annex) -> list[Path]:
        """Corrupt files that a feature keeps beside the blocks."""
        folder = self._files.root / annex.folder
        paths = []
        for path in sorted(path for path in self._damaged if folder in path.parents):
            with contextlib.suppress(StoreError, OSError):  # cannot be read now: it stays where it is
                if annex.fault(self._files, path) is not None:
                    if path.suffix == DATABASE_SUFFIX:  # its journal would be played into a new one
                        paths.append(path.with_name(path.name + JOURNAL_SUFFIX))
                    paths.append(path)  # last: a crash in between leaves the finding
        return paths

    def _in(self, folder: RecordFiles[Any]) -> list[Path]:
        """The files of a folder that the report has."""
        return sorted(path for path in self._damaged if path == folder.path(path.name.removesuffix(folder.suffix)))

    def _without_text(self) -> Iterable[NamedBlock]:
        """Names whose source text was found corrupt or missing, and is not there now."""
        for key in self._files.names.digests():
            with contextlib.suppress(StoreError):
                loaded = self._files.names.load(key)
                digest = loaded[0].source_sha256 if loaded else None
                if loaded is None or digest is None or self._files.texts.path(digest) not in self._damaged:
                    continue
                if self._files.texts.stored_bytes(digest) is None:
                    yield loaded[0]

    def _found(self, lost: set[str], names: list[NamedBlock]) -> tuple[LostBlock, ...]:
        found = {block_id: LostBlock(block_id, (), *self._facts(block_id)) for block_id in sorted(lost)}
        for named in names:
            if named.block_id in found:
                block = found[named.block_id]
                found[named.block_id] = replace(block, names=(*block.names, named))
        return tuple(found.values())

    def _facts(self, block_id: str) -> tuple[int, Fingerprint] | tuple[None, None]:
        manifest = self._manifest(block_id)
        return (manifest.n_tokens, manifest.fingerprint) if manifest else (None, None)

    def _generations(self, lost: set[str]) -> list[list[str]]:
        """Lost blocks in groups, those without a lost parent last."""
        depths = {block_id: self._depth(block_id, lost) for block_id in lost}
        return [[b for b in sorted(lost) if depths[b] == depth] for depth in sorted({*depths.values()}, reverse=True)]

    def _depth(self, block_id: str, lost: set[str]) -> int:
        depth = 0
        here = self._blocks.get(block_id)
        while here is not None and here.parent_id in lost:
            depth, here = depth + 1, self._blocks.get(here.parent_id or "")
        return depth

    # --- the moves ---

    def _quarantine(self, paths: Iterable[Path]) -> None:
        """Rename into the quarantine, one after the other; durable when it returns."""
        quarantine, folders = self._files.quarantine, set[Path]()
        for path in paths:
            try:
                fsio.make_directory(quarantine)
                fsio.refuse_links(self._files.root, quarantine / "x")
                target, size = quarantine / self._label(path), tree_bytes(path)
                fsio.replace(path, target)
            except FileNotFoundError:  # gone by itself, or a segment in a store without files: collected later
                continue
            except OSError as error:
                raise fsio.translated(error, path) from error
            self._moved.append((path, target))
            self._bytes += size
            folders.add(path.parent)
        for folder in sorted(folders | ({quarantine} if folders else set())):
            try:
                fsio.sync_directory(folder)
            except OSError as error:
                raise fsio.translated(error, folder) from error

    def _label(self, path: Path) -> str:
        """Where it was, for people, and something that no other has."""
        place = path.relative_to(self._files.root) if path.is_relative_to(self._files.root) else Path(path.name)
        return f"{'-'.join(place.parts)}.{secrets.token_hex(6)}"


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)
