"""What a JSON schema asks for that the grammar made from it does not hold an answer to; see ``grammar.py``.

An answer decoded under the grammar may break these, so whoever takes it has to look. Pure; knows no native library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentkv.engine.constrain.grammar import MOST_REPEATS, is_plain_pattern

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


def unexpressed(schema: Mapping[str, Any]) -> list[str]:
    """The keywords of ``schema`` that the grammar leaves out, sorted, each once."""
    return sorted(set(_left_out(schema)))


def _left_out(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    yield from (key for key in schema if key in _NEVER)
    yield from (key for key in _LENGTHS & set(schema) if not _is_small(schema[key]))
    if schema.get("format") not in (None, *_FORMATS):
        yield "format"
    if "pattern" in schema and not is_plain_pattern(schema["pattern"]):
        yield "pattern"
    if "oneOf" in schema:
        yield "oneOf"  # one at least is held to, not one at most
    if "$ref" in schema or _CHOICES & set(schema):  # the rest beside them is left out
        beside = {"properties", "required", "items", "pattern", *_LENGTHS} & set(schema)
        yield from beside - ({"required"} if "allOf" in schema else set())
    for key in _OF_SCHEMAS:
        inner = schema.get(key)
        for part in inner.values() if isinstance(inner, Mapping) else ():
            yield from _left_out(part)
    for key in _SCHEMAS:
        parts = schema.get(key)
        for part in parts if isinstance(parts, Sequence) and not isinstance(parts, str) else ():
            yield from _left_out(part)
    for key in _SCHEMA:
        yield from _left_out(schema.get(key))


def _is_small(count: Any) -> bool:
    return isinstance(count, int) and 0 <= count <= MOST_REPEATS
