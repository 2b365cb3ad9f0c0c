from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_agentkv import ChatAgentKV
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool

from agentkv import AgentMemory
from agentkv.engine.prompt import Message
from agentkv.engine.template import GENERIC, ToolCall
from agentkv.errors import UsageError
from tests.integrations.chatting import SlowEngine, added, timeless


@tool
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@tool
def mul(b: int) -> int:
    """Multiply."""
    return b


ADD, MUL = ToolCall("add", '{"a": 1}'), ToolCall("mul", '{"b": 2}')


class Scripted(SlowEngine):
    """Says ``says`` to everything; keeps the grammars that it was given."""

    says = ""

    def __init__(self) -> None:
        super().__init__(replies=lambda prompt: self._answer_to(prompt), keeps_grammar=True)
        self.grammars: list[str] = []
        self.heard = ""

    def _answer_to(self, prompt: str) -> str:
        if prompt.startswith("system\n"):  # and not the ids of a self-test
            self.heard = prompt
        return self.says

    def sampler(self, sampling: Any, grammar: str | None = None) -> Any:
        if grammar is not None:
            self.grammars.append(grammar)
        return super().sampler(sampling, grammar)


@pytest.fixture
def engine() -> Scripted:
    return Scripted()


@pytest.fixture
def memory(tmp_path: Path, engine: Scripted) -> AgentMemory:
    return AgentMemory(tmp_path / "store", engine)


@pytest.fixture
def chat(memory: AgentMemory) -> ChatAgentKV:
    return ChatAgentKV(memory=memory, skill=None, max_new=300, keep=False)


def written(memory: AgentMemory, *calls: ToolCall) -> str:
    return memory.call_form.text(calls)


def streamed(bound: Runnable[Any, AIMessage], **settings: Any) -> list[AIMessageChunk]:
    chunks = list(bound.stream("?", **settings))
    assert all(isinstance(chunk, AIMessageChunk) for chunk in chunks)
    return cast(list[AIMessageChunk], chunks)


def contents(message: AIMessage) -> dict[str, Any]:
    return {**timeless(message), "calls": message.tool_calls, "invalid": message.invalid_tool_calls}


# --- calls ----------------------------------------------------------------------------------------


def test_calls_are_read_and_text_before_them_is_kept(chat: ChatAgentKV, memory: AgentMemory, engine: Scripted) -> None:
    engine.says = "Let me see.\n" + written(memory, ADD, MUL)
    answer = chat.bind_tools([add, mul]).invoke("What is 1 + 0, and 2?")
    assert answer.content == "Let me see."
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("add", {"a": 1}), ("mul", {"b": 2})]
    assert len({call["id"] for call in answer.tool_calls}) == 2
    assert answer.invalid_tool_calls == []
    assert answer.response_metadata["finish_reason"] == "tool_calls"
    assert '"name": "add", "description": "Add two numbers."' in engine.heard


def test_an_answer_in_text_is_text(chat: ChatAgentKV, engine: Scripted) -> None:
    engine.says = "It is <tool"
    answer = chat.bind_tools([add]).invoke("?")
    assert (answer.content, answer.tool_calls) == ("It is <tool", [])
    assert answer.response_metadata["finish_reason"] == "stop"


@pytest.mark.filterwarnings("ignore:the model gave neither text nor a call")
@pytest.mark.parametrize("says", ["", "Let me see.\n", "  \n "])
@pytest.mark.parametrize("calls", [(ADD,), (ADD, MUL), (ADD, ADD), ()])
def test_a_stream_sums_to_the_invoked_answer(
    chat: ChatAgentKV, memory: AgentMemory, engine: Scripted, says: str, calls: tuple[ToolCall, ...]
) -> None:
    engine.says = says + written(memory, *calls)
    bound = chat.bind_tools([add, mul])
    expected = bound.invoke("?")
    assert len(expected.tool_calls) == len(calls)
    chunks = streamed(bound)
    pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert [piece["index"] for piece in pieces] == list(range(len(calls)))
    assert all(piece["name"] and piece["id"] and piece["args"] for piece in pieces)

    async def collect() -> AIMessageChunk:
        return added([chunk async for chunk in bound.astream("?") if isinstance(chunk, AIMessageChunk)])

    assert contents(added(chunks)) == contents(asyncio.run(collect())) == contents(expected)


@pytest.mark.parametrize("cut", [1, 2, 6, 11])
def test_a_call_that_was_cut_is_never_a_valid_one(
    chat: ChatAgentKV, memory: AgentMemory, engine: Scripted, cut: int
) -> None:
    engine.says = written(memory, ADD)
    length = len(engine.says.encode())
    bound = chat.bind_tools([add])
    for n in (length - cut, cut * 5):
        answer = bound.invoke("?", max_new=n)
        assert answer.tool_calls == []
        assert answer.response_metadata["finish_reason"] == "length"
        is_marked = n >= len("<tool_call>")
        assert [call["args"] for call in answer.invalid_tool_calls] == ([engine.says[:n]] if is_marked else [])
        cut_short = added(streamed(bound, max_new=n))
        assert (cut_short.tool_calls, cut_short.invalid_tool_calls) == ([], answer.invalid_tool_calls)
    whole = bound.invoke("?", max_new=length)
    assert (len(whole.tool_calls), whole.response_metadata["finish_reason"]) == (1, "length")


def test_a_whole_call_before_one_that_was_cut_is_kept(chat: ChatAgentKV, memory: AgentMemory, engine: Scripted) -> None:
    engine.says = written(memory, ADD, MUL)
    answer = chat.bind_tools([add, mul]).invoke("?", max_new=len(engine.says) - 8)
    assert [call["name"] for call in answer.tool_calls] == ["add"]
    assert [call["name"] for call in answer.invalid_tool_calls] == ["mul"]
    stopped = chat.bind_tools([add, mul]).invoke("?", stop=['"b"'])
    assert [call["name"] for call in stopped.tool_calls] == ["add"]
    assert [call["name"] for call in stopped.invalid_tool_calls] == ["mul"]


BARE = '{"name": "add", "arguments": {"a": 1}}'


@pytest.mark.parametrize("says", [BARE, f"```json\n{BARE}\n```", f"\n{{{BARE}}}", f"{BARE}\n{BARE}"])
def test_a_call_as_bare_json_is_a_call_and_is_read_again_in_the_form(
    chat: ChatAgentKV, memory: AgentMemory, engine: Scripted, says: str
) -> None:
    engine.says = says
    bound = chat.bind_tools([add, mul])
    answer = bound.invoke("?")
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("add", {"a": 1})] * says.count("add")
    assert (answer.content, answer.invalid_tool_calls) == ("", [])
    assert answer.response_metadata["finish_reason"] == "tool_calls"
    assert contents(added(streamed(bound))) == contents(answer)
    engine.says = "1."
    results = [ToolMessage("1", tool_call_id=call["id"]) for call in answer.tool_calls]
    assert bound.invoke([HumanMessage("?"), answer, *results]).content == "1."
    assert written(memory, *[ADD] * len(results)) in engine.heard


@pytest.mark.parametrize(
    ("says", "settings"),
    [
        (f"It is: {BARE}", {}),
        ('```json\n{"name": "sub", "arguments": {"a": 1}}\n```', {}),
        ('{"name": "add"}', {}),
        (BARE, {"tool_choice": "none"}),
        (BARE, {"response_format": {"type": "json_object"}}),
    ],
)
def test_json_that_is_no_bare_call_stays_text(
    chat: ChatAgentKV, engine: Scripted, says: str, settings: dict[str, Any]
) -> None:
    engine.says = says
    bound = chat.bind_tools([add], **settings)
    assert (bound.invoke("?").content, bound.invoke("?").tool_calls) == (says, [])
    assert added(streamed(bound)).content == says


def test_a_bare_call_that_was_cut_is_never_a_valid_one(chat: ChatAgentKV, engine: Scripted) -> None:
    engine.says = f"```json\n{BARE}\n```"
    bound = chat.bind_tools([add])
    for n in range(1, len("```json\n" + BARE)):
        answer = bound.invoke("?", max_new=n)
        assert answer.tool_calls == []
        texts = [str(call["args"]) for call in answer.invalid_tool_calls] or [str(answer.content)]
        assert [text.removeprefix("cut: ").strip() for text in texts] == [engine.says[:n].strip()]
    assert len(bound.invoke("?", max_new=len("```json\n" + BARE)).tool_calls) == 1


# --- what may be called ---------------------------------------------------------------------------


def roots(engine: Scripted) -> dict[str, str]:
    rules = dict(line.split(" ::= ", 1) for line in engine.grammars[-1].splitlines())
    return {name: rules[name] for name in ("root", "call", "calls") if name in rules}


@pytest.mark.parametrize(
    ("choice", "root", "n_tools"),
    [
        (None, "lead-0", 2),
        (False, "lead-0", 2),
        ("auto", "lead-0", 2),
        ("any", "calls", 2),
        (True, "calls", 2),
        ("required", "calls", 2),
        ("mul", "calls", 1),
        ({"type": "function", "function": {"name": "mul"}}, "calls", 1),
        ({"type": "tool", "name": "mul"}, "calls", 1),
        ({"type": "any"}, "calls", 2),
        ("none", "text-0", 0),
    ],
)
def test_tool_choice(chat: ChatAgentKV, engine: Scripted, choice: Any, root: str, n_tools: int) -> None:
    engine.says = "ok"
    chat.bind_tools([add, mul], tool_choice=choice).invoke("?")
    rules = roots(engine)
    assert root in rules["root"]
    assert len(rules.get("call", "").split(" | ")) == max(n_tools, 1)
    assert ("call" in rules) == (n_tools > 0)
    assert ("*" in rules.get("calls", "")) == (root == "lead-0")
    assert '"mul"' in engine.heard
    assert '"add"' in engine.heard


def test_one_call_at_a_time_on_request(chat: ChatAgentKV, engine: Scripted) -> None:
    engine.says = "ok"
    chat.bind_tools([add, mul], parallel_tool_calls=False).invoke("?")
    assert roots(engine)["calls"] == "call"


def test_no_calls_are_read_where_none_may_be_made(chat: ChatAgentKV, memory: AgentMemory, engine: Scripted) -> None:
    engine.says = written(memory, ADD)
    answer = chat.bind_tools([add], tool_choice="none").invoke("?")
    assert (answer.content, answer.tool_calls) == (engine.says, [])
    assert chat.invoke("?").content == engine.says


@pytest.mark.parametrize(
    ("tools", "settings", "reason"),
    [
        ([add], {"tool_choice": "ad"}, "did you mean add"),
        ([add], {"tool_choice": {"type": "nonsense"}}, "'nonsense'"),
        ([], {"tool_choice": "any"}, "needs tools"),
        ([7], {}, "7 is not a tool"),
        ([{"type": "function", "function": {}}], {}, "is not a tool"),
        ([add], {"temprature": 1}, "did you mean temperature"),
        ([add, {"title": "add", "description": "Another.", "type": "object", "properties": {}}], {}, "two tools"),
    ],
)
def test_what_cannot_be_bound_is_refused(chat: ChatAgentKV, tools: Any, settings: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        chat.bind_tools(tools, **settings).invoke("?")


def test_tools_may_be_given_with_the_call(chat: ChatAgentKV, memory: AgentMemory, engine: Scripted) -> None:
    engine.says = written(memory, ADD)
    assert chat.invoke("?", tools=[add], strict=True).tool_calls[0]["args"] == {"a": 1}


def test_the_same_tool_twice_is_one(chat: ChatAgentKV, engine: Scripted) -> None:
    engine.says = "ok"
    chat.bind_tools([add, add]).invoke("?")
    assert engine.heard.count("Add two numbers.") == 1


@pytest.mark.filterwarnings("ignore:the call of .odd. does not fit the schema")
@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/Lost"}}},
        {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(?=a)\\d{1,900}$"}}},
        {"type": "object", "properties": {"x": {"not": {"type": "null"}}, "é ü": {"enum": ['"\\', None]}}},
        {"allOf": [{"if": {}, "then": {}}], "type": ["object"]},
        {"type": "nonsense", "properties": 7},
        {},
    ],
)
def test_no_schema_is_too_strange(chat: ChatAgentKV, memory: AgentMemory, engine: Scripted, parameters: Any) -> None:
    engine.says = written(memory, ToolCall("odd", '{"x": 1}'))
    odd = {"type": "function", "function": {"name": "odd", "description": "?", "parameters": parameters}}
    assert chat.bind_tools([odd]).invoke("?").tool_calls[0]["args"] == {"x": 1}


# --- messages -------------------------------------------------------------------------------------


def test_calls_and_results_are_read_again_in_the_order_of_the_calls(
    chat: ChatAgentKV, memory: AgentMemory, engine: Scripted
) -> None:
    engine.says = written(memory, ADD, MUL)
    bound = chat.bind_tools([add, mul], keep=None)
    first = bound.invoke([SystemMessage("Count."), HumanMessage("1 + 0, and 2?")])
    one, two = first.tool_calls
    results: list[BaseMessage] = [
        ToolMessage("second", tool_call_id=two["id"]),
        ToolMessage([{"type": "text", "text": "first <end>"}], tool_call_id=one["id"]),
    ]
    called = engine.says
    engine.says = "1 and 2."
    last = bound.invoke([SystemMessage("Count."), HumanMessage("1 + 0, and 2?"), first, *results])
    assert last.content == "1 and 2."
    heard = engine.heard.split("1 + 0, and 2?")[1]
    assert heard.index(called) < heard.index("first <end>") < heard.index("second")
    assert last.usage_metadata is not None
    assert first.usage_metadata is not None
    asked = first.usage_metadata["input_tokens"]
    assert last.usage_metadata["input_token_details"]["cache_read"] == asked
    third = bound.invoke(
        [SystemMessage("Count."), HumanMessage("1 + 0, and 2?"), first, *reversed(results), last, HumanMessage("Sure?")]
    )
    assert third.usage_metadata is not None
    assert third.usage_metadata["input_token_details"]["cache_read"] >= last.usage_metadata["input_tokens"]


@pytest.mark.parametrize("says", [GENERIC.text([ADD]), f"```json\n{BARE}", BARE])
def test_a_broken_call_is_given_back_as_it_was_written(chat: ChatAgentKV, engine: Scripted, says: str) -> None:
    engine.says = says
    bound = chat.bind_tools([add])
    broken = bound.invoke("?", max_new=36)
    assert broken.invalid_tool_calls
    cut = engine.says[:36]
    engine.says = "ok"
    assert bound.invoke([HumanMessage("?"), broken, HumanMessage("Go on.")]).content == "ok"
    assert f"assistant\n{cut}" in engine.heard


def test_content_blocks_that_repeat_the_calls_are_not_read_twice(chat: ChatAgentKV, engine: Scripted) -> None:
    engine.says = "ok"
    block = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
    call = {"name": "add", "args": {"a": 1}, "id": "1"}
    answer = AIMessage([{"type": "text", "text": "Well."}, block], tool_calls=[call])
    chat.bind_tools([add]).invoke([HumanMessage("?"), answer, ToolMessage("1", tool_call_id="1")])
    assert engine.heard.count('{"name": "add", "arguments": {"a": 1}}') == 1


# --- agents, events, tracing ----------------------------------------------------------------------


def test_an_agent_calls_and_answers(memory: AgentMemory, engine: Scripted) -> None:
    from langchain.agents import create_agent

    memory.deposit_text("sums", "Sums are given with a full stop.", "How to give sums.")
    called = written(memory, ToolCall("add", '{"a": 1, "b": 2}'))
    engine._replies = lambda prompt: "3." if "<tool_response>\n3\n" in prompt else called
    agent = create_agent(ChatAgentKV(memory=memory, skill="sums"), [add], system_prompt="You count.")
    state = agent.invoke({"messages": [HumanMessage("1 + 2?")]})
    kinds = [message.type for message in state["messages"]]
    assert kinds == ["human", "ai", "tool", "ai"]
    assert state["messages"][-1].content == "3."
    records = [message.response_metadata["agentkv"] for message in state["messages"] if message.type == "ai"]
    assert [record["decision"]["pick"] for record in records] == ["sums", "sums"]
    assert records[1]["tokens"]["restored"] == records[0]["tokens"]["restored"] + records[0]["tokens"]["prefilled"]


def test_events_carry_the_calls(chat: ChatAgentKV, memory: AgentMemory, engine: Scripted) -> None:
    engine.says = "Well.\n" + written(memory, ADD)

    async def main() -> list[Any]:
        return [event async for event in chat.bind_tools([add]).astream_events("?", version="v2")]

    events = asyncio.run(main())
    output = next(event["data"]["output"] for event in events if event["event"] == "on_chat_model_end")
    assert [call["args"] for call in output.tool_calls] == [{"a": 1}]
    started = next(event for event in events if event["event"] == "on_chat_model_start")
    assert started["metadata"]["ls_provider"] == "agentkv"
    assert started["metadata"]["ls_model_name"] == "fake"


def test_the_core_teaches_tools_without_langchain(memory: AgentMemory, engine: Scripted) -> None:
    engine.says = written(memory, MUL)
    schema = {"type": "function", "function": {"name": "mul", "parameters": {"type": "object"}}}
    turn = memory.ask([Message("user", "?")], skill=None, tools=[schema])
    assert turn.text == engine.says
    assert '"name": "mul"' in engine.heard
