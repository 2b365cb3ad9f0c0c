"""Whether the catalogue's index is what the files say: its pages, its rows' checksums, its counts, its folders."""

from __future__ import annotations

import contextlib
import sqlite3

from agentkv.io import sqlitefiles
from agentkv.store import format as formats
from agentkv.store.format import NAME_MAGIC, Malformed
from agentkv.store.index import Index, entries_of, mtime_of
from agentkv.store.indexed import total
from agentkv.store.indexrows import BLOCK, VERSION, Damaged, refs_of, seal

_BUSY_S = 5.0


def index_fault(index: Index) -> str | None:
    """What is wrong with the index; None if nothing, or if there is none. Changes nothing. Raises OSError."""
    if not index.path.is_file():
        return None
    try:
        uri = f"{index.path.as_uri()}?mode=rw"
        with contextlib.closing(sqlitefiles.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None)) as db:
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                return None  # of another version of this program, or not made yet: it is made again
            pages = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if pages != "ok":
                return str(pages)
            db.execute("BEGIN")  # one state for all that follows
            _require_rows(db)
            _require_places(index, db)
    except sqlite3.OperationalError as error:
        raise OSError(str(error)) from error
    except sqlite3.Error as error:
        return str(error)
    return None


def _require_rows(db: sqlite3.Connection) -> None:
    """Raise Damaged unless every row is what was written and every count is right."""
    n, users, kinds = 0, dict[bytes, int](), {True: 0, False: 0}
    for row in db.execute(f"SELECT {BLOCK} FROM blocks"):
        n += 1
        for digest, _ in refs_of(row):
            users[digest] = users.get(digest, 0) + 1
    for row in db.execute("SELECT * FROM segments"):
        kinds[row[2] > 0] += 1
        if seal(*row[:4]) != row[4] or users.pop(row[0], 0) != row[2]:
            raise Damaged(f"the row of segment {row[0].hex()[:12]} is not what was written")
    for name, body in db.execute("SELECT name, body FROM names WHERE body IS NOT NULL"):
        try:
            formats.unseal(NAME_MAGIC, body)
        except Malformed as error:
            raise Damaged(f"the row of the name {name!r} is not what was written") from error
    names, ids = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("names", "ancestors"))
    counted = {"blocks": n, "names": names, "ancestors": ids, "needed": kinds[True], "unneeded": kinds[False]}
    if users or any(total(db, kind)[0] != number for kind, number in counted.items()):
        raise Damaged("its counts are not those of its rows")


def _require_places(index: Index, db: sqlite3.Connection) -> None:
    """Raise Damaged if a folder that counts as unchanged holds something else than is known of it."""
    for folder in (index.manifests, index.ancestors, index.names):
        for place in index.places(folder):
            before = mtime_of(place)
            if before is None or index.known_mtime(db, place) != before:
                continue  # it is looked through before the index is used again
            found = dict(entries_of(folder, place))
            if found != index.rows(db, folder, place) and mtime_of(place) == before:
                raise Damaged(f"{place} holds something else than it says")
