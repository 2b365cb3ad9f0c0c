"""A folder of small sealed files, one a record, each called by a digest.

Knows neither what the records are nor when they may be written: it is given their decoder, and the bytes to
write. A file that reads is whole and valid; anything else is a typed error. Does not guarantee that a record
stays after it was read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from agentkv.errors import CorruptBlock, StoreError
from agentkv.io import fsio
from agentkv.store.cache import StateCache
from agentkv.store.format import Malformed, is_digest

R = TypeVar("R")

_CACHE_BYTES = 64 << 20
# A parsed record takes about this many times its file's size in RAM (a token id: 2 to 7 bytes on disk, 36
# here).
_RAM_FACTOR = 8


class RecordFiles(Generic[R]):
    """Records under ``base/folder``, in sub-folders by the digest's first two digits if ``sharded``.

    ``decode`` gets a file's bytes and the digest that it is called by, and raises Malformed; ``limit`` is the
    largest file that is read. Parsed records are kept by file identity, so a repeated read costs an
    ``fstat``, and :meth:`all` by :meth:`version`.
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
        ram_factor: int = _RAM_FACTOR,
    ) -> None:
        self.root, self.suffix = base / folder, suffix
        self._base, self._what, self._decode = base, what, decode
        self._limit, self._sharded, self._temporaries = limit, sharded, temporaries
        self._ram_factor = ram_factor
        self._cache: StateCache[tuple[fsio.Identity, R]] = StateCache(_CACHE_BYTES)
        self._snapshot: tuple[tuple[int, ...], list[R]] | None = None

    def path(self, digest: str) -> Path:
        """Where the record is, or would be."""
        return (self.root / digest[:2] if self._sharded else self.root) / (digest + self.suffix)

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
        found = fsio.read_identified(path, self._limit)
        if found is None:
            return None
        try:
            return self._decode(found[0], digest), found[1]
        except Malformed as error:
            raise CorruptBlock(f"{self._what} {digest[:12]}", path, str(error)) from error

    def all(self, on_error: Callable[[StoreError], None] | None = None) -> list[R]:
        """Every record, by digest. A damaged one raises, or is told to ``on_error`` and left out.

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
            if self._sharded:
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
        fsio.write_durably(path, [data], temporaries=self._temporaries)

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

    def sound(self, digest: str) -> R | None:
        """Like :meth:`read`, but a damaged record counts as none, so that it is written again."""
        with contextlib.suppress(CorruptBlock):
            return self.read(digest)
        return None

    def digests(self, prefix: str = "") -> Iterator[str]:
        """What is there under digests that start with ``prefix``, sorted; nothing is opened."""
        return (digest for digest, _ in self.sizes(prefix))

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """The same with the bytes of each file."""
        root = self.path(prefix).parent if self._sharded and len(prefix) >= 2 else self.root
        fsio.refuse_links(self._base, root / "x")
        for path, n_bytes in fsio.files_below(root):
            digest = path.name.removesuffix(self.suffix)
            if is_digest(digest) and digest.startswith(prefix) and path == self.path(digest):
                yield digest, n_bytes
