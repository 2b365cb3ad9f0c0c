"""Content-addressed segments: the ``SegmentStore`` protocol, its implementation in files, and threads for many of them.

The protocol has no paths, no renames and no mutable objects, so that an object store can serve it. That a committed
block has its segments is up to the order of writing (``deposit.py``). Not guaranteed: that bytes stay valid between a
check and a read, if somebody changes a file within one tick of its clock.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import numpy as np

from agentkv.errors import CorruptBlock, UsageError
from agentkv.io import fsio
from agentkv.io.forks import OwnedLock
from agentkv.io.ram import available_memory
from agentkv.records import SegmentRef
from agentkv.store import codec as codecs
from agentkv.store.codec import Bytes, scratch
from agentkv.store.format import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Codec,
    Malformed,
    SegmentHeader,
    is_digest,
    read_header,
)

Data = fsio.Buffer | Bytes

CODECS = {"raw": Codec.RAW, "zstd": Codec.ZSTD, "planes": Codec.PLANES}
_SUFFIX = ".seg"
_LARGE, _EXPANSION = 256 << 20, 1024
"""Raw bytes from which on a segment's size is compared with its payload's, and how much larger it may be."""

# Files whose trailer this process has checked; see fsio.is_settled for what is not entered.
_verified: set[fsio.Identity] = set()


class SegmentStore(Protocol):
    """Immutable byte strings by SHA-256. Every method may be called from several threads at once.

    A miss is a return value; CorruptBlock, StoreReadError and StoreFull are the faults. Of a reference only
    ``sha256``, ``n_bytes`` and (as a hint for encoding) ``element_bytes`` are looked at.
    """

    def has(self, sha256: str) -> bool:
        """Whether something is stored under the digest; nothing is checked."""
        ...

    def check(self, ref: SegmentRef, *, deep: bool = False) -> bool:
        """True if valid, False if missing; raises CorruptBlock. ``deep`` also hashes the raw bytes."""
        ...

    def put(self, ref: SegmentRef, data: Data) -> bool:
        """Store ``data`` over what is there; True if nothing was. UsageError if it is not ``ref``'s."""
        ...

    def get(self, ref: SegmentRef, *, deep: bool = False) -> Bytes | None:
        """The raw bytes, checked, shape (n_bytes,); None if missing."""
        ...

    def flush(self, digests: Iterable[str]) -> None:
        """Return when these segments would outlive a power failure."""
        ...

    def stored_bytes(self, sha256: str) -> int | None:
        """What the segment takes up, with overhead; None if missing."""
        ...

    def remove(self, sha256: str) -> bool:
        """Delete the segment; False if there was none."""
        ...

    def all(self) -> Iterator[tuple[str, int]]:
        """Digest and stored bytes of every segment there is, by digest; nothing is opened or checked."""
        ...

    def sweep(self, keep: Collection[str], min_age_s: float, *, dry_run: bool = False) -> tuple[int, int]:
        """Delete what is not in ``keep`` and older than that; how many segments, and bytes in all."""
        ...

    def where(self, sha256: str) -> str:
        """A place to show to a person."""
        ...


class FileSegmentStore:
    """Segments as files ``ab/<sha256>.seg`` under ``root``, a directory inside the store ``base``.

    ``codec`` (``planes``, ``zstd`` or ``raw``) and ``level`` (zstd's, 1 to 19) are for new segments; each
    file says how it was written. ``verify="once"`` checks a file's trailer once per identity (device, inode,
    size, mtime) and process, ``"always"`` at each read.
    """

    def __init__(
        self,
        root: Path,
        *,
        base: Path | None = None,
        temporaries: Path | None = None,
        codec: str = "planes",
        level: int = 1,
        verify: str = "once",
    ) -> None:
        if codec not in CODECS:
            raise UsageError(f"codec is {codec!r}; it must be one of {', '.join(CODECS)}")
        if not 1 <= level <= 19:
            raise UsageError(f"level is {level}; it must be 1 to 19")
        if verify not in ("once", "always"):
            raise UsageError(f"verify is {verify!r}; it must be 'once' or 'always'")
        self.root = root
        self.base, self._temporaries = base or root.parent, temporaries
        self._codec, self._level = CODECS[codec], level
        self._always = verify == "always"
        self._durable: set[str] = set()
        self._changes = 0
        self._lock = OwnedLock("store")

    def path(self, sha256: str) -> Path:
        """Where the segment is, or would be."""
        return self.root / sha256[:2] / (sha256 + _SUFFIX)

    def where(self, sha256: str) -> str:
        return str(self.path(sha256))

    def has(self, sha256: str) -> bool:
        return self.stored_bytes(sha256) is not None

    def stored_bytes(self, sha256: str) -> int | None:
        path = self.path(sha256)
        fsio.refuse_links(self.base, path)
        with fsio.open_regular(path) as opened:
            return None if opened is None else opened[1].st_size

    def check(self, ref: SegmentRef, *, deep: bool = False) -> bool:
        with self._open(ref) as segment:
            if segment is None:
                return False
            segment.require_room()
            if deep:
                segment.decode(np.empty(ref.n_bytes, np.uint8), deep=True)
            else:
                segment.verify()
            return True

    def get(self, ref: SegmentRef, *, deep: bool = False) -> Bytes | None:
        with self._open(ref) as segment:
            if segment is None:
                return None
            segment.require_room()
            blank = segment.header.codec is Codec.ZEROS  # from the system, which gives zeros without writing them
            out = np.zeros(ref.n_bytes, np.uint8) if blank else np.empty(ref.n_bytes, np.uint8)
            segment.decode(out, deep=deep, blank=blank)
            return out

    def put(self, ref: SegmentRef, data: Data) -> bool:
        raw = as_bytes(data)
        if raw.size != ref.n_bytes or hashlib.sha256(raw.data).hexdigest() != ref.sha256:
            raise UsageError(f"the {raw.size:,} bytes given are not segment {ref.sha256[:12]}")
        parts = segment_file(raw, ref, self._codec, self._level)
        path = self.path(ref.sha256)
        fsio.refuse_links(self.base, path)
        was_there = self.has(ref.sha256)
        self._forget(ref.sha256)
        fsio.write_durably(path, parts, sync_parent=False, temporaries=self._temporaries)
        return not was_there

    def flush(self, digests: Iterable[str]) -> None:
        # Also for segments found, not written, here: another process may have renamed them a moment ago
        # and not have synced the directory yet. Once per process is enough.
        with self._lock:
            pending, before = set(digests) - self._durable, self._changes
        directories = {self.path(digest).parent for digest in pending} | ({self.root} if pending else set())
        for directory in sorted(directories):
            try:
                fsio.sync_directory(directory)
            except OSError as error:
                raise fsio.translated(error, directory) from error
        with self._lock:
            if self._changes == before:
                self._durable |= pending

    def remove(self, sha256: str) -> bool:
        self._forget(sha256)
        path = self.path(sha256)
        fsio.refuse_links(self.base, path)
        return fsio.remove_file(path)

    def all(self) -> Iterator[tuple[str, int]]:
        fsio.refuse_links(self.base, self.root / "x")
        for path, n_bytes in fsio.files_below(self.root):
            digest = path.name.removesuffix(_SUFFIX)
            if is_digest(digest) and path == self.path(digest):
                yield digest, n_bytes

    def sweep(self, keep: Collection[str], min_age_s: float, *, dry_run: bool = False) -> tuple[int, int]:
        count = freed = 0
        for path, n_bytes in fsio.files_below(self.root, min_age_s):
            digest = path.name.removesuffix(_SUFFIX)
            if digest in keep or not is_digest(digest) or path != self.path(digest):
                continue
            if not dry_run:
                self._forget(digest)
            if dry_run or fsio.remove_file(path):
                count, freed = count + 1, freed + n_bytes
        return count, freed

    def _forget(self, sha256: str) -> None:
        with self._lock:
            self._durable.discard(sha256)
            self._changes += 1

    @contextlib.contextmanager
    def _open(self, ref: SegmentRef) -> Iterator[_OpenSegment | None]:
        """The file with its header checked; None if missing. Malformed inside becomes CorruptBlock."""
        path = self.path(ref.sha256)
        fsio.refuse_links(self.base, path)
        with fsio.open_regular(path) as opened:
            if opened is None:
                yield None
                return
            try:
                yield _OpenSegment(opened[0], opened[1], ref, self._always)
            except Malformed as error:
                raise CorruptBlock(f"segment {ref.sha256[:12]}", path, str(error)) from error


class _OpenSegment:
    """A segment file whose header and size are those of ``ref``; nothing of its payload is read yet."""

    def __init__(self, file: BinaryIO, info: os.stat_result, ref: SegmentRef, always: bool) -> None:
        head = bytearray(HEADER_BYTES)
        got = fsio.read_fully(file, memoryview(head))
        self.header = read_header(bytes(head[:got]), ref, info.st_size)
        self.must_hash = always or fsio.identity_of(info) not in _verified
        self._file, self._head, self._identity = file, bytes(head), fsio.identity_of(info)

    def require_room(self) -> None:
        """Malformed if the raw length is more than the payload can hold, or than there is memory for."""
        raw, stored = self.header.raw_bytes, self.header.stored_bytes
        if raw > _LARGE + _EXPANSION * stored:
            raise Malformed(f"{stored:,} bytes that would decode to {raw:,}: no model computes such")
        there = available_memory() if raw > _LARGE else None
        if there is not None and raw > there:
            raise Malformed(f"it says that it decodes to {raw:,} bytes, and {there:,} are free")

    def decode(self, out: Bytes, *, deep: bool, blank: bool = False) -> None:
        """Fill ``out``, which has the raw length and, if ``blank``, only zeros.

        ``deep`` hashes what was read and what was decoded.
        """
        header = self.header
        direct = header.codec is Codec.RAW
        payload = self._payload(out if direct else scratch.buffer("payload", header.stored_bytes), force=deep)
        if not direct and not (blank and header.codec is Codec.ZEROS):
            codecs.decode(payload, header.codec, header.element_bytes, out)
        if deep and hashlib.sha256(out.data).hexdigest() != header.sha256:
            raise Malformed("the decoded bytes have another SHA-256")

    def verify(self) -> None:
        """Hash the file, unless this process has and may rely on it."""
        if self.must_hash:
            self._payload(scratch.buffer("payload", self.header.stored_bytes), force=True)

    def _payload(self, into: Bytes, *, force: bool) -> Bytes:
        trailer = bytearray(TRAILER_BYTES)
        got = fsio.read_fully(self._file, into.data) + fsio.read_fully(self._file, memoryview(trailer))
        if got != into.size + TRAILER_BYTES:
            raise Malformed("cut short while it was read")
        if force or self.must_hash:
            digest = hashlib.sha256(self._head)
            digest.update(into.data)
            if digest.digest() != trailer:
                raise Malformed("the bytes do not have the SHA-256 in the trailer")
            if fsio.is_settled(self._identity):
                _verified.add(self._identity)
        return into


def segment_file(raw: Bytes, ref: SegmentRef, codec: Codec, level: int) -> list[fsio.Buffer]:
    """The file of ``ref``'s raw bytes in parts, valid until this thread encodes another."""
    used, payload = codecs.encode(raw, ref.element_bytes, codec, level)
    head = SegmentHeader(used, ref.element_bytes, ref.n_bytes, memoryview(payload).nbytes, ref.sha256).pack()
    trailer = hashlib.sha256(head)
    trailer.update(payload)
    return [head, payload, trailer.digest()]


def as_bytes(data: Data) -> Bytes:
    """``data`` as a flat uint8 array over the same memory; UsageError if it is not contiguous."""
    if isinstance(data, np.ndarray):
        if not data.flags.c_contiguous:
            raise UsageError("segment bytes must be contiguous")
        return data.reshape(-1).view(np.uint8)
    view = memoryview(data)
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


T = TypeVar("T")

_MAX_WORKERS = 8


class Workers:
    """A thread pool, started when it is first needed: ``count`` threads, else one a CPU, at most 8.

    zstd, SHA-256, numpy copies and file reads release the interpreter's lock. Work that calls :meth:`each` itself may
    wait for ever.
    """

    def __init__(self, count: int | None = None, name: str = "agentkv-store") -> None:
        self._count, self._name = count or min(os.cpu_count() or 1, _MAX_WORKERS), name
        self._pool: ThreadPoolExecutor | None = None
        self._lock = OwnedLock("store")

    def each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Do ``work`` for every item, in no order. An error cancels what has not started and is raised last."""
        if len(items) < 2:
            for item in items:
                work(item)
            return
        with self._lock:
            futures = [self._started().submit(work, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also on Ctrl-C: no thread may go on writing when the caller cleans up
            for future in futures:
                future.cancel()
            wait(futures)
        for future in futures:
            if not future.cancelled():
                future.result()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do ``work`` in the background."""
        with self._lock:
            return self._started().submit(work)

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
        return self._pool

    def close(self) -> None:
        """End the threads once they have done what waits. Later work starts new ones. A forked child has none."""
        if not self._lock.owner.is_here:
            return
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
