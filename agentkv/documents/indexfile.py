"""A file of SQLite that can be made again at any time: opened, and begun anew where it is damaged or of old make.

Knows a schema and its version; what stands in the tables is its users' business.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from agentkv.errors import StoreReadError
from agentkv.io import fsio, sqlitefiles
from agentkv.io.forks import Owner
from agentkv.notices import warn

T = TypeVar("T")

_BUSY_S = 30.0
_ABANDONED: list[sqlite3.Connection | None] = []
"""Connections of a parent process, kept so that a child's garbage collection does not close them."""
_NOT_DAMAGE = ("locked", "readonly", "full", "unable to open", "I/O")


class IndexFile:
    """The file at ``path`` below a store's ``root``, with the tables of ``schema``."""

    def __init__(self, path: Path, root: Path, schema: str, version: int) -> None:
        self._path, self._root, self._schema, self._version = path, root, schema, version
        self._connection: sqlite3.Connection | None = None
        self._owner = Owner("index of documents")

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, opened at first use. Raises sqlite3.DatabaseError, StoreError's, OpenedBeforeFork."""
        self._owner.require()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def close(self) -> None:
        """Close the file. In a forked child it is the parent's, and SQLite must not touch it there."""
        if not self._owner.is_here:
            _ABANDONED.append(self._connection)
            self._connection = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def used(self, use: Callable[[], T], begin: Callable[[], object] | None = None) -> T:
        """What ``use`` gives; after damage the file is begun anew, filled by ``begin``, and used once more.

        Raises StoreReadError where the file is whole and cannot be used now.
        """
        try:
            return use()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in _NOT_DAMAGE):
                raise StoreReadError(self._path, str(error)) from error
        self.remove()
        if begin is not None:
            begin()
        return use()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the body's writing, or none of it."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def remove(self) -> None:
        """Close the file and remove it, with what SQLite keeps beside it."""
        self.close()
        for name in (self._path.name, *(f"{self._path.name}-{what}" for what in ("journal", "wal", "shm"))):
            fsio.remove_file(self._path.with_name(name))

    def _open(self) -> sqlite3.Connection:
        try:
            fsio.make_directory(self._path.parent)
            fsio.refuse_links(self._root, self._path)
        except OSError as error:
            raise fsio.translated(error, self._path) from error
        connection = sqlitefiles.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, self._version):
                warn(
                    f"the search index {self._path} is of another version of agentkv: it is made again now, from the "
                    "sources that the store keeps; nothing has to be done."
                )
                raise sqlite3.DatabaseError(f"version {version}")
            if version == 0:
                tables = f"BEGIN IMMEDIATE; {self._schema} PRAGMA user_version = {self._version}; COMMIT;"
                sqlitefiles.mark_new(connection)
                connection.executescript(tables)
        except BaseException:
            connection.close()
            raise
        return connection
