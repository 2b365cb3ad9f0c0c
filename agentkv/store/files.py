"""Where everything in a store is: its folders of records, its segments, its lock.

In which order things are written says ``deposit.py``, in which they go ``gc.py`` and ``budget.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agentkv.errors import CorruptBlock, StoreError, UsageError
from agentkv.io import fsio
from agentkv.io.lock import StoreLock
from agentkv.records import (
    Ancestor,
    Import,
    Manifest,
    ModelName,
    NamedBlock,
    Pin,
    Refused,
    SelfTest,
    StoreSettings,
)
from agentkv.store import format as formats
from agentkv.store import indexed
from agentkv.store.format import Limits, Malformed, Summary
from agentkv.store.images import Images
from agentkv.store.index import Index
from agentkv.store.indexed import EVERY, Names, Selection, key_of
from agentkv.store.recordfiles import RAM_FACTOR, RecordFiles
from agentkv.store.segments import SegmentStore

R = TypeVar("R")
M = TypeVar("M", Pin, Import, Refused)

OnError = Callable[[StoreError], None]
"""Called with the error of what cannot be read or removed, and is passed over."""

TEMPORARIES, QUARANTINE = "tmp", "quarantine"
DECISIONS, ROUTER, TURNS = "decisions", "router", "turns"
"""The router's log, what it has learned, the log of turns; nothing of the store reads them."""
SETTINGS = "agentkv-settings.json"


def _decode_mark(kind: type[M], data: bytes, name: str) -> M:
    return formats.decode_mark(kind, data, name)


class StoreFiles:
    """The parts of the store in ``root``. ``temporaries`` holds only what a write under way, or a crash, has left."""

    def __init__(self, root: Path, segments: SegmentStore, limits: Limits) -> None:
        self.root, self.segments, self.limits = root, segments, limits
        self.temporaries, self.quarantine = root / TEMPORARIES, root / QUARANTINE
        self.lock = StoreLock(root)
        self.images = Images(root, self.temporaries)

        def folder(
            name: str,
            what: str,
            decode: Callable[[bytes, str], R],
            limit: int,
            *,
            sharded: bool = True,
            suffix: str = ".json",
            ram_factor: int = RAM_FACTOR,
        ) -> RecordFiles[R]:
            return RecordFiles(
                root,
                name,
                what,
                decode,
                limit,
                sharded=sharded,
                temporaries=self.temporaries,
                suffix=suffix,
                ram_factor=ram_factor,
            )

        def mark(kind: type[M], name: str, what: str, *, sharded: bool = False) -> RecordFiles[M]:
            decode = functools.partial(_decode_mark, kind)
            return folder(name, what, decode, limits.name_bytes, sharded=sharded)

        manifest_bytes, name_bytes = limits.manifest_bytes, limits.name_bytes
        self.manifests: RecordFiles[Manifest] = folder(
            "manifests", "manifest", lambda data, name: formats.decode_manifest(data, name, limits), manifest_bytes
        )
        self._summaries: RecordFiles[Summary] = folder(
            "manifests", "manifest", lambda data, _: formats.summarise(data), manifest_bytes, ram_factor=1
        )  # a factor of 1: the tokens, most of a manifest, are not kept
        self.names: RecordFiles[NamedBlock] = folder(
            "names", "name", lambda data, name: formats.decode_name(data, name, limits), name_bytes, sharded=False
        )
        self.texts: RecordFiles[str] = folder(
            "texts", "text", formats.decode_text, limits.text_bytes + 1024, suffix=".txt"
        )
        self.pins = mark(Pin, "pins", "pin")
        self.imports = mark(Import, "imports", "import", sharded=True)
        self.refused = mark(Refused, "refused", "refusal")
        self.ancestors: RecordFiles[Ancestor] = folder(
            "ancestors", "ancestor", lambda data, name: formats.decode_ancestor(data, name, limits), manifest_bytes
        )
        self.selftests: RecordFiles[SelfTest] = folder(
            "selftests", "self-test", formats.decode_selftest, name_bytes, sharded=False
        )
        self.models: RecordFiles[ModelName] = folder(
            "models", "model name", formats.decode_model, name_bytes, sharded=False
        )
        self.index = Index(root, self.lock, segments, self.manifests, self.names, self.ancestors, self.texts)
        for followed in (self.manifests, self.names, self.ancestors):
            followed.follower = self.index

    @property
    def folders(self) -> tuple[RecordFiles[Any], ...]:
        """All folders of records."""
        blocks = (self.manifests, self.ancestors, self.pins, self.imports, self.refused)
        return (*blocks, self.names, self.texts, self.selftests, self.models)

    def summary(self, block_id: str) -> Summary | None:
        """What counting needs of a block, much quicker than its manifest; None if there is none."""
        return self._summaries.read(block_id)

    def summaries(
        self, on_error: OnError | None = None, certain: Collection[RecordFiles[Any]] = ()
    ) -> Iterator[tuple[str, Summary]]:
        """Every block's id and summary, by id. One that cannot be read raises, or is passed to ``on_error``.

        From the index where there is one; ``certain``: see :meth:`Index.ask`.
        """
        known = indexed.summaries(self.index, certain)
        found, unread = known or ([], self.manifests.digests())
        yield from found
        for block_id in unread:
            try:
                summary = self.summary(block_id)
            except StoreError as error:
                if on_error is None:
                    raise
                on_error(error)
                continue
            if summary is not None:
                yield block_id, summary

    def all_names(self, selection: Selection = EVERY, on_error: OnError | None = None) -> Names:
        """These names, sorted. One that cannot be read raises, or is passed to ``on_error`` and left out."""
        known = indexed.names(self.index, selection)
        if known is None:
            found = [named for named in self.names.all(on_error) if selection.fits(named)]
            return Names(sorted(found, key=key_of)[: selection.limit], {}, [])
        for digest in known.unread:
            try:
                self.names.read(digest)
            except StoreError as error:
                if on_error is None:
                    raise
                on_error(error)
        return known

    def names_of(self, block_id: str) -> list[NamedBlock]:
        """The names that point at a block; none that cannot be read."""
        return self.all_names(Selection(block_id=block_id), lambda _: None).found

    def ancestor_of(self, block_id: str) -> Ancestor | None:
        """The ids of a block, from its manifest, or all that is left of it; None if there is neither."""
        manifest = self.manifests.read(block_id)
        if manifest is None:
            return self.ancestors.read(block_id)
        return Ancestor(
            block_id=block_id,
            parent_id=manifest.parent_id,
            fingerprint_id=manifest.fingerprint.id,
            tokens=manifest.tokens,
            n_tokens=manifest.n_tokens,
        )

    def parents(self, on_error: OnError | None = None) -> dict[str, str | None]:
        """The parent of every block, and of every evicted one whose ids are left; None where it has none.

        What cannot be read raises CorruptBlock or StoreReadError, or is passed to ``on_error`` and left out.
        """
        known = indexed.parents(self.index)
        if known is not None:
            return known
        ids = {item.block_id: item.parent_id for item in self.ancestors.all(on_error)}
        return ids | {block_id: summary.parent_id for block_id, summary in self.summaries(on_error)}

    def children(self, block_id: str) -> list[str]:
        """The blocks, and ids of evicted ones, whose parent this is. Raises CorruptBlock, StoreReadError."""
        known = indexed.children(self.index, block_id)
        if known is None:
            known = sorted(child for child, parent in self.parents().items() if parent == block_id)
        return known

    def referenced(self) -> set[str]:
        """Digests of every segment that a committed block names. Raises CorruptBlock, StoreReadError."""
        return {digest for _, summary in self.summaries(certain=[self.manifests]) for digest in summary.segments}

    def unneeded(self, digests: Collection[str]) -> set[str]:
        """Those of these segments that are there and no committed block names. Raises CorruptBlock, StoreReadError."""
        there = [digest for digest in sorted(digests) if self.segments.has(digest)]
        known = indexed.unneeded_of(self.index, there) if there else []
        return set(there) - self.referenced() if known is None else set(known)

    def read_settings(self) -> StoreSettings:
        """What holds for this store; the defaults where nothing was set. Raises CorruptBlock, StoreReadError."""
        path = self.root / SETTINGS
        data = fsio.read_regular(path, self.limits.name_bytes)
        try:
            return StoreSettings() if data is None else formats.decode_mark(StoreSettings, data)
        except Malformed as error:
            raise CorruptBlock("the store's settings", path, str(error)) from error

    def write_settings(self, settings: StoreSettings) -> None:
        """Replace the settings, atomically."""
        with self.lock.shared():
            data = formats.encode_mark(settings)
            fsio.write_durably(self.root / SETTINGS, [data], temporaries=self.temporaries)

    def put_text(self, text: str) -> str:
        """Keep a text; its SHA-256, by which it is called. Raises UsageError, StoreFull."""
        digest, data = self.encoded_text(text)
        with self.lock.shared():
            if not self.holds_text(digest):
                self.texts.write(digest, data)
        return digest

    def encoded_text(self, text: str) -> tuple[str, bytes]:
        """A text's SHA-256 and its file's bytes. Raises UsageError."""
        try:
            return formats.encode_text(text, self.limits)
        except Malformed as error:
            raise UsageError(str(error)) from error

    def holds_text(self, digest: str) -> bool:
        """Whether the text is there and valid."""
        return self.texts.valid(digest) is not None


def children_of(parents: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Of each block its children; ``parents``: of each block its parent, or None."""
    children: dict[str, list[str]] = {}
    for block_id, parent_id in parents.items():
        if parent_id is not None:
            children.setdefault(parent_id, []).append(block_id)
    return children


def with_descendants(children: Mapping[str, Sequence[str]], block_ids: Iterable[str]) -> list[str]:
    """These blocks and all that are chained to them, children before their parents.

    Removed in this order, a removal that is cut short leaves no child without its parent.

    >>> with_descendants(children_of({"a": None, "b": "a", "c": "b", "d": None}), ["a"])
    ['c', 'b', 'a']
    """
    found: dict[str, None] = {}
    pending = list(block_ids)
    while pending:
        block_id = pending.pop()
        found.pop(block_id, None)  # again, after the parent by which it was reached now
        found[block_id] = None
        pending += children.get(block_id, ())
    return list(reversed(found))
