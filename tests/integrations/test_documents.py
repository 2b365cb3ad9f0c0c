"""``AgentKVRetriever``: LangChain's suite, what a document carries, settings, a loop that runs on."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_agentkv import AgentKVRetriever, ChatAgentKV, search_documents
from langchain_agentkv.documents import as_document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agentkv import AgentKVWarning, BlockStore
from agentkv.documents import Corpus, find_shelf
from agentkv.errors import Cancelled, StaleDocument, UnknownCorpus, UsageError
from tests.integrations.chatting import SlowEngine
from tests.integrations.documents import ANSWER, NOT_STATED, made_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    made = made_corpus(tmp_path, lambda prompt: ANSWER if "7 days" in prompt else NOT_STATED)
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
def test_numbers_that_make_no_sense_are_refused(corpus: Corpus, wrong: dict[str, Any]) -> None:
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


QUESTION = "How long are returns accepted?"


def called(tool: BaseTool, query: str = QUESTION) -> ToolMessage:
    message = tool.invoke({"type": "tool_call", "id": "1", "name": tool.name, "args": {"query": query}})
    assert isinstance(message, ToolMessage)
    return message


class StandardTool:
    @pytest.fixture(autouse=True)
    def _corpus(self, corpus: Corpus) -> None:
        self.corpus = corpus

    @property
    def tool_constructor(self) -> BaseTool:
        return search_documents(self.corpus)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": QUESTION}


class TestUnit(StandardTool, ToolsUnitTests):
    """LangChain's own suite."""


class TestIntegration(StandardTool, ToolsIntegrationTests):
    """LangChain's own suite."""


class TestIntegrationAsking(StandardTool, ToolsIntegrationTests):
    """LangChain's own suite."""

    @property
    def tool_constructor(self) -> BaseTool:
        return search_documents(self.corpus, ask=True)


def test_a_model_is_taught_one_argument(corpus: Corpus) -> None:
    function = convert_to_openai_tool(search_documents(corpus, description="Search the shop's rules."))["function"]
    assert (function["name"], function["description"]) == ("search_documents", "Search the shop's rules.")
    assert list(function["parameters"]["properties"]) == function["parameters"]["required"] == ["query"]
    texts = {search_documents(corpus, ask=ask).description for ask in (True, False)}
    assert len(texts) == 2


def test_finding_gives_passages_and_documents(corpus: Corpus) -> None:
    message = called(search_documents(corpus, k=2), "returns shop")
    first, second = message.artifact
    assert message.text.startswith(f"[1] docs/shop.md > Shop, bytes 0 to {first.metadata['stop']}\n# Shop\n")
    assert first.page_content.strip() in message.content
    assert f"\n\n[2] {second.metadata['path']}" in message.content
    assert called(search_documents(corpus.shelf, k=2), "returns shop").content == message.content
    nothing = called(search_documents(corpus), "xylophone")
    assert nothing.artifact == []
    assert nothing.content == "No passage of the documents has any of these words: xylophone. Try other words."
    unsaid = called(search_documents(corpus), "?!").content
    assert unsaid == "There is no word in the question that could be looked for. Try other words."


def test_asking_gives_the_answer_and_what_it_rests_on(corpus: Corpus, tmp_path: Path) -> None:
    message = called(search_documents(corpus, ask=True))
    answer, quote, place = [line for line in str(message.content).splitlines() if line]
    assert (answer, quote) == ("7 days", '"Returns are accepted for 7 days."')
    evidence = message.artifact["evidence"]
    source = (tmp_path / "docs" / "shop.md").read_bytes()[evidence["start"] : evidence["stop"]]
    assert source.decode() == evidence["quote"]
    assert place == f"docs/shop.md > Shop > Returns, bytes {evidence['start']} to {evidence['stop']}"
    assert (message.artifact["answer"], evidence["verified"], message.artifact["votes"]) == ("7 days", True, 1)
    assert [one.metadata["headings"] for one in message.artifact["documents"]] == [["Shop"]]
    (tmp_path / "docs" / "shop.md").write_text("other")
    with pytest.warns(AgentKVWarning, match="has changed since it was added"):
        message = called(search_documents(corpus, ask=True))
    assert str(message.content).endswith("; the file has changed since it was read")
    assert (message.artifact["evidence"]["verified"], len(message.artifact["notes"])) == (False, 1)


def test_asking_says_where_nothing_is_stated(corpus: Corpus) -> None:
    tool = search_documents(corpus, ask=True, k=2)
    message = called(tool, "When does the train leave on Tuesday?")
    assert str(message.content).startswith("The documents do not state it in the passages that were read: docs/trains")
    assert (message.artifact["answer"], message.artifact["evidence"]) == (None, None)
    assert 1 <= len(message.artifact["documents"]) <= 2
    nothing = called(tool, "xylophone")
    assert (nothing.artifact["documents"], "other words" in str(nothing.content)) == ([], True)


@pytest.mark.parametrize("ask", [True, False])
def test_what_is_asked_wrongly_is_told_to_the_model_and_a_fault_is_raised(corpus: Corpus, ask: bool) -> None:
    tool = search_documents(corpus, ask=ask)
    with pytest.raises(ValueError, match="at least 1 character"):
        called(tool, "  ")
    if ask:
        message = called(tool, "returns " * 400)
        assert (message.status, "window" in str(message.content)) == ("error", True)
    corpus.shelf.sources.remove(corpus.find(QUESTION, 1)[0].document.sha256)
    corpus = Corpus(corpus.memory)
    with pytest.raises(StaleDocument):
        called(search_documents(corpus, ask=ask))


@pytest.mark.parametrize("wrong", [{"k": 0}, {"ask": True, "max_new": 0}, {"rerank_from": -1}])
def test_settings_that_make_no_sense_are_refused(corpus: Corpus, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        search_documents(corpus, **wrong)
    with pytest.raises(UsageError, match="model"):
        search_documents(corpus.shelf, ask=True)


async def test_the_loop_runs_on_while_the_documents_are_asked(corpus: Corpus) -> None:
    tool = search_documents(corpus, ask=True)
    expected = called(tool).content
    assert isinstance(corpus.memory.engine, SlowEngine)
    corpus.memory.engine.step = 0.02
    ticks = 0
    task = asyncio.create_task(tool.ainvoke({"query": QUESTION}))
    while not task.done():
        await asyncio.sleep(0.005)
        ticks += 1
    corpus.memory.engine.step = 0.0
    assert await task == expected
    assert ticks > 5


def test_an_agent_asks_its_documents_with_its_own_model(tmp_path: Path) -> None:
    def says(prompt: str) -> str:
        if "The passage says" in prompt or "<tools>" not in prompt:
            return ANSWER
        if "<tool_response>" in prompt:
            return "Seven days." if "7 days" in prompt else "I do not know."
        call = {"name": "search_documents", "arguments": {"query": QUESTION}}
        return f"```json\n{json.dumps(call)}\n```"

    corpus = made_corpus(tmp_path, says)
    assert isinstance(corpus.memory.engine, SlowEngine)
    corpus.memory.engine._keeps_grammar = True
    chat = ChatAgentKV(memory=corpus.memory, skill=None, max_new=120)
    agent = create_agent(chat, [search_documents(corpus, ask=True, k=1)])
    messages = agent.invoke({"messages": [HumanMessage("May I bring it back after a week?")]})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[-1].content == "Seven days."
    kind, data = JsonPlusSerializer().dumps_typed(messages[2].artifact)
    assert JsonPlusSerializer().loads_typed((kind, data)) == messages[2].artifact
