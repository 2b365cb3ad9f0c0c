"""Values: strict JSON, compared by type and value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agentkv.flywheel import values
from agentkv.flywheel.values import Tolerance, same

DIFFERENT = [
    (1, "1"), (1, 1.0), (1, True), (0, False), (0.0, False), (None, 0), (None, ""), (None, False), ("", []), ([], {}),
    ([1], [1.0]), ([1, 2], [2, 1]), ([1], [1, 1]), ({"a": 1}, {"a": "1"}), ({"a": 1}, {"a": 1, "b": 2}),
    ("é", "e\u0301"), ("a", "A"), (2**64, float(2**64)), ([[1]], [1]), ({"a": None}, {}),
]  # fmt: skip
EQUAL = [1, "1", 1.0, True, None, [], {}, [1, ["a", {"b": None}]], 10**4000, -(2**70), "\u2028", 0.1 + 0.2]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_values_that_differ_in_type_or_value_are_not_the_same(a: Any, b: Any) -> None:
    assert not same(a, b)
    assert not same(b, a)
    assert not same([a], [b])
    assert not same({"k": a}, {"k": b})


@pytest.mark.parametrize("value", EQUAL)
def test_a_value_is_the_same_as_itself_and_survives_its_json(value: Any) -> None:
    assert same(value, value)
    assert same(values.decode(values.encode(value)), value)


def test_zero_has_no_sign() -> None:
    assert same(-0.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "expected", "tolerance", "right"),
    [
        (1.0, 1, Tolerance(), True),
        (1.05, 1, Tolerance(absolute=0.1), True),
        (1.2, 1, Tolerance(absolute=0.1), False),
        (101.0, 100.0, Tolerance(relative=0.01), True),
        (102.0, 100.0, Tolerance(relative=0.01), False),
        (10**400, 10**400 + 1, Tolerance(relative=1e-9), True),
        (10**400, 1, Tolerance(relative=0.5), False),
        (True, 1, Tolerance(absolute=1), False),
        ("1", 1, Tolerance(absolute=1), False),
        ([1, 2.0], [1.0, 2], Tolerance(), True),
        (math.nan, 1.0, Tolerance(absolute=10), False),
        (math.inf, 1.0, Tolerance(relative=1), False),
    ],
)
def test_a_tolerance_is_for_numbers_alone(answer: Any, expected: Any, tolerance: Tolerance, right: bool) -> None:
    assert same(answer, expected, tolerance) is right


@pytest.mark.parametrize(
    "text",
    ["NaN", "Infinity", "-Infinity", '{"a":1,"a":2}', "1 2", "", "[", "[" * 70 + "]" * 70, "[" * 100_000, '"\\ud800"',
     "9" * 5000, "1e999", b"\xff"],
)  # fmt: skip
def test_what_is_no_value_is_refused_however_it_comes(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        values.decode(text)


@pytest.mark.parametrize(
    "value", [(1,), {1: 2}, {1, 2}, b"x", 1j, object(), math.nan, [math.inf], "\ud800", {"\ud800": 1}]
)
def test_other_python_objects_are_no_values(value: Any) -> None:
    with pytest.raises(ValueError):
        values.encode(value)


def test_subclasses_are_no_values() -> None:
    class Int(int):
        pass

    with pytest.raises(ValueError):
        values.check(Int(1))


def test_json_is_canonical() -> None:
    assert values.encode({"b": [1, 1.0], "a": "é"}) == '{"a":"é","b":[1,1.0]}'
