"""``AgentKVRetriever``: LangChain's suite, what a document carries, settings, a loop that runs on."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_agentkv import AgentKVRetriever
from langchain_agentkv.retriever import as_document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from agentkv import BlockStore
from agentkv.documents import Corpus, find_shelf
from agentkv.errors import Cancelled, UnknownCorpus, UsageError
from tests.integrations.chatting import SlowEngine
from tests.integrations.documents import made_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    made = made_corpus(tmp_path)
    with made.memory:
        yield made


class Standard(RetrieversIntegrationTests):
    corpus: Any

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return AgentKVRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"corpus": self.corpus}

    @property
    def retriever_query_example(self) -> str:
        return "When does the shop open?"


class TestOfCorpus(Standard):
    @pytest.fixture(autouse=True)
    def _corpus(self, corpus: Corpus) -> None:
        self.corpus = corpus


class TestWithoutModel(Standard):
    @pytest.fixture(autouse=True)
    def _corpus(self, corpus: Corpus) -> None:
        corpus.memory.close()
        self.corpus = find_shelf(BlockStore(corpus.memory.store.root), "documents")


def test_a_copy_shares_the_corpus_or_the_shelf_s_store(corpus: Corpus) -> None:
    retriever = AgentKVRetriever(corpus=corpus, k=1)
    assert copy.deepcopy(retriever).corpus is corpus
    shelf = AgentKVRetriever(corpus=find_shelf(corpus.memory.store, "documents"), k=1)
    question = "How long are returns accepted?"
    assert copy.deepcopy(shelf).invoke(question) == shelf.invoke(question) == retriever.invoke(question)


def test_a_document_says_where_it_stands(corpus: Corpus, tmp_path: Path) -> None:
    (found,) = AgentKVRetriever(corpus=corpus, k=1).invoke("How long are returns accepted?")
    about = found.metadata
    assert (about["path"], about["headings"], about["window"]) == ("docs/shop.md", ["Shop"], 0)
    source = (tmp_path / "docs" / "shop.md").read_bytes()[about["start"] : about["stop"]]
    assert source.decode() == found.page_content
    assert "7 days" in found.page_content
    assert about["block_id"] in set(corpus.memory.store.block_ids())
    assert (about["method"], about["score"] > 0) == ("bm25", True)
    (later,) = AgentKVRetriever(corpus=corpus, k=1).invoke("cars parking places")
    assert (later.metadata["headings"], later.metadata["window"]) == (["Shop", "Parking"], 2)
    (hit,) = corpus.find("How long are returns accepted?", 1)
    assert as_document(hit) == found
    ids = [one.id for one in AgentKVRetriever(corpus=corpus, k=9).invoke("shop")]
    assert len(set(ids)) == len(ids) == 4


def test_a_call_may_set_what_the_retriever_set_and_more_than_there_is(corpus: Corpus) -> None:
    retriever = AgentKVRetriever(corpus=corpus, k=2)
    assert len(retriever.invoke("shop")) == 2
    assert len(retriever.invoke("shop", k=9)) == 4
    assert retriever.invoke("xylophone") == []
    assert retriever.invoke("") == []
    assert retriever.batch(["shop", "train"])[1][0].metadata["path"] == "docs/trains.md"


def test_the_model_orders_what_was_found(corpus: Corpus) -> None:
    plain = AgentKVRetriever(corpus=corpus, k=4).invoke("shop opens")
    ordered = AgentKVRetriever(corpus=corpus, k=4, rerank_from=4).invoke("shop opens")
    assert {one.id for one in ordered} == {one.id for one in plain}
    assert {one.metadata["method"] for one in ordered} == {"likelihood"}
    scores = [one.metadata["score"] for one in ordered]
    assert scores == sorted(scores, reverse=True)
    assert AgentKVRetriever(corpus=corpus, k=4).invoke("shop opens", rerank_from=4) == ordered


class ByWord(Embeddings):
    """Near is what has the word parking, to every question."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        return [1.0, 0.0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "Parking" in text else [0.0, 1.0] for text in texts]


def test_embeddings_are_langchains_or_a_callable(corpus: Corpus) -> None:
    embeddings = ByWord()
    found = AgentKVRetriever(corpus=corpus, k=4, embed=embeddings).invoke("the shop on sundays")
    assert embeddings.asked == ["the shop on sundays"]
    assert {one.metadata["method"] for one in found} == {"bm25+embedding"}
    assert "Parking" in "".join(one.page_content for one in found[:2])

    def embed(texts: Any) -> Any:
        return [embeddings.embed_query(texts[0]), *embeddings.embed_documents(list(texts[1:]))]

    assert AgentKVRetriever(corpus=corpus, k=4, embed=embed).invoke("the shop on sundays") == found


@pytest.mark.parametrize("wrong", [{"k": 0}, {"rerank_from": -1}])
def test_numbers_that_make_no_sense_are_refused(corpus: Corpus, wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        AgentKVRetriever(corpus=corpus, **wrong)
    with pytest.raises(UsageError):
        AgentKVRetriever(corpus=corpus).invoke("shop", **wrong)


def test_a_model_is_needed_to_rerank_and_a_corpus_to_find(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="model"):
        AgentKVRetriever(corpus=corpus.shelf, rerank_from=3)
    with pytest.raises(UsageError, match="model"):
        AgentKVRetriever(corpus=corpus.shelf).invoke("shop", rerank_from=3)
    with pytest.raises(UnknownCorpus):
        AgentKVRetriever(corpus=Corpus(corpus.memory, "other")).invoke("shop")


async def test_the_loop_runs_on_while_the_model_orders(corpus: Corpus) -> None:
    assert isinstance(corpus.memory.engine, SlowEngine)
    corpus.memory.engine.step = 0.05
    ticks = 0
    task = asyncio.create_task(AgentKVRetriever(corpus=corpus, k=2, rerank_from=4).ainvoke("shop opens"))
    while not task.done():
        await asyncio.sleep(0.005)
        ticks += 1
    corpus.memory.engine.step = 0.0
    assert [one.metadata["method"] for one in await task] == ["likelihood"] * 2
    assert ticks > 10


async def test_a_cancelled_search_stops_the_model_and_leaves_it_usable(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    found = AgentKVRetriever._found

    def watched(self: AgentKVRetriever, *arguments: Any) -> Any:
        try:
            return found(self, *arguments)
        except Cancelled:
            ended.append("cancelled")
            raise

    monkeypatch.setattr(AgentKVRetriever, "_found", watched)
    assert isinstance(corpus.memory.engine, SlowEngine)
    corpus.memory.engine.step = 0.2
    task = asyncio.create_task(AgentKVRetriever(corpus=corpus, rerank_from=4).ainvoke("shop opens"))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    corpus.memory.engine.step = 0.0
    ordered = await AgentKVRetriever(corpus=corpus, rerank_from=4).ainvoke("shop opens")
    assert len(ordered) == 4
    assert ended == ["cancelled"]
