"""LangChain's messages to agentkv's.

SystemMessages at the beginning are the agent's: their text follows the memory's own prefix, before tools and manual,
where it is read once and stored (``create_agent`` passes the same one with every call). A later SystemMessage stays
where it is. Results of tools are put in the order of their calls. A broken call of an earlier answer is given back as
the text that it is. An answer at the end is another agent's (a hand-off, a draft to look at): it is put to the model as
the user's message, with its author's name before it.

What this form cannot carry (images, say) is left out with a notice, since a message that is in an agent's checkpoint
comes back with every turn. It is refused where it was just said: in the question, and in the agent's own text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from agentkv.engine.prompt import Message
from agentkv.engine.template import ToolCall
from agentkv.errors import UsageError
from langchain_agentkv.blocks import text_of, unreadable
from langchain_agentkv.repeats import Repeats, repeats

CUT = "cut: "
"""Stands before a broken call whose text could be read as an object; not the model's, so not given back to it."""
PLACEHOLDER = "agentkv_placeholder"
"""In ``additional_kwargs`` of an answer whose text was written here, since the model wrote none; not given back."""
_ROLES: dict[str, type[BaseMessage]] = {
    "user": HumanMessage,
    "human": HumanMessage,
    "assistant": AIMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}


@dataclass(frozen=True)
class Conversation:
    """The messages of a turn, the ``system`` text before them, and the ``question`` that is routed.

    The question is the last user message: while tools are called for it, it stays the same. ``notes``: what was left
    out, a sentence each. ``repeats``: the calls that have their result already.
    """

    messages: tuple[Message, ...]
    question: str
    system: str = ""
    notes: tuple[str, ...] = ()
    repeats: Repeats = field(default_factory=Repeats)

    @property
    def goes_on(self) -> bool:
        """Whether there is an answer in it already."""
        return any(message.role == "assistant" for message in self.messages)


def conversation(messages: Sequence[BaseMessage]) -> Conversation:
    """What agentkv is asked. Raises UsageError for what it cannot be asked, with the message's place."""
    rest = list(enumerate(map(_by_role, messages)))
    system: list[str] = []
    while rest and isinstance(rest[0][1], SystemMessage):
        system.append(_text_only(*rest.pop(0)))
    _require_question(rest)
    said = [message for _, message in rest]
    notes: list[str] = []
    turns = [_message(index, message, notes) for index, message in _in_order(rest)]
    if isinstance(said[-1], AIMessage):
        turns[-1] = Message("user", f"{said[-1].name}: {turns[-1].content}" if said[-1].name else turns[-1].content)
    if turns[0].role == "tool":
        raise UsageError(f"message {rest[0][0]} is a tool's result, and no message before it calls a tool")
    return Conversation(
        tuple(turns),
        _question(said, turns),
        "\n\n".join(text.strip() for text in system if text.strip()),
        tuple(dict.fromkeys(notes)),
        repeats(said),
    )


def lenient(messages: Sequence[BaseMessage]) -> tuple[str, list[Message]]:
    """The system text and the turns of any messages, whether they make a conversation or not; for counting."""
    rest = list(enumerate(map(_by_role, messages)))
    system: list[str] = []
    while rest and isinstance(rest[0][1], SystemMessage):
        system.append(text_of(rest.pop(0)[1].content)[0].strip())
    return "\n\n".join(filter(None, system)), [_message(index, message, []) for index, message in _in_order(rest)]


def _by_role(message: BaseMessage) -> BaseMessage:
    """A ChatMessage as the message of its role; of another role than those of a chat, as that agent's answer."""
    if not isinstance(message, ChatMessage):
        return message
    kind = _ROLES.get(message.role.lower(), AIMessage)
    name = message.name if message.role.lower() in _ROLES else message.role
    return kind(message.content, name=name, id=message.id)


def _require_question(rest: list[tuple[int, BaseMessage]]) -> None:
    """Drop empty answers at the end; raise UsageError unless something is left there that can be answered."""
    while rest and isinstance(rest[-1][1], AIMessage) and not (rest[-1][1].text.strip() or rest[-1][1].tool_calls):
        rest.pop()
    if not rest:
        raise UsageError("there is nothing to answer: pass a message of the user's, a tool's or another agent's")
    if isinstance(rest[-1][1], AIMessage) and rest[-1][1].tool_calls:
        raise UsageError(f"message {rest[-1][0]} calls tools, and no message behind it brings a result")
    asked = next((item for item in reversed(rest) if isinstance(item[1], HumanMessage)), None)
    if asked is not None:
        _text_only(*asked)


def _question(said: Sequence[BaseMessage], turns: Sequence[Message]) -> str:
    """What is routed: the last message of a person, else of a middleware that wrote in a person's place, else the last.

    Raises UsageError where it is empty.
    """
    people = [message for message in said if isinstance(message, HumanMessage)]
    own = [message for message in people if "lc_source" not in message.additional_kwargs] or people
    question = text_of(own[-1].content)[0] if own else next((t.content for t in turns[::-1] if t.role == "user"), "")
    if not question.strip():
        raise UsageError("the question is empty: there is no user message, or nothing in the last one")
    return question


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


def _message(index: int, message: BaseMessage, notes: list[str]) -> Message:
    by_model = isinstance(message, AIMessage)
    text, missing = text_of(message.content, by_model=by_model)
    notes += [f"message {index}: {name} was left out; this model reads text only" for name in missing]
    if isinstance(message, HumanMessage):
        return Message("user", text)
    if isinstance(message, AIMessage):
        broken = [(call["args"] or "").removeprefix(CUT) for call in message.invalid_tool_calls]
        own = "" if message.additional_kwargs.get(PLACEHOLDER) else text
        calls = tuple(_call(call) for call in message.tool_calls)
        return Message("assistant", "\n".join(part for part in (own, *broken) if part), calls)
    if isinstance(message, ToolMessage):
        return Message("tool", text or ("(the tool failed)" if message.status == "error" else ""))
    if isinstance(message, SystemMessage):
        return Message("system", text)
    raise UsageError(f"message {index} is of type {message.type!r}: pass system, user, assistant and tool messages")


def _call(call: Any) -> ToolCall:
    return ToolCall(call["name"], json.dumps(call["args"], ensure_ascii=False, default=str))


def _text_only(index: int, message: BaseMessage) -> str:
    """The text of a message that may hold nothing else. Raises UsageError."""
    for kind in unreadable(message.content):
        raise UsageError(
            f"message {index} has a content block of type {kind!r}, and this model reads text only: say in words what "
            "it holds"
        )
    return text_of(message.content)[0]
