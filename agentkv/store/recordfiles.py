"""A folder of small sealed files, one a record, each called by a digest; and the cache of parsed records in RAM.

A file that reads is whole and valid; anything else is a typed error. When something may be written is its caller's
matter.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from agentkv.errors import CorruptBlock, StoreError
from agentkv.io import fsio
from agentkv.io.forks import OwnedLock
from agentkv.store.format import Malformed, is_digest

R = TypeVar("R")

_CACHE_BYTES = 64 << 20
RAM_FACTOR = 8
"""How many times its file's size a parsed record takes in RAM (a token id: 2 to 7 bytes on disk, 36 here)."""


class Follower(Protocol):
    """What follows every file that comes or goes."""

    def following(
        self, folder: RecordFiles[Any], digest: str, data: bytes | None
    ) -> contextlib.AbstractContextManager[None]:
        """Around the rename that puts ``data`` there, or (None) the unlink."""
        ...


class RecordFiles(Generic[R]):
    """Records under ``base/folder``, in sub-folders by the digest's first two digits if ``sharded``.

    ``decode`` gets a file's bytes and the digest that it is called by, and raises Malformed; ``limit`` is the largest
    file that is read, in bytes. Parsed records are kept by file identity, so a repeated read costs an ``fstat``, and
    :meth:`all` by :meth:`version`.
    """

    def __init__(
        self,
        base: Path,
        folder: str,
        what: str,
        decode: Callable[[bytes, str], R],
        limit: int,
        *,
        sharded: bool,
        temporaries: Path | None = None,
        suffix: str = ".json",
        ram_factor: int = RAM_FACTOR,
    ) -> None:
        self.root, self.suffix = base / folder, suffix
        self.follower: Follower | None = None
        self._base, self._what, self.decode = base, what, decode
        self.limit, self.sharded, self._temporaries = limit, sharded, temporaries
        self._ram_factor = ram_factor
        self._cache: StateCache[tuple[fsio.Identity, R]] = StateCache(_CACHE_BYTES)
        self._snapshot: tuple[tuple[int, ...], list[R]] | None = None

    def path(self, digest: str) -> Path:
        """Where the record is, or would be."""
        return (self.root / digest[:2] if self.sharded else self.root) / (digest + self.suffix)

    def read(self, digest: str) -> R | None:
        """The record; None if there is no file. Raises CorruptBlock, StoreReadError."""
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        cached = self._cache.get(digest)
        if cached is not None:
            with fsio.open_regular(path) as opened:
                if opened is not None and fsio.identity_of(opened[1]) == cached[0]:
                    return cached[1]
        found = self.load(digest)
        if found is None:
            self._cache.drop(digest)
            return None
        record, identity = found
        if fsio.is_settled(identity):
            self._cache.put(digest, (identity, record), self._ram_factor * identity[2])
        return record

    def load(self, digest: str) -> tuple[R, fsio.Identity] | None:
        """The record as it is on disk now, never from RAM, and its file's identity; else like :meth:`read`."""
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        found = fsio.read_identified(path, self.limit)
        if found is None:
            return None
        try:
            return self.decode(found[0], digest), found[1]
        except Malformed as error:
            raise CorruptBlock(f"{self._what} {digest[:12]}", path, str(error)) from error

    def all(self, on_error: Callable[[StoreError], None] | None = None) -> list[R]:
        """Every record, by digest. A corrupt one raises, or is passed to ``on_error`` and left out.

        As long as no file was added, replaced or removed, the folder is not read again.
        """
        version = self.version()
        kept = self._snapshot
        if kept is not None and kept[0] == version:
            return list(kept[1])
        found, whole = [], True
        for digest in self.digests():
            try:
                record = self.read(digest)
            except StoreError as error:
                if on_error is None:
                    raise
                on_error(error)
                whole = False
            else:
                if record is not None:
                    found.append(record)
        self._snapshot = (version, found) if whole and version is not None else None
        return list(found)

    def version(self) -> tuple[int, ...] | None:
        """Another value whenever a file is added, replaced or removed; None if one was a moment ago.

        Made of the folders' mtimes. A change within the clock's tick of a look would not show in them, so what is
        not settled has no version. A file that is changed in place, which nothing here does, shows in its own
        identity when it is read.
        """
        folders = [self.root]
        try:
            if self.sharded:
                folders += [Path(entry.path) for entry in os.scandir(self.root)]
            times = tuple(folder.stat().st_mtime_ns for folder in folders)
        except FileNotFoundError:
            return ()
        except OSError:
            return None
        return times if all(fsio.is_settled((0, 0, 0, changed)) for changed in times) else None

    def write(self, digest: str, data: bytes) -> None:
        """Put the encoded record there, atomically and durably, over an older one."""
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        try:
            fsio.make_directory(path.parent)
            fsio.sync_directory(self.root)  # another process may have made the sub-folder a moment ago
        except OSError as error:
            raise fsio.translated(error, path, len(data)) from error
        self._snapshot = None
        placing = self.follower.following(self, digest, data) if self.follower else contextlib.nullcontext()
        fsio.write_durably(path, [data], temporaries=self._temporaries, placing=placing)

    def sync(self, digest: str) -> None:
        """Return when a record that another process wrote would outlive a power failure."""
        for directory in {self.path(digest).parent, self.root}:
            try:
                fsio.sync_directory(directory)
            except OSError as error:
                raise fsio.translated(error, directory) from error

    def remove(self, digest: str) -> bool:
        """Delete the record, durably; False if there was none."""
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        self._cache.drop(digest)
        self._snapshot = None
        with self.follower.following(self, digest, None) if self.follower else contextlib.nullcontext():
            return fsio.remove_file(path, sync_parent=True)

    def stored_bytes(self, digest: str) -> int | None:
        """The size of the record's file; None if there is none."""
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        with fsio.open_regular(path) as opened:
            return None if opened is None else opened[1].st_size

    def written_at(self, digest: str) -> float:
        """When the record was written, in seconds since 1970; 0 if there is none."""
        with fsio.open_regular(self.path(digest)) as opened:
            return 0.0 if opened is None else opened[1].st_mtime

    def valid(self, digest: str) -> R | None:
        """Like :meth:`read`, but a corrupt record counts as none, so that it is written again."""
        with contextlib.suppress(CorruptBlock):
            return self.read(digest)
        return None

    def digests(self, prefix: str = "") -> Iterator[str]:
        """What is there under digests that start with ``prefix``, sorted; nothing is opened."""
        return (digest for digest, _ in self.sizes(prefix))

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """The same with the bytes of each file."""
        root = self.path(prefix).parent if self.sharded and len(prefix) >= 2 else self.root
        fsio.refuse_links(self._base, root / "x")
        for path, n_bytes in fsio.files_below(root):
            digest = path.name.removesuffix(self.suffix)
            if is_digest(digest) and digest.startswith(prefix) and path == self.path(digest):
                yield digest, n_bytes


T = TypeVar("T")


class StateCache(Generic[T]):
    """A thread-safe LRU of immutable objects that holds at most ``limit`` bytes (0: holds nothing); ``bytes``: now.

    How large an object is says the caller, who must not change it afterwards.

    >>> cache: StateCache[str] = StateCache(limit=10)
    >>> cache.put("a", "first", 6), cache.put("b", "second", 6)
    (True, True)
    >>> cache.get("a"), cache.get("b")
    (None, 'second')
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"limit is {limit}, must be 0 or more bytes")
        self.limit = limit
        self._lock = OwnedLock("store")
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def get(self, key: Hashable) -> T | None:
        """The object, now the most recently used; None if it is not here."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def peek(self, key: Hashable) -> T | None:
        """The object if it is here; not counted as a use."""
        with self._lock:
            found = self._entries.get(key)
            return None if found is None else found[0]

    def put(self, key: Hashable, value: T, n_bytes: int) -> bool:
        """Keep ``value``, whose size is ``n_bytes``, dropping the least recently used until it fits.

        False if it is larger than the whole cache: then nothing is kept under ``key``, nor an older value.
        """
        with self._lock:
            self._remove(key)
            if n_bytes > self.limit:
                return False
            self._entries[key] = (value, n_bytes)
            self.bytes += n_bytes
            while self.bytes > self.limit:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.bytes -= dropped
            return True

    def drop(self, key: Hashable) -> bool:
        """Forget ``key``; whether it was here."""
        with self._lock:
            return self._remove(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self.bytes = 0

    def _remove(self, key: Hashable) -> bool:
        found = self._entries.pop(key, None)
        if found is None:
            return False
        self.bytes -= found[1]
        return True
