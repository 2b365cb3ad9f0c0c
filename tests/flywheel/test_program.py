"""Programs: perturbed parameters, hard-coded constants."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.flywheel.program import examine, look, perturbed
from agentkv.flywheel.solution import Program
from agentkv.flywheel.task import Task
from agentkv.flywheel.values import same
from agentkv.sandbox.sandbox import Sandbox

PROMPT = "A train of 12 cars at 1,250 kg each, 3.5 t more and a 48 m bridge on 2025-03-09: how heavy?"


def task(**parameters: Any) -> Task:
    return Task(id="t", prompt=PROMPT, parameters=parameters)


def found(sandbox: Sandbox, source: str, **parameters: Any) -> Any:
    return examine(sandbox, Program(source=source), task(**parameters))


def test_a_method_that_uses_each_parameter_is_transferable(box: Sandbox) -> None:
    report = found(box, "def solve(cars, kg):\n    return cars * kg * 1000 // 7\n", cars=12, kg=1250)
    assert [(p.name, p.use) for p in report.parameters] == [("cars", "used"), ("kg", "used")]
    assert report.hard_coded == ()
    assert report.transferable


@pytest.mark.parametrize(
    ("body", "value", "line", "of"),
    [
        ("    return cars * 1250\n", 1250, 2, "prompt"),
        ("    return cars + 3.5\n", 3.5, 2, "prompt"),
        ("    x = cars\n    return x * 48\n", 48, 3, "prompt"),
        ("    return cars * 0 + 15000\n", 15000, 2, "answer"),
        ("    return cars - cars + 12 * 1300\n", 12, 2, "parameter"),
        ("    return str(cars) + '2025-03-09'\n", "2025-03-09", 2, "prompt"),
    ],
)
def test_a_constant_of_the_task_is_marked(body: str, value: Any, line: int, of: str, box: Sandbox) -> None:
    report = found(box, "def solve(cars):\n" + body, cars=12)
    marked = report.hard_coded[0]
    assert same(marked.value, value)
    assert (marked.line, marked.of) == (line, of)
    assert not report.transferable


def test_what_stands_in_parameters_defaults_or_docstrings_is_not_hard_coded(box: Sandbox) -> None:
    source = '"""12 cars, 1250 kg."""\nPARAMETERS = {"cars": 12}\ndef solve(cars, kg=1250, *, more=3.5):\n'
    report = found(box, source + '    "48 m"\n    return cars * kg + more\n')
    assert [(p.name, p.use) for p in report.parameters] == [("kg", "used"), ("more", "used"), ("cars", "used")]
    assert report.hard_coded == ()
    assert report.transferable


def test_small_numbers_are_in_every_program(box: Sandbox) -> None:
    of = Task(id="t", prompt="Take 2 of 1 and 0, minus -1.", parameters={"n": 9})
    report = examine(box, Program(source="def solve(n):\n    return n * 2 + 1 - 0 + -1\n"), of)
    assert report.hard_coded == ()


def test_a_parameter_that_changes_nothing_is_ignored(box: Sandbox) -> None:
    report = found(box, "def solve(cars, kg):\n    return kg * 7\n", cars=12, kg=99)
    assert [(p.name, p.use) for p in report.parameters] == [("cars", "ignored"), ("kg", "used")]
    assert not report.transferable


def test_a_parameter_whose_other_values_all_fail_is_unknown(box: Sandbox) -> None:
    report = found(box, "def solve(cars):\n    assert cars == 12\n    return cars * 7\n", cars=12)
    assert [(p.name, p.use) for p in report.parameters] == [("cars", "unknown")]
    assert not report.transferable


def test_without_parameters_nothing_can_be_transferred(box: Sandbox) -> None:
    report = found(box, "def solve():\n    return 5\n")
    assert not report.transferable
    assert report.reason == "it has no parameters"
    assert [(b.value, b.of) for b in report.hard_coded] == [(5, "answer")]


@pytest.mark.parametrize("source", ["def solve(:", "(" * 5000, "-" * 200_000 + "1", "x = " + "[" * 150, "\x00"])
def test_a_text_that_cannot_be_read_is_reported_and_hurts_nobody(source: str, box: Sandbox) -> None:
    report = found(box, source)
    assert not report.transferable
    assert report.reason


def test_looking_runs_nothing(box: Sandbox) -> None:
    seen = look(box, Program(source="import os\nPARAMETERS = {'a': os._exit(1)}\nwhile True: pass\n"))
    assert (seen.error, seen.has_solve, seen.parameters) == ("", False, {})


@pytest.mark.parametrize(
    "value", [True, 0, 12, -5, 3.5, "2025-03-09", "word", "x", [3, 1, 2], [7], {"a": 1}, [[1, 2], [3]], "é"]
)
def test_other_values_are_other_and_of_the_same_kind(value: Any) -> None:
    others = perturbed(value)
    assert 1 <= len(others) <= 4
    assert all(type(other) is type(value) for other in others)
    assert any(not same(other, value) for other in others)


@pytest.mark.parametrize("value", [None, "", [], {}])
def test_what_is_empty_has_no_others(value: Any) -> None:
    assert perturbed(value) == []
