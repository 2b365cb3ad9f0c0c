"""Search: what questions may hold, what is found, and an index that may be lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkv import AgentKVWarning, AgentMemory
from agentkv.documents import Corpus
from agentkv.documents.corpus import find
from agentkv.documents.index import PASSAGE, Index, match_expression, names_of, passages_of, rebuild
from agentkv.errors import StoreReadError


@pytest.fixture
def filled(memory: AgentMemory, folder: Path) -> Corpus:
    corpus = Corpus(memory, chunk_tokens=160, overlap=16, keep="lazy")
    (folder / "cjk.txt").write_text("再起動はボタンを長押しします。\n\n別の段落。")
    corpus.add([folder])
    return corpus


def test_the_chunk_that_answers_comes_first(filled: Corpus) -> None:
    for question, word in [
        ("What is the restocking fee?", "12%"),
        ("When is the cutoff?", "Monday"),
        ("is the shop open on sundays", "Sundays"),
        ("How many litres does a pump hold?", "litres"),
    ]:
        assert word in filled.find(question, k=1)[0].text, question


@pytest.mark.parametrize(
    "question",
    [
        *('"', "fee*", "fee AND", "NEAR(fee, 2)", "body:fee", "^fee", "-fee", "fee OR", "(fee", "{fee}", "a\0fee"),
        *("'; DROP", "", "   ", "???", "🙂", "the of and", "x" * 10_000),
    ],
)
def test_nothing_of_a_question_is_syntax(filled: Corpus, question: str) -> None:
    hits = filled.find(question, k=3)
    assert hits or "fee" not in question


def test_terms() -> None:
    assert match_expression("the restocking fee") == '"restocking" OR "fee" OR "restocking fee"'
    assert match_expression("?") == ""


def test_names() -> None:
    assert names_of("Where does Kunakox keep the pg_stat file of Kunakox?") == ["kunakox", "pg_stat"]
    assert names_of("Is it set? Does fooBar or utf8 do it? I ask. Does it?") == ["foobar", "utf8"]
    assert names_of("what is it") == []


def test_a_rare_name_goes_before_a_word_said_often(memory: AgentMemory, tmp_path: Path) -> None:
    home = tmp_path / "many"
    home.mkdir()
    for number in range(40):
        text = "Conduct, conducts, conducted; singers, the singer sings." if number < 2 else "Something else is said."
        (home / f"{number}.md").write_text(f"# Page {number}\n\n{text}\n")
    (home / "name.md").write_text("# Places\n\nThe choir of Stidebresk is led by Oda.\n\n" + "More is said here. " * 20)
    corpus = Corpus(memory, chunk_tokens=512, overlap=0, keep="lazy")
    corpus.add([home])
    question = "Who conducts the singers of Stidebresk?"
    with Index(corpus.shelf) as index:
        plain = [match.key for match in index.search(question, 1, passages=False)]
        named = [match.key for match in index.search(question, 1)]
    paths = corpus.shelf.all()
    assert paths[named[0]].path == "many/name.md" != paths[plain[0]].path
    with Index(corpus.shelf) as index:  # a name that many chunks hold is a word like others
        assert index._by_name("Who has a Page?", 9) == []


def test_words_without_spaces_between_them(filled: Corpus) -> None:
    assert filled.find("再起動 ボタン", k=1)[0].path == "docs/cjk.txt"


def test_words_are_found_by_their_stem_and_without_accents(filled: Corpus) -> None:
    assert "Returns" in filled.find("réturning", k=1)[0].text


def test_a_hit_says_where_it_stands(filled: Corpus) -> None:
    hit = filled.find("restocking fee", k=1)[0]
    source = filled.shelf.sources.read(hit.document.sha256)
    assert source is not None
    assert source[hit.start : hit.stop].decode() == hit.text
    assert (hit.path, hit.heading, hit.method) == ("docs/guide.md", "Shop", "bm25")


@pytest.mark.parametrize("damage", ["gone", "junk", "cut", "version", "table"])
def test_a_lost_index_is_made_again(filled: Corpus, damage: str) -> None:
    expected = filled.find("restocking fee", k=3)
    path = filled.shelf.index_path
    match damage:
        case "gone":
            path.unlink()
        case "junk":
            path.write_bytes(b"x" * 9000)
        case "cut":
            path.write_bytes(path.read_bytes()[:5000])
        case "version":
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA user_version = 99")
            connection.close()
        case "table":
            with sqlite3.connect(path) as connection:
                connection.execute("DROP TABLE windows")
            connection.close()
    if damage == "version":
        with pytest.warns(AgentKVWarning, match="rebuilt now"):
            assert filled.find("restocking fee", k=3) == expected
    assert filled.find("restocking fee", k=3) == expected


def test_an_index_in_use_is_not_thrown_away(filled: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.documents.index._BUSY_S", 0.05)
    connection = sqlite3.connect(filled.shelf.index_path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreReadError, match="locked"):
        filled.find("fee")
    connection.execute("ROLLBACK")
    connection.close()
    assert filled.find("fee")


def test_reindexing_needs_neither_files_nor_model(filled: Corpus, folder: Path) -> None:
    expected = filled.find("restocking fee", k=3)
    for file in folder.rglob("*.md"):
        file.unlink()
    assert rebuild(filled.shelf) == (len(list(_chunks(filled))), [])
    assert find(filled.shelf, "restocking fee", k=3) == expected


def _chunks(corpus: Corpus) -> list[object]:
    return [chunk for record in corpus.shelf.all().values() for chunk in record.chunks]


def test_a_document_without_its_source_is_told_and_not_found(filled: Corpus) -> None:
    (record,) = [record for record in filled.shelf.all().values() if record.path == "docs/guide.md"]
    filled.shelf.sources.remove(record.sha256)
    chunks, skipped = rebuild(filled.shelf)
    assert chunks == len(_chunks(filled)) - len(record.chunks)
    assert [error.path for error in skipped] == ["docs/guide.md"]


def test_an_index_that_lags_behind_is_brought_in_step(filled: Corpus) -> None:
    with Index(filled.shelf) as index:
        before = index.n_chunks
    (key,) = [key for key, record in filled.shelf.all().items() if record.path == "docs/guide.md"]
    n_chunks = len(filled.shelf.all()[key].chunks)
    filled.shelf.forget([key])
    with Index(filled.shelf) as index:
        assert index.n_chunks == before - n_chunks
        assert index.search("restocking fee", 5) == []


def test_an_embedding_is_fused_with_the_words(filled: Corpus) -> None:
    question = "shop cutoff closed open fee"
    *_, last = filled.find(question, k=3)

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if last.text in text or text == question else [0.0, 1.0] for text in texts]

    hits = filled.find(question, k=3, embed=embed)
    assert hits[0].method == "bm25+embedding"
    assert [hit.chunk for hit in hits].index(last.chunk) < 2
    assert filled.find("zzzz", embed=embed) == []


def test_reranking_orders_by_the_model_and_reads_what_it_needs(filled: Corpus) -> None:
    plain = filled.find("shop fee cutoff", k=4)
    hits = filled.find("shop fee cutoff", k=4, rerank_from=4)
    assert {hit.chunk for hit in hits} == {hit.chunk for hit in plain}
    assert [hit.method for hit in hits] == ["likelihood"] * len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_passages_are_whole_paragraphs() -> None:
    text = "\n\n".join(f"{i} " + "x" * 300 for i in range(7)) + "\n \n" + "y" * 3000
    parts = passages_of(text)
    assert "".join(parts).replace("\n", "") == text.replace("\n", "").replace("x ", "x")
    assert all(len(part) <= PASSAGE or part == "y" * 3000 for part in parts)
    assert len(parts) == 4
    assert passages_of(" \n\n ") == []


def test_words_together_count_more_than_words_here_and_there(memory: AgentMemory, tmp_path: Path) -> None:
    filler = [f"Paragraph {i} is about boats and rivers and how they are painted in spring." for i in range(60)]
    scattered = list(filler)
    for place, word in ((2, "copper"), (20, "kettle"), (38, "whistles"), (56, "copper kettle whistles")):
        scattered[place] += f" A {word}."
    together = list(filler)
    together[30] += " The copper kettle whistles at noon."
    (tmp_path / "scattered.txt").write_text("\n\n".join(scattered))
    (tmp_path / "together.txt").write_text("\n\n".join(together))
    corpus = Corpus(memory, chunk_tokens=1500, overlap=0, keep="lazy")
    corpus.add([tmp_path / "scattered.txt", tmp_path / "together.txt"])
    with Index(corpus.shelf) as index:
        by_passage = index.search("copper kettle whistles noon", 8)
        plain = index.search("copper kettle whistles noon", 8, passages=False)
    assert corpus.shelf.all()[by_passage[0].key].path == "together.txt"
    assert {match.key for match in plain} <= {match.key for match in by_passage}


def test_a_chunk_is_as_near_as_its_nearest_passage(memory: AgentMemory, tmp_path: Path) -> None:
    filler = "\n\n".join("Boats on the river, painted in spring, every year again." for _ in range(16))
    for name, end in (("near", "The wanted sentence stands last."), ("far", "Nothing of that kind is here.")):
        (tmp_path / f"{name}.txt").write_text(f"{filler}\n\n{end} river")
    corpus = Corpus(memory, chunk_tokens=1500, overlap=0, keep="lazy")
    corpus.add([tmp_path / "near.txt", tmp_path / "far.txt"])

    def embed(texts: Sequence[str]) -> list[list[float]]:
        assert all(len(text) < 1200 for text in texts)
        return [[1.0, 0.0] if "wanted" in text or text == "river boats" else [0.0, 1.0] for text in texts]

    assert corpus.find("river boats", k=2, embed=embed)[0].path == "near.txt"
