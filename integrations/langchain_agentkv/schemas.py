"""Whether a JSON value fits its JSON schema, by ``jsonschema``; nothing that a schema refers to is fetched.

``jsonschema`` does not check a ``format`` whose library is not installed, ``date-time`` for one; the common ones are
checked here, and :func:`unchecked` names those that nothing checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from langchain_core.exceptions import OutputParserException
from langchain_core.runnables import Runnable, RunnableGenerator
from pydantic import AnyUrl, TypeAdapter
from referencing import Registry
from referencing.exceptions import Unresolvable

from agentkv.errors import UsageError

_TIME = r"\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_DATE_TIME = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]{_TIME}", re.I | re.A)
_DURATION = re.compile(
    r"P(?=.)(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?)", re.A
)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.I | re.A)
_URL = TypeAdapter(AnyUrl)
_VALUES = ("enum", "const", "default", "examples")

CHECKER: Final = FormatChecker()


@CHECKER.checks("date-time", raises=ValueError)
def _date_time(value: object) -> bool:
    """By RFC 3339: with an offset, and a day that there is."""
    if not isinstance(value, str):
        return True
    return bool(_DATE_TIME.fullmatch(value)) and bool(datetime.fromisoformat(value.upper()))


@CHECKER.checks("time", raises=ValueError)
def _time(value: object) -> bool:
    return not isinstance(value, str) or _date_time(f"2000-01-01T{value}")


@CHECKER.checks("duration")
def _duration(value: object) -> bool:
    return not isinstance(value, str) or bool(_DURATION.fullmatch(value))


@CHECKER.checks("hostname")
def _hostname(value: object) -> bool:
    return not isinstance(value, str) or bool(_HOST.fullmatch(value))


@CHECKER.checks("uri", raises=ValueError)
def _uri(value: object) -> bool:
    return not isinstance(value, str) or (not re.search(r"\s", value) and bool(_URL.validate_python(value)))


def unchecked(schema: Mapping[str, Any]) -> list[str]:
    """The formats of ``schema`` that nothing checks, sorted, without duplicates."""
    return sorted(set(_formats(schema)) - set(CHECKER.checkers))


def _formats(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _formats(part)
    if not isinstance(schema, Mapping):
        return
    if isinstance(schema.get("format"), str):
        yield schema["format"]
    for key, part in schema.items():
        if key not in _VALUES:
            yield from _formats(part)


# --- schemas --------------------------------------------------------------------------------------

_INNER = ("properties", "$defs", "definitions", "patternProperties")


def fitting(schema: Mapping[str, Any]) -> Runnable[Any, Any]:
    """Passes objects on as they grow; raises OutputParserException unless the last one fits ``schema``.

    Raises UsageError for what is not a JSON schema.
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
    """Why ``what``, a JSON text, does not fit ``schema``; "" if it does, and if either is not valid."""
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
    """The schema with OpenAPI's ``nullable`` in JSON schema's form."""
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
