"""Rows of the adapters' SQLite files: found by words, time or user, deleted, and overwritten.

Words are found in every column of any table; times and users only in those of the adapters' tables. A deleted row's
entry in a full-text index goes with it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import orjson

from agentkv.forget.selection import Selection, Words, strings
from agentkv.io import sqlitefiles

_TIMES = {"items": "updated", "answers": "used"}
_NAMESPACE = {"items": "namespace"}
_INDEX = {"items": "words"}
"""Full-text tables that have the row numbers of another table."""
_BUSY_S = 30.0


def rows(path: Path, selection: Selection, words: Words) -> dict[str, list[tuple[int, list[str]]]]:
    """The selected rows of a file, by table: row numbers and the texts of their JSON. Raises sqlite3.Error."""
    with _opened(path) as connection:
        found: dict[str, list[tuple[int, list[str]]]] = {}
        for table in _tables(connection):
            columns = [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]
            for number, *values in connection.execute(f'SELECT rowid, * FROM "{table}"'):
                row = dict(zip(columns, values, strict=True))
                if _is_selected(table, row, selection, words):
                    found.setdefault(table, []).append((number, [text for value in values for text in _leaves(value)]))
        return found


def delete(path: Path, found: dict[str, list[tuple[int, list[str]]]]) -> None:
    """Delete rows, and overwrite what they held. Raises sqlite3.Error."""
    with _opened(path) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN IMMEDIATE")
        for table, numbers in found.items():
            for name in filter(None, (table, _INDEX.get(table))):
                connection.executemany(f'DELETE FROM "{name}" WHERE rowid = ?', [(number,) for number, _ in numbers])
        connection.execute("COMMIT")
    sqlitefiles.scrub(path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{path.as_uri()}?mode=rw"
    with contextlib.closing(sqlitefiles.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None)) as connection:
        yield connection


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Ordinary and full-text tables, without the shadow tables of an index."""
    listed = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'").fetchall()
    return sorted(name for name, kind in listed if kind in ("table", "virtual") and not name.startswith("sqlite_"))


def _is_selected(table: str, row: dict[str, object], selection: Selection, words: Words) -> bool:
    if any(words.are_in_bytes(value) for value in map(_encoded, row.values())):
        return True
    time, namespace = row.get(_TIMES.get(table, "")), row.get(_NAMESPACE.get(table, ""))
    if isinstance(time, float | int) and selection.is_before(time):
        return True
    if selection.user is None or not isinstance(namespace, bytes):
        return False
    return selection.user in [label.decode("utf-8", "replace") for label in namespace.split(b"\0")[:-1]]


def _encoded(value: object) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "replace") if isinstance(value, str) else b""


def _leaves(value: object) -> Iterator[str]:
    """The texts of a row's JSON, without field names; none for what is not JSON."""
    if isinstance(value, bytes | str):
        with contextlib.suppress(orjson.JSONDecodeError):
            yield from strings(orjson.loads(value))
