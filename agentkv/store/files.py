"""Where everything in a store is: its folders of records, its segments, its lock.

Knows paths and decoders; refuses to know in which order things are written (``deposit.py``) or go (``gc.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

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
from agentkv.store.format import Limits, Malformed, Summary
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import SegmentStore

R = TypeVar("R")

TEMPORARIES, QUARANTINE = "tmp", "quarantine"
DECISIONS, ROUTER, TURNS = "decisions", "router", "turns"
"""The router's log, what it has learned, the log of turns; nothing of the store reads them."""
SETTINGS = "agentkv-settings.json"


class StoreFiles:
    """The parts of the store in ``root``. ``temporaries`` holds only what a write under way, or a crash, has left."""

    def __init__(self, root: Path, segments: SegmentStore, limits: Limits) -> None:
        self.root, self.segments, self.limits = root, segments, limits
        self.temporaries, self.quarantine = root / TEMPORARIES, root / QUARANTINE
        self.lock = StoreLock(root)

        def folder(name: str, what: str, decode: Callable[[bytes, str], R], limit: int, **how: bool) -> RecordFiles[R]:
            suffix = ".txt" if name == "texts" else ".json"
            sharded = how.get("sharded", True)
            return RecordFiles(
                root, name, what, decode, limit, sharded=sharded, temporaries=self.temporaries, suffix=suffix
            )

        manifest_bytes, name_bytes = limits.manifest_bytes, limits.name_bytes
        self.manifests: RecordFiles[Manifest] = folder(
            "manifests", "manifest", lambda data, name: formats.decode_manifest(data, name, limits), manifest_bytes
        )
        self._summaries: RecordFiles[Summary] = RecordFiles(
            root,
            "manifests",
            "manifest",
            lambda data, _: formats.summarise(data),
            manifest_bytes,
            sharded=True,
            ram_factor=1,  # the tokens, most of a manifest, are not kept
        )
        self.names: RecordFiles[NamedBlock] = folder(
            "names", "name", lambda data, name: formats.decode_name(data, name, limits), name_bytes, sharded=False
        )
        self.texts: RecordFiles[str] = folder("texts", "text", formats.decode_text, limits.text_bytes + 1024)
        self.pins: RecordFiles[Pin] = folder(
            "pins", "pin", lambda data, name: formats.decode_mark(Pin, data, name), name_bytes, sharded=False
        )
        self.imports: RecordFiles[Import] = folder(
            "imports", "import", lambda data, name: formats.decode_mark(Import, data, name), name_bytes
        )
        self.refused: RecordFiles[Refused] = folder(
            "refused",
            "refusal",
            lambda data, name: formats.decode_mark(Refused, data, name),
            name_bytes,
            sharded=False,
        )
        self.ancestors: RecordFiles[Ancestor] = folder(
            "ancestors", "ancestor", lambda data, name: formats.decode_ancestor(data, name, limits), manifest_bytes
        )
        self.selftests: RecordFiles[SelfTest] = folder(
            "selftests", "self-test", formats.decode_selftest, name_bytes, sharded=False
        )
        self.models: RecordFiles[ModelName] = folder(
            "models", "model name", formats.decode_model, name_bytes, sharded=False
        )

    def summary(self, block_id: str) -> Summary | None:
        """What counting needs of a block, much quicker than its manifest; None if there is none."""
        return self._summaries.read(block_id)

    def summaries(self, on_error: Callable[[StoreError], None] | None = None) -> Iterator[tuple[str, Summary]]:
        """Every block's id and summary, by id. One that cannot be read raises, or is told to ``on_error``."""
        for block_id in self.manifests.digests():
            try:
                summary = self.summary(block_id)
            except StoreError as error:
                if on_error is None:
                    raise
                on_error(error)
                continue
            if summary is not None:
                yield block_id, summary

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

    def referenced(self) -> set[str]:
        """Digests of every segment that a committed block names. Raises CorruptBlock, StoreReadError."""
        return {digest for _, summary in self.summaries() for digest in summary.segments}

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
        """Whether the text is there and sound."""
        return self.texts.sound(digest) is not None
