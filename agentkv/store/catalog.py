"""``BlockStore``: blocks, names and marks in a directory. A block's manifest is its commit point.

Segments become durable before the manifest, so that a manifest that can be read is a block that can be restored. A
name is a pointer; its block may be gone. One object may be used by many threads; after a fork the child opens its own.
Not guaranteed: anything about a directory that other programs change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentkv.errors import (
    CorruptBlock,
    MissingSegment,
    OverBudget,
    StoreError,
    StoreReadError,
    UnknownBlock,
    UsageError,
)
from agentkv.io import sqlitefiles
from agentkv.io.forks import Shared
from agentkv.notices import warn
from agentkv.records import Ancestor, Manifest, NamedBlock, SegmentRef
from agentkv.store import budget as budgets
from agentkv.store import check as checks
from agentkv.store import format as formats
from agentkv.store import gc
from agentkv.store import repair as repairs
from agentkv.store.bounded import Bounded, check_budget
from agentkv.store.check import Progress
from agentkv.store.codec import Bytes
from agentkv.store.deposit import Deposit, Source, distinct, write_name
from agentkv.store.files import TEMPORARIES, StoreFiles
from agentkv.store.findings import Report
from agentkv.store.format import Limits, Malformed
from agentkv.store.images import DEFAULT_BYTES
from agentkv.store.indexed import Selection, key_of
from agentkv.store.marker import MARKER, locate, open_root, require_marker
from agentkv.store.marks import Marked, require_digest
from agentkv.store.recordfiles import StateCache
from agentkv.store.repair import Repaired
from agentkv.store.segments import FileSegmentStore, SegmentStore, Workers
from agentkv.store.uses import USES, Uses

Sink = Callable[[SegmentRef, Bytes], None]

_MIN_PREFIX = 6
_MOST_WARNINGS = 3
"""How many of a kind are warned of one by one."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of one block's state: ``raw`` as the engine has it, ``stored`` as its files take up.

    ``own`` is what the block adds to its parent, ``shared`` what is the parent's too; without a parent in the
    store all is own. A segment that occurs several times counts each time in raw, once in stored.
    """

    own_raw: int
    own_stored: int
    shared_raw: int
    shared_stored: int

    @property
    def raw(self) -> int:
        """Bytes of the whole state."""
        return self.own_raw + self.shared_raw

    @property
    def stored(self) -> int:
        """Bytes of all its segment files."""
        return self.own_stored + self.shared_stored


class BlockStore(Shared, Bounded, Marked):
    """Blocks in a directory. A miss is a return value; a fault is a StoreError.

    ``codec`` (``planes``, ``zstd``, ``raw``) and ``level`` (1 to 19) are for new segments. ``verify`` is
    ``once`` (a file's digest is checked once per process and file identity) or ``always``. ``cache_bytes``
    bounds ``cache``, which is the caller's to fill. ``budget_bytes`` bounds what is on disk, instead of the
    store's own setting; ``evicted`` lists what this object's deposits have evicted for it, for the caller to
    show and clear. ``image_bytes`` bounds the folder of restore images (0: none), which ``verify="always"`` neither
    reads nor writes; see :mod:`agentkv.store.images`. ``segments`` is another home for segment bytes than the
    directory. ``turn_log``: whether turns of this store are logged, without any text (None: unless ``AGENTKV_TURN_LOG``
    is 0). What a crash of another process has left half-written is removed now, unless somebody else is at work here.
    Raises StoreUnusable, StoreFormatError, UsageError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, BlockStore(directory) as store:
    ...     store.has("0" * 64), list(store.block_ids())
    (False, [])
    """

    def __init__(
        self,
        root: Path | str,
        *,
        codec: str = "planes",
        level: int = 1,
        verify: str = "once",
        cache_bytes: int = 512 << 20,
        create: bool = True,
        budget_bytes: int | None = None,
        image_bytes: int = DEFAULT_BYTES,
        limits: Limits | None = None,
        segments: SegmentStore | None = None,
        turn_log: bool | None = None,
    ) -> None:
        check_budget(budget_bytes)
        check_budget(image_bytes)
        self.limits = Limits() if limits is None else limits
        self.cache: StateCache[Any] = StateCache(cache_bytes)
        self.root = locate(root)
        self.turn_log = turn_log
        files = FileSegmentStore(
            self.root / "segments",
            temporaries=self.root / TEMPORARIES,
            codec=codec,
            level=level,
            verify=verify,
        )
        self.segments: SegmentStore = files if segments is None else segments
        open_root(self.root, create=create)
        self.files = StoreFiles(self.root, self.segments, self.limits)
        self._manifests, self._names = self.files.manifests, self.files.names
        self._uses = Uses(self.root / USES)
        self._refused, self._warned, self._is_blind = {}, dict[str, str](), False
        self._bind(budget_bytes)
        self.files.images.limit = 0 if verify == "always" else image_bytes
        self._workers = Workers()
        gc.recover(self.files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release threads and RAM, write the uses noted. May be called twice; a later call starts them again."""
        self._workers.close()
        self.files.images.close()
        if not self.files.lock.owner.is_here:
            return
        self._uses.flush()
        self.files.index.close()
        self.cache.clear()

    # --- blocks ---

    def has(self, block_id: str) -> bool:
        """Whether a valid manifest is there; a corrupt one counts as none, so that a deposit replaces it."""
        return self._valid(block_id) is not None

    def exists(self, block_id: str) -> bool:
        """Whether there is a manifest whose seal holds: much quicker than reading it. Raises CorruptBlock."""
        require_digest(block_id)
        return self.files.summary(block_id) is not None

    def manifest(self, block_id: str) -> Manifest | None:
        """The block's manifest, or None. Raises CorruptBlock, StoreReadError."""
        require_digest(block_id)
        return self._manifests.read(block_id)

    def put(
        self, manifest: Manifest, segments: Source, *, replace: bool = False, ancestors: Sequence[Ancestor] = ()
    ) -> bool:
        """Commit a block; False if it was there already.

        ``ancestors``: the ids of parents that are not stored themselves; kept as long as a block is chained to them.

        ``segments`` gives the raw bytes by SHA-256, or is called with a reference (in worker threads); it is
        asked only for what is missing or corrupt, so a repeated deposit mends a block. A valid block that is
        there under another manifest (other state bytes) stays, unless ``replace``. On return the block would
        outlive a power failure; if it raises, what it wrote and nothing else uses is removed again. Over the
        budget the least recently used blocks go, if that makes room. Raises UsageError, StoreFull,
        StoreReadError, OverBudget.
        """
        require_marker(self.root)
        data = self._encoded(manifest)
        is_new = not self._manifests.path(manifest.block_id).exists()
        if self._held is not None:
            self._held.append(manifest.block_id)
            if is_new:  # also if it raises: the manifest may be there by then
                self._created.append(manifest.block_id)
        deposit = Deposit(self.files, self._workers)
        created = deposit.run(manifest, data, segments, replace=replace, ancestors=ancestors)
        try:
            self._keep_to_budget(self._held or [manifest.block_id], created and is_new)
        except OverBudget:
            if self._held is None:
                with self.files.lock.exclusive():
                    budgets.take_away(self.files, [manifest.block_id], self.pass_over)
            raise
        return created

    def ancestor(self, block_id: str) -> Ancestor | None:
        """A block's parent and ids, also where they are all that is left of it; None if there is nothing.

        Raises CorruptBlock, StoreReadError.
        """
        require_digest(block_id)
        return self.files.ancestor_of(block_id)

    def read(self, manifest: Manifest, sink: Sink, *, deep: bool = False) -> None:
        """Hand every segment's raw bytes to ``sink(ref, bytes)``, in worker threads and in no order.

        The arrays, uint8 of shape (n_bytes,), are the sink's to keep. It must not call the store. ``deep``
        hashes the decoded bytes too. Raises UnknownBlock if the block was removed meanwhile, MissingSegment,
        CorruptBlock, StoreReadError, and what the sink raises; the sink may have been called for some of the
        segments by then.
        """

        def one(ref: SegmentRef) -> None:
            raw = self.segments.get(ref, deep=deep)
            if raw is None:
                raise self._missing(manifest, ref)
            sink(ref, raw)

        with self.files.lock.shared():
            self._workers.each(one, manifest.segments)

    def image(self, manifest: Manifest, n_bytes: int) -> Bytes | None:
        """The block's whole state from its restore image, shape (n_bytes,), checked; None if there is none."""
        return self.files.images.read(manifest.block_id, manifest.state_sha256, n_bytes)

    def keep_image(self, manifest: Manifest, state: Bytes) -> None:
        """Have an image of a state made in the background, for the next read; it must not be changed any more."""
        self.files.images.later(manifest.block_id, manifest.state_sha256, state, self.files, self._room_for_images)

    def verify(self, block_id: str, *, deep: bool = True) -> Manifest:
        """Check a block wholly: manifest, and each segment's file, decoding and raw digest; its manifest.

        ``deep=False`` checks files only, and each once per process. Raises UnknownBlock, CorruptBlock,
        MissingSegment, StoreReadError.
        """
        with self.files.lock.shared():
            manifest = self.manifest(block_id)
            if manifest is None:
                raise UnknownBlock(block_id)
            reason = self._parent_fault(manifest)
            if reason is not None:
                raise CorruptBlock(f"manifest {block_id[:12]}", self._manifests.path(block_id), reason)
            self.require_not_refused(manifest)

            def one(ref: SegmentRef) -> None:
                if not self.segments.check(ref, deep=deep):
                    raise self._missing(manifest, ref)

            self._workers.each(one, distinct(manifest))
            return manifest

    def sizes(self, manifest: Manifest) -> Sizes:
        """Raw and stored bytes of a block. Raises MissingSegment."""
        parent = self._valid(manifest.parent_id) if manifest.parent_id else None
        inherited = {ref.sha256 for ref in parent.segments} if parent else set()
        totals = {True: [0, 0], False: [0, 0]}
        for ref in manifest.segments:
            totals[ref.sha256 in inherited][0] += ref.n_bytes
        for ref in distinct(manifest):
            stored = self.segments.stored_bytes(ref.sha256)
            if stored is None:
                raise self._missing(manifest, ref)
            totals[ref.sha256 in inherited][1] += stored
        return Sizes(*totals[False], *totals[True])

    def version(self) -> tuple[object, ...] | None:
        """Another value whenever a block or name is added, replaced or removed; None if one was a moment ago."""
        parts = (self._manifests.version(), self._names.version())
        is_blind, self._is_blind = self._is_blind, False  # what could not be read then may be readable now
        return None if None in parts or is_blind else parts

    @property
    def is_gone(self) -> bool:
        """Whether the whole store was removed under this object; the next deposit makes it again."""
        return not any(os.path.lexists(self.root / name) for name in (MARKER, self._manifests.root, self._names.root))

    def tell_once(self, error: StoreError, remedy: str = "`agentkv check` lists it.") -> None:
        """Warn, once for this object and place, of something that is passed over; of many alike, of the first few."""
        place = str(getattr(error, "path", None) or error.message)
        if place in self._warned:
            return
        before = sum(known == remedy for known in self._warned.values())
        self._warned[place] = remedy
        if before < _MOST_WARNINGS:
            warn(f"passed over: {error.message} {remedy}")
        elif before == _MOST_WARNINGS:
            warn(f"passed over: more than {_MOST_WARNINGS} of these; no more are listed one by one. {remedy}")

    def pass_over(self, error: StoreError) -> None:
        """Warn once of a record that cannot be read and is left out."""
        self._is_blind |= isinstance(error, StoreReadError)
        self.tell_once(error)

    def block_ids(self) -> Iterator[str]:
        """The ids of all committed blocks, sorted; nothing is opened."""
        return self._manifests.digests()

    def resolve(self, key: str) -> str:
        """The block id that ``key`` is, or is the unique start of (6 digits or more). Raises UnknownBlock."""
        if len(key) < _MIN_PREFIX or not formats.is_digest(key.ljust(64, "0")):
            raise UnknownBlock(key, f"A block id, or its first {_MIN_PREFIX} hex digits or more, is needed.")
        found = list(self._manifests.digests(key))
        if len(found) > 1:
            raise UnknownBlock(key, f"{len(found)} blocks start so; give more digits.")
        if not found:
            raise UnknownBlock(key)
        return found[0]

    def children(self, block_id: str) -> list[str]:
        """The blocks whose parent this is, by id. Raises CorruptBlock, StoreReadError."""
        require_digest(block_id)
        return [child for child in self.files.children(block_id) if self._manifests.stored_bytes(child) is not None]

    def take_away(self, block_ids: Sequence[str]) -> None:
        """Remove blocks and every segment that no other needs. Waits for readers.

        The ids of those that have children stay, so that the children can still be used.
        """
        for block_id in block_ids:
            require_digest(block_id)
        with self.files.lock.exclusive():
            budgets.take_away(self.files, block_ids)
        self._uses.forget(block_ids)
        for block_id in block_ids:
            self.cache.drop(block_id)

    def remove_block(self, block_id: str) -> bool:
        """Forget a block with its names and marks; False if it was not there. Waits for readers.

        Its children stay and cannot be used any more: remove them too. Segments go with :meth:`collect`.
        """
        require_digest(block_id)
        with self.files.lock.exclusive():
            removed = budgets.remove(self.files, block_id)
        self._uses.forget([block_id])
        self.cache.drop(block_id)
        return removed

    def collect(self, *, min_age_s: float | None = None, dry_run: bool = False) -> gc.Collected:
        """Remove what no block needs. Raises CorruptBlock, StoreReadError if a manifest is unreadable.

        ``min_age_s``: leave what is younger; None for no age where locks protect deposits under way, else an
        hour. ``dry_run`` only counts. SQLite files in which deleted rows can still be read are cleaned.
        """
        collected = gc.collect(self.files, min_age_s, dry_run=dry_run)
        if not dry_run and not self.files.index.is_current():
            self.files.index.discard()  # nothing that was removed may be read in it
        for path, reason in [] if dry_run else sqlitefiles.scrub_all(self.root):
            warn(f"what was deleted from {path} may still be read there: {reason}. Run `agentkv gc` again later.")
        return collected

    def check(self, *, deep: bool = True, progress: Progress | None = None) -> Report:
        """Look at every file; changes nothing. ``deep`` also decodes each segment and hashes the raw bytes.

        Raises StoreReadError if the store cannot be looked at at all.
        """
        return checks.check(self.files, deep=deep, progress=progress)

    def repair(self, report: Report) -> Repaired:
        """Move what is corrupt, and what needs it, to the quarantine. Raises StoreReadError, StoreFull."""
        done = repairs.repair(self.files, report)
        for block in done.blocks:
            self.cache.drop(block.block_id)
            self._refused.pop(block.block_id, None)
        self._uses.forget([block.block_id for block in done.blocks])
        return done

    # --- texts ---

    def put_text(self, text: str) -> str:
        """Keep a text; its SHA-256. It stays as long as a name's ``source_sha256`` is that."""
        return self.files.put_text(text)

    def text(self, sha256: str) -> str | None:
        """The text of that digest, or None. Raises CorruptBlock, StoreReadError."""
        require_digest(sha256)
        return self.files.texts.read(sha256)

    # --- names ---

    def set_name(self, named: NamedBlock, text: str | None = None) -> None:
        """Point a name at a block, atomically. ``text``: what ``source_sha256`` is of, to be kept with it.

        Raises UnknownBlock, UsageError.
        """
        require_marker(self.root)
        try:
            data = formats.encode_name(named, self.limits)
        except Malformed as error:
            raise UsageError(f"name {named.name!r} cannot be stored: {error}") from error
        write_name(self.files, named, data, text)

    def name(self, kind: str, name: str, fingerprint_id: str) -> NamedBlock | None:
        """What a name points at, or None. Raises CorruptBlock, StoreReadError."""
        return self._names.read(_name_key(kind, name, fingerprint_id))

    def names(
        self,
        kind: str | None = None,
        fingerprint_id: str | None = None,
        *,
        after: NamedBlock | None = None,
        limit: int | None = None,
        on_error: Callable[[StoreError], None] | None = None,
    ) -> list[NamedBlock]:
        """All names of a kind and a fingerprint (None: of any), sorted by kind, name, fingerprint.

        A page: at most ``limit`` of those after the name ``after``, the last of the page before.

        A corrupt file is left out, since one bad name need not hide the others: its error is passed to ``on_error``,
        else it is a warning. Raises StoreReadError if the folder of names cannot be looked at.
        """
        if limit is not None and limit < 0:
            raise UsageError(f"a page of {limit} names: it takes 0 or more")
        selection = Selection(kind, fingerprint_id, after=key_of(after) if after else None, limit=limit)
        return self.files.all_names(selection, on_error or self.pass_over).found

    def described(self, on_error: Callable[[StoreError], None] | None = None) -> list[tuple[NamedBlock, str | None]]:
        """The names that have a description, which questions are routed among, sorted as :meth:`names` sorts them.

        Each with its text where the store has it at hand; None: :meth:`text` has to look. Raises StoreReadError.
        """
        names = self.files.all_names(Selection(described=True), on_error or self.pass_over)
        return [(named, names.texts.get(named.source_sha256 or "")) for named in names.found]

    def named_at(self, named: NamedBlock) -> float:
        """When a name was last written, in seconds since 1970."""
        return self._names.written_at(_name_key(named.kind, named.name, named.fingerprint_id))

    def name_path(self, named: NamedBlock) -> Path:
        """The file of a name."""
        return self._names.path(_name_key(named.kind, named.name, named.fingerprint_id))

    def remove_name(self, kind: str, name: str, fingerprint_id: str) -> bool:
        """Forget a name; False if it was not there. The block stays."""
        return self._names.remove(_name_key(kind, name, fingerprint_id))

    # --- helpers ---

    def _encoded(self, manifest: Manifest) -> bytes:
        try:
            data = formats.encode_manifest(manifest, self.limits)
        except Malformed as error:
            raise UsageError(f"manifest {manifest.block_id[:12]} refused: {error}") from error
        reason = self._parent_fault(manifest)
        if reason is not None:
            raise UsageError(f"manifest {manifest.block_id[:12]} refused: {reason}")
        return data

    def _valid(self, block_id: str) -> Manifest | None:
        require_digest(block_id)
        return self._manifests.valid(block_id)

    def _parent_fault(self, manifest: Manifest) -> str | None:
        parent = None
        with contextlib.suppress(CorruptBlock):
            parent = self.files.ancestor_of(manifest.parent_id) if manifest.parent_id else None
        if parent is None:
            return None
        if parent.fingerprint_id != manifest.fingerprint.id:
            return "its parent has another fingerprint"
        if parent.n_tokens + len(manifest.tokens) != manifest.n_tokens:
            return f"{parent.n_tokens:,} + {len(manifest.tokens):,} tokens are not {manifest.n_tokens:,}"
        return None

    def _missing(self, manifest: Manifest, ref: SegmentRef) -> StoreError:
        if self._manifests.stored_bytes(manifest.block_id) is None:
            return UnknownBlock(manifest.block_id, "It was removed or evicted; deposit it again.")
        return MissingSegment(manifest.block_id, ref.sha256, Path(self.segments.where(ref.sha256)))


def _name_key(kind: str, name: str, fingerprint_id: str) -> str:
    try:
        return formats.name_key(kind, name, fingerprint_id)
    except TypeError as error:
        raise UsageError(f"{name!r} cannot be a name: {error}") from error
