"""The embedding index of one corpus: a unit vector for each passage of each chunk, by one embedder.

Kept beside the full-text index and, like it, rebuilt at any time: vectors of a changed file are ignored. A chunk's
similarity to a question is that of its nearest passage; every vector is compared, so the order is exact. Until
:meth:`EmbeddingIndex.fill` has made them all, only chunks found by full-text search are ordered by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentkv.documents.index import Chunk, Index, IndexFile, digest_of, passages_of
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder, Vectors
from agentkv.errors import Cancelled

VERSION = 1
_NAME = 32
"""Digits of an embedder's identity in its file's name."""
_SCHEMA = """
CREATE TABLE vectors (file TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL, rows BLOB NOT NULL,
    PRIMARY KEY (file, number));
"""

OnVectors = Callable[[int, int, str], None]
"""Called with chunks done, chunks to do, and the file's path."""


class _Known(NamedTuple):
    chunks: list[Chunk]
    rows: Vectors
    chunk_of_row: NDArray[np.int64]


class EmbeddingIndex:
    """The embedding index by ``embedder`` of the corpus that ``index`` is of; a context manager."""

    def __init__(self, shelf: Shelf, index: Index, embedder: Embedder) -> None:
        self._shelf, self._index, self._embedder = shelf, index, embedder
        self._file = _file(shelf, embedder.identity[:_NAME])

    def __enter__(self) -> EmbeddingIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fill(self, on_chunk: OnVectors | None = None, cancellation: Cancellation | None = None) -> int:
        """Make the vectors that are missing; how many chunks had none. Continues an interrupted call.

        Raises Cancelled, StaleDocument, StoreReadError.
        """
        return self._file.run(lambda: self._fill(on_chunk, cancellation))

    def _fill(self, on_chunk: OnVectors | None, cancellation: Cancellation | None) -> int:
        digests = self._index.digests()
        with self._file.transaction():
            kept = self._file.db.execute("SELECT DISTINCT file, digest FROM vectors").fetchall()
            for key, digest in kept:
                if digests.get(key) != digest:
                    self._file.db.execute("DELETE FROM vectors WHERE file = ? AND digest = ?", (key, digest))
        there = self._there(digests)
        missing = [chunk for chunk in self._index.chunks() if chunk not in there]
        done = 0
        for key, group in groupby(missing, key=lambda chunk: chunk[0]):
            record = self._shelf.documents.valid(key)
            for _, number in group:
                if cancellation is not None and cancellation.requested:
                    raise Cancelled("the embedding of documents")
                if record is not None:
                    if on_chunk is not None:
                        on_chunk(done, len(missing), record.path)
                    self._make(key, record, number, digests[key])
                done += 1
        return len(missing)

    def order(self, question: str, k: int, among: Sequence[Chunk] = ()) -> list[Chunk]:
        """The ``k`` chunks nearest to a question, nearest first: of all if all have vectors, else of ``among``.

        Vectors that ``among`` lacks are made. Raises StoreReadError.
        """
        return self._file.run(lambda: self._order(question, k, among))

    def _order(self, question: str, k: int, among: Sequence[Chunk]) -> list[Chunk]:
        digests = self._index.digests()
        there = self._there(digests)
        for key, number in among:
            record = None if (key, number) in there else self._shelf.documents.valid(key)
            if record is not None:
                self._make(key, record, number, digests[key])
                there.add((key, number))
        known = self._known(digests)
        eligible = None if there.issuperset(self._index.chunks()) else set(among)
        if not known.chunks or eligible == set():
            return []
        order = nearest_first(known.rows @ self._embedder.embed([question])[0], known.chunk_of_row)
        ordered = (known.chunks[at] for at in order)
        return list(islice((chunk for chunk in ordered if eligible is None or chunk in eligible), k))

    def _there(self, digests: dict[str, str]) -> set[Chunk]:
        """The chunks that have vectors."""
        query = "SELECT file, number, digest FROM vectors WHERE length(rows) > 0 AND length(rows) % ? = 0"
        rows = self._file.db.execute(query, (4 * self._embedder.dimensions,))
        return {(key, number) for key, number, digest in rows if digests.get(key) == digest}

    def _make(self, key: str, record: DocumentRecord, number: int, digest: str) -> None:
        if number >= len(record.chunks):  # cut again a moment ago
            return
        chunk, document = record.chunks[number], self._shelf.readable(record)
        start, stop = document.characters(chunk.start, chunk.stop)
        columns = record.columns_of(chunk)
        texts = passage_texts(
            " > ".join((*chunk.heading_path, *([columns] if columns else []))), document.text[start:stop]
        )
        rows = np.ascontiguousarray(self._embedder.embed(texts), "<f4")
        with self._file.transaction():
            values = key, number, digest, rows.tobytes()
            self._file.db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", values)

    def _known(self, digests: dict[str, str]) -> _Known:
        size = self._embedder.dimensions
        chunks: list[Chunk] = []
        parts: list[Vectors] = []
        query = "SELECT file, number, digest, rows FROM vectors ORDER BY file, number"
        for key, number, digest, data in self._file.db.execute(query):
            rows = np.frombuffer(data, "<f4") if len(data) % (4 * size) == 0 else np.empty(0, "<f4")
            if rows.size and digests.get(key) == digest and np.isfinite(rows).all():
                chunks.append((key, number))
                parts.append(rows.reshape(-1, size))
        counts = [len(part) for part in parts]
        return _Known(
            chunks,
            np.concatenate(parts) if parts else np.zeros((0, size), np.float32),
            np.repeat(np.arange(len(chunks)), counts),
        )


def embedding_indexes(shelf: Shelf) -> dict[str, int]:
    """How many chunks have vectors, by embedder: the first 32 digits of its identity. Raises StoreReadError."""
    digests = {key: digest_of(record) for key, record in shelf.all().items()}
    prefix = _file_name(shelf, "")
    names = sorted(path.name.removeprefix(prefix) for path in shelf.index_path.parent.glob(f"{prefix}*"))
    found = {}
    for name in names:
        if len(name) == _NAME:
            file = _file(shelf, name)
            with contextlib.closing(file):
                rows = file.run(partial(_digests_of, file))
            found[name] = sum(digests.get(key) == digest for key, digest in rows)
    return found


def _digests_of(file: IndexFile) -> list[tuple[str, str]]:
    return file.db.execute("SELECT file, digest FROM vectors WHERE length(rows) > 0").fetchall()


def _file_name(shelf: Shelf, embedder: str) -> str:
    return f"{shelf.index_path.name}.vectors-{embedder}"


def _file(shelf: Shelf, embedder: str) -> IndexFile:
    path = shelf.index_path.with_name(_file_name(shelf, embedder))
    return IndexFile(path, shelf.store.root, _SCHEMA, VERSION)


def passage_texts(heading: str, text: str) -> list[str]:
    """What is embedded of a chunk: each passage after the heading path; at least one."""
    return [f"{heading}\n{passage}" for passage in passages_of(text) or [""]]


def nearest_first(similarity: NDArray[Any], owners: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """Owners, numbered from 0, by their nearest passage. ``similarity`` and owner of each passage, shape (n_passages,).

    >>> nearest_first(np.array([0.1, 0.9, 0.5]), [0, 0, 1])
    [0, 1]
    """
    best = np.full(int(max(owners)) + 1, -np.inf)
    np.maximum.at(best, owners, similarity)
    return [int(owner) for owner in np.argsort(-best, kind="stable")]
