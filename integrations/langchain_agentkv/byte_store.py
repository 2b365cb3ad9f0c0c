"""``AgentKVByteStore``: LangChain's key-value store of bytes, in the store's folder.

One transaction a call: all of an ``mset`` is kept or none of it, and what has returned outlives a power failure. A
value that is not what was written is an error, never a value and never "not there". Not guaranteed: one view over a
whole ``yield_keys``; keys that come or go meanwhile may be missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from langchain_core.stores import BaseStore

from agentkv import BlockStore
from agentkv.errors import UsageError
from langchain_agentkv.database import Database, encode_key, seal

MAX_VALUE = 500_000_000
"""Bytes of one value; SQLite's own limit is 1,000,000,000 for a row."""
_SCHEMA = ("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, seal BLOB NOT NULL)",)
_PUT = (
    "INSERT INTO entries VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, seal = excluded.seal"
)
_PAGE = 1000


class AgentKVByteStore(BaseStore[str, bytes]):
    """Bytes by key, durable, shared by any number of threads and processes.

    ``store`` is a directory or an open :class:`~agentkv.BlockStore` (``memory.store``). Keys are yielded in the order
    of their code points. Raises UsageError for keys that are not text and values that are not bytes, and, of a
    :class:`~agentkv.errors.StoreError`, CorruptDatabase, StoreFull, StoreReadError.

    >>> import tempfile
    >>> store = AgentKVByteStore(tempfile.mkdtemp())
    >>> store.mset([("doc/2", b"two"), ("doc/1", b"one")])
    >>> list(store.yield_keys(prefix="doc/")), store.mget(["doc/1", "doc/3"])
    (['doc/1', 'doc/2'], [b'one', None])
    """

    def __init__(self, store: str | Path | BlockStore) -> None:
        self._database = Database(store, "langchain-bytes.sqlite", _SCHEMA)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values in the order of ``keys``, None where there is none."""
        encoded = [encode_key(key) for key in keys]
        with self._database.reading() as connection:
            if connection is None:
                return [None] * len(encoded)
            select = "SELECT value, seal FROM entries WHERE key = ?"
            rows = [connection.execute(select, (key,)).fetchone() for key in encoded]
        return [None if row is None else self._opened(key, *row) for key, row in zip(encoded, rows, strict=True)]

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Store all of them, replacing the values that their keys had; of a key that occurs twice, the last."""
        pairs = [(encode_key(key), _checked(key, value)) for key, value in key_value_pairs]
        if pairs:
            with self._database.writing() as connection:
                connection.executemany(_PUT, [(key, value, seal(key, value)) for key, value in pairs])

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete what is there of them."""
        encoded = [(encode_key(key),) for key in keys]
        if encoded:
            with self._database.writing() as connection:
                connection.executemany("DELETE FROM entries WHERE key = ?", encoded)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Every key that begins with ``prefix``, in order; no lock is held while the caller uses one."""
        first = encode_key(prefix or "")
        last: bytes | None = None
        while page := self._page(first, last):
            yield from (key.decode() for key in page)
            last = page[-1]

    def _page(self, prefix: bytes, after: bytes | None) -> list[bytes]:
        where, bounds = ("key >= ?", [prefix]) if after is None else ("key > ?", [after])
        end = after_all(prefix)
        if end is not None:
            where, bounds = f"{where} AND key < ?", [*bounds, end]
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT key FROM entries WHERE {where} ORDER BY key LIMIT {_PAGE}", bounds)
            return [row[0] for row in rows]

    def _opened(self, key: bytes, value: object, sealed: object) -> bytes:
        if not isinstance(value, bytes) or sealed != seal(key, value):
            raise self._database.corrupt_row(f"the value of {key.decode()!r}")
        return value


def after_all(prefix: bytes) -> bytes | None:
    """The least bytes greater than all that begin with ``prefix``; None if there are none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _checked(key: str, value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"the value of {key[:40]!r} is a {type(value).__name__}; a byte store takes bytes")
    data = bytes(value)
    if len(data) > MAX_VALUE:
        raise UsageError(f"the value of {key[:40]!r} has {len(data):,} bytes, over the limit of {MAX_VALUE:,}")
    return data
