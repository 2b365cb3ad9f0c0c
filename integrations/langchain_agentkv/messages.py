"""LangChain's messages to agentkv's, their content blocks as text, calls that have their result, and token counts.

*Messages.* SystemMessages at the beginning are the agent's: their text follows the memory's own prefix, before tools
and manual, where it is prefilled once and stored (``create_agent`` passes the same one with every call). A later
SystemMessage stays where it is. Results of tools are put in the order of their calls. A broken call of an earlier
answer is given back as the text that it is. An answer at the end is another agent's (a hand-off, a draft to look at):
it is put to the model as the user's message, with its author's name before it.

*Blocks.* A block that holds text, or data that JSON can express, becomes that text. Anything else (an image, audio, a
file) is left out: a short text in square brackets takes its place, so that the model knows of it, and a note names it,
since a message that is in an agent's checkpoint comes back with every turn. In the question and in the agent's own text
it is refused instead.

*Repeats.* A small model that does not see what to do with a result makes the same call once more. A call is a
repetition if it was made in the step right before with the same arguments, or if it was made twice since the user's
last message and gave the same result both times. What follows another call may give another result (a file is read,
edited, read again), and a call that failed may be tried again, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from agentkv import AgentMemory
from agentkv.engine.prompt import Message
from agentkv.engine.template import ToolCall
from agentkv.errors import UsageError

_OF_CALLS = {"tool_use", "tool_call", "function_call", "invalid_tool_call", "input_json_delta", "reasoning", "thinking"}
"""Blocks of an assistant that repeat ``tool_calls``, or that a model does not get back."""
_NAMES = ("filename", "name", "title", "url", "uri", "file_id", "id", "mime_type", "mimeType", "media_type")
_LONGEST_NAME = 200
_NO_NAMES = ("data:", "lc_")
"""Bytes, and what LangChain made up: another one each time, so that no prompt would begin like an earlier one."""


Content = str | list[str | dict[str, Any]]


def text_of(content: str | Sequence[str | dict[str, Any]], *, by_model: bool = False) -> tuple[str, list[str]]:
    """The text of a message's content, and names of what was left out. ``by_model``: an assistant's own message."""
    if isinstance(content, str):
        return content, []
    texts, missing = [], list[str]()
    for block in content:
        text, inside = _read(block, by_model)
        if text is None:
            assert isinstance(block, Mapping)
            inside = [_named(block)]
            text = f"[{inside[0]}, left out: this model reads text only]"
        texts.append(text)
        missing += inside
    return "".join(texts), missing


def unreadable(content: str | Sequence[str | dict[str, Any]]) -> Iterable[str]:
    """The types of the blocks that would be left out, in whole or in part."""
    read = [] if isinstance(content, str) else [(block, *_read(block, False)) for block in content]
    return [
        str(block.get("type"))
        for block, text, inside in read
        if isinstance(block, Mapping) and (text is None or inside)
    ]


def traceable(content: Content) -> Content:
    """The content in a form that LangChain's tracing accepts; it raises for an image without a type and for a text
    file.
    """
    if isinstance(content, str):
        return content
    return [_traceable(block) if isinstance(block, dict) else block for block in content]


def _traceable(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("source_type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    by_bytes = "base64" in block or block.get("source_type") == "base64"
    return (
        {**block, "mime_type": "image/*"}
        if block.get("type") == "image" and by_bytes and not block.get("mime_type")
        else block
    )


def _read(block: str | Mapping[str, Any], by_model: bool) -> tuple[str | None, list[str]]:
    """The text of a block, None if it has none, and the names of what was left out inside it."""
    if isinstance(block, str):
        return block, []
    kind = block.get("type")
    if by_model and kind in _OF_CALLS:
        return "", []
    if kind == "text" and block.get("text", "") is None:
        return "", []
    source = block.get("source")
    for holder in (block, *(inner for key in ("resource", "source") if isinstance(inner := block.get(key), Mapping))):
        if isinstance(holder.get("text"), str):
            return str(holder["text"]), []
    if isinstance(source, Mapping) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"]), []
    if kind == "json" or (kind is None and "json" in block):
        data = next((block[key] for key in ("json", "data", "value", "content") if key in block), None)
        return None if data is None else _as_json(data), []
    for inner in (block.get("content"), source.get("content") if isinstance(source, Mapping) else None):
        if isinstance(inner, str) or (isinstance(inner, list) and all(isinstance(one, str | Mapping) for one in inner)):
            return text_of(inner)
    return None, []


def _as_json(data: Any) -> str | None:
    try:
        return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _named(block: Mapping[str, Any]) -> str:
    """A short name of a block, without its bytes: ``image https://example.org/a.png``."""
    kind = str(block.get("type") or "unknown block").removesuffix("_url")
    inner = block.get("image_url" if block.get("type") == "input_image" else str(block.get("type")))
    inner = {"url": inner} if isinstance(inner, str) else inner
    for holder in (block, inner if isinstance(inner, Mapping) else {}, block.get("source") or {}):
        for key in _NAMES if isinstance(holder, Mapping) else ():
            name = holder.get(key)
            if isinstance(name, str) and name and not name.startswith(_NO_NAMES) and len(name) <= _LONGEST_NAME:
                return f"{kind} {name}"
    return kind


# --- calls that have their result -----------------------------------------------------------------

_Key = tuple[str, str]


@dataclass(frozen=True)
class Repeats:
    """Calls by name and arguments that have their result; ``result``: the last one of all, None without calls."""

    calls: frozenset[_Key] = field(default_factory=frozenset)
    result: str | None = None

    def holds(self, name: str, arguments: str) -> bool:
        """Whether this call, its arguments as JSON text, has its result already."""
        return key(name, json.loads(arguments, strict=False)) in self.calls


def key(name: str, arguments: Any) -> _Key:
    """The identity of a call; the order of its arguments does not count."""
    return name, json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)


def repeats(messages: Sequence[BaseMessage]) -> Repeats:
    """The calls since the last user message in ``messages`` that have their result already."""
    begin = max((i + 1 for i, message in enumerate(messages) if isinstance(message, HumanMessage)), default=0)
    results: dict[_Key, list[str]] = {}
    step: list[tuple[str | None, _Key]] = []
    done: set[_Key] = set()
    last: str | None = None
    for message in messages[begin:]:
        if isinstance(message, AIMessage):
            step, done = [(call["id"], key(call["name"], call["args"])) for call in message.tool_calls], set()
        elif isinstance(message, ToolMessage):
            last = text_of(message.content)[0]
            called = _called(message, step)
            if called is not None:
                results.setdefault(called, []).append(last)
                done |= set() if message.status == "error" else {called}
    stuck = {called for called, texts in results.items() if len(texts) > 1 and texts[-1] == texts[-2]}
    return Repeats(frozenset(done | stuck), last)


def _called(result: ToolMessage, step: list[tuple[str | None, _Key]]) -> _Key | None:
    """The call that a result belongs to: by its id, else by its place among the results."""
    for index, (call_id, called) in enumerate(step):
        if call_id == result.tool_call_id or (not call_id and not result.tool_call_id):
            del step[index]
            return called
    return None


# --- messages -------------------------------------------------------------------------------------

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

    The question is the last user message; it stays the same while tools are called for it. ``notes``: what was left
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
    """Messages as a conversation. Raises UsageError, with the message's index, where they do not make one."""
    rest = list(enumerate(map(_by_role, messages)))
    system: list[str] = []
    while rest and isinstance(rest[0][1], SystemMessage):
        system.append(_text_only(*rest.pop(0)))
    _require_question(rest)
    spoken = [message for _, message in rest]
    last = spoken[-1]
    notes: list[str] = []
    turns = [_message(index, message, notes) for index, message in _in_order(rest)]
    if isinstance(last, AIMessage):
        turns[-1] = Message("user", f"{last.name}: {turns[-1].content}" if last.name else turns[-1].content)
    if turns[0].role == "tool":
        raise UsageError(f"message {rest[0][0]} is a tool's result, and no message before it calls a tool")
    return Conversation(
        tuple(turns),
        _question(spoken, turns),
        "\n\n".join(text.strip() for text in system if text.strip()),
        tuple(dict.fromkeys(notes)),
        repeats(spoken),
    )


def lenient(messages: Sequence[BaseMessage]) -> tuple[str, list[Message]]:
    """The system text and the turns of any messages, even if they do not make a conversation; for counting."""
    rest = list(enumerate(map(_by_role, messages)))
    system: list[str] = []
    while rest and isinstance(rest[0][1], SystemMessage):
        system.append(text_of(rest.pop(0)[1].content)[0].strip())
    return "\n\n".join(filter(None, system)), [_message(index, message, []) for index, message in _in_order(rest)]


def _by_role(message: BaseMessage) -> BaseMessage:
    """A ChatMessage as the message type of its role; one with another role as the answer of an agent of that name."""
    if not isinstance(message, ChatMessage):
        return message
    kind = _ROLES.get(message.role.lower(), AIMessage)
    name = message.name if message.role.lower() in _ROLES else message.role
    return kind(message.content, name=name, id=message.id)


def _require_question(rest: list[tuple[int, BaseMessage]]) -> None:
    """Drop empty answers at the end; raise UsageError unless something that can be answered is left."""
    while rest and isinstance(rest[-1][1], AIMessage) and not (rest[-1][1].text.strip() or rest[-1][1].tool_calls):
        rest.pop()
    if not rest:
        raise UsageError("there is nothing to answer: pass a message of the user's, a tool's or another agent's")
    if isinstance(rest[-1][1], AIMessage) and rest[-1][1].tool_calls:
        raise UsageError(f"message {rest[-1][0]} calls tools, and no message after it brings a result")
    asked = next((item for item in reversed(rest) if isinstance(item[1], HumanMessage)), None)
    if asked is not None:
        _text_only(*asked)


def _question(spoken: Sequence[BaseMessage], turns: Sequence[Message]) -> str:
    """What is routed: the last message by a person, else by a middleware in a person's place, else the last user turn.

    Raises UsageError where it is empty.
    """
    people = [message for message in spoken if isinstance(message, HumanMessage)]
    own = [message for message in people if "lc_source" not in message.additional_kwargs] or people
    question = text_of(own[-1].content)[0] if own else next((t.content for t in turns[::-1] if t.role == "user"), "")
    if not question.strip():
        raise UsageError("the question is empty: there is no user message, or nothing in the last one")
    return question


def _in_order(messages: list[tuple[int, BaseMessage]]) -> list[tuple[int, BaseMessage]]:
    """Results in the order of the calls that they answer, since the model's template has no call ids."""
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
            f"message {index} has a content block of type {kind!r}, and this model reads text only: describe it in text"
        )
    return text_of(message.content)[0]


# --- system text and token counts -----------------------------------------------------------------


def system_text(memory: AgentMemory, agent: str, *more: str) -> str:
    """What follows the memory's prefix: the agent's text, unless it equals the prefix, then ``more``, separated by
    blank lines.
    """
    prefix = memory.prefix
    texts = [text for text in ("" if agent == prefix.strip() else agent, *more) if text]
    before = "" if not texts or not prefix or prefix.endswith("\n") else "\n\n"
    return before + "".join(f"{text}\n\n" for text in texts)


_ASKED = Message("user", "?")


def count_tokens(
    memory: AgentMemory, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], skill: str | None
) -> int:
    """Tokens of the prompt that ``messages`` make with ``skill``; of a part of a conversation, what it would add.

    Raises UnknownSkill.
    """
    if not messages and not tools:
        return 0
    try:
        asked = conversation(messages)
    except UsageError:
        return _of_a_part(memory, messages, tools, skill)
    return len(memory.prompt(asked.messages, skill, system=system_text(memory, asked.system), tools=tools).tokens)


def _of_a_part(
    memory: AgentMemory, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], skill: str | None
) -> int:
    """The template gets placeholders for what is missing; they are not counted."""
    system, turns = lenient(messages)
    before = [_ASKED] if turns and turns[0].role in ("tool", "system") else []
    whole = [*before, *turns, _ASKED]
    prompt = memory.prompt(whole, skill, system=system_text(memory, system), tools=tools)
    ends = [0, *accumulate(map(len, prompt.pieces))]
    return sum(map(len, prompt.blocks)) + ends[len(before) + len(turns)] - ends[len(before)]
