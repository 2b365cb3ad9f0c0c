"""The embedding index: every chunk by meaning, kept, brought up to date, gone on with; damage costs vectors only."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from agentkv import AgentMemory
from agentkv.documents import Corpus
from agentkv.documents.corpus import find
from agentkv.documents.records import entries
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Vectors
from agentkv.errors import Cancelled

TOPICS = ("boat", "bread", "tax")
NAMES = {"boat": "one", "bread": "two", "tax": "three"}
SAID = {"boat": "vessels sail", "bread": "loaves rise", "tax": "duties fall due"}


class ByTopic:
    """A vector for what a text is about; counts what it was given."""

    name, dimensions = "by-topic", len(TOPICS)

    def __init__(self, identity: str = "a" * 64) -> None:
        self.identity = identity
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        rows = [[float(word in text or SAID[word] in text) for word in TOPICS] for text in texts]
        return np.asarray(rows, np.float32)


@pytest.fixture
def topics(memory: AgentMemory, tmp_path: Path) -> Corpus:
    folder = tmp_path / "topics"
    folder.mkdir()
    for word, text in SAID.items():
        (folder / f"{NAMES[word]}.md").write_text(f"# About it\n\nHere {text} in the morning.\n")
    corpus = Corpus(memory, chunk_tokens=256, overlap=0, keep="lazy")
    corpus.add([folder])
    return corpus


def vectors(corpus: Corpus) -> Path:
    (path,) = corpus.shelf.index_path.parent.glob("*.vectors-*")
    return path


def test_a_chunk_without_any_word_of_the_question_is_found(topics: Corpus) -> None:
    embedder = ByTopic()
    question = "Is there bread?"
    assert topics.find(question) == []
    assert topics.find(question, embed=embedder) == []  # not embedded yet
    assert topics.embed(embedder) == 3
    hits = topics.find(question, embed=embedder)
    assert hits[0].path == "topics/two.md"
    assert {hit.method for hit in hits} == {"bm25+embedding"}
    assert find(topics.shelf, question, 1, embed=embedder) == hits[:1]


def test_vectors_are_made_once_and_anew_for_what_changed(topics: Corpus, tmp_path: Path) -> None:
    embedder = ByTopic()
    topics.embed(embedder)
    embedder.asked.clear()
    assert topics.embed(embedder) == 0
    assert embedder.asked == []
    (tmp_path / "topics" / "one.md").write_text("# About it\n\nHere loaves rise on deck.\n")
    (tmp_path / "topics" / "three.md").unlink()
    topics.add([tmp_path / "topics"])
    assert topics.embed(embedder) == 1
    (text,) = embedder.asked
    assert text.startswith("About it\n")
    assert "on deck" in text
    near = topics.find("bread", k=5, embed=embedder)
    assert {hit.path for hit in near} == {"topics/one.md", "topics/two.md"}
    rows = sqlite3.connect(vectors(topics)).execute("SELECT count(*) FROM vectors").fetchone()
    assert rows == (2,)


def test_until_all_are_there_only_what_words_found_is_ordered(topics: Corpus) -> None:
    embedder = ByTopic()
    *_, last = topics.find("morning", k=3)
    (topic,) = [word for word, name in NAMES.items() if last.path == f"topics/{name}.md"]
    question = f"morning {topic}"
    hits = topics.find(question, k=3, embed=embedder)
    assert [hit.path for hit in hits].index(last.path) == 1  # by words it is the last of three
    embedder.asked.clear()
    assert topics.find(question, k=3, embed=embedder) == hits
    assert embedder.asked == [question]  # what was made for the first question was kept


def test_an_interrupted_index_goes_on(topics: Corpus) -> None:
    embedder, cancellation = ByTopic(), Cancellation()

    def after_one(done: int, total: int, path: str) -> None:
        assert total == 3
        assert path.startswith("topics/")
        if done == 1:
            cancellation.cancel()

    with pytest.raises(Cancelled):
        topics.embed(embedder, on_chunk=after_one, cancellation=cancellation)
    assert topics.embed(embedder) == 1


def test_another_embedder_has_its_own(topics: Corpus) -> None:
    topics.embed(ByTopic())
    assert topics.embed(ByTopic("b" * 64)) == 3


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100])
def test_a_damaged_file_is_made_again(topics: Corpus, damage: bytes) -> None:
    embedder = ByTopic()
    topics.embed(embedder)
    vectors(topics).write_bytes(damage)
    assert topics.find("bread", embed=embedder) == []
    assert topics.embed(embedder) == 3
    assert topics.find("bread", embed=embedder)[0].path == "topics/two.md"


@pytest.mark.parametrize("rows", [b"", b"\0" * 7])
def test_vectors_of_another_length_count_as_none(topics: Corpus, rows: bytes) -> None:
    embedder = ByTopic()
    topics.embed(embedder)
    with sqlite3.connect(vectors(topics)) as database:
        database.execute("UPDATE vectors SET rows = ? WHERE number = 0", (rows,))
    assert topics.embed(embedder) == 3


def test_the_store_knows_the_file_as_its_own(topics: Corpus) -> None:
    topics.embed(ByTopic())
    assert vectors(topics) in [path for path, _, own in entries(topics.memory.store.root) if own]


def test_the_vectors_go_with_the_corpus(topics: Corpus) -> None:
    topics.embed(ByTopic())
    folder = topics.shelf.index_path.parent
    topics.shelf.remove()
    assert list(folder.iterdir()) == []
