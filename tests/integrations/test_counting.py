"""Tokens as LangChain asks for them: the model's own, template included."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from langchain_agentkv import ChatAgentKV
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage, trim_messages
from langchain_core.tools import tool

from agentkv import AgentMemory

SAID: list[BaseMessage] = [
    SystemMessage("You keep the vaults."),
    HumanMessage("Hello é"),
    AIMessage("Hi."),
    HumanMessage("The code?"),
]


@tool
def add(a: int) -> int:
    """Add."""
    return a


def test_token_ids_are_the_engines(chat: ChatAgentKV, memory: AgentMemory) -> None:
    text = "The code é <end>"
    assert chat.get_token_ids(text) == memory.engine.tokenize(text, special=False)
    assert chat.get_num_tokens(text) == len(text.encode())
    assert "transformers" not in sys.modules
    assert ChatAgentKV(memory=memory, custom_get_token_ids=lambda _: [1, 2]).get_num_tokens(text) == 2


@pytest.mark.parametrize("stop", [2, 4])
@pytest.mark.parametrize("skill", [None, "north"])
def test_messages_count_what_asking_them_reads(memory: AgentMemory, skill: str | None, stop: int) -> None:
    chat = ChatAgentKV(memory=memory, skill=skill)
    answer = chat.invoke(SAID[:stop])
    assert answer.usage_metadata is not None
    assert chat.get_num_tokens_from_messages(SAID[:stop]) == answer.usage_metadata["input_tokens"]
    routed = ChatAgentKV(memory=memory)
    manual = 0 if skill is None else len(memory.routing.manifest(skill).tokens)
    assert chat.get_num_tokens_from_messages(SAID[:stop]) == routed.get_num_tokens_from_messages(SAID[:stop]) + manual


def test_tools_count_too(chat: ChatAgentKV, memory: AgentMemory) -> None:
    memory.engine._keeps_grammar = True  # type: ignore[attr-defined]
    answer: Any = chat.bind_tools([add]).invoke(SAID[:2], skill=None)
    counted = chat.get_num_tokens_from_messages(SAID[:2], tools=[add])
    assert counted == answer.usage_metadata["input_tokens"] > chat.get_num_tokens_from_messages(SAID[:2]) + 50


@pytest.mark.parametrize(
    "part",
    [
        [SystemMessage("Be brief.")],
        [AIMessage("Hi.")],
        [SystemMessage("a"), HumanMessage("b"), AIMessage("c")],
        [ToolMessage("3", tool_call_id="1"), AIMessage("It is 3.")],
        [HumanMessage("b"), AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": "1"}])],
        [HumanMessage([{"type": "image", "url": "https://example.org/a.png"}])],
        [HumanMessage("")],
    ],
)
def test_parts_of_a_conversation_are_counted(chat: ChatAgentKV, part: list[BaseMessage]) -> None:
    text = sum(len(message.text.encode()) for message in part)
    counted = chat.get_num_tokens_from_messages(part)
    assert text < counted < text + 400
    longer = [part[0].model_copy(update={"content": f"{part[0].text} more"}), *part[1:]]
    assert chat.get_num_tokens_from_messages(longer) > counted - 100
    assert chat.get_num_tokens_from_messages([]) == 0


def test_trimming_keeps_what_fits(chat: ChatAgentKV) -> None:
    said: list[BaseMessage] = [SAID[0]]
    for number in range(20):
        said += [HumanMessage(f"Question {number} of many?"), AIMessage(f"Answer {number} of many.")]
    said.append(HumanMessage("And now?"))
    kept = trim_messages(said, max_tokens=700, token_counter=chat, include_system=True, start_on="human")
    assert kept[0] == said[0]
    assert kept[-1] == said[-1]
    assert 3 < len(kept) < 20
    assert chat.get_num_tokens_from_messages(kept) <= 700
    answer = chat.invoke(kept, skill=None)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] <= 700
