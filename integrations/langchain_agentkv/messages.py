"""LangChain's messages to agentkv's.

SystemMessages at the beginning are the agent's: their text follows the memory's own prefix, before tools and manual,
where it is read once and stored (``create_agent`` passes the same one with every call). A later SystemMessage stays
where it is. Results of tools are put in the order of their calls. A broken call of an earlier answer is given back as
the text that it is. Anything that this form cannot carry (images, say) is refused, not dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from agentkv.engine.prompt import Message
from agentkv.engine.tools import ToolCall
from agentkv.errors import UsageError

CUT = "cut: "
"""Stands before a broken call whose text could be read as an object; not the model's, so not given back to it."""
_OF_CALLS = {"tool_use", "tool_call", "function_call", "invalid_tool_call", "input_json_delta", "reasoning", "thinking"}
"""Content blocks of an assistant that say what ``tool_calls`` says too, or what is not said to a model again."""


@dataclass(frozen=True)
class Conversation:
    """The messages of a turn, the ``system`` text before them, and the ``question`` that is routed.

    The question is the last user message: while tools are called for it, it stays the same.
    """

    messages: tuple[Message, ...]
    question: str
    system: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether there is an answer in it already."""
        return any(message.role == "assistant" for message in self.messages)


def conversation(messages: Sequence[BaseMessage]) -> Conversation:
    """What agentkv is asked. Raises UsageError for what it cannot be asked, with the message's place."""
    rest = list(enumerate(messages))
    system: list[str] = []
    while rest and isinstance(rest[0][1], SystemMessage):
        system.append(_text(*rest.pop(0)))
    if not rest or isinstance(rest[-1][1], AIMessage):
        raise UsageError("the last message must be the user's or a tool's: there is nothing to answer otherwise")
    turns = [_message(index, message) for index, message in _in_order(rest)]
    if turns[0].role == "tool":
        raise UsageError(f"message {rest[0][0]} is a tool's result, and no message before it calls a tool")
    question = next((turn.content for turn in reversed(turns) if turn.role == "user"), "")
    if not question.strip():
        raise UsageError("the question is empty: there is no user message, or nothing in the last one")
    return Conversation(tuple(turns), question, "\n\n".join(text.strip() for text in system if text.strip()))


def _in_order(messages: list[tuple[int, BaseMessage]]) -> list[tuple[int, BaseMessage]]:
    """Results in the order of the calls that they answer; the model's template names no ids."""
    place: dict[str | None, int] = {}
    out: list[tuple[int, BaseMessage]] = []
    results: list[tuple[int, BaseMessage]] = []
    for index, message in [*messages, (len(messages), None)]:
        if isinstance(message, ToolMessage):
            results.append((index, message))
            continue
        results.sort(key=lambda item: place.get(getattr(item[1], "tool_call_id", None), len(place)))
        out += results
        results = []
        if isinstance(message, AIMessage):
            place = {call["id"]: number for number, call in enumerate(message.tool_calls)}
        if message is not None:
            out.append((index, message))
    return out


def _message(index: int, message: BaseMessage) -> Message:
    if isinstance(message, HumanMessage):
        return Message("user", _text(index, message))
    if isinstance(message, AIMessage):
        broken = [(call["args"] or "").removeprefix(CUT) for call in message.invalid_tool_calls]
        text = "\n".join(part for part in (_text(index, message), *broken) if part)
        return Message("assistant", text, tuple(_call(call) for call in message.tool_calls))
    if isinstance(message, ToolMessage):
        return Message("tool", _text(index, message))
    if isinstance(message, SystemMessage):
        return Message("system", _text(index, message))
    raise UsageError(f"message {index} is of type {message.type!r}: pass system, user, assistant and tool messages")


def _call(call: Any) -> ToolCall:
    return ToolCall(call["name"], json.dumps(call["args"], ensure_ascii=False, default=str))


def _text(index: int, message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    calls = isinstance(message, AIMessage)
    return "".join(_block_text(index, block, calls) for block in message.content)


def _block_text(index: int, block: str | dict[str, Any], calls: bool) -> str:
    if isinstance(block, str):
        return block
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    if calls and block.get("type") in _OF_CALLS:
        return ""
    raise UsageError(f"message {index} has a content block of type {block.get('type')!r}: only text can be read")
