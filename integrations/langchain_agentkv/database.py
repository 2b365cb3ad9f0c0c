"""One SQLite file in a store's folder: opened for each transaction, checked, its errors translated.

A connection lives for one transaction, so threads, event loops and forked processes share nothing, and nobody keeps a
lock while the caller thinks. The file is never opened through a link. A row has a digest of its key and value, so
damage that SQLite does not see is seen here. Not guaranteed: anything against someone who writes into the store's
folder; no row is ever code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentkv import BlockStore
from agentkv.errors import CorruptDatabase, StoreFormatError, StoreFull, StoreReadError, UsageError
from agentkv.io import fsio, sqlitefiles
from agentkv.store.marker import require_marker
from agentkv.store.registry import ADAPTERS

VERSION = 1
BUSY_S = 30.0
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""``SQLITE_ERROR`` too: of statements that are right it is an unknown file format, or a table that is not there."""
_REMEDY = "`agentkv check --repair` moves the file aside; what it held has to be put in again."
ROW_REMEDY = "Put it in again, or delete it."


def seal(*parts: bytes) -> bytes:
    """SHA-256 over the parts and their lengths: 32 bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def encode_key(key: object) -> bytes:
    """A key's UTF-8, which sorts by code points. Raises UsageError."""
    if not isinstance(key, str):
        raise UsageError(f"a key is a str, not {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the key {key[:40]!r} is not valid Unicode") from error


class Database:
    """``file`` in the adapters' folder of ``store``, created with ``schema`` at the first write.

    ``store`` is a directory (made a store if it is new or empty) or an open :class:`~agentkv.BlockStore`. ``durable``:
    a committed transaction survives a power failure; otherwise a power failure may lose the file, but a crash of the
    process loses nothing. Raises StoreUnusable, StoreFormatError.
    """

    def __init__(
        self, store: str | Path | BlockStore, file: str, schema: Sequence[str], *, durable: bool = True
    ) -> None:
        if isinstance(store, BlockStore):
            self._root = store.root
        else:
            with BlockStore(store) as opened:
                self._root = opened.root
        self.path = self._root / ADAPTERS / file
        self._schema, self._durable = tuple(schema), durable

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """A consistent view; None where nothing was written yet. Raises StoreError."""
        if not self._is_there():
            yield None
            return
        with self._connected("rw") as connection:
            if self._version(connection) == 0:
                yield None
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.rollback()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One exclusive transaction: committed as a whole, or not at all if the body raises. Raises StoreError."""
        if not self._is_there():
            require_marker(self._root)
            try:
                fsio.make_directory(self.path.parent)
            except OSError as error:
                raise fsio.translated(error, self.path) from error
        with self._connected("rwc") as connection:
            connection.execute("PRAGMA auto_vacuum = FULL")  # of a new file: what is deleted makes it smaller
            connection.execute("BEGIN IMMEDIATE")
            try:
                if self._version(connection) == 0:
                    for statement in self._schema:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                    sqlitefiles.mark_new(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.rollback()
                raise

    def corrupt_row(self, what: str) -> CorruptDatabase:
        """The error for a row whose digest does not match."""
        return CorruptDatabase(self.path, f"{what} is not what was written", ROW_REMEDY)

    def throw_away(self) -> None:
        """Delete the file and its journal, where losing them is allowed. Raises StoreReadError."""
        for path in (self.path.with_name(f"{self.path.name}-journal"), self.path):
            fsio.remove_file(path)

    def _is_there(self) -> bool:
        """Whether there is a file. Raises StoreReadError for a link or anything else in its place."""
        fsio.refuse_links(self._root, self.path)
        try:
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise fsio.translated(error, self.path) from error
        if not stat.S_ISREG(mode):
            raise StoreReadError(self.path, "not a regular file")
        return True

    @contextlib.contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        connection = None
        try:
            uri = f"{self.path.as_uri()}?mode={mode}"
            connection = sqlitefiles.connect(
                uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {'EXTRA' if self._durable else 'OFF'}")
            yield connection
        except sqlite3.Error as error:
            raise self._translated(error) from error
        finally:
            if connection is not None:
                connection.close()

    def _version(self, connection: sqlite3.Connection) -> int:
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found not in (0, VERSION):
            raise StoreFormatError(self.path, found, [VERSION])
        return found

    def _translated(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGE and "no such module" not in str(error):
            return CorruptDatabase(self.path, str(error), _REMEDY)
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG):
            return StoreFull(self.path, 0, fsio.free_bytes(self.path.parent))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreReadError(self.path, f"another process has been writing for {BUSY_S:g} s; try again")
        return StoreReadError(self.path, str(error))
