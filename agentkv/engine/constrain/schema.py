"""JSON schemas as rules of a GBNF grammar, and what such rules leave out.

What llama.cpp's converter cannot express is left out step by step: first patterns, lengths and formats, at last the
schema itself, so that any JSON object will do. No schema is refused; :func:`unexpressed` names the keywords that an
answer may break, which its reader has to check. The native library is loaded only when a schema is converted.

llguidance would express more of a schema, but llama-cpp-python's wheels are built without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from agentkv.engine.base import Engine, Sampling
from agentkv.errors import InvalidGrammar

Json = Mapping[str, Any]
Rules = tuple[tuple[str, str], ...]
"""Names and right-hand sides, sorted by name."""

MOST_REPEATS = 64
"""Longer lengths are not put into a grammar: they are written out there, one group inside the other."""
_ANY: dict[str, Any] = {"type": ["object", "array", "string", "number", "boolean", "null"]}
_CONVERTER_FAULTS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    NameError,
    RecursionError,
)
_LITERALS = re.compile(r'("(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\])', re.S)
_NAMES = re.compile(r"[a-zA-Z0-9-]+")


def schema_rules(engine: Engine, schema: Json, prefix: str) -> dict[str, str]:
    """The rules of the strictest grammar for ``schema`` that the engine takes; their names begin with ``prefix``.

    The first rule is ``<prefix>root``. Raises InvalidGrammar from an engine that has no grammars.
    """
    fault: InvalidGrammar | None = None
    for rules in _strictest_first(json.dumps(schema, default=str)):
        try:
            engine.sampler(Sampling(), gbnf(dict(rules))).close()
        except InvalidGrammar as error:
            fault = error
            continue
        return {prefix + name: _renamed(rule, prefix) for name, rule in rules}
    raise fault or InvalidGrammar("no grammar for any JSON object")


def gbnf(rules: Mapping[str, str]) -> str:
    """Rules as the text of a grammar."""
    return "\n".join(f"{name} ::= {rule}" for name, rule in rules.items())


def literal(text: str) -> str:
    """A GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _renamed(rule: str, prefix: str) -> str:
    parts = _LITERALS.split(rule)
    parts[::2] = [_NAMES.sub(lambda name: prefix + name.group(), part) for part in parts[::2]]
    return "".join(parts)


@cache
def _strictest_first(schema: str) -> tuple[Rules, ...]:
    """Rules for a schema, given as JSON text; the last are those of any JSON object."""
    return tuple(_converted(json.loads(schema)))


def _converted(schema: Json) -> Iterator[Rules]:
    for detail in (True, False):
        try:
            yield _convert(_root_schema(schema, detail))
        except _CONVERTER_FAULTS:
            continue
    yield _convert({"type": "object"})


def _convert(schema: Json) -> Rules:
    from llama_cpp.llama_grammar import SchemaConverter

    class Converter(SchemaConverter):  # type: ignore[misc]
        """Llama.cpp's, which leaves backslashes as they are and writes é as an escape."""

        def _format_literal(self, text: str) -> str:
            return literal(json.dumps(json.loads(text), ensure_ascii=False))

    converter = Converter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    converter.visit(converter.resolve_refs(json.loads(json.dumps(schema)), "schema"), "")
    rules = converter._rules
    if "root" not in rules:
        raise ValueError("the converter gave no root")
    return tuple(sorted(rules.items()))


# --- a schema in the keywords that the converter knows ------------------------------------------------


def _root_schema(schema: Json, detail: bool) -> dict[str, Any]:
    """The whole schema; its definitions stay where they are."""
    out = _simplified(schema, detail)
    for key in ("$defs", "definitions"):
        if isinstance(schema.get(key), Mapping):
            out[key] = {name: _simplified(part, detail) for name, part in schema[key].items()}
    return out


def _simplified(schema: Any, detail: bool) -> dict[str, Any]:
    """``detail``: with patterns, lengths and formats of texts."""
    if not isinstance(schema, Mapping):
        return _ANY
    if schema.get("nullable") is True:
        return {"anyOf": [_simplified({**schema, "nullable": False}, detail), {"type": "null"}]}
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return {"anyOf": [_simplified(part, detail) for part in schema[key]]}
    if schema.get("enum"):
        return {"enum": list(schema["enum"])}
    if "const" in schema:
        return {"const": schema["const"]}
    if schema.get("allOf"):
        return _all_of(schema["allOf"], detail)
    kind = schema.get("type")
    if isinstance(kind, list):
        return {"anyOf": [_simplified({**schema, "type": one}, detail) for one in kind]}
    if kind == "object" or (kind is None and ("properties" in schema or "additionalProperties" in schema)):
        return _object(schema, detail)
    if kind == "array":
        return _array(schema, detail)
    if kind == "string":
        return {"type": "string", **(_text_limits(schema) if detail else {})}
    return {"type": kind} if kind in ("number", "integer", "boolean", "null") else _ANY


def _all_of(parts: Sequence[Any], detail: bool) -> dict[str, Any]:
    if len(parts) == 1:
        return _simplified(parts[0], detail)
    if all(isinstance(part, Mapping) and ("$ref" in part or "properties" in part) for part in parts):
        return {"allOf": [_simplified(part, detail) for part in parts]}
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part if isinstance(part, Mapping) else {}
    merged.pop("allOf", None)
    return _simplified(merged, detail)


def _object(schema: Json, detail: bool) -> dict[str, Any]:
    properties = {name: _simplified(part, detail) for name, part in schema.get("properties", {}).items()}
    more = schema.get("additionalProperties")
    if not properties and ("properties" not in schema or more is True):
        return {"type": "object", **({"additionalProperties": _simplified(more, detail)} if more else {})}
    required = [name for name in schema.get("required", ()) if name in properties]
    return {"type": "object", "properties": properties, "required": required}


def _array(schema: Json, detail: bool) -> dict[str, Any]:
    items = schema.get("prefixItems") or schema.get("items")
    if isinstance(items, Sequence) and not isinstance(items, str):
        return {"type": "array", "items": [_simplified(part, detail) for part in items]}
    if items is None or items is True:
        return {"type": "array"}
    return {"type": "array", "items": _simplified(items, detail), **_counts(schema, "minItems", "maxItems")}


def _text_limits(schema: Json) -> dict[str, Any]:
    """Lengths, format and pattern; the converter copies escapes and groups with a ``?`` as they are."""
    limits: dict[str, Any] = {**_counts(schema, "minLength", "maxLength")}
    if _is_plain_pattern(schema.get("pattern")):
        limits["pattern"] = schema["pattern"]
    if isinstance(schema.get("format"), str):
        limits["format"] = schema["format"]
    return limits


def _is_plain_pattern(pattern: Any) -> bool:
    """Whether the converter can express a pattern: anchored, without escapes and groups with a ``?``."""
    return isinstance(pattern, str) and bool(re.fullmatch(r"\^[^\\]+\$", pattern)) and "(?" not in pattern


def _counts(schema: Json, least: str, most: str) -> dict[str, int]:
    return {key: schema[key] for key in (least, most) if _is_small(schema.get(key))}


def _is_small(count: Any) -> bool:
    return isinstance(count, int) and 0 <= count <= MOST_REPEATS


# --- what the rules leave out -------------------------------------------------------------------------

_NEVER = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems",
    "minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
    "dependentRequired", "dependentSchemas", "dependencies", "not", "if", "then", "else",
    "contentEncoding", "contentMediaType", "contentSchema",
}  # fmt: skip
_FORMATS = {"date", "time", "date-time", "uuid"}
_LENGTHS = {"minLength", "maxLength", "minItems", "maxItems"}
_CHOICES = {"anyOf", "oneOf", "enum", "const", "allOf"}
_OF_SCHEMAS = ("properties", "$defs", "definitions")
_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA = ("items", "additionalProperties")


def unexpressed(schema: Json) -> list[str]:
    """The keywords of ``schema`` that its grammar leaves out, sorted, each once.

    >>> unexpressed({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}})
    ['minimum']
    """
    return sorted(set(_left_out(schema)))


def _left_out(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    yield from (key for key in schema if key in _NEVER)
    yield from (key for key in _LENGTHS & set(schema) if not _is_small(schema[key]))
    if schema.get("format") not in (None, *_FORMATS):
        yield "format"
    if "pattern" in schema and not _is_plain_pattern(schema["pattern"]):
        yield "pattern"
    if "oneOf" in schema:
        yield "oneOf"  # the grammar allows several at once
    if "$ref" in schema or _CHOICES & set(schema):  # what stands next to them is left out
        beside = {"properties", "required", "items", "pattern", *_LENGTHS} & set(schema)
        yield from beside - ({"required"} if "allOf" in schema else set())
    for part in _parts(schema):
        yield from _left_out(part)


def _parts(schema: Json) -> Iterator[Any]:
    """The schemas inside a schema."""
    for key in _OF_SCHEMAS:
        if isinstance(inner := schema.get(key), Mapping):
            yield from inner.values()
    for key in _SCHEMAS:
        if isinstance(inner := schema.get(key), Sequence) and not isinstance(inner, str):
            yield from inner
    yield from map(schema.get, _SCHEMA)
