"""Messages of every kind that a checkpoint may hold: what is read of them, what is left out, what is refused."""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_agentkv import ChatAgentKV
from langchain_agentkv.messages import Conversation, conversation
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.engine.prompt import Message
from agentkv.engine.template import GENERIC, ToolCall
from agentkv.errors import UsageError
from tests.integrations.chatting import digest

CALL: Any = {"name": "look", "args": {}, "id": "1"}
IMAGE = {"type": "image", "url": "https://example.org/a.png"}


def asked(*messages: BaseMessage) -> Conversation:
    return conversation([HumanMessage("Look."), AIMessage("", tool_calls=[CALL]), *messages])


def result(*blocks: Any) -> ToolMessage:
    return ToolMessage(list(blocks), tool_call_id="1")


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "text", "text": "a room"}, "a room"),
        ("a room", "a room"),
        ({"type": "text-plain", "text": "a room", "mime_type": "text/plain"}, "a room"),
        ({"type": "json", "json": {"rooms": 2}}, '{"rooms": 2}'),
        ({"type": "json", "data": ["é"]}, '["é"]'),
        ({"json": {"rooms": 2}}, '{"rooms": 2}'),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "a room"}}, "a room"),
        ({"type": "search_result", "content": [{"type": "text", "text": "a room"}]}, "a room"),
        ({"type": "tool_result", "content": "a room"}, "a room"),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a room"}}, "a room"),
        ({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a r"}]}}, "a r"),
        ({"type": "file", "source_type": "text", "text": "a room"}, "a room"),
        ({"type": "text", "text": None}, ""),
    ],
)
def test_text_in_a_tools_result_is_read(block: Any, text: str) -> None:
    talk = asked(result({"type": "text", "text": "I see: "}, block))
    assert talk.messages[-1] == Message("tool", f"I see: {text}")
    assert talk.notes == ()


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (IMAGE, "image https://example.org/a.png"),
        ({"type": "image", "base64": "AAAA", "mime_type": "image/png"}, "image image/png"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "image"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, "image image/png"),
        ({"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}, "audio audio/wav"),
        ({"type": "file", "file_id": "f-1", "mime_type": "application/pdf"}, "file f-1"),
        ({"type": "video", "url": "https://example.org/v"}, "video https://example.org/v"),
        ({"type": "image_url", "image_url": "https://example.org/a.png"}, "image https://example.org/a.png"),
        ({"type": "input_image", "image_url": "https://example.org/a.png"}, "input_image https://example.org/a.png"),
        ({"type": "audio", "id": "lc_9f", "base64": "AAAA", "mime_type": "audio/wav"}, "audio audio/wav"),
        ({"type": "json"}, "json"),
        ({"no": "type"}, "unknown block"),
    ],
)
def test_what_is_not_text_in_a_result_is_left_out_by_name(block: Any, name: str) -> None:
    talk = asked(result({"type": "text", "text": "I see: "}, block))
    assert talk.messages[-1] == Message("tool", f"I see: [{name}, left out: this model reads text only]")
    assert talk.notes == (f"message 2: {name} was left out; this model reads text only",)


def test_of_a_block_that_holds_both_the_text_is_read() -> None:
    talk = asked(result({"type": "tool_result", "content": [{"type": "text", "text": "a room, "}, IMAGE]}))
    name = "image https://example.org/a.png"
    assert talk.messages[-1] == Message("tool", f"a room, [{name}, left out: this model reads text only]")
    assert talk.notes == (f"message 2: {name} was left out; this model reads text only",)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "base64": "AAAA"},
        {"type": "image", "source_type": "base64", "data": "AAAA"},
        {"type": "file", "source_type": "text", "text": "a room"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_what_langchain_itself_cannot_trace_ends_no_thread(chat: ChatAgentKV, block: Any) -> None:
    messages = [
        HumanMessage("Look."),
        AIMessage("", tool_calls=[CALL]),
        result("I see: ", block),
        HumanMessage("say so"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentKVWarning)
        first = chat.invoke(messages)
        assert first.content == "so"
        assert digest(chat.invoke(messages)) == digest(first)  # the prompt is the same
        assert "".join(chunk.text for chunk in chat.stream(messages)) == "so"
        assert chat.batch([messages])[0].content == asyncio.run(chat.ainvoke(messages)).content == "so"
    assert messages[2].content == ["I see: ", block]


@tool
def look() -> list[Any]:
    """Look."""
    return [{"type": "text", "text": "a room"}, IMAGE]


def test_a_thread_with_an_image_in_it_goes_on(tmp_path: Any) -> None:
    def says(prompt: str) -> str:
        return "A room." if "<tool_response>" in prompt else GENERIC.text([ToolCall("look", "{}")])

    chat = ChatAgentKV(memory=AgentMemory(tmp_path / "store", FakeEngine(replies=says, keeps_grammar=True)), skill=None)
    agent = create_agent(chat, [look], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.warns(AgentKVWarning, match="message 2: image https://example.org/a.png was left out"):
        state = agent.invoke({"messages": [HumanMessage("Look.")]}, config)
    answer = state["messages"][-1]
    assert answer.content == "A room."
    assert answer.response_metadata["agentkv"]["notes"] == [
        "message 2: image https://example.org/a.png was left out; this model reads text only"
    ]
    # An image of the user's is refused where it is asked about, and does not end the thread.
    with pytest.raises(UsageError, match="message 4 has a content block of type 'image', and this model"):
        agent.invoke({"messages": [HumanMessage(["And this?", IMAGE])]}, config)
    with pytest.warns(AgentKVWarning, match="left out"):
        state = agent.invoke({"messages": [HumanMessage("Never mind. What did you see?")]}, config)
    assert state["messages"][-1].content == "A room."


def test_a_last_message_of_another_agent_is_put_to_the_model() -> None:
    talk = conversation([HumanMessage("How many?"), AIMessage("Two, I think.", name="counter")])
    assert talk.messages[1:] == (Message("user", "counter: Two, I think."),)
    assert talk.question == "How many?"
    draft = conversation(
        [SystemMessage("Judge."), HumanMessage("An essay."), AIMessage([{"type": "text", "text": "Dr"}])]
    )
    assert draft.messages == (Message("user", "An essay."), Message("user", "Dr"))
    alone = conversation([AIMessage("A draft.")])
    assert (alone.messages, alone.question) == ((Message("user", "A draft."),), "A draft.")
    earlier = conversation([HumanMessage("a"), AIMessage("b", name="counter"), HumanMessage("c")])
    assert earlier.messages[1] == Message("assistant", "b")
    assert conversation([HumanMessage("a"), AIMessage("")]).messages == (Message("user", "a"),)
    critic = conversation([HumanMessage("An essay."), ChatMessage(content="Too long.", role="critic")])
    assert critic.messages == (Message("user", "An essay."), Message("user", "critic: Too long."))


def test_two_agents_hand_off(chat: ChatAgentKV) -> None:
    first = chat.invoke([HumanMessage("say so")])
    first.name = "writer"
    second = chat.invoke([SystemMessage("You judge."), HumanMessage("Write."), first])
    assert second.content == "I do not know."


def test_oddities_that_a_checkpoint_may_hold() -> None:
    both: Any = [{"name": "look", "args": {}, "id": None}, {"name": "ask", "args": {"é": [1]}, "id": None}]
    talk = conversation(
        [
            HumanMessage("a"),
            AIMessage("", tool_calls=both),
            ToolMessage("one", tool_call_id=""),
            ToolMessage("", tool_call_id="", status="error"),
            SystemMessage("Be brief."),
            ChatMessage(content="b", role="user"),
            ChatMessage(content="c", role="assistant"),
            ChatMessage(content="d", role="developer"),
            HumanMessage(""),
            HumanMessage("e"),
        ]
    )
    assert [(m.role, m.content) for m in talk.messages] == [
        ("user", "a"),
        ("assistant", ""),
        ("tool", "one"),
        ("tool", "(the tool failed)"),
        ("system", "Be brief."),
        ("user", "b"),
        ("assistant", "c"),
        ("system", "d"),
        ("user", ""),
        ("user", "e"),
    ]
    assert [call.arguments for call in talk.messages[1].calls] == ["{}", '{"é": [1]}']


def test_a_message_that_a_middleware_wrote_is_not_the_question() -> None:
    summary = HumanMessage("All about south.", additional_kwargs={"lc_source": "summarization"})
    assert conversation([HumanMessage("Of north?"), summary]).question == "Of north?"
    assert conversation([summary]).question == "All about south."


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
    talk: list[BaseMessage] = [SAID[0]]
    for number in range(20):
        talk += [HumanMessage(f"Question {number} of many?"), AIMessage(f"Answer {number} of many.")]
    talk.append(HumanMessage("And now?"))
    kept = trim_messages(talk, max_tokens=700, token_counter=chat, include_system=True, start_on="human")
    assert kept[0] == talk[0]
    assert kept[-1] == talk[-1]
    assert 3 < len(kept) < 20
    assert chat.get_num_tokens_from_messages(kept) <= 700
    answer = chat.invoke(kept, skill=None)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] <= 700
