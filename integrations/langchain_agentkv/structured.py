"""Answers as objects: ``with_structured_output``.

The chain is model | check | parser. The check refuses an answer that was cut: what is there of it may parse, and is
not what the model would have said. Knows schemas and LangChain's parsers; the grammar is made where the answer is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, cast

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel

from agentkv.errors import UsageError

if TYPE_CHECKING:
    from langchain_agentkv.chat_models import ChatAgentKV

Method = Literal["json_schema", "function_calling", "json_mode"]
Schema = dict[str, Any] | type
Structured = Runnable[LanguageModelInput, dict[str, Any] | BaseModel]


def structured(
    model: ChatAgentKV, schema: Schema, *, include_raw: bool, method: str, settings: Mapping[str, Any]
) -> Structured:
    """See :meth:`ChatAgentKV.with_structured_output`. Raises UsageError for what is no schema and no method."""
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
    parser = RunnableGenerator(_whole, _awhole) | parser
    if not include_raw:
        return asked | parser
    parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=asked) | parsed.with_fallbacks([failed], exception_key="parsing_error")


def _json_schema(schema: Schema) -> dict[str, Any]:
    try:
        return convert_to_json_schema(schema)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UsageError(f"{schema!r:.80} is no schema: {error}") from error


def _format(method: str, schema: dict[str, Any]) -> dict[str, Any]:
    if method == "json_mode":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": schema.get("title", "answer"), "schema": schema}}


def _is_model(schema: Schema) -> bool:
    return isinstance(schema, type) and is_basemodel_subclass(schema)


def _tool_parser(schema: Schema, name: str) -> Runnable[Any, Any]:
    if _is_model(schema):
        return PydanticToolsParser(tools=[cast(Any, schema)], first_tool_only=True)
    return JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)


def _text_parser(schema: Schema) -> Runnable[Any, Any]:
    return PydanticOutputParser(pydantic_object=cast(Any, schema)) if _is_model(schema) else JsonOutputParser()


def _whole(messages: Iterator[AIMessage]) -> Iterator[AIMessage]:
    """The messages as they come; raises at the end of an answer that was cut."""
    for message in messages:
        _refuse_cut(message)
        yield message


async def _awhole(messages: AsyncIterator[AIMessage]) -> AsyncIterator[AIMessage]:
    async for message in messages:
        _refuse_cut(message)
        yield message


def _refuse_cut(message: AIMessage) -> None:
    if message.response_metadata.get("finish_reason") == "length" or message.invalid_tool_calls:
        raise OutputParserException(
            "the answer was cut before it was whole: raise max_new, or check the stop strings",
            llm_output=message.text,
        )
