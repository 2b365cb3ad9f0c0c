"""Full-text search over the chunks of one corpus: SQLite FTS5, BM25 of whole chunks and of their passages.

A chunk's rank by its words, headings weighted, and that of its best passage are combined by reciprocal rank fusion: a
long chunk with a question's words here and there should not win over one that has them together. Chunks with a rare
name of the question come first.

An index is made of records and kept sources: opening one that is missing, corrupt or of another version rebuilds it,
and an outdated one is updated, so it never finds a chunk of a file that was removed. (Its tables say *window* for
chunk, as existing files do.)
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import orjson

from agentkv import text as forms
from agentkv.documents.readers.document import Readable
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.errors import StaleDocument, StoreReadError
from agentkv.fusion import reciprocal_rank_fusion
from agentkv.io import fsio, sqlitefiles
from agentkv.io.forks import Owner
from agentkv.io.hashing import sha256
from agentkv.io.sqlitefiles import purge
from agentkv.notices import warn
from agentkv.text import STOP_WORDS, TOKENIZER, folded, indexed, looked_for, quoted, seems_inflected, stream, terms

VERSION = 2 + forms.VERSION
"""Of the file, whose words are made by :mod:`agentkv.text`."""
WEIGHTS = (1.0, 2.0, 1.0)
"""BM25 weights of path, headings and text. On 28 questions about 20 files a heading weight of 1 or 2 puts the right
chunk first 19 times, one of 4 or more 17 times; without stemmer or phrases as often or two fewer: within chance."""
PASSAGE = 1000
"""Characters of paragraphs that are taken together as one passage. On the tuned questions about PostgreSQL's and git's
manuals (the benchmark ``questions``; 3,300 chunks of 4,096 characters) whole chunks alone put the right one first 8 of
26 times and among five 15 times; combined with passages of 1,000 characters 11 and 18 times, of 800 12 and 17, of 1,400
9 and 16; passages alone 6 and 17."""

_POOL = 200
_MOST_PASSAGES = 1000
_NAME_WEIGHT, _NAME_CHUNKS, _NAME_SHARE = 2.5, 3, 0.01
"""A name that few chunks hold (so many, or that share of them) says more than how often they hold the other words, so
its chunks come first. BM25 alone prefers chunks that say another word of the question often: of 60 needles in 2,514
chunks (the benchmark ``needles``) it puts 2 first and 33 among five, with this weight all 60 are first. On the 34 tuned
questions about PostgreSQL's and git's manuals nothing changes: 8 first and 16 among five."""

_SCHEMA = f"""
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, digest TEXT NOT NULL);
CREATE TABLE windows (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, number INTEGER NOT NULL);
CREATE INDEX windows_by_file ON windows (file);
CREATE VIRTUAL TABLE words USING fts5 (path, headings, body, tokenize = "{TOKENIZER}");
CREATE TABLE passages (id INTEGER PRIMARY KEY, window INTEGER NOT NULL);
CREATE INDEX passages_by_window ON passages (window);
CREATE VIRTUAL TABLE passage_words USING fts5 (body, tokenize = "{TOKENIZER}");
"""
_WORD = re.compile(r"\w+")
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_IDENTIFIER = re.compile(r"[0-9_]|[a-z][A-Z]")

Chunk = tuple[str, int]
"""A document's key, and a chunk's number in it."""
Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the file's path."""


@dataclass(frozen=True)
class Match:
    """Chunk ``number`` of the document ``key``; ``score``: reciprocal ranks, by chunk, passage and name, added up."""

    key: str
    number: int
    score: float


def names_of(question: str) -> list[str]:
    """Words written as names: with a capital within a sentence, or with a digit, ``_`` or a capital after a small one.

    Each once, in lower case.
    """
    found = []
    plain = folded(question)
    for match in _WORD.finditer(plain):
        word, before = match[0], plain[: match.start()].rstrip(" \t\"'(")
        begins = not before or before[-1] in ".!?:\n"
        if _IDENTIFIER.search(word) or (word[0].isupper() and len(word) > 1 and not begins):
            found.append(" ".join(stream(word)))
    return [name for name in dict.fromkeys(found) if name and name not in STOP_WORDS]


def match_expression(question: str, *, pairs: bool = True) -> str:
    """The question as an FTS5 query: any of its words, and ``pairs`` of neighbours as phrases; nothing is syntax."""
    phrases = [f"{first} {second}" for first, second in itertools.pairwise(terms(question))] if pairs else []
    return " OR ".join(map(quoted, (*looked_for(question), *phrases)))


class Index:
    """The index of ``shelf``'s corpus; a context manager. Opening updates it; ``rebuild`` starts from nothing."""

    def __init__(self, shelf: Shelf, *, rebuild: bool = False, progress: Progress | None = None) -> None:
        self._shelf, self._progress = shelf, progress
        self.skipped: list[StaleDocument] = []
        self._file = IndexFile(shelf.index_path, shelf.store.root, _SCHEMA, VERSION)
        if rebuild:
            self._file.remove()
        self._file.run(self._sync)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def _db(self) -> sqlite3.Connection:
        return self._file.db

    # --- search ---

    def search(self, question: str, k: int, *, passages: bool = True) -> list[Match]:
        """The ``k`` best chunks, best first; none where no word of the question occurs.

        Without ``passages`` by BM25 of whole chunks alone, as plain full-text search does it.
        """
        if not match_expression(question) or k < 1:
            return []
        return self._file.run(lambda: self._search(question, k, passages), begin=self._sync)

    def _search(self, question: str, k: int, passages: bool) -> list[Match]:
        pool = max(_POOL, k)
        by_passage = self._by_passage(question, pool) if passages else []
        by_name = self._by_name(question, pool) if passages else []
        by_chunk = self._by_chunk(question, pool)
        orders = (1.0, enumerate(by_chunk)), (1.0, enumerate(by_passage)), (_NAME_WEIGHT, enumerate(by_name))
        return [Match(key, number, score) for (key, number), score in reciprocal_rank_fusion(orders)[:k]]

    def _by_chunk(self, question: str, k: int) -> list[Chunk]:
        return self._matching(match_expression(question), k)

    def _by_name(self, question: str, k: int) -> list[Chunk]:
        """Chunks that hold a name of the question that is rare here."""
        most = max(_NAME_CHUNKS, int(_NAME_SHARE * self.n_chunks))
        names = [quoted(name) for name in names_of(question)]
        rare = [name for name in names if 0 < self._count(name, most + 1) <= most]
        return self._matching(" OR ".join(rare), k) if rare else []

    def _count(self, expression: str, most: int) -> int:
        rows = self._db.execute("SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, most))
        return len(rows.fetchall())

    def _matching(self, expression: str, k: int) -> list[Chunk]:
        rows = self._db.execute(
            "SELECT files.key, windows.number, bm25(words, ?, ?, ?) AS score FROM words "
            "JOIN windows ON windows.id = words.rowid JOIN files ON files.id = windows.file "
            "WHERE words MATCH ? ORDER BY score, files.key, windows.number LIMIT ?",
            (*WEIGHTS, expression, k),
        )
        return [(key, number) for key, number, _ in rows]

    def _by_passage(self, question: str, k: int) -> list[Chunk]:
        """Chunks by their best passage."""
        rows = self._db.execute(
            "SELECT files.key, windows.number, bm25(passage_words) AS score FROM passage_words "
            "JOIN passages ON passages.id = passage_words.rowid JOIN windows ON windows.id = passages.window "
            "JOIN files ON files.id = windows.file "
            "WHERE passage_words MATCH ? ORDER BY score, files.key, windows.number LIMIT ?",
            (match_expression(question, pairs=False), max(_MOST_PASSAGES, k)),
        )
        return list(dict.fromkeys((key, number) for key, number, _ in rows))[:k]

    @property
    def n_chunks(self) -> int:
        """Chunks that can be found."""
        found: int = self._db.execute("SELECT count(*) FROM windows").fetchone()[0]
        return found

    def chunks(self) -> list[Chunk]:
        """Every chunk that can be found: its document's key and its number there."""
        query = "SELECT files.key, windows.number FROM windows JOIN files ON files.id = windows.file ORDER BY 1, 2"
        return [(key, number) for key, number in self._db.execute(query)]

    def digests(self) -> dict[str, str]:
        """What the index is of: each document's key and its record's digest."""
        return dict(self._db.execute("SELECT key, digest FROM files").fetchall())

    # --- updating ---

    def _sync(self) -> None:
        version = repr(self._shelf.documents.version())
        if version != "None" and self._state("version") == version:
            return
        there = dict(self._db.execute("SELECT key, digest FROM files").fetchall())
        current = self._shelf.all()
        digests = {key: digest_of(record) for key, record in current.items()}
        for key in there.keys() - current.keys():
            self._forget(key)
        new = [key for key, digest in sorted(digests.items()) if there.get(key) != digest]
        for done, key in enumerate(new):
            if self._progress is not None:
                self._progress(done, len(new), current[key].path)
            try:
                self._put(key, digests[key], current[key])
            except StaleDocument as error:
                self._forget(key)
                self.skipped.append(error)
        if self._state("dropped") is not None:  # removed words must not be readable in the file
            with self._file.transaction():
                purge(self._db)
                self._db.execute("DELETE FROM state WHERE name = 'dropped'")
        if not self.skipped and version != "None":
            self._db.execute("INSERT OR REPLACE INTO state VALUES ('version', ?)", (version,))

    def _state(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _put(self, key: str, digest: str, record: DocumentRecord) -> None:
        document, path = self._shelf.readable(record), Path(record.path).with_suffix("").as_posix()
        with self._file.transaction():
            self._drop_rows(key)
            cursor = self._db.execute("INSERT INTO files (key, digest) VALUES (?, ?)", (key, digest))
            for number, (headings, body) in enumerate(chunk_texts(record, document)):
                row = self._db.execute("INSERT INTO windows (file, number) VALUES (?, ?)", (cursor.lastrowid, number))
                of = partial(indexed, inflected=seems_inflected(body))
                passages = [of(passage) for passage in passages_of(body)]
                values = row.lastrowid, of(path), of(headings), "\n".join(passages)
                self._db.execute("INSERT INTO words (rowid, path, headings, body) VALUES (?, ?, ?, ?)", values)
                for passage in passages:
                    part = self._db.execute("INSERT INTO passages (window) VALUES (?)", (row.lastrowid,))
                    self._db.execute("INSERT INTO passage_words (rowid, body) VALUES (?, ?)", (part.lastrowid, passage))

    def _forget(self, key: str) -> None:
        with self._file.transaction():
            self._drop_rows(key)

    def _drop_rows(self, key: str) -> None:
        row = self._db.execute("SELECT id FROM files WHERE key = ?", (key,)).fetchone()
        if row is not None:
            self._db.execute("INSERT OR REPLACE INTO state VALUES ('dropped', '')")
            parts = "SELECT id FROM passages WHERE window IN (SELECT id FROM windows WHERE file = ?)"
            self._db.execute(f"DELETE FROM passage_words WHERE rowid IN ({parts})", row)
            self._db.execute("DELETE FROM passages WHERE window IN (SELECT id FROM windows WHERE file = ?)", row)
            self._db.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM windows WHERE file = ?)", row)
            self._db.execute("DELETE FROM windows WHERE file = ?", row)
            self._db.execute("DELETE FROM files WHERE id = ?", row)


def chunk_texts(record: DocumentRecord, document: Readable) -> Iterator[tuple[str, str]]:
    """Headings (those in force, those within, and names of a table's columns) and text of each chunk."""
    for chunk in record.chunks:
        start, stop = document.characters(chunk.start, chunk.stop)
        within = document.headings_within(start, stop)
        titles = dict.fromkeys((record.title, *chunk.heading_path, *within, record.columns_of(chunk)))
        yield "\n".join(title for title in titles if title), document.text[start:stop].replace("\0", " ")


def passages_of(text: str) -> list[str]:
    """Whole paragraphs of a text, gathered up to ``PASSAGE`` characters; a longer one stays whole."""
    found, gathered = [], ""
    for paragraph in _PARAGRAPH.split(text):
        if gathered and len(gathered) + len(paragraph) > PASSAGE:
            found.append(gathered)
            gathered = ""
        gathered += ("\n\n" if gathered else "") + paragraph
    return [part for part in (*found, gathered) if part.strip()]


def digest_of(record: DocumentRecord) -> str:
    """What changes when a document has to be indexed again."""
    whole = record.model_dump(mode="json", by_alias=True)
    for chunk in whole["windows"]:
        if chunk["columns"] is None:
            del chunk["columns"]
    for name in ("encoding_by", "reader", "columns"):  # left out as in stores that are older: their indexes stay valid
        if not whole["columns"] or name != "columns":
            del whole[name]
    return sha256(orjson.dumps(whole))


def rebuild(shelf: Shelf, progress: Progress | None = None) -> tuple[int, list[StaleDocument]]:
    """Rebuild the index; how many chunks it holds, and the documents whose source is gone."""
    shelf = Shelf(shelf.store, shelf.key)  # with an empty cache
    with Index(shelf, rebuild=True, progress=progress) as index:
        return index.n_chunks, list(index.skipped)


# --- the SQLite file ------------------------------------------------------------------------------

T = TypeVar("T")

_BUSY_S = 30.0
_ABANDONED: list[sqlite3.Connection | None] = []
"""Connections of a parent process, kept so that a child's garbage collection does not close them."""
_NOT_DAMAGE = ("locked", "readonly", "full", "unable to open", "I/O")


class IndexFile:
    """An SQLite file at ``path`` below a store's ``root``, which can be made again at any time, with the tables of
    ``schema``; one that is corrupt or of another ``version`` is replaced."""

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

    def run(self, use: Callable[[], T], begin: Callable[[], object] | None = None) -> T:
        """The result of ``use``; a corrupt file is made again first, filled by ``begin``.

        Raises StoreReadError where the file is valid but cannot be used now.
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
        """All of the body's writes, or none."""
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
                    f"the search index {self._path} is of another version of agentkv: it is rebuilt now, from the "
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
