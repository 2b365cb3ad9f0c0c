"""Whether an answer's object fits its JSON schema, by ``jsonschema``; nothing is fetched that a schema refers to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from langchain_core.exceptions import OutputParserException
from langchain_core.runnables import Runnable, RunnableGenerator
from referencing import Registry
from referencing.exceptions import Unresolvable

from agentkv.errors import UsageError
from langchain_agentkv.formats import CHECKER

_INNER = ("properties", "$defs", "definitions", "patternProperties")


def fitting(schema: Mapping[str, Any]) -> Runnable[Any, Any]:
    """Passes objects on as they grow; raises OutputParserException unless the last one fits ``schema``.

    Raises UsageError for what is no JSON schema.
    """
    validator = _validator(schema)
    return at_the_end(lambda value: _require(validator, value))


def there(value: Any) -> None:
    """Raise OutputParserException where an answer has no object."""
    if value is None:
        raise OutputParserException("the answer holds no object: the model made no call")


def at_the_end(check: Callable[[Any], None]) -> Runnable[Any, Any]:
    """Passes values on as they come, and checks the last one."""

    def passed(values: Iterator[Any]) -> Iterator[Any]:
        last = None
        for last in values:
            yield last
        check(last)

    async def apassed(values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        last = None
        async for last in values:
            yield last
        check(last)

    return RunnableGenerator(passed, apassed)


def _validator(schema: Mapping[str, Any]) -> Validator:
    plain = _with_nulls(schema)
    kind = validator_for(plain, default=Draft202012Validator)
    try:
        kind.check_schema(plain)
    except SchemaError as error:
        raise UsageError(f"the schema is not a JSON schema: {error.message}") from error
    return kind(plain, registry=Registry(), format_checker=CHECKER)


def misfit(schema: Mapping[str, Any], text: str, what: str = "the answer does") -> str:
    """Why ``what``, a JSON text, does not fit ``schema``; empty where it does, and where it is no JSON or no schema."""
    try:
        return _fault(_validator(schema), json.loads(text, strict=False), what)
    except (ValueError, RecursionError, UsageError):
        return ""


def _require(validator: Validator, value: Any) -> None:
    there(value)
    fault = _fault(validator, value)
    if fault:
        raise OutputParserException(fault, llm_output=repr(value))


def _fault(validator: Validator, value: Any, what: str = "the answer does") -> str:
    try:
        fault = best_match(validator.iter_errors(value))
    except Unresolvable as error:
        raise UsageError(f"the schema refers to something that is not in it: {error}") from error
    return "" if fault is None else f"{what} not fit the schema, at {fault.json_path}: {fault.message}"


def _with_nulls(schema: Any) -> Any:
    """The schema with OpenAPI's ``nullable`` as JSON schema says it."""
    if isinstance(schema, list):
        return [_with_nulls(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = {
        key: {name: _with_nulls(part) for name, part in value.items()}
        if key in _INNER and isinstance(value, Mapping)
        else value
        if key in ("enum", "const", "default", "examples")
        else _with_nulls(value)
        for key, value in schema.items()
    }
    return {"anyOf": [out, {"type": "null"}]} if out.pop("nullable", None) is True else out
