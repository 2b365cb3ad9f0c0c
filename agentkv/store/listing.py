"""What lies where in a store: every entry of its folders is a file of the store's, or a finding.

Knows forms of names and kinds of files; opens nothing, follows no link. Does not guarantee that a file listed is
still there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentkv.io import fsio
from agentkv.store.findings import Kind, other_kind, other_kind_at, tree_bytes
from agentkv.store.format import is_digest


class Note(Protocol):
    """Takes a finding: what, where, why, its bytes, the blocks that cannot be used because of it."""

    def __call__(self, kind: Kind, path: Path, reason: str, size: int = 0, blocks: Iterable[str] = ()) -> object: ...


_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Entry:
    """A regular file in a place of the store's."""

    digest: str
    path: Path
    bytes: int
    mtime: float
    identity: fsio.Identity


class Listing:
    """Looks into folders; what does not belong there goes to ``note``."""

    def __init__(self, note: Note) -> None:
        self._note = note

    def files(self, root: Path, suffix: str, *, sharded: bool, of_blocks: bool = False) -> Iterator[Entry]:
        """Regular files called by a digest and ``suffix``. ``of_blocks``: the digests are those of blocks."""
        for directory in self._shards(root) if sharded else [root]:
            for path, info in self.entries(directory):
                digest = path.name.removesuffix(suffix)
                ours = is_digest(digest) and path.name == digest + suffix
                other = other_kind(info.st_mode)
                if not ours or (sharded and digest[:2] != directory.name):
                    self.foreign(path)
                elif other is None:
                    yield Entry(digest, path, info.st_size, info.st_mtime, fsio.identity_of(info))
                else:
                    blocks = [digest] if of_blocks else []
                    self._note(Kind.CORRUPT, path, f"{other} in the place of a file", tree_bytes(path), blocks)

    def _shards(self, root: Path) -> list[Path]:
        found = []
        for path, info in self.entries(root):
            if len(path.name) != 2 or not _HEX.issuperset(path.name):
                self.foreign(path)
            elif stat.S_ISDIR(info.st_mode):
                found.append(path)
            else:
                self._no_folder(path, info)
        return found

    def entries(self, directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
        """What a folder of the store holds, by name; nothing where there is none, or where it cannot be looked at."""
        try:
            info = os.lstat(directory)
            if not stat.S_ISDIR(info.st_mode):
                self._no_folder(directory, info)
                return
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(Kind.UNREADABLE, directory, error.strerror or str(error))
            return
        for entry in entries:
            path = Path(entry.path)
            try:
                yield path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                self._note(Kind.UNREADABLE, path, error.strerror or str(error))

    def _no_folder(self, path: Path, info: os.stat_result) -> None:
        """Not moved aside: behind a link the whole content may be waiting."""
        what = other_kind(info.st_mode) or "a file"
        self._note(Kind.UNREADABLE, path, f"{what} in the place of a folder; put the folder itself there")

    def foreign(self, path: Path) -> None:
        """Note something that is not the store's, whatever it is."""
        what = other_kind_at(path) or "a file"
        self._note(Kind.FOREIGN, path, f"{what} that is no part of a store", tree_bytes(path))
