"""What is deleted from an SQLite file of a store cannot be read in its bytes any more."""

from __future__ import annotations

import ast
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import agentkv
from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.index import Index
from agentkv.io import sqlitefiles
from agentkv.store.catalog import BlockStore

SECRET = "zebraquartz"


def readable(root: Path, word: str = SECRET) -> list[str]:
    """The files below a folder in which a word can be read."""
    files = (path for path in root.rglob("*") if path.is_file())
    return [path.name for path in files if word.encode() in path.read_bytes().lower()]


def table(path: Path, connect: object, *, texts: int = 400) -> None:
    """A table and a full-text index, in which one row holds the secret; it is deleted again."""
    with closing(connect(path)) as db, db:  # type: ignore[operator]
        db.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT)")
        db.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
        for number in range(texts):
            text = f"note {number} {SECRET if number == 7 else 'plain'} " * 3
            db.execute("INSERT INTO items VALUES (?, ?)", (number, text))
            db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, text))
    with closing(connect(path)) as db, db:  # type: ignore[operator]
        db.execute("DELETE FROM items WHERE id = 7")
        db.execute("DELETE FROM words WHERE rowid = 7")


def test_a_plain_connection_leaves_the_words_and_a_purged_one_does_not(tmp_path: Path) -> None:
    table(tmp_path / "plain.sqlite", sqlite3.connect)
    table(tmp_path / "ours.sqlite", sqlitefiles.connect)
    with closing(sqlitefiles.connect(tmp_path / "ours.sqlite")) as db, db:
        sqlitefiles.purge(db)
        assert db.execute("SELECT count(*) FROM words WHERE words MATCH 'plain'").fetchone() == (399,)
    assert readable(tmp_path) == ["plain.sqlite"]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_an_old_file_is_scrubbed_once_its_log_too(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
    keeper = sqlite3.connect(path)  # keeps a write-ahead log in place
    table(path, sqlite3.connect)
    assert readable(tmp_path)
    assert sqlitefiles.scrub_all(tmp_path) == []
    assert readable(tmp_path) == []
    keeper.close()
    before = path.stat().st_mtime_ns
    assert sqlitefiles.scrub_all(tmp_path) == []
    assert path.stat().st_mtime_ns == before, "a clean file is left alone"


def test_gc_cleans_a_store_of_an_earlier_version_and_says_what_it_cannot(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    (store.root / "adapters").mkdir()
    table(store.root / "adapters" / "langgraph-items.sqlite", sqlite3.connect)
    store.collect(dry_run=True)
    assert readable(store.root)
    store.collect()
    store.check()
    assert not readable(store.root)
    (store.root / "adapters" / "broken.sqlite").write_bytes(b"not a database, not at all" * 50)
    with pytest.warns(AgentKVWarning, match="broken.sqlite may still be read"):
        store.collect()


def test_a_document_that_is_removed_or_changed_leaves_no_words_in_the_index(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text(f"Note {number} speaks of trains. " * 20)
    (folder / "2.txt").write_text(f"The password is {SECRET}. " * 20)
    memory = AgentMemory(tmp_path / "store", FakeEngine(window=8192))
    corpus = Corpus(memory, "notes")
    corpus.add([folder])
    assert corpus.find(SECRET)
    index = corpus.shelf.index_path.parent
    assert readable(index)
    (folder / "2.txt").write_text("Nothing to see. " * 20)
    corpus.add([folder])
    assert corpus.find("trains")
    assert not corpus.find(SECRET)
    assert not readable(index)
    (folder / "3.txt").unlink()
    corpus.add([folder])
    with Index(corpus.shelf):
        assert not readable(index, "note 3")


def test_nobody_opens_sqlite_by_another_way() -> None:
    package = Path(agentkv.__file__).parent
    found = []
    for folder in (package, package.parent / "integrations"):
        for file in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr == "connect" and ast.unparse(node.value) == "sqlite3":
                    found.append(file.name)
    assert found == ["sqlitefiles.py"]
