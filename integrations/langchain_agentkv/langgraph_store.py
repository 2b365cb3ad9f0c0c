"""``AgentKVStore``: LangGraph's long-term memory (``BaseStore``) in the store's folder, searched by BM25 and
embeddings.

Written here rather than taken from ``langgraph-checkpoint-sqlite``, whose ``SqliteStore`` ignores a query without an
embedding, keeps only a part of a failed batch, reads no ``fields``, and has no ``abatch``. As there, a batch's reads
see what was before its writes, of two writes to one key the last counts, and what a query does not rank comes after
what it does, newest first. A batch is one transaction. Not guaranteed: speed over a hundred thousand items with an
embedding, as every vector is compared.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.runnables.config import run_in_executor
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from agentkv import BlockStore
from agentkv.errors import StoreFull, StoreReadError, UsageError
from agentkv.io.sqlitefiles import purge
from agentkv.notices import warn
from langchain_agentkv.byte_store import after_all
from langchain_agentkv.database import Database, encode_key, seal
from langchain_agentkv.items import (
    Namespace,
    check_bounds,
    decode_namespace,
    decode_value,
    encode_namespace,
    encode_value,
    is_wanted,
    listed,
)
from langchain_agentkv.ranking import SCHEMA, Among, Indexed, Ranking, is_current, remake

_SCHEMA = (
    "CREATE TABLE items (id INTEGER PRIMARY KEY, namespace BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, "
    "seal BLOB NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, ttl REAL, expires REAL, "
    "UNIQUE (namespace, key))",
    "CREATE INDEX items_by_expiry ON items (expires) WHERE expires IS NOT NULL",
    *SCHEMA,
)
_PUT = (
    "INSERT INTO items (namespace, key, value, seal, created, updated, ttl, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, seal = excluded.seal, "
    "updated = excluded.updated, ttl = excluded.ttl, expires = excluded.expires RETURNING id"
)
_ROW = "SELECT id, namespace, key, value, seal, created, updated, ttl FROM items WHERE"
_LIVE = "(expires IS NULL OR expires > ?)"

_Place = tuple[bytes, bytes]


@dataclass(frozen=True)
class _Write:
    value: bytes | None
    ttl: float | None
    indexed: Indexed


@dataclass(frozen=True)
class _Batch:
    """Operations, checked and encoded before the file is touched, and the texts to be embedded."""

    ops: list[Op]
    writes: dict[_Place, _Write]
    queries: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(text for write in self.writes.values() for text in write.indexed.texts))


_Vectors = dict[str, bytes]


class AgentKVStore(BaseStore):
    """Items by namespace and key, durable, shared by any number of threads and processes.

    ``store`` is a directory or an open :class:`~agentkv.BlockStore` (``memory.store``). Without ``index``, or with its
    ``fields`` only, a query ranks by BM25 over the items' words; with ``dims`` and ``embed`` (a function, an async one
    or LangChain ``Embeddings``) by reciprocal rank fusion of BM25 and cosine: an embedding model knows few languages
    and few names. ``score`` is then that of the fusion, above 0 to 1, not a similarity (:meth:`Ranking.scores`).
    LangGraph's own stores rank by the cosine and return it, as this one does with ``hybrid=False``; use that to compare
    scores with a threshold. ``ttl`` is LangGraph's: expired items are gone at once for every read, and deleted by the
    next write. Values are JSON. Raises UsageError, InvalidNamespaceError (LangGraph's), and, of a
    :class:`~agentkv.errors.StoreError`, CorruptDatabase, StoreFull, StoreReadError.

    >>> import tempfile
    >>> store = AgentKVStore(tempfile.mkdtemp())
    >>> store.put(("users", "ada"), "tea", {"text": "Ada drinks her tea without milk."})
    >>> store.put(("users", "ada"), "cat", {"text": "The cat is called Byron."})
    >>> [item.key for item in store.search(("users",), query="What is the cat called?", limit=1)]
    ['cat']
    """

    supports_ttl = True

    def __init__(
        self,
        store: str | Path | BlockStore,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        hybrid: bool = True,
    ) -> None:
        self.ttl_config = ttl
        self._ranking = Ranking(index, hybrid=hybrid)
        self._is_current = False
        self._database = Database(store, "langgraph-items.sqlite", _SCHEMA)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations as one transaction; results in their order."""
        batch = self._checked(ops)
        documents: list[list[float]] = []
        queries: list[list[float]] = []
        if self._ranking.embeddings is not None:
            documents = self._ranking.embeddings.embed_documents(batch.texts) if batch.texts else []
            queries = [self._ranking.embeddings.embed_query(query) for query in batch.queries]
        return self._run(batch, self._encoded(batch.texts, documents), self._encoded(batch.queries, queries))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Like :meth:`batch`; the file is read and written in the default executor."""
        batch = self._checked(ops)
        documents: list[list[float]] = []
        queries: list[list[float]] = []
        if self._ranking.embeddings is not None:
            documents = await self._ranking.embeddings.aembed_documents(batch.texts) if batch.texts else []
            queries = [await self._ranking.embeddings.aembed_query(query) for query in batch.queries]
        encoded = self._encoded(batch.texts, documents), self._encoded(batch.queries, queries)
        return await run_in_executor(None, self._run, batch, *encoded)

    # --- before the file is touched ---------------------------------------------------------------

    def _checked(self, ops: Iterable[Op]) -> _Batch:
        checked, writes, queries = list(ops), {}, []
        for op in checked:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                value = None if op.value is None else encode_value(op.key, op.value)
                indexed = Indexed() if value is None else self._ranking.of(decode_value(value), op.index)
                writes[_place(op)] = _Write(value, op.ttl, indexed)
            elif isinstance(op, SearchOp | ListNamespacesOp):
                check_bounds(op)
                if isinstance(op, SearchOp) and op.query:
                    queries.append(op.query)
            elif isinstance(op, GetOp):
                _place(op)
            else:
                raise UsageError(f"{type(op).__name__} is not an operation of a store")
        return _Batch(checked, writes, tuple(dict.fromkeys(queries)))

    def _encoded(self, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> _Vectors:
        if self._ranking.embeddings is None:
            return {}
        if len(texts) != len(vectors):
            raise UsageError(f"the embedding gave {len(vectors)} vectors for {len(texts)} texts")
        return {text: self._ranking.encoded(vector) for text, vector in zip(texts, vectors, strict=True)}

    # --- one transaction --------------------------------------------------------------------------

    def _run(self, batch: _Batch, documents: _Vectors, queries: _Vectors) -> list[Result]:
        now = time.time()
        read: set[int] = set()
        if batch.queries:
            self._renew()
        if batch.writes:
            with self._database.writing() as connection:
                self._make_current(connection)
                results = [self._result(connection, op, queries, now, read) for op in batch.ops]
                _refresh(connection, read, now)
                if self._sweep(connection, now) | self._write(connection, batch, documents, now):
                    purge(connection)
            return results
        with self._database.reading() as viewed:
            if viewed is None:
                return [[] if isinstance(op, SearchOp | ListNamespacesOp) else None for op in batch.ops]
            if batch.queries and not self._is_current:  # it cannot be written, so it stays as it is
                remake(viewed, temporarily=True)
            results = [self._result(viewed, op, queries, now, read) for op in batch.ops]
        if read:
            with self._database.writing() as connection:
                _refresh(connection, read, now)
        return results

    def _renew(self) -> None:
        """Before a search: build the word index again if an earlier version built it and the file can be written."""
        if self._is_current:
            return
        with self._database.reading() as viewed:
            if viewed is None:
                return
            self._is_current = is_current(viewed)
        if not self._is_current:
            with contextlib.suppress(StoreReadError, StoreFull):
                with self._database.writing() as connection:
                    self._make_current(connection)
                self._is_current = True

    def _make_current(self, connection: sqlite3.Connection) -> None:
        if not self._is_current and not is_current(connection):
            remake(connection)
            warn(
                f"the words by which the items in {self.path} are found were made by an earlier version of agentkv: "
                "they are made again now; nothing has to be done."
            )

    def _result(self, connection: sqlite3.Connection, op: Op, queries: _Vectors, now: float, read: set[int]) -> Result:
        """What an operation gives; numbers of items whose expiry starts again go to ``read``."""
        if isinstance(op, GetOp):
            row = connection.execute(f"{_ROW} namespace = ? AND key = ? AND {_LIVE}", (*_place(op), now)).fetchone()
            if row is not None and op.refresh_ttl and row[7] is not None:
                read.add(row[0])
            return None if row is None else Item(**self._fields(row))
        if isinstance(op, SearchOp):
            found = list(self._search(connection, op, queries, now))
            if op.refresh_ttl:
                read.update(row[0] for row, _ in found if row[7] is not None)
            return [SearchItem(**self._fields(row), score=score) for row, score in found]
        if isinstance(op, ListNamespacesOp):
            rows = connection.execute(f"SELECT DISTINCT namespace FROM items WHERE {_LIVE}", (now,))
            return listed((decode_namespace(row[0]) for row in rows), op)
        return None

    def _search(
        self, connection: sqlite3.Connection, op: SearchOp, queries: _Vectors, now: float
    ) -> Iterator[tuple[tuple[Any, ...], float | None]]:
        """The page's rows with their scores: ranked ones first, the rest by their last update."""
        among = _below(op.namespace_prefix, now)
        needed = -1 if op.filter else op.offset + op.limit
        scores: dict[int, float] = {}
        if op.query:
            scores = self._ranking.scores(connection, op.query, queries.get(op.query), among, needed)
        left, skip = op.limit, op.offset
        for item in self._ordered(connection, among, scores, needed):
            if not left:
                return
            row = connection.execute(f"{_ROW} id = ?", (item,)).fetchone()
            if op.filter and not is_wanted(self._value(row), op.filter):
                continue
            if skip:
                skip -= 1
                continue
            left -= 1
            yield row, scores.get(item)

    def _ordered(
        self, connection: sqlite3.Connection, among: Among, scores: dict[int, float], needed: int
    ) -> Iterator[int]:
        """Items in the order of a search, at least ``needed`` of them (−1: all)."""
        yield from scores
        where, bounds = among
        limit = -1 if needed < 0 else needed + len(scores)
        select = f"SELECT id FROM items WHERE {where} ORDER BY updated DESC, id DESC LIMIT ?"
        yield from (row[0] for row in connection.execute(select, (*bounds, limit)) if row[0] not in scores)

    def _write(self, connection: sqlite3.Connection, batch: _Batch, documents: _Vectors, now: float) -> bool:
        """Carry out the writes; whether words went from the index."""
        dropped = False
        for place, write in batch.writes.items():
            if write.value is None:
                gone = connection.execute("SELECT id FROM items WHERE namespace = ? AND key = ?", place).fetchall()
                dropped |= self._drop(connection, [row[0] for row in gone])
                continue
            expires = None if write.ttl is None else now + write.ttl * 60
            row = (*place, write.value, seal(*place, write.value), now, now, write.ttl, expires)
            item = connection.execute(_PUT, row).fetchone()[0]
            vectors = [documents[text] for text in write.indexed.texts]
            dropped |= self._ranking.index(connection, item, write.indexed.words, vectors)
        return dropped

    def _sweep(self, connection: sqlite3.Connection, now: float) -> bool:
        """Delete what has expired; whether words went from the index."""
        gone = connection.execute("SELECT id FROM items WHERE expires IS NOT NULL AND expires <= ?", (now,)).fetchall()
        return self._drop(connection, [row[0] for row in gone])

    def _drop(self, connection: sqlite3.Connection, items: list[int]) -> bool:
        dropped = self._ranking.forget(connection, items)
        connection.executemany("DELETE FROM items WHERE id = ?", [(item,) for item in items])
        return dropped

    # --- rows -------------------------------------------------------------------------------------

    def _fields(self, row: tuple[Any, ...]) -> dict[str, Any]:
        created, updated = (datetime.fromtimestamp(seconds, UTC) for seconds in row[5:7])
        return {
            "namespace": decode_namespace(row[1]),
            "key": row[2].decode(),
            "value": self._value(row),
            "created_at": created,
            "updated_at": updated,
        }

    def _value(self, row: tuple[Any, ...]) -> dict[str, Any]:
        namespace, key, value, sealed = row[1:5]
        if not isinstance(value, bytes) or sealed != seal(namespace, key, value):
            raise self._database.corrupt_row(f"the item {key!r} of {decode_namespace(namespace)!r}")
        return decode_value(value)


def _place(op: GetOp | PutOp) -> _Place:
    return encode_namespace(tuple(op.namespace)), encode_key(op.key)


def _below(prefix: Namespace, now: float) -> Among:
    """The SQL condition for live items in a namespace and in those nested in it."""
    first = encode_namespace(tuple(prefix))
    end = after_all(first)
    if end is None:
        return _LIVE, (now,)
    return f"namespace >= ? AND namespace < ? AND {_LIVE}", (first, end, now)


def _refresh(connection: sqlite3.Connection, items: Iterable[int], now: float) -> None:
    update = "UPDATE items SET expires = ? + ttl * 60 WHERE id = ? AND ttl IS NOT NULL"
    connection.executemany(update, [(now, item) for item in items])
