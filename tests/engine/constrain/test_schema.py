from __future__ import annotations

from typing import Any

import pytest

from agentkv.engine.constrain.schema import unexpressed


@pytest.mark.parametrize(
    ("schema", "left_out"),
    [
        ({"type": "integer"}, []),
        ({"type": "integer", "maximum": 10, "minimum": 0}, ["maximum", "minimum"]),
        ({"type": "string", "maxLength": 64, "pattern": "^[a-z]+$", "format": "date"}, []),
        ({"type": "string", "maxLength": 65}, ["maxLength"]),
        ({"type": "string", "pattern": "^\\d+$"}, ["pattern"]),
        ({"type": "string", "format": "email"}, ["format"]),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, ["uniqueItems"]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["oneOf"]),
        ({"anyOf": [{"type": "integer", "multipleOf": 2}, {"type": "null"}]}, ["multipleOf"]),
        ({"$defs": {"N": {"type": "number", "exclusiveMinimum": 0}}, "$ref": "#/$defs/N"}, ["exclusiveMinimum"]),
        ({"enum": ["a", "bb"], "maxLength": 1}, ["maxLength"]),
    ],
)
def test_what_a_grammar_does_not_hold_to_is_named_wherever_it_stands(schema: dict[str, Any], left_out: Any) -> None:
    assert unexpressed(schema) == left_out
    inside = {"type": "object", "properties": {"minimum": {"type": "array", "items": schema}}, "required": ["minimum"]}
    assert unexpressed(inside) == left_out
