"""The steps of a deposit, in the order that makes a readable manifest mean a whole block.

FORMAT.md says what a crash after each step leaves. A failed deposit never leaves a manifest without its segments; where
it may not delete, it leaves segments that the next open or a later collection removes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from agentkv.errors import CorruptBlock, StoreError, UnknownBlock, UsageError
from agentkv.records import Ancestor, Manifest, NamedBlock, SegmentRef
from agentkv.store import format as formats
from agentkv.store import gc
from agentkv.store.files import StoreFiles
from agentkv.store.segments import Data, Workers

Source = Mapping[str, Data] | Callable[[SegmentRef], Data]


def distinct(manifest: Manifest) -> list[SegmentRef]:
    """The manifest's references, one for each segment file."""
    return list({ref.sha256: ref for ref in manifest.segments}.values())


class Deposit:
    """One deposit into a store; used once."""

    def __init__(self, files: StoreFiles, workers: Workers) -> None:
        self._files, self._workers = files, workers
        self._intent = gc.Intent(files)

    def run(
        self,
        manifest: Manifest,
        data: bytes,
        source: Source,
        *,
        replace: bool,
        ancestors: Sequence[Ancestor] = (),
    ) -> bool:
        """Commit ``manifest``, encoded as ``data``; False if the block was there. See ``BlockStore.put``."""
        try:
            with self._files.lock.shared():
                self._place_ids(ancestors)
                done = self._commit(manifest, data, source, replace)
                self._intent.forget()
                return done
        except BaseException:
            with contextlib.suppress(StoreError):  # the first error is the one to raise
                self._intent.roll_back()
            raise

    def _commit(self, manifest: Manifest, data: bytes, source: Source, replace: bool) -> bool:
        manifests, block_id = self._files.manifests, manifest.block_id
        existing = manifests.valid(block_id)
        same = existing == manifest
        if existing is not None and not same and not replace and self._whole(existing):
            manifests.sync(block_id)
            return False
        # 1. what is about to be written, for whoever opens the store after a crash
        refs = distinct(manifest)
        missing = [ref for ref in refs if not self._is_valid(ref)]
        self._intent.declare(ref.sha256 for ref in missing)
        # 2. every segment that is not there and valid: temporary file, fsync, rename
        self._workers.each(lambda ref: self._place(ref, source), missing)
        # 3. the directories that hold them
        self._files.segments.flush(ref.sha256 for ref in refs)
        # 4. the manifest: temporary file, fsync, rename, fsync of its directory. From the rename on it counts.
        if same:
            manifests.sync(block_id)
            self._files.index.resize([ref.sha256 for ref in missing])
        else:
            manifests.write(block_id, data)
        return not same

    def _place_ids(self, ancestors: Sequence[Ancestor]) -> None:
        """The ids of parents that are not stored, before their children; a crash leaves ids that no block needs."""
        for ancestor in ancestors:
            block_id = ancestor.block_id
            if self._files.manifests.valid(block_id) is None and self._files.ancestors.valid(block_id) is None:
                self._files.ancestors.write(block_id, formats.encode_ancestor(ancestor))

    def _whole(self, manifest: Manifest) -> bool:
        return all(self._is_valid(ref) for ref in distinct(manifest))

    def _is_valid(self, ref: SegmentRef) -> bool:
        with contextlib.suppress(CorruptBlock):
            return self._files.segments.check(ref)
        return False

    def _place(self, ref: SegmentRef, source: Source) -> None:
        if callable(source):
            data = source(ref)
        elif ref.sha256 in source:
            data = source[ref.sha256]
        else:
            raise UsageError(f"segment {ref.sha256[:12]} is neither stored nor given")
        self._files.segments.put(ref, data)


def write_name(files: StoreFiles, named: NamedBlock, data: bytes, text: str | None) -> None:
    """Point a name, encoded as ``data``, at its block, and keep its text: both, or if it raises neither.

    Raises UnknownBlock, UsageError, StoreFull, StoreReadError.
    """
    intent = gc.Intent(files)
    try:
        with files.lock.shared():
            manifest = files.manifests.read(named.block_id)
            if manifest is None:
                raise UnknownBlock(named.block_id)
            if manifest.fingerprint.id != named.fingerprint_id:
                raise UsageError(f"name {named.name!r} has another fingerprint than its block")
            if text is not None:
                _keep_text(files, named, text, intent)
            files.names.write(formats.name_key(named.kind, named.name, named.fingerprint_id), data)
            intent.forget()
    except BaseException:
        with contextlib.suppress(StoreError):
            intent.roll_back()
        raise


def _keep_text(files: StoreFiles, named: NamedBlock, text: str, intent: gc.Intent) -> None:
    digest, data = files.encoded_text(text)
    if digest != named.source_sha256:
        raise UsageError(f"name {named.name!r} has the SHA-256 of another text")
    if not files.holds_text(digest):
        intent.declare([digest])
        files.texts.write(digest, data)
