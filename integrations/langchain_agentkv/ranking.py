"""Which of an agent's items a query means: BM25 (SQLite's FTS5), fused with the cosine where there are embeddings.

Two tables beside the items', ``words`` and ``vectors``, by item number. What is indexed is text at the paths of
the store's ``fields``, or of the item's own ``index``; ``words`` keeps that text and, made of it by
:mod:`agentkv.text`, the words by which it is found. Where they were made by an earlier version they are made again
from the text. Not guaranteed: meaning, by BM25; nor that vectors of an earlier embedding function are comparable,
unless they have another length, when they are left out.

The two orders are fused by reciprocal ranks, an item's rank by words weighted by how much of the query it says
(:func:`_shares`): by plain ranks one word in common, by chance, would beat the item that means it.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from langgraph.store.base import IndexConfig, ensure_embeddings, get_text_at_path

from agentkv import text
from agentkv.errors import UsageError
from agentkv.fusion import ranked, reciprocal_rank_fusion

_WORDS = f"CREATE VIRTUAL TABLE words USING fts5(text UNINDEXED, terms_{text.VERSION}, tokenize = '{text.TOKENIZER}')"
_PUT_WORDS = f"INSERT INTO words (rowid, text, terms_{text.VERSION}) VALUES (?, ?, ?)"
SCHEMA = (
    _WORDS,
    "CREATE TABLE vectors (item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, vector BLOB NOT NULL)",
    "CREATE INDEX vectors_by_item ON vectors (item)",
)
_NO_BLANKS = re.compile(
    " ([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]) "
)
"""What the first version set apart by blanks in the text that it kept."""
_MAX_WORDS = 400
_FLOAT = np.dtype("<f4")
_CONSTANT = 10.0
"""Of reciprocal ranks. Right ones first with all-MiniLM-L6-v2 (``python -m tests.benchmarks.languages``), of 60
questions in the same words in 20 languages, 61 in other forms, 60 in the askers' own, and 432 English ones in their
own: cosine alone 35, 34, 36, 213; so fused 60, 56, 48, 211 (words alone, without a model, 60, 58, 50). In a trial with
bare texts instead of whole values cosine had 33, 35, 35, 225; fused with 10 60, 55, 52, 227, with 5 60, 53, 46, 226,
with 20 60, 58, 55, 214; by plain ranks, without shares, and 20 60, 59, 52, 145."""

Vector = Sequence[float]
Among = tuple[str, tuple[bytes | float, ...]]
"""Of which items: a condition in SQL, over the columns of ``items``, and its parameters."""


@dataclass(frozen=True)
class Indexed:
    """How an item can be found: its words, and texts of which each has a vector."""

    words: str = ""
    texts: tuple[str, ...] = ()


class Ranking:
    """How one store indexes and ranks. ``config`` is LangGraph's: ``fields``; ``dims`` and ``embed`` for vectors.

    ``hybrid``: where there are vectors, words count too.
    """

    def __init__(self, config: IndexConfig | None, *, hybrid: bool = True) -> None:
        self._hybrid = hybrid
        given: Mapping[str, Any] = config or {}
        self._fields: list[str] = list(given.get("fields") or ["$"])
        self._dims: int | None = given.get("dims")
        self.embeddings = ensure_embeddings(given["embed"]) if given.get("embed") is not None else None

    # --- what is indexed ---

    def of(self, value: Mapping[str, Any], index: Literal[False] | list[str] | None) -> Indexed:
        """How an item is to be found; not at all with ``index=False``."""
        if index is False:
            return Indexed()
        paths = index or self._fields
        words = (leaves(value) if path == "$" else get_text_at_path(value, path) for path in paths)
        embedded = () if self.embeddings is None else (get_text_at_path(value, path) for path in paths)
        return Indexed("\n".join(chain.from_iterable(words)), tuple(chain.from_iterable(embedded)))

    def encoded(self, vector: Vector) -> bytes:
        """A vector as it is kept: little-endian float32. Raises UsageError for another length than ``dims``."""
        if self._dims is not None and len(vector) != self._dims:
            raise UsageError(f"the embedding gave {len(vector)} numbers, index says dims = {self._dims}")
        return np.asarray(vector, _FLOAT).tobytes()

    def index(self, connection: sqlite3.Connection, item: int, words: str, vectors: Iterable[bytes]) -> bool:
        """Set an item's words and vectors; returns whether it had other words, see :meth:`forget`."""
        had = self.forget(connection, [item])
        if words:
            _put_words(connection, item, words.encode("utf-8", "replace").decode())
        connection.executemany("INSERT INTO vectors VALUES (?, ?)", [(item, vector) for vector in vectors])
        return had

    def forget(self, connection: sqlite3.Connection, items: Iterable[int]) -> bool:
        """Drop the index entries of these items; returns whether words went, which stay in the file until a purge."""
        rows = [(item,) for item in items]
        gone = connection.executemany("DELETE FROM words WHERE rowid = ?", rows).rowcount
        connection.executemany("DELETE FROM vectors WHERE item = ?", rows)
        return gone > 0

    # --- what is found ---

    def scores(
        self, connection: sqlite3.Connection, query: str, vector: bytes | None, among: Among, limit: int
    ) -> dict[int, float]:
        """The ``limit`` items (−1: all) that are nearest to the query, nearest first, with a score: more is nearer.

        Without a ``vector`` that is BM25, and items that share no word with the query are left out. With one it is
        reciprocal rank fusion, above 0 to 1: half of it for being the nearest by cosine, half for being first by words
        and having all of the query's; items with neither a vector nor a word are left out. If not hybrid, it is the
        cosine with the nearest of an item's vectors, −1 to 1. Of equal ones the last updated comes first; in the fused
        order, the one that is better by words.
        """
        if vector is None:
            return _by_words(connection, query, among, limit)
        if not self._hybrid:
            return _by_vector(connection, vector, among, limit)
        by_words = ranked(_by_words(connection, query, among, -1))
        by_vector = ranked(_by_vector(connection, vector, among, -1))
        shares = _shares(connection, query, among) if by_words else {}
        order = reciprocal_rank_fusion([(shares, by_words), (1.0, by_vector)], _CONSTANT)
        return {item: score * _CONSTANT / 2 for item, score in (order if limit < 0 else order[:limit])}


def _by_words(connection: sqlite3.Connection, query: str, among: Among, limit: int) -> dict[int, float]:
    # Each word in quotes, so that none is taken for one of FTS5's operators.
    query_words = text.looked_for(query)[:_MAX_WORDS]
    if not query_words:
        return {}
    where, bounds = among
    rows = connection.execute(
        "SELECT items.id, -bm25(words) AS score FROM words JOIN items ON items.id = words.rowid "
        f"WHERE words MATCH ? AND {where} ORDER BY score DESC, updated DESC, items.id DESC LIMIT ?",
        (" OR ".join(map(text.quoted, query_words)), *bounds, limit),
    )
    return {int(item): float(score) for item, score in rows}


def _shares(connection: sqlite3.Connection, query: str, among: Among) -> dict[int, float]:
    """By item, the share of a query's words that it has, 0 to 1; a word counts the more the fewer items have it.

    The beginning of a word counts if an item has it; for some languages no beginnings are indexed.
    """
    where, bounds = among
    select = f"SELECT items.id FROM words JOIN items ON items.id = words.rowid WHERE words MATCH ? AND {where}"
    n_items = connection.execute(f"SELECT count(*) FROM items WHERE {where}", bounds).fetchone()[0]
    covered: dict[int, float] = {}
    total, whole = 0.0, set(text.terms(query))
    for word in text.looked_for(query)[:_MAX_WORDS]:
        having = [row[0] for row in connection.execute(select, (text.quoted(word), *bounds))]
        if word not in whole and not having:
            continue
        weight = math.log1p((n_items - len(having) + 0.5) / (len(having) + 0.5))
        total += weight
        for item in having:
            covered[item] = covered.get(item, 0.0) + weight
    return {item: weight / total for item, weight in covered.items()}


def _by_vector(connection: sqlite3.Connection, vector: bytes, among: Among, limit: int) -> dict[int, float]:
    where, bounds = among
    rows = connection.execute(
        "SELECT item, vector FROM vectors JOIN items ON items.id = vectors.item "
        f"WHERE length(vector) = ? AND {where} ORDER BY updated DESC, items.id DESC",
        (len(vector), *bounds),
    ).fetchall()
    if not rows:
        return {}
    asked = np.frombuffer(vector, _FLOAT).astype(np.float64)
    known = np.frombuffer(b"".join(row[1] for row in rows), _FLOAT).reshape(len(rows), -1).astype(np.float64)
    lengths = np.linalg.norm(known, axis=1) * np.linalg.norm(asked)
    cosines = np.divide(known @ asked, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    best: dict[int, float] = {}
    for (item, _), cosine in zip(rows, cosines.tolist(), strict=True):
        best[item] = max(cosine, best.get(item, -1.0))
    nearest = sorted(best, key=lambda item: -best[item])
    return {item: best[item] for item in (nearest if limit < 0 else nearest[:limit])}


def leaves(value: Any) -> Iterator[str]:
    """The texts and numbers of a JSON value, without the names of its fields."""
    if isinstance(value, Mapping):
        yield from chain.from_iterable(map(leaves, value.values()))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(leaves, value))
    elif isinstance(value, str | int | float):
        yield str(value)


def _put_words(connection: sqlite3.Connection, item: int, content: str) -> None:
    connection.execute(_PUT_WORDS, (item, content, text.indexed(content)))


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the words were made by this version."""
    return _made_by(connection) == _WORDS


def remake(connection: sqlite3.Connection, *, temporarily: bool = False) -> None:
    """Build the word index of an earlier version again, from the text beside it, within the caller's transaction.

    ``temporarily``: for this connection alone, in a file that cannot be written.
    """
    spaced = "unicode61" in _made_by(connection)
    rows = connection.execute("SELECT rowid, text FROM main.words").fetchall()
    if temporarily:
        connection.execute(_WORDS.replace("TABLE words", "TABLE temp.words"))
    else:
        connection.execute("DROP TABLE words")
        connection.execute(_WORDS)
    for item, content in rows:
        _put_words(connection, item, _NO_BLANKS.sub(r"\1", content) if spaced else content)


def _made_by(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT sql FROM main.sqlite_master WHERE name = 'words'").fetchone()
    return "" if row is None else str(row[0])
