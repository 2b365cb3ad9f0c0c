"""Search: what questions may hold, what is found, and an index that may be lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkv import AgentMemory
from agentkv.documents import Corpus, find
from agentkv.documents.index import Index, match_expression, query_terms, rebuild
from agentkv.errors import StoreReadError


@pytest.fixture
def filled(memory: AgentMemory, folder: Path) -> Corpus:
    corpus = Corpus(memory, window=160, overlap=16, keep="lazy")
    (folder / "cjk.txt").write_text("再起動はボタンを長押しします。\n\n別の段落。")
    corpus.add([folder])
    return corpus


def test_the_window_that_answers_comes_first(filled: Corpus) -> None:
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
    assert query_terms("What is the fee of the FEE?") == ["fee"]
    assert query_terms("what is it") == ["what", "is", "it"]
    assert match_expression("restocking fee") == '"restocking" OR "fee" OR "restocking fee"'
    assert match_expression("?") == ""


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
    wanted = filled.find("restocking fee", k=3)
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
    assert filled.find("restocking fee", k=3) == wanted


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
    wanted = filled.find("restocking fee", k=3)
    for file in folder.rglob("*.md"):
        file.unlink()
    assert rebuild(filled.shelf) == (len(list(_windows(filled))), [])
    assert find(filled.shelf, "restocking fee", k=3) == wanted


def _windows(corpus: Corpus) -> list[object]:
    return [window for record in corpus.shelf.all().values() for window in record.windows]


def test_a_document_without_its_source_is_told_and_not_found(filled: Corpus) -> None:
    (record,) = [record for record in filled.shelf.all().values() if record.path == "docs/guide.md"]
    filled.shelf.sources.remove(record.sha256)
    windows, skipped = rebuild(filled.shelf)
    assert windows == len(_windows(filled)) - len(record.windows)
    assert [error.path for error in skipped] == ["docs/guide.md"]


def test_an_index_that_lags_behind_is_brought_in_step(filled: Corpus) -> None:
    with Index(filled.shelf) as index:
        before = index.n_windows
    (key,) = [key for key, record in filled.shelf.all().items() if record.path == "docs/guide.md"]
    n_windows = len(filled.shelf.all()[key].windows)
    filled.shelf.forget([key])
    with Index(filled.shelf) as index:
        assert index.n_windows == before - n_windows
        assert index.search("restocking fee", 5) == []


def test_an_embedding_is_fused_with_the_words(filled: Corpus) -> None:
    question = "shop cutoff closed open fee"
    *_, last = filled.find(question, k=3)

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if last.text in text or text == question else [0.0, 1.0] for text in texts]

    hits = filled.find(question, k=3, embed=embed)
    assert hits[0].method == "bm25+embedding"
    assert [hit.window for hit in hits].index(last.window) < 2
    assert filled.find("zzzz", embed=embed) == []


def test_reranking_orders_by_the_model_and_reads_what_it_needs(filled: Corpus) -> None:
    plain = filled.find("shop fee cutoff", k=4)
    hits = filled.find("shop fee cutoff", k=4, rerank_from=4)
    assert {hit.window for hit in hits} == {hit.window for hit in plain}
    assert [hit.method for hit in hits] == ["likelihood"] * len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
