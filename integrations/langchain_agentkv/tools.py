"""Tools and answers in JSON: what ``bind_tools`` and ``response_format`` ask for, and the check of each call.

``tool_choice``: None, False and ``"auto"`` leave it to the model to answer in text, to call, or to write text and
then call; ``"any"``, ``"required"`` and True make it call, once unless parallel calls are asked for; a name makes it
call that tool, once; ``"none"`` forbids calls. The tools are in the prompt all the same, so that the prompt, and what
is stored of it, does not depend on the choice.

A grammar may be too weak for a schema, or not enforced, so each call is checked again: by name, required arguments,
number, and whether it is new. Types and ranges of arguments are the tool's to check: LangChain's tools do, and report
to the model; what does not fit the schema is noted, since an agent's ``ToolStrategy`` of a JSON schema takes it as it
is.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentkv.engine.base import Engine
from agentkv.engine.constrain.calls import BrokenCall
from agentkv.engine.constrain.grammar import AnswerForm, grammar_for, no_calls
from agentkv.engine.template import CallForm, ToolCall
from agentkv.errors import UsageError
from langchain_agentkv.messages import Repeats
from langchain_agentkv.schemas import misfit
from langchain_agentkv.settings import CallSettings

AnyTool = dict[str, Any] | type | Callable[..., Any] | BaseTool

_AUTO, _ANY, _NO = "auto", "any", "none"
_ANY_OBJECT = {"type": "object"}
CHECKED = "agentkv_checked"
"""In a response format: whoever made it checks the answers himself."""


def converted(tools: Sequence[AnyTool]) -> list[dict[str, Any]]:
    """Tools in OpenAI's form, as JSON, each once. Raises UsageError for what is not a tool."""
    out: list[dict[str, Any]] = []
    for tool in map(_converted, tools):
        if tool not in out:
            out.append(tool)
    return out


def _converted(tool: AnyTool) -> dict[str, Any]:
    try:
        schema = convert_to_openai_tool(tool)
        name = schema["function"]["name"]
        plain: dict[str, Any] = json.loads(json.dumps(schema, default=str))
    except (ValueError, TypeError, LookupError) as error:
        raise UsageError(f"{tool!r:.80} is not a tool: {error}") from error
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"{tool!r:.80} has no name")
    return plain


def chosen(choice: str | bool | dict[str, Any] | None, names: Sequence[str]) -> str:
    """``auto``, ``any``, ``none`` or the name of a tool. Raises UsageError for anything else."""
    if isinstance(choice, dict):
        function = choice.get("function", choice)
        choice = function.get("name") if isinstance(function, dict) and "name" in function else choice.get("type")
    if choice is None or choice is False:
        return _AUTO
    if choice is True or choice == "required":
        choice = _ANY
    if choice not in (_AUTO, _NO) and not names:
        raise UsageError(f"tool_choice={choice!r} needs tools")
    if choice in names or choice in (_AUTO, _ANY, _NO):
        return str(choice)
    near = difflib.get_close_matches(str(choice), names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    raise UsageError(f"tool_choice={choice!r} is neither a tool nor one of auto, any, none; {hint}")


def calls_wanted(settings: CallSettings) -> bool:
    """Whether an answer may hold calls."""
    return bool(settings.tools) and chosen(settings.tool_choice, _names(settings)) != _NO


def bare_callable(settings: CallSettings) -> list[str]:
    """The tools whose calls are also parsed as bare JSON: all, where the model may call or answer in text.

    Where it has to call, the grammar enforces the form; where the answer is JSON, it may look like a call.
    """
    names = _names(settings)
    return names if chosen(settings.tool_choice, names) == _AUTO and answer_schema(settings) is None else []


def grammar(engine: Engine, form: CallForm, settings: CallSettings, barred: Container[str] = ()) -> str | None:
    """The grammar of what is asked for; None where any text will do. Raises UsageError for two tools of one name.

    ``barred``: tools that stay in the prompt, but may not be called now. If none is left, no call has to be made.
    """
    names = _names(settings)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two tools are called {name!r}: their calls could not be distinguished")
    schema = answer_schema(settings)
    allowed = callable_tools(settings, barred)
    if settings.tools and not allowed and schema is None:
        return no_calls(form)
    must_call = bool(allowed) and chosen(settings.tool_choice, names) != _AUTO
    return grammar_for(engine, form, AnswerForm(allowed, must_call=must_call, many=many(settings), schema=schema))


def callable_tools(settings: CallSettings, barred: Container[str] = ()) -> dict[str, dict[str, Any]]:
    """The tools that an answer may call, by name, with the JSON schema of their arguments."""
    choice = chosen(settings.tool_choice, _names(settings))
    return {
        name: tool["function"].get("parameters") or {"type": "object", "properties": {}}
        for tool in settings.tools
        if (name := tool["function"]["name"]) not in barred and choice in (_AUTO, _ANY, name)
    }


def many(settings: CallSettings) -> bool:
    """Whether an answer may hold several calls; not by default where the model must call, since it would not know when
    to end.
    """
    choice = chosen(settings.tool_choice, _names(settings))
    given = settings.parallel_tool_calls
    return choice in (_AUTO, _ANY) and (choice == _AUTO if given is None else given)


def answer_schema(settings: CallSettings) -> Mapping[str, Any] | None:
    """The JSON schema of an answer, or None for free text. Raises UsageError for a format that is not known."""
    given = settings.response_format
    if given is None or given.get("type") == "text":
        return None
    if given.get("type") == "json_object":
        return _ANY_OBJECT
    inner = given.get("json_schema")
    if given.get("type") == "json_schema" and isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
        return dict(inner["schema"])
    raise UsageError(
        f"response_format {given!r:.80} is none of text, json_object and json_schema (with a schema under json_schema)"
    )


def unchecked_schema(settings: CallSettings) -> Mapping[str, Any] | None:
    """The JSON schema of an answer that, as far as is known, nobody else checks."""
    given = settings.response_format or {}
    inner = given.get("json_schema")
    return None if not isinstance(inner, dict) or inner.get(CHECKED) else answer_schema(settings)


def answer_teaching(settings: CallSettings) -> str:
    """What the system text says about an answer's schema; "" without one."""
    schema = answer_schema(settings)
    if schema is None or schema is _ANY_OBJECT:
        return ""
    text = json.dumps(schema, ensure_ascii=False)
    return f"Answer with one JSON object that fits this JSON schema, and nothing else:\n{text}"


def _names(settings: CallSettings) -> list[str]:
    return [tool["function"]["name"] for tool in settings.tools]


# --- calls, checked -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A call as it is given out, or that it is ``left_out``.

    ``fault``: why a whole call cannot be made. ``note``: for the record. ``is_repeat``: it has its result already.
    """

    call: ToolCall | BrokenCall
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
        return cls(form, callable_tools(settings, barred), many(settings), repeats)

    def of_call(self, call: ToolCall | BrokenCall, called: bool) -> Verdict:
        """What becomes of a call; ``called``: whether the answer has given out another one."""
        if not self.tools:  # nothing but words was asked for
            return Verdict(call, left_out=True)
        if isinstance(call, BrokenCall):
            return Verdict(call)
        if self.repeats.holds(call.name, call.arguments):
            note = f"the model called {call.name!r} again with the same arguments, though it has the result; left out"
            return Verdict(call, note=note, left_out=True, is_repeat=True)
        fault = self._fault(call)
        if fault:
            note = f"{fault}; the call is in invalid_tool_calls"
            return Verdict(BrokenCall(self.form.text([call]), call.name), fault, note)
        if called and not self.many:
            note = f"a second call, of {call.name!r}, was left out: pass parallel_tool_calls=True to allow several"
            return Verdict(call, note=note, left_out=True)
        return Verdict(call, note=misfit(self.tools[call.name], call.arguments, f"the call of {call.name!r} does"))

    def _fault(self, call: ToolCall) -> str:
        """Why a whole call cannot be made; empty if it can."""
        schema = self.tools.get(call.name)
        if schema is None:
            return f"no tool that may be called is named {call.name!r}; there are: {', '.join(self.tools)}"
        required = schema.get("required")
        given = json.loads(call.arguments, strict=False)
        missing = [name for name in required if name not in given] if isinstance(required, list) else []
        return f"the call of {call.name!r} lacks the required {', '.join(map(repr, missing))}" if missing else ""
