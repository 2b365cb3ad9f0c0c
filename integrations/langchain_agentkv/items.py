"""Items of an agent's memory as rows: namespaces as ordered bytes, values as JSON, which of them an operation means.

Pure functions over LangGraph's own types. Filters and namespace patterns mean what LangGraph's ``InMemoryStore`` means
by them, but that a comparison of what cannot be compared is False, not an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from langgraph.store.base import ListNamespacesOp, MatchCondition, SearchOp

from agentkv.errors import UsageError

Namespace = tuple[str, ...]

_END = b"\x00"
"""After each label; no label holds it, and it sorts before all that a label may hold."""


def encode_namespace(namespace: Namespace) -> bytes:
    """Bytes that sort like the tuples; those of a nested namespace begin with those of the outer one. Raises
    UsageError.
    """
    try:
        return b"".join(label.encode() + _END for label in namespace)
    except UnicodeEncodeError as error:
        raise UsageError(f"the namespace {namespace!r} is not valid Unicode") from error


def decode_namespace(data: bytes) -> Namespace:
    """The labels again."""
    return tuple(label.decode() for label in data.split(_END)[:-1])


def encode_value(key: str, value: object) -> bytes:
    """A value as JSON, in ASCII. Raises UsageError for what JSON would not give back (tuples come back as lists)."""
    if not isinstance(value, Mapping):
        raise UsageError(f"the value of {key[:40]!r} is a {type(value).__name__}; an item's value is a mapping")
    try:
        _require_json(value)
        return json.dumps(dict(value), separators=(",", ":"), default=dict).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the value of {key[:40]!r} is not JSON: {error}") from error


def decode_value(data: bytes) -> dict[str, Any]:
    """A value again."""
    value = json.loads(data)
    assert isinstance(value, dict)
    return value


def _require_json(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is not text")
            _require_json(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_json(inner)
    elif not isinstance(value, str | int | float | bool | None):
        raise TypeError(f"{type(value).__name__} is not of JSON")


def check_bounds(op: SearchOp | ListNamespacesOp) -> None:
    """Raise UsageError for a page that makes no sense."""
    if op.limit < 0 or op.offset < 0:
        raise UsageError(f"limit = {op.limit}, offset = {op.offset}: neither may be negative")


# --- namespaces -----------------------------------------------------------------------------------


def listed(namespaces: Iterable[Namespace], op: ListNamespacesOp) -> list[Namespace]:
    """What a listing gives of all namespaces that hold items."""
    conditions = op.match_conditions or ()
    found = {ns[: op.max_depth] for ns in namespaces if all(_is_matched(ns, one) for one in conditions)}
    return sorted(found)[op.offset : op.offset + op.limit]


def _is_matched(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if len(path) > len(namespace):
        return False
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    else:
        raise UsageError(f"match_type = {condition.match_type!r}: there are 'prefix' and 'suffix'")
    return all(expected in ("*", label) for label, expected in zip(part, path, strict=True))


# --- filters --------------------------------------------------------------------------------------


def is_wanted(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    """Whether an item's value fulfils all conditions of a search. Raises UsageError for an unknown operator."""
    return all(_agrees(value.get(name), expected) for name, expected in (conditions or {}).items())


def _agrees(found: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping):
        if any(name.startswith("$") for name in expected):
            return all(_compares(found, operator, operand) for operator, operand in expected.items())
        return isinstance(found, Mapping) and all(_agrees(found.get(name), inner) for name, inner in expected.items())
    if isinstance(expected, list | tuple):
        return isinstance(found, list) and len(found) == len(expected) and all(map(_agrees, found, expected))
    return bool(found == expected)


def _compares(found: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(found == operand)
    if operator == "$ne":
        return bool(found != operand)
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise UsageError(f"{operator!r} is not an operator: there are $eq, $ne, $gt, $gte, $lt, $lte")
    if not (isinstance(found, str) and isinstance(operand, str)):
        found, operand = _number(found), _number(operand)
    if operator == "$gt":
        return bool(found > operand)
    if operator == "$gte":
        return bool(found >= operand)
    return bool(found < operand) if operator == "$lt" else bool(found <= operand)


def _number(value: Any) -> float:
    """As a float; NaN, which is neither more nor less than anything, if it is not a number."""
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
