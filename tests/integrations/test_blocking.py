"""Every async path, while whatever blocks an event loop raises: files, locks, sleeps, SQLite."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, BlockingError, blockbuster_ctx
from langchain.agents import create_agent
from langchain_agentkv import (
    AgentKVByteStore,
    AgentKVCache,
    AgentKVRetriever,
    AgentKVStore,
    ChatAgentKV,
    SkillMemoryMiddleware,
    search_documents,
)
from langchain_core.messages import HumanMessage
from langchain_core.outputs import Generation

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.engine.template import GENERIC, ToolCall
from tests.integrations.chatting import added

OBJECT = {"title": "Code", "type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]}


def add(a: int) -> int:
    """Add."""
    return a


def says(prompt: str) -> str:
    if "JSON schema" in prompt:
        return '{"code": 7}'
    if "to add" in prompt and "<tool_response>" not in prompt:
        return GENERIC.text([ToolCall("add", '{"a": 1}')])
    return "7001"


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=says, keeps_grammar=True))
    memory.deposit_text("north", "The code of the vault is 7001.", "The north vault.")
    return memory


@pytest.fixture
def middleware(tmp_path: Path, memory: AgentMemory) -> SkillMemoryMiddleware[Any, Any]:
    folder = tmp_path / "skills" / "east"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: east\ndescription: The east vault.\n---\nThe code is 7001.\n")
    (folder / "references" / "more.md").write_text("More of it.\n")
    return SkillMemoryMiddleware(memory=memory, skills=[folder.parent], references=True)


@pytest.fixture
def corpus(tmp_path: Path, memory: AgentMemory) -> Corpus:
    (tmp_path / "returns.md").write_text("# Returns\n\nReturns are accepted for 7 days.\n")
    corpus = Corpus(memory, chunk_tokens=256, overlap=0)
    corpus.add([tmp_path / "returns.md"])
    return corpus


@pytest.fixture(autouse=True)
def watched(middleware: SkillMemoryMiddleware[Any, Any], corpus: Corpus) -> Iterator[BlockBuster]:
    """Once everything is made, whatever blocks the loop raises."""
    gc.collect()  # stores of other tests write down their uses when they are collected
    with blockbuster_ctx() as watching:
        yield watching


async def test_blocking_would_be_seen(tmp_path: Path) -> None:
    with pytest.raises(BlockingError):
        os.stat(tmp_path)  # noqa: PTH116 - this very call


async def test_a_chat_model(memory: AgentMemory) -> None:
    chat = ChatAgentKV(memory=memory)
    assert (await chat.ainvoke("The code of north?")).content == "7001"
    assert added([chunk async for chunk in chat.astream("The code?")]).content == "7001"
    assert [answer.content for answer in await chat.abatch(["The code?", "North?"])] == ["7001"] * 2
    assert [event async for event in chat.astream_events("The code?", version="v2")]
    called = await chat.bind_tools([add]).ainvoke("to add")
    assert [call["args"] for call in called.tool_calls] == [{"a": 1}]
    assert await chat.with_structured_output(OBJECT).ainvoke("?") == {"code": 7}
    assert chat.get_num_tokens_from_messages([HumanMessage("The code?")]) > 10


async def test_a_cached_chat_model(memory: AgentMemory) -> None:
    chat = ChatAgentKV(memory=memory, cache=AgentKVCache(memory.store))
    first = await chat.ainvoke("The code of north?")
    decoded = memory.engine.counters.decoded
    assert (await chat.ainvoke("The code of north?")).content == first.content == "7001"
    assert memory.engine.counters.decoded == decoded


async def test_an_agent_behind_skills(memory: AgentMemory, middleware: SkillMemoryMiddleware[Any, Any]) -> None:
    agent = create_agent(ChatAgentKV(memory=memory), [add], middleware=[middleware])
    for _ in range(2):
        state = await agent.ainvoke({"messages": [HumanMessage("to add, for east")]})
        assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert middleware.report is not None
    assert middleware.report.added == ("east",)


async def test_documents(corpus: Corpus) -> None:
    found = await AgentKVRetriever(corpus=corpus, k=1).ainvoke("How long are returns accepted?")
    assert [document.metadata["path"] for document in found] == ["returns.md"]
    for ask in (False, True):
        tool = search_documents(corpus, ask=ask)
        assert "returns.md" in await tool.ainvoke({"query": "How long are returns accepted?"})


async def test_stores(memory: AgentMemory) -> None:
    store, bytes_, cache = AgentKVStore(memory.store), AgentKVByteStore(memory.store), AgentKVCache(memory.store)
    await store.aput(("users", "ada"), "cat", {"text": "The cat is called Byron."})
    assert [item.key for item in await store.asearch(("users",), query="cat")] == ["cat"]
    item: Any = await store.aget(("users", "ada"), "cat")
    assert item.value["text"].endswith("Byron.")
    assert await store.alist_namespaces() == [("users", "ada")]
    await store.adelete(("users", "ada"), "cat")
    await bytes_.amset([("a", b"1")])
    assert await bytes_.amget(["a", "b"]) == [b"1", None]
    assert [key async for key in bytes_.ayield_keys()] == ["a"]
    await bytes_.amdelete(["a"])
    await cache.aupdate("p", "m", [Generation(text="42")])
    assert await cache.alookup("p", "m") == [Generation(text="42")]
    await cache.aclear()
