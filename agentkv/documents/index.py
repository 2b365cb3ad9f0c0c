"""Full-text search over the windows of one corpus: SQLite FTS5, BM25 of whole windows and of their passages.

A window's rank by its words, headings weighted, and the rank of its best passage are fused: a long window that holds a
question's words here and there should not win over one that holds them together. Windows with a rare name come first.

An index is made from records and kept sources and may be lost at any time: opening one that is missing, damaged or of
another version makes it anew, and one that lags behind the records is brought in step. So it never finds a window of a
file that was retired. Knows words, no model.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from agentkv import text as forms
from agentkv.documents.indexfile import IndexFile
from agentkv.documents.readable import Readable
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.errors import StaleDocument
from agentkv.fusion import reciprocal_rank_fusion
from agentkv.io.hashing import sha256
from agentkv.io.sqlitefiles import purge
from agentkv.text import STOP_WORDS, TOKENIZER, folded, indexed, looked_for, quoted, seems_inflected, stream, terms

VERSION = 2 + forms.VERSION
"""Of the file, whose words are made by :mod:`agentkv.text`."""
WEIGHTS = (1.0, 2.0, 1.0)
"""BM25 weights of path, headings and text. On 28 questions about 20 files a heading's weight of 1 or 2 put the right
window first 19 times, of 4 or more 17 times; with the stemmer or without, and with phrases or without, as often or two
fewer: the differences are within chance."""
PASSAGE = 1000
"""Characters that paragraphs of a window are gathered up to, to be weighed as one passage. On the tuned half of the
questions about PostgreSQL's and git's manuals (the benchmark ``questions``; 3,300 windows of 4,096 characters) windows
alone put the right one first 8 of 26 times and among five 15 times; fused with passages of 1,000 characters 11 and 18
times, of 800 12 and 17, of 1,400 9 and 16; passages alone 6 and 17."""

_POOL = 200
_MOST_PASSAGES = 1000
_NAME_WEIGHT, _NAME_WINDOWS, _NAME_SHARE = 2.5, 3, 0.01
"""A name that few windows hold (so many, or that share) says more than how often they hold the other words: its windows
come first. BM25 alone puts windows that say another word of the question often before the only one that holds the name:
of 60 needles in 2,514 windows (the benchmark ``needles``) it has 2 first and 33 among five, so all 60 are first. On the
34 tuned questions about PostgreSQL's and git's manuals nothing changes, 8 first and 16 among five in that corpus."""

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

Window = tuple[str, int]
"""A document's key, and a window's number in it."""
Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the file's path."""


@dataclass(frozen=True)
class Match:
    """Window ``number`` of the document ``key``; ``score``: reciprocal ranks, by window, passage and name, added up."""

    key: str
    number: int
    score: float


def names_of(question: str) -> list[str]:
    """Words that are written as names: with a capital within a sentence, or anywhere with a digit, ``_`` or a capital
    behind a small letter. Each once, small.
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
    """The index of ``shelf``'s corpus; a context manager. Opening brings it in step with the records."""

    def __init__(self, shelf: Shelf, *, anew: bool = False, progress: Progress | None = None) -> None:
        self._shelf, self._progress = shelf, progress
        self.skipped: list[StaleDocument] = []
        self._file = IndexFile(shelf.index_path, shelf.store.root, _SCHEMA, VERSION)
        if anew:
            self._file.remove()
        self._file.used(self._sync)

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
        """The ``k`` best windows, best first; none where no word of the question occurs.

        Without ``passages`` by the words of whole windows alone, as plain full-text search does it.
        """
        if not match_expression(question) or k < 1:
            return []
        return self._file.used(lambda: self._search(question, k, passages), begin=self._sync)

    def _search(self, question: str, k: int, passages: bool) -> list[Match]:
        pool = max(_POOL, k)
        by_passage = self._by_passage(question, pool) if passages else []
        by_name = self._by_name(question, pool) if passages else []
        by_window = self._by_window(question, pool)
        orders = (1.0, enumerate(by_window)), (1.0, enumerate(by_passage)), (_NAME_WEIGHT, enumerate(by_name))
        return [Match(key, number, score) for (key, number), score in reciprocal_rank_fusion(orders)[:k]]

    def _by_window(self, question: str, k: int) -> list[Window]:
        return self._matching(match_expression(question), k)

    def _by_name(self, question: str, k: int) -> list[Window]:
        """Windows that hold a name of the question that is rare here."""
        most = max(_NAME_WINDOWS, int(_NAME_SHARE * self.n_windows))
        names = [quoted(name) for name in names_of(question)]
        rare = [name for name in names if 0 < self._count(name, most + 1) <= most]
        return self._matching(" OR ".join(rare), k) if rare else []

    def _count(self, expression: str, most: int) -> int:
        rows = self._db.execute("SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, most))
        return len(rows.fetchall())

    def _matching(self, expression: str, k: int) -> list[Window]:
        rows = self._db.execute(
            "SELECT files.key, windows.number, bm25(words, ?, ?, ?) AS score FROM words "
            "JOIN windows ON windows.id = words.rowid JOIN files ON files.id = windows.file "
            "WHERE words MATCH ? ORDER BY score, files.key, windows.number LIMIT ?",
            (*WEIGHTS, expression, k),
        )
        return [(key, number) for key, number, _ in rows]

    def _by_passage(self, question: str, k: int) -> list[Window]:
        """Windows by their best passage."""
        rows = self._db.execute(
            "SELECT files.key, windows.number, bm25(passage_words) AS score FROM passage_words "
            "JOIN passages ON passages.id = passage_words.rowid JOIN windows ON windows.id = passages.window "
            "JOIN files ON files.id = windows.file "
            "WHERE passage_words MATCH ? ORDER BY score, files.key, windows.number LIMIT ?",
            (match_expression(question, pairs=False), max(_MOST_PASSAGES, k)),
        )
        return list(dict.fromkeys((key, number) for key, number, _ in rows))[:k]

    @property
    def n_windows(self) -> int:
        """Windows that can be found."""
        found: int = self._db.execute("SELECT count(*) FROM windows").fetchone()[0]
        return found

    def windows(self) -> list[Window]:
        """Every window that can be found: its document's key and its number there."""
        query = "SELECT files.key, windows.number FROM windows JOIN files ON files.id = windows.file ORDER BY 1, 2"
        return [(key, number) for key, number in self._db.execute(query)]

    def digests(self) -> dict[str, str]:
        """What the index is of: each document's key and its record's digest."""
        return dict(self._db.execute("SELECT key, digest FROM files").fetchall())

    # --- keeping in step ---

    def _sync(self) -> None:
        version = repr(self._shelf.documents.version())
        if version != "None" and self._state("version") == version:
            return
        there = dict(self._db.execute("SELECT key, digest FROM files").fetchall())
        wanted = self._shelf.all()
        digests = {key: digest_of(record) for key, record in wanted.items()}
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
        if self._state("dropped") is not None:  # words that no document has any more are not to be read in the file
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
            for number, (headings, body) in enumerate(window_texts(record, document)):
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


def window_texts(record: DocumentRecord, document: Readable) -> Iterator[tuple[str, str]]:
    """Headings (those in force, those within, and names of a table's columns) and text of each window."""
    for window in record.windows:
        start, stop = document.characters(window.start, window.stop)
        within = document.headings_within(start, stop)
        titles = dict.fromkeys((record.title, *window.trail, *within, record.columns_of(window)))
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
    """By what it is seen that a document is another than the one that was indexed."""
    whole = record.model_dump(mode="json")
    for window in whole["windows"]:
        if window["columns"] is None:
            del window["columns"]
    for name in ("encoding_by", "reader", "columns"):  # as before there were any: indexes of old stores stay
        if not whole["columns"] or name != "columns":
            del whole[name]
    return sha256(orjson.dumps(whole))


def rebuild(shelf: Shelf, progress: Progress | None = None) -> tuple[int, list[StaleDocument]]:
    """Make the index anew; how many windows it finds, and the documents whose source is not there any more."""
    shelf = Shelf(shelf.store, shelf.key)  # which has read nothing yet
    with Index(shelf, anew=True, progress=progress) as index:
        return index.n_windows, list(index.skipped)
