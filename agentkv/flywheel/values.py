"""Answers and parameters as values: strict JSON, compared by type and value.

A value is None, a bool, an int, a finite float, a valid Unicode string, or a list or str-keyed dict of values. What a
candidate sends is decoded here and nowhere else. NaN and infinities are not values: they are refused, so nothing is
ever equal to them. 1, 1.0, "1" and True are four different values; -0.0 equals 0.0.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field

from agentkv.records import Record

MAX_DEPTH = 64
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Tolerance(Record):
    """Numbers, int or float alike, are the same within ``absolute`` or ``relative`` (of the expected); not booleans."""

    absolute: _NotNegative = 0.0
    relative: _NotNegative = 0.0


def check(value: Any, depth: int = 0) -> None:
    """Raise ValueError unless ``value`` is one, exactly (no subclasses, no tuples)."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    kind = type(value)
    if value is None or kind in (bool, int):
        return
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
    elif kind is str:
        _check_text(value)
    elif kind is list:
        for item in value:
            check(item, depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(f"a key of type {type(key).__name__}")
            _check_text(key)
            check(item, depth + 1)
    else:
        raise ValueError(f"a value of type {kind.__name__}")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text that is not valid Unicode") from error


def encode(value: Any) -> str:
    """Canonical JSON: keys sorted, no white space. Raises ValueError for what is not a value."""
    check(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(text: str | bytes) -> Any:
    """The value in a JSON text. Raises ValueError for anything that is not exactly one, however large or deep."""
    try:
        if isinstance(text, bytes):
            text = text.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        check(value)
    except RecursionError as error:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from error
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key that comes twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a finite number")


def same(answer: Any, expected: Any, tolerance: Tolerance | None = None) -> bool:
    """Whether two values are equal in type and value, all the way down; numbers within ``tolerance`` if given."""
    if tolerance is not None and _is_number(answer) and _is_number(expected):
        return _close(answer, expected, tolerance)
    if type(answer) is not type(expected):
        return False
    if type(expected) is list:
        pairs = zip(answer, expected, strict=False)
        return len(answer) == len(expected) and all(same(a, e, tolerance) for a, e in pairs)
    if type(expected) is dict:
        return answer.keys() == expected.keys() and all(same(answer[k], expected[k], tolerance) for k in expected)
    return bool(answer == expected)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _close(answer: float, expected: float, tolerance: Tolerance) -> bool:
    """Exactly, as fractions: neither overflow nor rounding decides."""
    if not (math.isfinite(answer) if type(answer) is float else True):
        return False
    distance = abs(Fraction(answer) - Fraction(expected))
    bound = max(Fraction(tolerance.absolute), Fraction(tolerance.relative) * abs(Fraction(expected)))
    return distance <= bound
