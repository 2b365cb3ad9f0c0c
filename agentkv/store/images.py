"""Restore images: the state of a block as the engine takes it, raw, in one file, so that reading it is only that.

A block's segments stay the truth: compressed, shared between blocks, called by their SHA-256. An image is made from
them in the background once they were read, hashed and put together, and only if the whole has the SHA-256 that the
manifest gives. It is bound to the block's id and to that SHA-256. Reading checks an XXH3-128 of each chunk, which runs
at the speed of memory: it finds what disks, crashes and mistakes do to a file. It does not protect from someone who
writes into the folder on purpose, who could as well replace the manifest; ``verify="always"`` reads no image.

What is missing, cut short, changed or another block's is a miss, and is made again. The folder may be deleted at any
time; it has a budget of its own, keeps to what a store's budget leaves over, and goes before any block.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import struct
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from agentkv.errors import StoreError
from agentkv.io import fsio
from agentkv.io.forks import OwnedLock
from agentkv.io.lock import StoreLock
from agentkv.records import Manifest
from agentkv.store.format import is_digest
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import Workers

IMAGES, SUFFIX = "images", ".image"
DEFAULT_BYTES = 2 << 30
"""Of the folder, at most."""
LEAST_BYTES = 1 << 20
"""A smaller state is put together from its segments about as fast."""
MAGIC = b"agentkv-image 1\n"
_HEAD = struct.Struct("<16s32s32sQQ")
_SUM = 16
_CHUNK = 1 << 20
_MOST_CHUNKS = 1 << 20
_MOST_WAITING = 2
"""States that wait to be written: each takes its bytes of RAM."""
_RESCAN = 64
"""Images written between two looks at what other processes have written."""

Bytes = NDArray[np.uint8]


class _Files(Protocol):
    """What of a store's files this module looks at."""

    manifests: RecordFiles[Manifest]
    lock: StoreLock


class Images:
    """The folder ``images`` of the store in ``root``; ``limit``: its budget in bytes, 0 for none at all."""

    def __init__(self, root: Path, temporaries: Path) -> None:
        self.base, self.root, self._temporaries = root, root / IMAGES, temporaries
        self.limit = DEFAULT_BYTES
        self._lock = OwnedLock("store")
        self._workers = Workers(1, "agentkv-images")
        self._waiting: dict[str, Future[None]] = {}
        self._bytes, self._since = 0, _RESCAN

    def path(self, block_id: str) -> Path:
        """Where a block's image is, or would be."""
        return _place(self.root, block_id)

    # --- reading ---

    def read(self, block_id: str, state_sha256: str, n_bytes: int) -> Bytes | None:
        """The state, shape (n_bytes,); None if there is no image of it, or one that is not as it was written."""
        if self.limit == 0 or n_bytes < LEAST_BYTES:
            return None
        path = self.path(block_id)
        try:
            fsio.refuse_links(self.base, path)
            with fsio.open_regular(path) as opened:
                if opened is None:
                    return None
                file, info = opened
                sums = _sums(file, info.st_size, block_id, state_sha256, n_bytes)
                found = None if sums is None else _checked(file, sums, n_bytes)
            if found is None:
                fsio.remove_file(path)
            else:
                os.utime(path)  # which was used last
            return found
        except (StoreError, OSError):  # it is not needed
            return None

    # --- writing ---

    def later(self, block_id: str, state_sha256: str, state: Bytes, files: _Files, limit: Callable[[], int]) -> None:
        """Write the image in the background; nobody waits for it, and if it cannot be it is not.

        ``limit``: bytes that the folder may take then. Of many at once only a few are written, later ones at their next
        use. ``state`` must not be changed any more.
        """
        if self.limit == 0 or state.nbytes < LEAST_BYTES:
            return
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING or block_id in self._waiting:
                return
            work = functools.partial(self._write, block_id, state_sha256, state, files, limit)
            self._waiting[block_id] = self._workers.submit(work)

    def _write(self, block_id: str, state_sha256: str, state: Bytes, files: _Files, limit: Callable[[], int]) -> None:
        try:
            if hashlib.sha256(state.data).hexdigest() != state_sha256:
                return
            with contextlib.suppress(StoreError), files.lock.shared():
                # Whoever removes the block, and its image with it, holds the lock alone.
                if files.manifests.path(block_id).exists() and self._make_room(limit(), state.nbytes):
                    self._place(self.path(block_id), _head(block_id, state_sha256, state), state)
        finally:
            with self._lock:
                self._waiting.pop(block_id, None)

    def _place(self, path: Path, head: bytes, state: Bytes) -> None:
        fsio.refuse_links(self.base, path)
        fsio.write_atomically(path, [head, state.data], temporaries=self._temporaries)
        self._bytes, self._since = self._bytes + len(head) + state.nbytes, self._since + 1

    def _make_room(self, limit: int, n_bytes: int) -> bool:
        """Remove what was used longest ago until as much fits; whether it does."""
        if self._since >= _RESCAN:
            self._bytes, self._since = self.bytes(), 0
        if self._bytes + n_bytes > limit:
            self.trim(limit - n_bytes)
        return self._bytes + n_bytes <= limit

    def trim(self, limit: int) -> None:
        """Remove what was used longest ago until ``limit`` bytes are left."""
        self._bytes = self.bytes()
        if self._bytes <= limit:
            return
        found = []
        for path, size in fsio.files_below(self.root):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime_ns, size, path))
        for _, size, path in sorted(found):
            if self._bytes <= limit:
                break
            fsio.remove_file(path)
            self._bytes -= size

    def bytes(self) -> int:
        """Of all images there are. Raises StoreReadError."""
        return sum(size for _, size in fsio.files_below(self.root))

    def remove(self, block_id: str) -> bool:
        """Remove a block's image; whether there was one. Raises StoreReadError."""
        path = self.path(block_id)
        fsio.refuse_links(self.base, path)
        return fsio.remove_file(path)

    def sweep(self, keep: Collection[str], min_age_s: float = 0.0, *, dry_run: bool = False) -> int:
        """Remove the images of all blocks but these; their bytes. Raises StoreReadError."""
        freed = 0
        for path, size in fsio.files_below(self.root, min_age_s):
            block_id = _block_of(self.root, path)
            if block_id is not None and block_id not in keep:
                freed += size
                if not dry_run:
                    fsio.remove_file(path)
        return freed

    def wait(self) -> None:
        """Until all that was handed to :meth:`later` is written."""
        with self._lock:
            pending = list(self._waiting.values())
        for future in pending:
            future.result()

    def close(self) -> None:
        """End the thread once it has written what waits. May be called twice; a later write starts another."""
        self._workers.close()


# --- the file -------------------------------------------------------------------------------------


def _place(folder: Path, block_id: str) -> Path:
    return folder / block_id[:2] / f"{block_id}{SUFFIX}"


def _block_of(folder: Path, path: Path) -> str | None:
    """The block whose image a file of the folder is called as; None if it is called otherwise."""
    block_id = path.name.removesuffix(SUFFIX)
    return block_id if is_digest(block_id) and path == _place(folder, block_id) else None


def _head(block_id: str, state_sha256: str, state: Bytes) -> bytes:
    names = bytes.fromhex(block_id), bytes.fromhex(state_sha256)
    view = state.data
    sums = b"".join(xxhash.xxh3_128_digest(view[start : start + _CHUNK]) for start in range(0, state.nbytes, _CHUNK))
    head = _HEAD.pack(MAGIC, *names, state.nbytes, _CHUNK) + sums
    return head + xxhash.xxh3_128_digest(head)


def _sums(file: BinaryIO, size: int, block_id: str, state_sha256: str, n_bytes: int) -> list[bytes] | None:
    """The XXH3-128 of each chunk, from the file's head; None if it is not that of this state."""
    n_chunks = -(-n_bytes // _CHUNK)
    head = bytearray(_HEAD.size + (n_chunks + 1) * _SUM)
    if n_chunks > _MOST_CHUNKS or size != len(head) + n_bytes or fsio.read_fully(file, memoryview(head)) != len(head):
        return None
    expected = _HEAD.pack(MAGIC, bytes.fromhex(block_id), bytes.fromhex(state_sha256), n_bytes, _CHUNK)
    if head[: _HEAD.size] != expected or xxhash.xxh3_128_digest(head[:-_SUM]) != head[-_SUM:]:
        return None
    return [bytes(head[at : at + _SUM]) for at in range(_HEAD.size, len(head) - _SUM, _SUM)]


def _checked(file: BinaryIO, sums: list[bytes], n_bytes: int) -> Bytes | None:
    """The state, read a chunk at a time, each of which is hashed while it is in the CPU's cache."""
    state = np.empty(n_bytes, np.uint8)
    view = state.data
    for number, expected in enumerate(sums):
        chunk = view[number * _CHUNK : (number + 1) * _CHUNK]
        if fsio.read_fully(file, chunk) != chunk.nbytes or xxhash.xxh3_128_digest(chunk) != expected:
            return None
    return state


# --- for check and repair: agentkv.store.registry -------------------------------------------------


def entries(root: Path) -> Iterator[tuple[Path, int, bool]]:
    """Every file below the folder, its bytes, and whether it is called as an image is. Raises StoreReadError."""
    folder = root / IMAGES
    for path, size in fsio.files_below(folder):
        yield path, size, _block_of(folder, path) is not None


def fault(files: _Files, path: Path) -> str | None:
    """Why an image is not its block's state; None if it is, or nobody needs it. Raises StoreReadError."""
    manifest = files.manifests.read(path.name.removesuffix(SUFFIX))
    if manifest is None:
        return None
    with fsio.open_regular(path) as opened:
        if opened is None:
            return None
        file, info = opened
        head = bytearray(_HEAD.size)
        if fsio.read_fully(file, memoryview(head)) != len(head):
            return "cut short"
        n_bytes = _HEAD.unpack(head)[3]
        file.seek(0)
        sums = _sums(file, info.st_size, manifest.block_id, manifest.state_sha256, n_bytes)
        if sums is None or _checked(file, sums, n_bytes) is None:
            return "it is not an image of this block's state"
    return None
