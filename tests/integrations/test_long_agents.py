"""An agent that goes on although its window is small: LangChain's and deepagents' summarising middleware at work."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends import FilesystemBackend
from deepagents.middleware.summarization import SummarizationMiddleware as DeepSummarization
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_agentkv import ChatAgentKV, SkillMemoryMiddleware
from langchain_agentkv.errors import ContextOverflow
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from agentkv import AgentMemory, FakeEngine
from agentkv.engine.template import GENERIC, ToolCall
from agentkv.errors import WindowOverflow
from agentkv.notices import AgentKVWarning
from tests.integrations.chatting import Echo

SUMMARISE = "Summarise, be it of north:\n<messages>\n{messages}\n</messages>"
N_TURNS, WINDOW = 40, 2048


def add(a: int) -> int:
    """Add."""
    return a


def says(prompt: str) -> str:
    if "Summarise" in prompt:
        return "They talk."
    asked = prompt.rsplit("<tool_response>", 1)[-1]
    if "to add" in asked and "<tools>" in prompt:
        return GENERIC.text([ToolCall("add", '{"a": 1}')])
    return f"Answered: {asked[-60:].replace('assistant', '').strip()}"


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    engine = FakeEngine(window=WINDOW, replies=says, keeps_grammar=True)
    return AgentMemory(tmp_path / "store", engine, prefix="Be brief.\n\n", classifier=Echo())


@pytest.fixture
def backend(tmp_path: Path) -> FilesystemBackend:
    """Where deepagents puts what it has summarised."""
    return FilesystemBackend(tmp_path / "files", virtual_mode=True)


def test_a_full_window_is_langchains_error_and_ours(memory: AgentMemory) -> None:
    chat = ChatAgentKV(memory=memory, skill=None)
    for kind in (ContextOverflowError, WindowOverflow):
        with pytest.raises(kind):
            chat.invoke("x" * WINDOW)
        with pytest.raises(kind):
            list(chat.stream("x" * WINDOW))
    with pytest.raises(ContextOverflow, match=f"over the context window of {WINDOW}") as full:
        chat.invoke("x" * WINDOW)
    assert (full.value.window, full.value.exit_code) == (WINDOW, WindowOverflow.exit_code)
    assert not full.value.is_retryable
    assert chat.profile is not None
    assert chat.profile["max_input_tokens"] == WINDOW


MIDDLEWARE: dict[str, Any] = {
    "deepagents, on overflow": lambda chat, backend: DeepSummarization(
        chat, backend=backend, trigger=None, keep=("messages", 4), summary_prompt=SUMMARISE
    ),
    "deepagents, by fraction": lambda chat, backend: DeepSummarization(
        chat, backend=backend, trigger=("fraction", 0.85), keep=("fraction", 0.1), summary_prompt=SUMMARISE
    ),
    "langchain, by fraction": lambda chat, backend: SummarizationMiddleware(
        chat, trigger=("fraction", 0.7), keep=("messages", 4), summary_prompt=SUMMARISE
    ),
    "langchain, counted": lambda chat, backend: SummarizationMiddleware(
        chat,
        trigger=("tokens", 1400),
        keep=("messages", 4),
        summary_prompt=SUMMARISE,
        token_counter=chat.get_num_tokens_from_messages,
    ),
}


@pytest.mark.parametrize("kind", MIDDLEWARE)
def test_forty_turns_in_a_small_window(memory: AgentMemory, backend: FilesystemBackend, kind: str) -> None:
    memory.deposit_text("north", "A long manual of the north. " * 40, "The north vault.")
    chat = ChatAgentKV(memory=memory)
    agent = create_agent(chat, [], middleware=[MIDDLEWARE[kind](chat, backend)], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    read = []
    for number in range(N_TURNS):
        state = agent.invoke({"messages": [HumanMessage(f"Question {number}, of some length or other?")]}, config)
        answer = state["messages"][-1]
        assert f"Question {number}," in answer.text
        read.append(answer.usage_metadata["input_tokens"])
    assert max(read) < WINDOW
    assert sum(later < earlier for earlier, later in pairwise(read)) >= 2
    routed: list[str] = memory.classifier.asked  # type: ignore[attr-defined]
    assert len(routed) >= N_TURNS
    assert not any("Summarise" in question for question in routed)


def test_turns_with_tools_in_a_small_window(memory: AgentMemory, backend: FilesystemBackend) -> None:
    chat = ChatAgentKV(memory=memory, skill=None)
    middleware = MIDDLEWARE["deepagents, on overflow"](chat, backend)
    agent = create_agent(chat, [add], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for number in range(12):
        state = agent.invoke({"messages": [HumanMessage(f"Question {number}, to add?")]}, config)
        assert state["messages"][-1].text.startswith("Answered: ")
    assert sum(isinstance(message, ToolMessage) for message in state["messages"]) >= 4


@pytest.mark.parametrize("through", ["model", "middleware"])
def test_a_manual_that_leaves_no_room_beside_the_system_text_is_not_the_agents_end(
    memory: AgentMemory, through: str
) -> None:
    memory.deposit_text("north", "A manual. " * 100, "The north vault.")
    chat = ChatAgentKV(memory=memory)
    middleware = [SkillMemoryMiddleware(memory=memory)] if through == "middleware" else []
    agent = create_agent(chat, [], middleware=middleware, system_prompt="Be brief. " * 100)
    for _ in range(2):
        with pytest.warns(AgentKVWarning, match="'north' leaves no room .*; answered without a manual"):
            state = agent.invoke({"messages": [HumanMessage("Question of north?")]})
        answer = state["messages"][-1]
        record = answer.response_metadata["agentkv"]
        assert "Question of north?" in answer.text
        assert (record["decision"]["raw_pick"], record["decision"]["pick"]) == ("north", None)
        assert "leaves no room" in record["decision"]["fallback"]
        assert any("answered without a manual" in note for note in record["notes"])
    with pytest.raises(ContextOverflow):  # asked for by name, it is not dropped
        ChatAgentKV(memory=memory, skill="north").invoke([SystemMessage("Be brief. " * 100), HumanMessage("North?")])


def test_a_smaller_part_of_the_skill_is_taken_by_the_routers_scores(memory: AgentMemory) -> None:
    for part, length in (("one", 120), ("two", 20), ("three", 20)):
        memory.deposit_text(f"north/{part}", "A manual. " * length, f"The north vault, {part}.")
    scores = {"north/one": 3.0, "north/two": 1.0, "north/three": 2.0}
    memory.classifier.scores = scores  # type: ignore[attr-defined]
    chat = ChatAgentKV(memory=memory)
    with pytest.warns(AgentKVWarning, match="'north/one' leaves no room .*; answered from 'north/three'"):
        answer = chat.invoke([SystemMessage("Be brief. " * 100), HumanMessage("Question of north/one?")])
    assert answer.response_metadata["agentkv"]["decision"]["pick"] == "north/three"
