"""What adapters to other frameworks keep beside the blocks: SQLite files in one folder of the store.

Knows where they lie and whether SQLite finds one whole; refuses to know what is in them. No block depends on any.
Not guaranteed: that a row is what was written into it; whoever wrote it checks that.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from agentkv.io import sqlitefiles

ADAPTERS = "adapters"
DATABASE_SUFFIX = ".sqlite"
JOURNAL_SUFFIX = "-journal"
_BUSY_S = 5.0
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


def fault(path: Path) -> str | None:
    """What SQLite finds wrong with the database at ``path``, None if nothing. Raises OSError if it cannot be read."""
    try:
        uri = f"{path.as_uri()}?mode=rw"  # a journal that a crash has left is rolled back; nothing is created
        with contextlib.closing(sqlitefiles.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            return str(error)
        raise OSError(str(error)) from error
    return None if found == ("ok",) else str(found[0])
