"""How often and when each block was last used: what eviction goes by. An SQLite file that may be lost.

No block depends on it. A use is kept in RAM and written a few seconds later, with others: a graft should not wait for a
disk. A corrupt file is replaced by a new one; one that cannot be written is left as it is. Not guaranteed: the uses of
the last seconds of a process that was killed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
import weakref
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.io import sqlitefiles
from agentkv.io.forks import RenewedLock

USES = "agentkv-uses.sqlite"
VERSION = 1
_FLUSH_S, _FLUSH_COUNT = 5.0, 256
_BUSY_S = 2.0
_SCHEMA = "CREATE TABLE IF NOT EXISTS uses (block_id TEXT PRIMARY KEY, hits INTEGER NOT NULL, last REAL NOT NULL)"
_ADD = (
    "INSERT INTO uses VALUES (?, ?, ?) ON CONFLICT (block_id) "
    "DO UPDATE SET hits = hits + excluded.hits, last = max(last, excluded.last)"
)


@dataclass(frozen=True)
class Use:
    """``hits``: how often a block was grafted; ``last``: when, in seconds since 1970."""

    hits: int
    last: float


class Uses:
    """The uses of one store's blocks, from any number of threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: dict[str, Use] = {}
        self._lock = RenewedLock()
        self._pid, self._flushed = os.getpid(), time.monotonic()
        self._at_exit = weakref.finalize(self, _write, path, self._pending, self._pid)

    def add(self, block_id: str) -> None:
        """Note a use."""
        with self._lock:
            if self._pid != os.getpid():  # a fork: the parent writes its own
                self._pending.clear()
                self._pid = os.getpid()
            earlier = self._pending.get(block_id, Use(0, 0.0))
            self._pending[block_id] = Use(earlier.hits + 1, time.time())
            late = time.monotonic() - self._flushed > _FLUSH_S or len(self._pending) >= _FLUSH_COUNT
        if late:
            self.flush()

    def flush(self) -> None:
        """Write what was noted, if the file can be written."""
        with self._lock:
            self._flushed = time.monotonic()
            _write(self.path, self._pending, self._pid)

    def all(self) -> dict[str, Use]:
        """Every block's uses, those not written yet included."""
        self.flush()
        rows: list[Any] = []
        with _connected(self.path, write=False) as connection:  # which ends early, rows empty, if the file is corrupt
            if connection:
                rows = connection.execute("SELECT block_id, hits, last FROM uses").fetchall()
        return self._with_pending(rows, None)

    def of(self, block_ids: Iterable[str]) -> dict[str, Use]:
        """The uses of these blocks, those not written yet included; blocks never used are absent."""
        self.flush()
        rows, keys = list[Any](), list(block_ids)
        with _connected(self.path, write=False) as connection:
            for block_id in keys if connection else ():
                query = "SELECT block_id, hits, last FROM uses WHERE block_id = ?"
                rows += connection.execute(query, (block_id,)).fetchall()  # type: ignore[union-attr]
        return self._with_pending(rows, set(keys))

    def _with_pending(self, rows: list[Any], keys: Collection[str] | None) -> dict[str, Use]:
        found = {str(row[0]): Use(row[1], row[2]) for row in rows if _is_use(row)}
        with self._lock:
            for block_id, use in self._pending.items():
                if keys is None or block_id in keys:
                    earlier = found.get(block_id, Use(0, 0.0))
                    found[block_id] = Use(earlier.hits + use.hits, max(earlier.last, use.last))
        return found

    def forget(self, block_ids: Iterable[str]) -> None:
        """Drop what is known of these blocks."""
        gone = list(block_ids)
        with self._lock:
            for block_id in gone:
                self._pending.pop(block_id, None)
        if gone:
            with _connected(self.path, write=True) as connection:
                if connection:
                    connection.executemany("DELETE FROM uses WHERE block_id = ?", [(block_id,) for block_id in gone])


def _is_use(row: tuple[object, ...]) -> bool:
    return isinstance(row[1], int) and isinstance(row[2], float)


def _write(path: Path, pending: dict[str, Use], pid: int) -> None:
    if not pending or pid != os.getpid():
        return
    with _connected(path, write=True) as connection:
        if connection:
            connection.executemany(_ADD, [(block_id, use.hits, use.last) for block_id, use in pending.items()])
            pending.clear()


@contextlib.contextmanager
def _connected(path: Path, *, write: bool) -> Iterator[sqlite3.Connection | None]:
    """A connection for one transaction; None where there is no usable file. What fails inside is left undone."""
    connection = _open(path, write)
    try:
        if connection is None:
            yield None
        else:
            with connection:
                yield connection
    except sqlite3.OperationalError:  # read-only, locked for long, no space: counts are not worth an error
        return
    except sqlite3.DatabaseError:  # corrupt
        _throw_away(path)
    finally:
        if connection is not None:
            connection.close()


def _open(path: Path, write: bool) -> sqlite3.Connection | None:
    try:
        found = os.lstat(path)
    except OSError:
        if not write:
            return None
    else:
        if not stat.S_ISREG(found.st_mode):  # never through a link, never into a FIFO
            return None
    connection = None
    try:
        connection = sqlitefiles.connect(path, timeout=_BUSY_S, isolation_level="IMMEDIATE")
        connection.execute("PRAGMA synchronous = OFF")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            connection.close()
            return None
        if version == 0:
            if not write:
                connection.close()
                return None
            connection.execute(_SCHEMA)
            sqlitefiles.mark_new(connection)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        return connection
    except sqlite3.OperationalError:
        _close(connection)
        return None
    except sqlite3.DatabaseError:
        _close(connection)
        _throw_away(path)
        return None


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()


def _throw_away(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
