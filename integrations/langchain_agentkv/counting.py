"""Tokens of messages, counted with the model's own tokenizer and template; nothing is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from langchain_core.messages import BaseMessage

from agentkv import AgentMemory
from agentkv.engine.prompt import Message
from agentkv.errors import UsageError
from langchain_agentkv.messages import conversation, lenient
from langchain_agentkv.system import system_text

_ASKED = Message("user", "?")


def count_tokens(
    memory: AgentMemory, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], skill: str | None
) -> int:
    """Tokens of the prompt that ``messages`` make behind ``skill``; of a part of one, what it would add up to there.

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
    """With what is missing put in for the template, and not counted."""
    system, turns = lenient(messages)
    before = [_ASKED] if turns and turns[0].role in ("tool", "system") else []
    whole = [*before, *turns, _ASKED]
    prompt = memory.prompt(whole, skill, system=system_text(memory, system), tools=tools)
    ends = [0, *accumulate(map(len, prompt.pieces))]
    return sum(map(len, prompt.blocks)) + ends[len(before) + len(turns)] - ends[len(before)]
