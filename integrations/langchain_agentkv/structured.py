"""Answers as objects: ``with_structured_output``.

The chain is model | whole | parser | fits. An answer that was cut is refused: what is there of it may parse, and is not
what the model would have answered. What a schema asks for beyond the grammar is warned of once, when the chain is made,
and checked when the answer is there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal, cast

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.json import parse_json_markdown
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel

from agentkv.engine.constrain.schema import unexpressed
from agentkv.errors import UsageError
from agentkv.notices import warn
from langchain_agentkv.schemas import at_the_end, fitting, there, unchecked
from langchain_agentkv.tools import CHECKED

Method = Literal["json_schema", "function_calling", "json_mode"]
Schema = dict[str, Any] | type
Structured = Runnable[LanguageModelInput, dict[str, Any] | BaseModel]


def structured(
    model: BaseChatModel, schema: Schema, *, include_raw: bool, method: str, settings: Mapping[str, Any]
) -> Structured:
    """See ``ChatAgentKV.with_structured_output``. Raises UsageError for what is neither a schema nor a method."""
    plain = _json_schema(schema)
    traced = {"kwargs": {"method": method}, "schema": schema}
    parser: Runnable[Any, Any]
    if method == "function_calling":
        name = convert_to_openai_tool(schema)["function"]["name"]
        asked = model.bind_tools(
            [schema], tool_choice=name, parallel_tool_calls=False, ls_structured_output_format=traced, **settings
        )
        parser = _tool_parser(schema, name)
    elif method in ("json_schema", "json_mode"):
        asked = model.bind(response_format=_format(method, plain), ls_structured_output_format=traced, **settings)
        parser = _text_parser(schema)
    else:
        raise UsageError(f"method={method!r} is none of json_schema, function_calling, json_mode")
    checked = at_the_end(there) if _is_model(schema) else fitting(plain)
    parser = RunnableGenerator(partial(_whole, method), partial(_awhole, method)) | parser | checked
    _say_what_is_left_out(plain, method, [] if _is_model(schema) else unchecked(plain))
    if not include_raw:
        return asked | parser
    parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=asked) | parsed.with_fallbacks([failed], exception_key="parsing_error")


def _json_schema(schema: Schema) -> dict[str, Any]:
    try:
        return convert_to_json_schema(schema)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UsageError(f"{schema!r:.80} is not a schema: {error}") from error


def _format(method: str, schema: dict[str, Any]) -> dict[str, Any]:
    if method == "json_mode":
        return {"type": "json_object"}
    inner = {"name": schema.get("title", "answer"), "schema": schema, CHECKED: True}
    return {"type": "json_schema", "json_schema": inner}


def _is_model(schema: Schema) -> bool:
    return isinstance(schema, type) and is_basemodel_subclass(schema)


def _tool_parser(schema: Schema, name: str) -> Runnable[Any, Any]:
    if _is_model(schema):
        return PydanticToolsParser(tools=[cast(Any, schema)], first_tool_only=True)
    return JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)


def _text_parser(schema: Schema) -> Runnable[Any, Any]:
    return PydanticOutputParser(pydantic_object=cast(Any, schema)) if _is_model(schema) else JsonOutputParser()


def _whole(method: str, messages: Iterator[AIMessage]) -> Iterator[AIMessage]:
    """The messages as they come; raises at the end of an answer that was cut, or that cannot be used."""
    so_far = _SoFar(method)
    for message in messages:
        so_far.add(message)
        yield message


async def _awhole(method: str, messages: AsyncIterator[AIMessage]) -> AsyncIterator[AIMessage]:
    so_far = _SoFar(method)
    async for message in messages:
        so_far.add(message)
        yield message


class _SoFar:
    """What there is of an answer whose pieces come one by one."""

    def __init__(self, method: str) -> None:
        self._is_text = method != "function_calling"
        self._broken, self._text = False, ""

    def add(self, message: AIMessage) -> None:
        """Raise OutputParserException at the end of an answer that was cut or cannot be used."""
        self._broken = self._broken or bool(message.invalid_tool_calls)
        self._text += message.text
        finish = message.response_metadata.get("finish_reason")
        if finish == "length":
            generated = message.usage_metadata["output_tokens"] if message.usage_metadata else 0
            raise OutputParserException(
                f"the answer was cut at {generated} tokens before it was whole: raise max_new", llm_output=self._text
            )
        if finish is not None and self._broken:
            notes = message.response_metadata.get("agentkv", {}).get("notes", ())
            why = "; ".join(notes) or "a stop string may have cut it: check stop and max_new"
            raise OutputParserException(f"the answer's call cannot be used: {why}", llm_output=self._text)
        if finish is not None and self._is_text:
            self._require_json()

    def _require_json(self) -> None:
        """Stricter than LangChain's parsers, which complete a truncated JSON text and accept NaN."""
        try:
            parse_json_markdown(self._text, parser=_strict)
        except ValueError as error:
            why = f"the answer is not one whole JSON text ({error}); a stop string may have cut it: check stop"
            raise OutputParserException(why, llm_output=self._text) from error


def _strict(text: str) -> Any:
    return json.loads(text, strict=False, parse_constant=_no_number)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _say_what_is_left_out(schema: Mapping[str, Any], method: str, formats: Sequence[str]) -> None:
    left_out, name = [] if method == "json_mode" else unexpressed(schema), schema.get("title", "this schema")
    if formats:
        named = ", ".join(map(repr, formats))
        warn(f"nothing checks the format {named} of {name!r}: look at such values yourself, or give a `pattern`")
        left_out = [keyword for keyword in left_out if keyword != "format"]
    if left_out:
        warn(
            f"the grammar of {name!r} cannot hold an answer to {', '.join(left_out)}; an "
            "answer that breaks it raises OutputParserException (use include_raw=True to look at it, or ask again)"
        )
