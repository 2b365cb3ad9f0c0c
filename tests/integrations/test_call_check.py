"""Calls checked after the grammar; calls that have their result; answers that would be empty."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_agentkv import ChatAgentKV
from langchain_agentkv.messages import key, repeats
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.engine.template import GENERIC, ToolCall
from tests.integrations.chatting import added, timeless


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def mul(b: int = 1) -> int:
    """Multiply."""
    return b


ADD, MUL = ToolCall("add", '{"a": 1, "b": 2}'), ToolCall("mul", '{"b": 2}')
Prompts = list[str]


@pytest.fixture
def prompts() -> Prompts:
    return []


def talking(tmp_path: Path, says: Any) -> ChatAgentKV:
    """A chat model that says what ``says`` makes of the prompt; no grammar binds it."""
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=says, keeps_grammar=True))
    return ChatAgentKV(memory=memory, skill=None, keep=False)


def streams(chat: Any, asked: Any) -> list[AIMessage]:
    """The answer by each of the three ways, the invoked one first."""

    async def collect() -> AIMessage:
        return added([chunk async for chunk in chat.astream(asked)])

    return [chat.invoke(asked), added(list(chat.stream(asked))), asyncio.run(collect())]


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (ToolCall("sub", '{"a": 1, "b": 2}'), "no tool that may be called is named 'sub'; there are: add, mul"),
        (ToolCall("add", '{"a": 1}'), "the call of 'add' lacks the required 'b'"),
        (ToolCall("add", "{}"), "the call of 'add' lacks the required 'a', 'b'"),
    ],
)
def test_a_call_that_cannot_be_made_is_an_invalid_one(tmp_path: Path, call: ToolCall, fault: str) -> None:
    bound = talking(tmp_path, lambda _: GENERIC.text([call])).bind_tools([add, mul])
    with pytest.warns(AgentKVWarning, match=fault):
        answers = streams(bound, "?")
    for answer in answers:
        assert answer.tool_calls == []
        assert [(bad["name"], bad["args"]) for bad in answer.invalid_tool_calls] == [(call.name, GENERIC.text([call]))]
        assert answer.content == f"[no answer: {fault}]"
        assert answer.response_metadata["agentkv"]["notes"] == [f"{fault}; the call is in invalid_tool_calls"]
        assert answer.response_metadata["finish_reason"] == "stop"
    assert timeless(answers[0]) == timeless(answers[1]) == timeless(answers[2])


@pytest.mark.parametrize("text", ['<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>', "<tool_call>\n{"])
def test_a_call_that_is_not_whole_is_said_to_be_that(tmp_path: Path, text: str) -> None:
    with pytest.warns(AgentKVWarning, match="a call that is not whole; it is in invalid_tool_calls"):
        answer = talking(tmp_path, lambda _: text).bind_tools([add]).invoke("?")
    assert [bad["args"] for bad in answer.invalid_tool_calls] == [text]
    assert "was not whole]" in answer.text


def test_arguments_that_do_not_fit_are_noted_since_not_everybody_checks_them(tmp_path: Path) -> None:
    schema = {
        "title": "n",
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 10}},
        "required": ["n"],
    }
    call = GENERIC.text([ToolCall("n", '{"n": 123}')])
    agent = create_agent(talking(tmp_path, lambda _: call), [], response_format=ToolStrategy(schema))
    why = "the call of 'n' does not fit the schema, at $.n: 123 is greater than the maximum of 10"
    with pytest.warns(AgentKVWarning, match=re.escape(why)):
        state = agent.invoke({"messages": [HumanMessage("?")]})
    assert state["messages"][1].response_metadata["agentkv"]["notes"] == [why]
    assert [call["args"] for call in state["messages"][1].tool_calls] == [{"n": 123}]


def test_what_was_written_in_the_models_place_is_not_given_back_to_it(tmp_path: Path, prompts: Prompts) -> None:
    call = GENERIC.text([ToolCall("sub", "{}")])

    def reply(prompt: str) -> str:
        prompts.append(prompt)
        return call

    bound = talking(tmp_path, reply).bind_tools([add])
    with pytest.warns(AgentKVWarning, match="'sub'"):
        bad = bound.invoke("?")
    with pytest.warns(AgentKVWarning, match="'sub'"):
        bound.invoke([HumanMessage("?"), bad, HumanMessage("Go on.")])
    assert f"assistant\n{call}" in prompts[-1]
    assert "no answer" not in prompts[-1]


def test_a_cut_call_says_how_many_tokens_it_had(tmp_path: Path) -> None:
    bound = talking(tmp_path, lambda _: GENERIC.text([ADD])).bind_tools([add])
    for answer in streams(bound.bind(max_new=45), "?"):
        assert answer.content == "[no answer: the call of 'add' was cut at 45 tokens]"
        assert len(answer.invalid_tool_calls) == 1
        assert answer.response_metadata["finish_reason"] == "length"
        notes = answer.response_metadata["agentkv"]["notes"]
        assert notes == ["the answer was cut at 45 tokens; raise max_new for a longer one"]


@pytest.mark.parametrize("choice", ["any", "required", True, "add"])
def test_a_model_that_has_to_call_calls_once(tmp_path: Path, choice: Any) -> None:
    chat = talking(tmp_path, lambda _: GENERIC.text([ADD, ADD]))
    with pytest.warns(AgentKVWarning, match="a second call, of 'add', was left out: pass parallel_tool_calls=True"):
        answers = streams(chat.bind_tools([add], tool_choice=choice), "?")
    assert [[call["args"] for call in answer.tool_calls] for answer in answers] == [[{"a": 1, "b": 2}]] * 3
    if choice != "add":
        both = chat.bind_tools([add], tool_choice=choice, parallel_tool_calls=True).invoke("?")
        assert len(both.tool_calls) == 2
    with pytest.warns(AgentKVWarning, match="a second call"):
        assert len(chat.bind_tools([add], parallel_tool_calls=False).invoke("?").tool_calls) == 1
    assert len(chat.bind_tools([add]).invoke("?").tool_calls) == 2


# --- calls that have their result -----------------------------------------------------------------


def step(number: int, name: str, args: dict[str, Any], result: str, status: Any = "success") -> list[BaseMessage]:
    call: Any = {"name": name, "args": args, "id": f"call-{number}"}
    return [
        AIMessage("", tool_calls=[call]),
        ToolMessage(result, tool_call_id=call["id"], status=status),
    ]


READ, EDIT = ("read", {"path": "a", "n": 1}), ("edit", {"path": "a"})


@pytest.mark.parametrize(
    ("steps", "done"),
    [
        ([], []),
        ([(*READ, "x")], [READ]),
        ([(*READ, "x", "error")], []),
        ([(*READ, "x", "error"), (*READ, "x", "error")], [READ]),
        ([(*READ, "x", "error"), (*READ, "y", "error")], []),
        ([(*READ, "x"), (*EDIT, "ok")], [EDIT]),
        ([(*READ, "x"), (*EDIT, "ok"), (*READ, "y"), (*EDIT, "ok again")], [EDIT]),
        ([(*READ, "x"), (*EDIT, "ok"), (*READ, "x"), (*EDIT, "done")], [EDIT, READ]),
    ],
)
def test_which_calls_are_repetitions(steps: list[Any], done: list[Any]) -> None:
    messages = [HumanMessage("Go."), *(message for i, one in enumerate(steps) for message in step(i, *one))]
    found = repeats(messages)
    assert found.calls == {key(*one) for one in done}
    for name, args in done:
        reordered = json.dumps(dict(reversed(args.items())))
        assert found.holds(name, reordered)
    assert repeats([*messages, HumanMessage("Once more.")]).calls == set()


def test_an_agent_that_calls_again_is_asked_for_words(tmp_path: Path) -> None:
    """As a 1.5B model did: the same call after its result, three times, and an empty message at the end."""
    grammars: list[str | None] = []

    def says(prompt: str) -> str:
        words = bool(grammars) and "call-0" not in (grammars[-1] or "call-0")
        return "It is 3." if words else "Let me see.\n" + GENERIC.text([ADD])

    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=says, keeps_grammar=True))
    original = memory.stream

    def listening(*args: Any, **options: Any) -> Any:
        grammars.append(options["grammar"])
        return original(*args, **options)

    memory.stream = listening  # type: ignore[method-assign]
    agent = create_agent(ChatAgentKV(memory=memory, skill=None), [add])
    with pytest.warns(AgentKVWarning, match="the model called 'add' again with the same arguments"):
        state = agent.invoke({"messages": [HumanMessage("1 + 2?")]})
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    last = state["messages"][-1]
    assert (last.content, last.tool_calls) == ("Let me see.\n\nIt is 3.", [])
    assert last.usage_metadata["output_tokens"] > len("Let me see.\n\nIt is 3.")
    with pytest.warns(AgentKVWarning, match="again"):
        streamed: list[Any] = list(agent.stream({"messages": [HumanMessage("1 + 2?")]}, stream_mode="messages"))
    assert "".join(chunk.text for chunk, _ in streamed if chunk.type.startswith("AI")).endswith("It is 3.")


@pytest.mark.parametrize("choice", ["auto", "any"])
def test_the_other_tools_are_still_offered_in_place_of_a_repetition(tmp_path: Path, choice: str) -> None:
    asked: list[str] = []

    def says(prompt: str) -> str:
        return GENERIC.text([MUL if asked and "call-1" not in asked[-1] else ADD])

    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=says, keeps_grammar=True))
    original = memory.stream

    def listening(*args: Any, **options: Any) -> Any:
        asked.append(options["grammar"])
        return original(*args, **options)

    memory.stream = listening  # type: ignore[method-assign]
    chat = ChatAgentKV(memory=memory, skill=None, keep=False).bind_tools([add, mul], tool_choice=choice)
    with pytest.warns(AgentKVWarning, match="again with the same arguments"):
        answer = chat.invoke([HumanMessage("?"), *step(1, "add", {"a": 1, "b": 2}, "3")])
    assert [call["name"] for call in answer.tool_calls] == ["mul"]
    assert len(asked) == 2
    assert '"mul' in asked[1]
    assert "call-1" in asked[0]
    assert "call-1" not in asked[1]


@pytest.mark.parametrize("again", [GENERIC.text([ADD]), '{"name": "add", "arguments": {"b": 2, "a": 1}}', "", " \n"])
def test_the_last_message_of_an_agent_is_never_empty(tmp_path: Path, again: str) -> None:
    chat = talking(tmp_path, lambda prompt: again if "<tool_response>" in prompt else GENERIC.text([ADD]))
    with pytest.warns(AgentKVWarning):
        state = create_agent(chat, [add]).invoke({"messages": [HumanMessage("1 + 2?")]})
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert state["messages"][-1].content == "[no answer as text; the last result was: 3]"
    assert state["messages"][-1].response_metadata["agentkv"]["notes"]


def test_another_call_after_a_result_is_made(tmp_path: Path) -> None:
    def says(prompt: str) -> str:
        calls = prompt.count("<tool_response>")
        return "Done." if calls > 1 else GENERIC.text([MUL if calls else ADD])

    state = create_agent(talking(tmp_path, says), [add, mul]).invoke({"messages": [HumanMessage("?")]})
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert state["messages"][-1].content == "Done."
