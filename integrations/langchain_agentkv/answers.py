"""What a turn gives, as LangChain's chunks; their sum is the answer.

A call is one chunk, with its name, id and arguments and an index of its own. LangChain reads the arguments of chunks
leniently: the beginning of a JSON object counts as an object. A call that was cut is therefore given as the text that
was written, its mark or ``cut:`` before it, which is no beginning of an object; so it becomes an
``invalid_tool_calls`` entry.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.utils.json import parse_partial_json

from agentkv.engine.template import ToolCall
from agentkv.records import Turn
from langchain_agentkv.messages import CUT, PLACEHOLDER
from langchain_agentkv.turns import Call, Item, Placeholder


class Answer:
    """One answer on its way; asked for a chunk of each item, in order."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._called = False

    def chunk(self, item: Item) -> AIMessageChunk:
        """The item as a chunk; the record is the last one."""
        if isinstance(item, str):
            return AIMessageChunk(content=item)
        if isinstance(item, Call):
            self._called = self._called or isinstance(item.said, ToolCall)
            return AIMessageChunk(content="", tool_call_chunks=[_call(item)])
        if isinstance(item, Placeholder):
            return AIMessageChunk(content=item.text, additional_kwargs={PLACEHOLDER: True})
        return AIMessageChunk(
            content="",
            usage_metadata=usage(item),
            response_metadata=response_metadata(item, self._model_name, called=self._called),
            chunk_position="last",
        )


def _call(call: Call) -> Any:
    said = call.said
    arguments = said.arguments if isinstance(said, ToolCall) else _never_an_object(said.text)
    return tool_call_chunk(name=said.name, args=arguments, id=call.id, index=call.number)


def _never_an_object(text: str) -> str:
    try:
        return CUT + text if parse_partial_json(text) is not None else text
    except ValueError:
        return text


def usage(turn: Turn) -> UsageMetadata:
    """Tokens of the turn as LangChain counts them.

    Restored tokens are input that was read from the cache; deposited ones were read and are in it now.
    """
    tokens = turn.tokens
    n_input = tokens.restored + tokens.prefilled
    return UsageMetadata(
        input_tokens=n_input,
        output_tokens=tokens.generated,
        total_tokens=n_input + tokens.generated,
        input_token_details=InputTokenDetails(cache_read=tokens.restored, cache_creation=turn.deposited),
    )


def response_metadata(turn: Turn, model_name: str, *, called: bool) -> dict[str, Any]:
    """The rest of the record, as JSON-able values; ``finish_reason`` is ``stop``, ``length`` or ``tool_calls``."""
    kept = {"checkpoint", "deposited", "not_kept", "not_restored"}
    told = {"decision", "block_id", "exactness", "tokens", "ms", "logits_sha256", "notes"}
    record = turn.model_dump(mode="json", include=told | kept)
    finish = "length" if turn.finish == "length" else "tool_calls" if called else "stop"
    return {"model_name": model_name, "model_provider": "agentkv", "finish_reason": finish, "agentkv": record}
