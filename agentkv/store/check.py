"""What is wrong in a store: every file below its root looked at, every segment decoded and hashed.

Changes nothing (``repair.py`` does). A read that the system refuses is *unreadable*, never called corruption. A source
text that a name needs and that is not there is *missing*, unless the block came with a pack (packs may be made without
texts): its block is valid, but nobody can make a pack of it or prefill it for another model. The lock is held for one
block or record at a time, so deposits and collections go on; what they do meanwhile is not reported. Not guaranteed:
that a state belongs to its tokens (``agentkv verify --prove`` repeats the proof).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from agentkv.errors import CorruptBlock, StoreError, StoreReadError
from agentkv.io import fsio
from agentkv.records import SegmentRef
from agentkv.store.deposit import distinct
from agentkv.store.files import SETTINGS, StoreFiles, children_of, with_descendants
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
from agentkv.store.gc import UNLOCKED_AGE_S
from agentkv.store.listing import Draft, Drafts, Entry, Listing, Surplus
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import Workers

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all and a label; from worker threads, one at a time."""


def check(files: StoreFiles, *, deep: bool = True, progress: Progress | None = None) -> Report:
    """Look at the whole store. ``deep`` decodes and hashes every segment, else only files' own digests are compared.

    Raises StoreReadError if the store cannot be looked at at all (its lock, say); what concerns one file is a finding.
    """
    drafts = Drafts()
    listing = Listing(files, drafts)
    # 1. what might be needed, listed before what needs it: else a deposit in between looks like a leftover
    segments, texts = listing.segments(), listing.records(files.texts)
    # 2. blocks with their segments
    blocks = _Blocks(files, listing, drafts, segments, deep=deep, progress=progress)
    blocks.look()
    # 3. what points at blocks, and what holds for the whole store
    pointers = _Pointers(files, listing, drafts)
    pointers.look(texts)
    # 4. what nothing needs, what does not belong to a store
    surplus = Surplus(files, listing, drafts, deep=deep)
    surplus.look_at_root()
    with files.lock.try_exclusive(wait_s=0) as alone:
        if alone:
            _look_at_leftovers(surplus, blocks, pointers, texts, 0.0)
    if not alone:  # only what is old counts; outside, so that nobody waits at the gate meanwhile
        _look_at_leftovers(surplus, blocks, pointers, texts, UNLOCKED_AGE_S)
    # 5. corrupt segments once more, as of now
    blocks.confirm()
    findings = _findings(drafts, blocks, pointers.names)
    return Report(files.root, deep, len(blocks.links), *blocks.segments_read(), findings)


def _look_at_leftovers(
    surplus: Surplus, blocks: _Blocks, pointers: _Pointers, texts: Iterable[Entry], min_age_s: float
) -> None:
    surplus.look_at_temporaries(min_age_s)
    newest = time.time() - min_age_s
    needed, needed_texts = blocks.needed_now(), pointers.needed_texts_now()
    if needed is not None:
        surplus.look_at_segments(blocks.listed, needed, newest)
        surplus.look_at_ids(newest)
    if needed_texts is not None:
        surplus.look_at_texts(texts, needed_texts, newest)


def _findings(drafts: Drafts, blocks: _Blocks, names_of: dict[str, set[str]]) -> tuple[Finding, ...]:
    children = children_of({block_id: link.parent_id for block_id, link in (blocks.ids | blocks.links).items()})
    findings = []
    for (kind, path), draft in drafts.items():
        unusable = set(with_descendants(children, draft.blocks)) - blocks.evicted
        names = draft.names.union(*(names_of.get(block_id, set()) for block_id in unusable))
        findings.append(Finding(kind, path, draft.reason, tuple(sorted(unusable)), tuple(sorted(names)), draft.bytes))
    order = list(Kind)
    return tuple(sorted(findings, key=lambda finding: (order.index(finding.kind), finding.path)))


class _Blocks:
    """Manifests, segments, and the ids of evicted blocks. ``listed``: stored bytes and mtime of segments by digest."""

    def __init__(
        self,
        files: StoreFiles,
        listing: Listing,
        drafts: Drafts,
        listed: dict[str, tuple[int, float]],
        *,
        deep: bool,
        progress: Progress | None,
    ) -> None:
        self._files, self._listing, self._drafts = files, listing, drafts
        self._deep, self._progress = deep, progress
        self.listed = listed
        self.links: dict[str, Link] = {}
        self.ids: dict[str, Link] = {}  # of evicted blocks
        self.evicted: set[str] = set()
        self._valid: set[bytes] = set()
        self._corrupt: dict[bytes, Draft] = {}
        self._done, self._total = 0, sum(size for size, _ in listed.values())
        self._lock = threading.Lock()

    def look(self) -> None:
        workers = Workers()
        try:
            for entry in self._listing.records(self._files.manifests, of_blocks=True):
                self._block(entry.digest, workers)
        finally:
            workers.close()
        for entry in self._listing.records(self._files.ancestors):
            self._ancestor(entry.digest)
        self._parents()

    def _block(self, block_id: str, workers: Workers) -> None:
        manifests = self._files.manifests
        with self._files.lock.shared():  # so that a segment removed meanwhile has lost its block before
            loaded = self._listing.load(manifests, block_id, [block_id])
            if loaded is None:
                return
            manifest, identity = loaded
            self.links[block_id] = Link.of(manifest, identity)
            reason = refusal_of(self._files, block_id)
            if reason is not None:
                reason = f"it could not be restored when it was asked for: {reason}"
                self._drafts.note(Kind.CORRUPT, manifests.path(block_id), reason, identity[2], [block_id])
            refs = distinct(manifest)
            new = [ref for ref in refs if _key(ref) not in self._valid and _key(ref) not in self._corrupt]
            workers.each(self._segment, new)
        for ref in refs:
            if (draft := self._corrupt.get(_key(ref))) is not None:
                draft.blocks.add(block_id)

    def _segment(self, ref: SegmentRef) -> None:
        fault = segment_fault(self._files.segments, ref, deep=self._deep)
        size = self.listed.get(ref.sha256, (0, 0.0))[0]
        if fault is None:
            self._valid.add(_key(ref))
        else:
            draft = self._drafts.note_fault(fault, size)
            draft.ref = draft.ref or ref
            self._corrupt[_key(ref)] = draft
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(min(self._done, self._total), self._total, f"segment {ref.sha256[:12]}")

    def _ancestor(self, block_id: str) -> None:
        with self._files.lock.shared():
            loaded = self._listing.load(self._files.ancestors, block_id, [block_id])
            if is_absent(self._files, block_id):
                self.evicted.add(block_id)
        if loaded is not None and block_id in self.evicted:
            self.ids[block_id] = Link.of_ids(*loaded)

    def _parents(self) -> None:
        """Each block, and each evicted parent, with the parent that it names."""
        chained = {**self.links, **{key: self.ids[key] for key in self._all_parents() & self.ids.keys()}}
        for block_id, link in chained.items():
            if link.parent_id is None:
                continue
            parent = self.links.get(link.parent_id) or self.ids.get(link.parent_id)
            path = (self._files.ancestors if block_id in self.ids else self._files.manifests).path(block_id)
            if parent is not None:
                reason = mismatch(link, parent)
                if reason is not None:
                    self._drafts.note(Kind.CORRUPT, path, reason, link.identity[2], [block_id])
                continue
            with self._files.lock.shared():
                gone = lacks_ids(self._files, link.parent_id) and not lacks_ids(self._files, block_id)
            if gone and not self._drafts.has(self._files.manifests.path(link.parent_id)):
                reason = f"its parent {link.parent_id[:12]} is gone, so it cannot be read"
                self._drafts.note(Kind.DANGLING, path, reason, link.identity[2], [block_id])

    def _all_parents(self) -> set[str]:
        """Every block that is the parent of another, whatever is left of it."""
        parents = set[str]()
        for link in self.links.values():
            here = link.parent_id
            while here is not None and here not in parents:
                parents.add(here)
                above = self.links.get(here) or self.ids.get(here)
                here = above.parent_id if above else None
        return parents

    def needed_now(self) -> set[str] | None:
        """Digests of all segments that blocks need; None if a block does not read, so that this is not known."""
        needed = self._digests()
        try:
            for entry in self._listing.records(self._files.manifests, of_blocks=True):
                link = self.links.get(entry.digest)
                if link is None or link.identity != entry.identity:  # new since it was looked at
                    summary = self._files.summary(entry.digest)
                    needed |= summary.segments.keys() if summary else set()
        except StoreError:
            return None
        return None if self._drafts.hide_some_of(self._files.manifests.root) else needed

    def confirm(self) -> None:
        """Look at corrupt segments again: a deposit may have mended one, and a block that needed it may be gone."""
        for key, draft in list(self._drafts.items()):
            if draft.ref is None or key[0] is Kind.UNREADABLE:
                continue
            with self._files.lock.shared():
                draft.blocks -= {block_id for block_id in draft.blocks if is_absent(self._files, block_id)}
                valid = segment_fault(self._files.segments, draft.ref, deep=self._deep) is None
            if valid or not draft.blocks:
                del self._drafts[key]

    def segments_read(self) -> tuple[int, int]:
        """How many segments blocks need, and their stored bytes."""
        digests = self._digests()
        return len(digests), sum(self.listed[digest][0] for digest in digests if digest in self.listed)

    def _digests(self) -> set[str]:
        return {key[:32].hex() for key in (*self._valid, *self._corrupt)}


def _key(ref: SegmentRef) -> bytes:
    """A reference's digest and length, small: a large store has a million."""
    return bytes.fromhex(ref.sha256) + ref.n_bytes.to_bytes(8, "little")


class _Pointers:
    """Names, marks and source texts; self-tests, models' names and settings. ``names`` of each block, by its id."""

    def __init__(self, files: StoreFiles, listing: Listing, drafts: Drafts) -> None:
        self._files, self._listing, self._drafts = files, listing, drafts
        self.names: dict[str, set[str]] = {}
        self._names_of_texts: dict[str, dict[str, str]] = {}  # name by its file's digest, by text
        self._name_files: dict[str, fsio.Identity] = {}

    def look(self, texts: Iterable[Entry]) -> None:
        """``texts``: their files, listed before the names."""
        self._look_at_names()
        self._marks()
        folders: tuple[RecordFiles[Any], ...] = (self._files.selftests, self._files.models)
        for folder in folders:
            for entry in self._listing.records(folder):
                self._listing.load(folder, entry.digest)
        self._texts(texts)
        try:
            self._files.read_settings()
        except StoreError as error:
            fault = fault_of(error, self._files.root / SETTINGS)
            self._drafts.note_fault(fault, tree_bytes(fault.path))

    def _look_at_names(self) -> None:
        for entry in self._listing.records(self._files.names):
            with self._files.lock.shared():
                loaded = self._listing.load(self._files.names, entry.digest)
                if loaded is None:
                    continue
                named, self._name_files[entry.digest] = loaded
                gone = is_absent(self._files, named.block_id)
            self.names.setdefault(named.block_id, set()).add(named.name)
            if named.source_sha256 is not None:
                self._names_of_texts.setdefault(named.source_sha256, {})[entry.digest] = named.name
            if gone and not self._drafts.has(self._files.manifests.path(named.block_id)):
                reason = f"the block {named.block_id[:12]} that {named.name!r} points to is gone"
                self._drafts.note(Kind.DANGLING, entry.path, reason, entry.bytes).names.add(named.name)

    def _marks(self) -> None:
        files = self._files
        marks: dict[str, RecordFiles[Any]] = {"pinned": files.pins, "imported": files.imports, "refused": files.refused}
        for what, folder in marks.items():
            for entry in self._listing.records(folder):
                with files.lock.shared():
                    loaded = self._listing.load(folder, entry.digest)
                    gone = loaded is not None and is_absent(files, entry.digest)
                if gone and not self._drafts.has(files.manifests.path(entry.digest)):
                    # An import that a crash cut short leaves a record of nothing.
                    kind = Kind.ORPHAN if folder is files.imports else Kind.DANGLING
                    self._drafts.note(kind, entry.path, f"the {what} block is gone", entry.bytes)

    def _texts(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            with self._files.lock.shared():
                fault = record_fault(self._files.texts, entry.digest)
            if fault is not None:
                self._drafts.note_fault(fault, entry.bytes)
        for digest, names in self._names_of_texts.items():
            path = self._files.texts.path(digest)
            if not self._drafts.has(path):
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
                self._drafts.note_fault(fault_of(error, path), 0)
                return
            if lacking:
                reason = "the source text that a name needs is not there; the block is valid"
                self._drafts.note(Kind.MISSING, path, reason).names.update(lacking)

    def needed_texts_now(self) -> set[str] | None:
        """Digests of all texts that names need; None if a name does not read, so that this is not known."""
        needed = set(self._names_of_texts)
        try:
            for entry in self._listing.records(self._files.names):
                if self._name_files.get(entry.digest) != entry.identity:  # new since it was looked at
                    loaded = self._files.names.load(entry.digest)
                    needed.add((loaded[0].source_sha256 if loaded else None) or "")
        except StoreError:
            return None
        return None if self._drafts.hide_some_of(self._files.names.root) else needed
