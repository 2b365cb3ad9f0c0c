"""Tools and answers in JSON: what ``bind_tools`` and ``response_format`` ask for, as what an answer may be.

``tool_choice``: None, False and ``"auto"`` leave it to the model to answer in text, to call, or to write text and
then call; ``"any"``, ``"required"`` and True make it call, once unless parallel calls are asked for; a name makes it
call that tool, once; ``"none"`` forbids calls. The tools are taught all the same, so that the prompt, and what is
stored of it, does not depend on the choice.

Knows OpenAI's forms of tools and response formats. How calls are written and kept to is agentkv's own business.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentkv.engine.base import Engine
from agentkv.engine.constrain.grammar import AnswerForm, grammar_for, no_calls
from agentkv.engine.template import CallForm
from agentkv.errors import UsageError
from langchain_agentkv.settings import CallSettings

AnyTool = dict[str, Any] | type | Callable[..., Any] | BaseTool

_AUTO, _ANY, _NO = "auto", "any", "none"
_ANY_OBJECT = {"type": "object"}
CHECKED = "agentkv_checked"
"""In a response format: whoever made it checks the answers himself."""


def converted(tools: Sequence[AnyTool]) -> list[dict[str, Any]]:
    """Tools in OpenAI's form, as JSON, each once. Raises UsageError for what is no tool."""
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
        raise UsageError(f"{tool!r:.80} is no tool: {error}") from error
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
    raise UsageError(f"tool_choice={choice!r} is no tool and none of auto, any, none; {hint}")


def calls_wanted(settings: CallSettings) -> bool:
    """Whether an answer may hold calls."""
    return bool(settings.tools) and chosen(settings.tool_choice, _names(settings)) != _NO


def bare_callable(settings: CallSettings) -> list[str]:
    """The tools whose calls are also read as bare JSON: all, where the model is free to call or to answer in words.

    Where it has to call, the grammar keeps it to its form, and where an answer is JSON, that may look like a call.
    """
    names = _names(settings)
    return names if chosen(settings.tool_choice, names) == _AUTO and answer_schema(settings) is None else []


def grammar(engine: Engine, form: CallForm, settings: CallSettings, barred: Container[str] = ()) -> str | None:
    """The grammar of what is asked for; None where any text will do. Raises UsageError for two tools of one name.

    ``barred``: tools that are taught, and may not be called now. Where that leaves none, no call has to be made.
    """
    names = _names(settings)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two tools are called {name!r}: a call could not be told apart")
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
    """Whether an answer may hold several calls. A model that has to call would not know when to end."""
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
    """The JSON schema of an answer that nobody else is known to check it by."""
    given = settings.response_format or {}
    inner = given.get("json_schema")
    return None if not isinstance(inner, dict) or inner.get(CHECKED) else answer_schema(settings)


def answer_teaching(settings: CallSettings) -> str:
    """What the system text says of an answer's schema; empty where there is none."""
    schema = answer_schema(settings)
    if schema is None or schema is _ANY_OBJECT:
        return ""
    text = json.dumps(schema, ensure_ascii=False)
    return f"Answer with one JSON object that fits this JSON schema, and nothing else:\n{text}"


def _names(settings: CallSettings) -> list[str]:
    return [tool["function"]["name"] for tool in settings.tools]
