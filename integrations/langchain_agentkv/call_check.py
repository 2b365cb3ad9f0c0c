"""Calls of an answer, checked behind the grammar: by name, required arguments, number, and whether they are new.

A grammar may have been too weak for a schema, or not enforced. Types and ranges of arguments are the tool's to check:
LangChain's tools do, and tell the model; what does not fit the schema is noted, since an agent's ``ToolStrategy`` of a
JSON schema takes it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from agentkv.engine.constrain.calls import BrokenCall
from agentkv.engine.template import CallForm, ToolCall
from langchain_agentkv import tools
from langchain_agentkv.fits import misfit
from langchain_agentkv.repeats import Repeats
from langchain_agentkv.settings import CallSettings


@dataclass(frozen=True)
class Verdict:
    """A call as it is given out, or that it is ``left_out``.

    ``fault``: why it cannot be made, though it is whole. ``note``: for the record. ``is_repeat``: it has its result.
    """

    said: ToolCall | BrokenCall
    fault: str = ""
    note: str = ""
    left_out: bool = False
    is_repeat: bool = False


@dataclass(frozen=True)
class CallCheck:
    """What may be called: ``tools`` with their arguments' schemas, ``many`` calls in one answer, no repetition."""

    form: CallForm
    tools: Mapping[str, Mapping[str, Any]]
    many: bool
    repeats: Repeats = field(default_factory=Repeats)

    @classmethod
    def of(cls, settings: CallSettings, form: CallForm, repeats: Repeats, barred: Container[str] = ()) -> Self:
        """The check of a turn with these settings, in which ``barred`` tools may not be called."""
        return cls(form, tools.callable_tools(settings, barred), tools.many(settings), repeats)

    def of_call(self, said: ToolCall | BrokenCall, called: bool) -> Verdict:
        """What becomes of a call; ``called``: whether another one was given out before."""
        if not self.tools:  # nothing but words was asked for
            return Verdict(said, left_out=True)
        if isinstance(said, BrokenCall):
            return Verdict(said)
        if self.repeats.holds(said.name, said.arguments):
            note = f"the model called {said.name!r} again with the same arguments, though it has the result; left out"
            return Verdict(said, note=note, left_out=True, is_repeat=True)
        fault = self._fault(said)
        if fault:
            note = f"{fault}; the call is in invalid_tool_calls"
            return Verdict(BrokenCall(self.form.text([said]), said.name), fault, note)
        if called and not self.many:
            note = f"a second call, of {said.name!r}, was left out: pass parallel_tool_calls=True to allow several"
            return Verdict(said, note=note, left_out=True)
        return Verdict(said, note=misfit(self.tools[said.name], said.arguments, f"the call of {said.name!r} does"))

    def _fault(self, call: ToolCall) -> str:
        """Why a whole call cannot be made; empty if it can."""
        schema = self.tools.get(call.name)
        if schema is None:
            return f"no tool that may be called is named {call.name!r}; there are: {', '.join(self.tools)}"
        required = schema.get("required")
        given = json.loads(call.arguments, strict=False)
        missing = [name for name in required if name not in given] if isinstance(required, list) else []
        return f"the call of {call.name!r} lacks the required {', '.join(map(repr, missing))}" if missing else ""
