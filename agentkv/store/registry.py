"""The folders that features keep beside the blocks, so that check, repair and removal know them as the store's.

The store knows each folder and, by name, the module that describes its files; that module is imported when a check
comes to the folder. It has ``fault(files, path)``: why a file is not what was written, None if it is or is gone; it
raises StoreReadError. A folder with folders of its own needs ``entries(root)`` too: every file below, its bytes, and
whether it belongs there. No block depends on any of these files.

This module itself describes the adapters' SQLite databases. That a row is what was written is checked by its adapter.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from agentkv.errors import StoreError, StoreReadError
from agentkv.io import fsio, sqlitefiles
from agentkv.io.hashing import sha256
from agentkv.store.files import DECISIONS, ROUTER, TURNS, StoreFiles
from agentkv.store.images import IMAGES

ADAPTERS = "adapters"
DATABASE_SUFFIX, JOURNAL_SUFFIX = ".sqlite", "-journal"
_BUSY_S = 5.0
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}

Found = tuple[Path, int, bool]
"""A path below a feature's folder, its bytes, and whether it is one of the feature's own."""


@dataclass(frozen=True)
class Annex:
    """A feature's folder below the store's root. ``module`` describes its files; None: they are not looked into.

    ``is_flat``: it has no folders below it. ``is_slow``: only a deep check asks. A repair moves corrupt files to the
    quarantine: `agentkv docs add` makes a document's again, a thread can be rewound to the turns before, a task is
    solved again, the router computes again what it learned.
    """

    folder: str
    module: str | None
    is_flat: bool = False
    is_slow: bool = False

    def entries(self, root: Path) -> Iterator[Found]:
        """Every file of a folder that is not flat. Raises StoreReadError."""
        return cast(Iterator[Found], import_module(cast(str, self.module)).entries(root))

    def fault(self, files: StoreFiles, path: Path) -> str | None:
        """Why a file is not what was written; None if it is, or is gone. Raises StoreReadError, OSError."""
        return cast(str | None, import_module(self.module).fault(files, path)) if self.module else None


ANNEXES = (
    Annex(IMAGES, "agentkv.store.images", is_slow=True),
    Annex("documents", "agentkv.documents.records"),
    Annex("threads", "agentkv.memory.threadlog"),
    Annex("flywheel", "agentkv.flywheel.files"),
    Annex(ROUTER, "agentkv.router.files", is_flat=True),
    Annex(ADAPTERS, __name__, is_flat=True, is_slow=True),
    Annex(DECISIONS, None, is_flat=True),
    Annex(TURNS, None, is_flat=True),
)


def fault(files: StoreFiles, path: Path) -> str | None:
    """What SQLite finds wrong with an adapter's database; None if nothing. Raises OSError if it cannot be read."""
    if path.suffix != DATABASE_SUFFIX:
        return None
    try:
        uri = f"{path.as_uri()}?mode=rw"  # a journal that a crash has left is rolled back; nothing is created
        with contextlib.closing(sqlitefiles.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            return str(error)
        raise OSError(str(error)) from error
    return None if answer == ("ok",) else str(answer[0])


# --- what the modules share -----------------------------------------------------------------------


def files_below(folder: Path) -> Iterator[Path]:
    """Everything below a folder that is not a folder itself, sorted; links are not followed. Raises StoreReadError."""
    try:
        inner = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise fsio.translated(error, folder) from error
    for path in inner:
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path)
        else:
            yield path


def read(root: Path, path: Path, limit: int) -> tuple[bytes | None, str | None]:
    """The bytes of a file, None if it is gone, and what is wrong with its place or kind. Raises StoreReadError."""
    try:
        fsio.refuse_links(root, path)
        return fsio.read_regular(path, limit), None
    except StoreReadError:
        raise
    except StoreError as error:
        return None, error.message


def is_sealed(data: bytes, first_line: re.Pattern[bytes]) -> bool:
    """Whether the first line has that form, its group the SHA-256 of all that follows."""
    line, _, body = data.partition(b"\n")
    sealed = first_line.fullmatch(line)
    return sealed is not None and sealed[1].decode() == sha256(body)
