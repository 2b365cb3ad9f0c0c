"""The steps of a deposit, in the order that makes a readable manifest mean a whole block.

Knows when things are written; not how they are encoded. FORMAT.md says what a crash after each step leaves.
Does not guarantee that a failed deposit leaves nothing: where it may not delete, it leaves segments that a
later collection removes, but never a manifest without its segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agentkv import fsio
from agentkv.errors import CorruptBlock, StoreError, StoreReadError, UsageError
from agentkv.records import Manifest, SegmentRef
from agentkv.store import gc
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import Data, SegmentStore
from agentkv.store.workers import Workers

Source = Mapping[str, Data] | Callable[[SegmentRef], Data]

_LOCK_WAIT_S = 60.0


def distinct(manifest: Manifest) -> list[SegmentRef]:
    """The manifest's references, one for each segment file."""
    return list({ref.sha256: ref for ref in manifest.segments}.values())


class Deposit:
    """One deposit into a store; used once."""

    def __init__(self, lock: Path, manifests: RecordFiles[Manifest], segments: SegmentStore, workers: Workers) -> None:
        self._lock, self._manifests, self._segments, self._workers = lock, manifests, segments, workers
        self._created: list[str] = []

    def run(self, manifest: Manifest, data: bytes, source: Source, *, replace: bool) -> bool:
        """Commit ``manifest``, encoded as ``data``; False if the block was there. See ``BlockStore.put``."""
        try:
            with self._shared_lock():
                return self._commit(manifest, data, source, replace)
        except BaseException:
            with contextlib.suppress(StoreError):  # the first error is the one to tell
                gc.roll_back(self._lock, self._manifests, self._segments, self._created)
            raise

    @contextlib.contextmanager
    def _shared_lock(self) -> Iterator[None]:
        with fsio.file_lock(self._lock, exclusive=False, wait_s=_LOCK_WAIT_S) as held:
            if held is False:
                raise StoreReadError(self._lock, "a collection is running; try again later")
            yield

    def _commit(self, manifest: Manifest, data: bytes, source: Source, replace: bool) -> bool:
        block_id, existing = manifest.block_id, self._existing(manifest.block_id)
        same = existing == manifest
        if existing is not None and not same and not replace and self._whole(existing):
            self._manifests.sync(block_id)
            return False
        # 1. every segment that is not there and sound: temporary file, fsync, rename
        refs = distinct(manifest)
        self._workers.each(lambda ref: self._place(ref, source), refs)
        # 2. the directories that hold them
        self._segments.flush(ref.sha256 for ref in refs)
        # 3. the manifest: temporary file, fsync, rename, fsync of its directory. From the rename on it
        # counts.
        if same:
            self._manifests.sync(block_id)
        else:
            self._manifests.write(block_id, data)
        return not same

    def _existing(self, block_id: str) -> Manifest | None:
        with contextlib.suppress(CorruptBlock):
            return self._manifests.read(block_id)
        return None

    def _whole(self, manifest: Manifest) -> bool:
        with contextlib.suppress(CorruptBlock):
            return all(self._segments.check(ref) for ref in distinct(manifest))
        return False

    def _place(self, ref: SegmentRef, source: Source) -> None:
        with contextlib.suppress(CorruptBlock):
            if self._segments.check(ref):
                return
        if callable(source):
            data = source(ref)
        elif ref.sha256 in source:
            data = source[ref.sha256]
        else:
            raise UsageError(f"segment {ref.sha256[:12]} is neither stored nor given")
        if self._segments.put(ref, data):
            self._created.append(ref.sha256)
