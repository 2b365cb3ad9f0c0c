"""Full-text search over the windows of one corpus: SQLite FTS5, BM25 with headings weighted.

An index is made from records and kept sources and may be lost at any time: opening one that is missing, damaged or of
another version makes it anew, and one that lags behind the records is brought in step. So it never finds a window of a
file that was retired. Knows words, no model.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentkv import fsio
from agentkv.documents.readable import Readable
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.errors import StaleDocument, StoreReadError
from agentkv.hashing import sha256

VERSION = 1
WEIGHTS = (1.0, 2.0, 1.0)
"""BM25 weights of path, headings and text. On 28 questions about 20 files a heading's weight of 1 or 2 put the right
window first 19 times, of 4 or more 17 times; with the stemmer or without, and with phrases or without, as often or two
fewer: the differences are within chance."""

_BUSY_S = 30.0
_SCHEMA = """
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, digest TEXT NOT NULL);
CREATE TABLE windows (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, number INTEGER NOT NULL);
CREATE INDEX windows_by_file ON windows (file);
CREATE VIRTUAL TABLE words USING fts5 (path, headings, body, tokenize = "porter unicode61 remove_diacritics 2");
"""
_NOT_DAMAGE = ("locked", "readonly", "full", "unable to open", "I/O")
_WORD = re.compile(r"\w+", re.UNICODE)
_NO_SPACES = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af])")
STOP_WORDS = frozenset(
    """
    a about all also am an and any are as at be been but by can could did do does doing done for from get had has have
    having he her here him his how i if in into is it its just me more most much my no nor not of off on one or our out
    over own shall she should so some such than that the their them then there these they this those to too up us use
    used using very was we were what when where which while who whom whose why will with would you your s t
    """.split()  # noqa: SIM905 - a list of a hundred quoted words is no better to read
)

Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the file's path."""


@dataclass(frozen=True)
class Match:
    """Window ``number`` of the document ``key``; ``score``: SQLite's BM25 with the sign turned, so more is better."""

    key: str
    number: int
    score: float


def query_terms(question: str) -> list[str]:
    """The words of a question that search goes by, each once; the stop words only where there is nothing else."""
    terms = list(dict.fromkeys(word.casefold() for word in _WORD.findall(question)))
    wanted = [term for term in terms if term not in STOP_WORDS]
    return wanted or terms


def match_expression(question: str) -> str:
    """The question as an FTS5 query: any of its words, and pairs of neighbours as phrases; nothing of it is syntax."""
    terms = query_terms(question)
    phrases = [f"{first} {second}" for first, second in itertools.pairwise(terms)]
    return " OR ".join(_quoted(spaced(term)) for term in (*terms, *phrases))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'


def spaced(text: str) -> str:
    """Text with blanks around each character of scripts that write none: a word is then a phrase of characters."""
    return _NO_SPACES.sub(r" \1 ", text)


class Index:
    """The index of ``shelf``'s corpus; a context manager. Opening brings it in step with the records."""

    def __init__(self, shelf: Shelf, *, anew: bool = False, progress: Progress | None = None) -> None:
        self._shelf, self._progress = shelf, progress
        self.skipped: list[StaleDocument] = []
        self._connection: sqlite3.Connection | None = None
        if anew:
            self._remove()
        try:
            self._sync()
        except sqlite3.DatabaseError as error:
            self._begin_again(error)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin_again(self, error: sqlite3.DatabaseError) -> None:
        """After damage: make the index anew. Raises StoreReadError where the file is whole and cannot be used now."""
        if isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in _NOT_DAMAGE):
            raise StoreReadError(self._shelf.index_path, str(error)) from error
        self.close()
        self._remove()
        self._sync()

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    # --- search ---

    def search(self, question: str, k: int) -> list[Match]:
        """The ``k`` best windows, best first; none where no word of the question occurs."""
        expression = match_expression(question)
        if not expression or k < 1:
            return []
        try:
            return self._search(expression, k)
        except sqlite3.DatabaseError as error:
            self._begin_again(error)
            return self._search(expression, k)

    def _search(self, expression: str, k: int) -> list[Match]:
        rows = self._db.execute(
            "SELECT files.key, windows.number, bm25(words, ?, ?, ?) AS score FROM words "
            "JOIN windows ON windows.id = words.rowid JOIN files ON files.id = windows.file "
            "WHERE words MATCH ? ORDER BY score, files.key, windows.number LIMIT ?",
            (*WEIGHTS, expression, k),
        )
        return [Match(key, number, -score) for key, number, score in rows]

    @property
    def n_windows(self) -> int:
        """Windows that can be found."""
        found: int = self._db.execute("SELECT count(*) FROM windows").fetchone()[0]
        return found

    # --- keeping in step ---

    def _open(self) -> sqlite3.Connection:
        path = self._shelf.index_path
        try:
            fsio.make_directory(path.parent)
            fsio.refuse_links(self._shelf.store.root, path)
        except OSError as error:
            raise fsio.translated(error, path) from error
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"version {version}")
            if version == 0:
                connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        path = self._shelf.index_path
        for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
            fsio.remove_file(path.with_name(name))

    def _sync(self) -> None:
        version = repr(self._shelf.documents.version())
        if version != "None" and self._state("version") == version:
            return
        there = dict(self._db.execute("SELECT key, digest FROM files").fetchall())
        wanted = self._shelf.all()
        digests = {key: _digest(record) for key, record in wanted.items()}
        for key in there.keys() - wanted.keys():
            self._forget(key)
        new = [key for key, digest in sorted(digests.items()) if there.get(key) != digest]
        for done, key in enumerate(new):
            if self._progress is not None:
                self._progress(done, len(new), wanted[key].path)
            try:
                self._put(key, digests[key], wanted[key])
            except StaleDocument as error:
                self._forget(key)
                self.skipped.append(error)
        if not self.skipped and version != "None":
            self._db.execute("INSERT OR REPLACE INTO state VALUES ('version', ?)", (version,))

    def _state(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _put(self, key: str, digest: str, record: DocumentRecord) -> None:
        document = self._shelf.readable(record)
        with self._transaction():
            self._drop_rows(key)
            cursor = self._db.execute("INSERT INTO files (key, digest) VALUES (?, ?)", (key, digest))
            for number, (headings, body) in enumerate(window_texts(record, document)):
                row = self._db.execute("INSERT INTO windows (file, number) VALUES (?, ?)", (cursor.lastrowid, number))
                values = row.lastrowid, spaced(_path_words(record.path)), spaced(headings), spaced(body)
                self._db.execute("INSERT INTO words (rowid, path, headings, body) VALUES (?, ?, ?, ?)", values)

    def _forget(self, key: str) -> None:
        with self._transaction():
            self._drop_rows(key)

    def _drop_rows(self, key: str) -> None:
        row = self._db.execute("SELECT id FROM files WHERE key = ?", (key,)).fetchone()
        if row is not None:
            self._db.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM windows WHERE file = ?)", row)
            self._db.execute("DELETE FROM windows WHERE file = ?", row)
            self._db.execute("DELETE FROM files WHERE id = ?", row)


def window_texts(record: DocumentRecord, document: Readable) -> Iterator[tuple[str, str]]:
    """Headings (those in force and those within) and text of each window."""
    for window in record.windows:
        start, stop = document.characters(window.start, window.stop)
        within = [heading.title for heading in document.headings if start <= heading.position < stop]
        titles = dict.fromkeys((record.title, *window.trail, *within))
        yield "\n".join(title for title in titles if title), document.text[start:stop].replace("\0", " ")


def _path_words(path: str) -> str:
    return re.sub(r"[\W_]+", " ", Path(path).with_suffix("").as_posix())


def _digest(record: DocumentRecord) -> str:
    return sha256(record.model_dump_json().encode())


def rebuild(shelf: Shelf, progress: Progress | None = None) -> tuple[int, list[StaleDocument]]:
    """Make the index anew; how many windows it finds, and the documents whose source is not there any more."""
    shelf = Shelf(shelf.store, shelf.key)  # which has read nothing yet
    with Index(shelf, anew=True, progress=progress) as index:
        return index.n_windows, list(index.skipped)
