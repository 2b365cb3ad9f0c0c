"""LangChain's messages to agentkv's, and a turn's record to LangChain's message.

An :class:`~agentkv.AgentMemory` has one system text, its prefix, which is read before every manual. A leading
SystemMessage is therefore no second system text: it is put in front of the first user message, with a blank line
between. Anything that this form cannot carry (images, tool calls, later system messages) is refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from agentkv.engine.prompt import Message
from agentkv.errors import UsageError
from agentkv.records import Turn


@dataclass(frozen=True)
class Conversation:
    """The messages of a turn, and the ``question`` that is routed: the last user message, without system text."""

    messages: tuple[Message, ...]
    question: str


def conversation(messages: Sequence[BaseMessage]) -> Conversation:
    """What agentkv is asked. Raises UsageError for what it cannot be asked, with the message's place."""
    system, rest = "", list(enumerate(messages))
    if rest and isinstance(rest[0][1], SystemMessage):
        system = _text(*rest.pop(0))
    if not rest or not isinstance(rest[-1][1], HumanMessage):
        raise UsageError("the last message must be the user's: there is nothing to answer otherwise")
    turns = [_message(index, message) for index, message in rest]
    question = turns[-1].content
    if not question.strip():
        raise UsageError("the question is empty")
    if system.strip():
        first = next(index for index, message in enumerate(turns) if message.role == "user")
        turns[first] = Message("user", f"{system}\n\n{turns[first].content}")
    return Conversation(tuple(turns), question)


def _message(index: int, message: BaseMessage) -> Message:
    if isinstance(message, HumanMessage):
        return Message("user", _text(index, message))
    if isinstance(message, AIMessage):
        if message.tool_calls or message.invalid_tool_calls:
            raise UsageError(f"message {index} calls tools: tools are not supported yet")
        return Message("assistant", _text(index, message))
    if isinstance(message, ToolMessage):
        raise UsageError(f"message {index} is a tool's result: tools are not supported yet")
    if isinstance(message, SystemMessage):
        raise UsageError(
            f"message {index} is a system message: only the first message may be one. "
            "The agent's own system text is AgentMemory's prefix."
        )
    raise UsageError(f"message {index} is of type {message.type!r}: pass system, user and assistant messages")


def _text(index: int, message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(_block_text(index, block) for block in message.content)


def _block_text(index: int, block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return block
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    raise UsageError(f"message {index} has a content block of type {block.get('type')!r}: only text can be read")


def usage(turn: Turn) -> UsageMetadata:
    """Tokens of the turn as LangChain counts them: restored tokens are input that was read from the cache."""
    tokens = turn.tokens
    n_input = tokens.restored + tokens.prefilled
    return UsageMetadata(
        input_tokens=n_input,
        output_tokens=tokens.generated,
        total_tokens=n_input + tokens.generated,
        input_token_details=InputTokenDetails(cache_read=tokens.restored),
    )


def response_metadata(turn: Turn, model_name: str) -> dict[str, Any]:
    """The rest of the record, as JSON-able values; ``finish_reason`` is ``stop`` or ``length``."""
    record = turn.model_dump(
        mode="json", include={"decision", "block_id", "exactness", "tokens", "ms", "logits_sha256"}
    )
    return {
        "model_name": model_name,
        "finish_reason": "length" if turn.finish == "length" else "stop",
        "agentkv": record,
    }
