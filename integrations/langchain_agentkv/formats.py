"""The ``format`` of strings in a JSON schema: what ``jsonschema`` checks by itself, and the common ones beside that.

``jsonschema`` passes over what it knows no library for, a date and time for one. A format that nothing here checks is
named by :func:`unchecked`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from jsonschema import FormatChecker
from pydantic import AnyUrl, TypeAdapter

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
    """The formats of ``schema`` that nothing checks, sorted, each once."""
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
