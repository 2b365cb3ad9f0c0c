"""Which calls of a conversation have their result already, so that the model need not make them again.

A small model that does not see what to do with a result calls for it once more. A call is a repetition if it was made
in the step right before with the same arguments, or if it was made twice since the user's last message and gave the
same result both times. What follows another call may give another result (a file is read, edited, read again), and a
call that failed may be tried again, once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_agentkv.blocks import text_of

_Key = tuple[str, str]


@dataclass(frozen=True)
class Repeats:
    """Calls by name and arguments, and the ``result`` that came last of all, None where nothing was called."""

    calls: frozenset[_Key] = field(default_factory=frozenset)
    result: str | None = None

    def holds(self, name: str, arguments: str) -> bool:
        """Whether this call, its arguments as JSON text, has its result already."""
        return key(name, json.loads(arguments, strict=False)) in self.calls


def key(name: str, arguments: Any) -> _Key:
    """What makes two calls the same: the order of the arguments does not."""
    return name, json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)


def repeats(messages: Sequence[BaseMessage]) -> Repeats:
    """What has its result already at the end of ``messages``, since the last one of the user's."""
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
