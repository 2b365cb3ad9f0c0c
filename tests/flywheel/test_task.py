"""Tasks: exact identity, strict files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import InvalidTask
from agentkv.flywheel.task import Calls, Task, Truth, normalised, read_tasks, task_id

SAME = [
    ("Sort  ascending", "Sort ascending"),
    (" Sort ascending\n", "Sort ascending"),
    ("Sort\r\nascending", "Sort\nascending"),
    ("Sort\nascending", "Sort ascending"),
    ("caf\u00e9", "cafe\u0301"),
]
OTHER = [
    ("Sort ascending", "Sort descending"),
    ("Sort ascending", "sort ascending"),
    ("Add 12", "Add 21"),
    ("Add 1.0", "Add 10"),
    ("x²", "x2"),
    ("a-b", "a b"),
    ("What is 3!", "What is 3"),
    ("Count the blanks in 'a  b'", "Count the blanks in 'a b'"),
    ('Say "a  b"', 'Say "a b"'),
    ("Run `a  b`", "Run `a b`"),
    ("Fix:\nif x:\n    y", "Fix:\nif x:\n  y"),
    ("now here", "nowhere"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_the_same_task_in_another_layout_is_the_same(a: str, b: str) -> None:
    assert task_id(a) == task_id(b)


@pytest.mark.parametrize(("a", "b"), OTHER)
def test_another_task_is_never_the_same(a: str, b: str) -> None:
    assert task_id(a) != task_id(b)


def test_parameters_belong_to_the_identity_and_their_order_does_not() -> None:
    assert task_id("Add", {"a": 1, "b": 2}) == task_id("Add", {"b": 2, "a": 1})
    assert len({task_id("Add", p) for p in ({}, {"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": True}, {"b": 1})}) == 6
    assert task_id("Add") == task_id("Add", {})


def test_the_identity_is_pinned() -> None:
    assert task_id("Sort ascending") == "1f45117187f9768b5eef6ac8bfbaf4264aa391c1732f94be36f886fb7305e4ec"


def test_an_apostrophe_in_a_word_quotes_nothing() -> None:
    assert normalised("don't  look") == "don't look"


def test_the_check_and_the_owner_s_id_are_no_part_of_it() -> None:
    a = Task(id="a", prompt="Add")
    assert a.task_id == Task(id="b", prompt="Add", check=Truth(answer=1)).task_id


@pytest.mark.parametrize(
    "bad",
    [
        {"id": "", "prompt": "x"},
        {"id": "a", "prompt": "  "},
        {"id": "a", "prompt": "\ud800"},
        {"id": "a", "prompt": "x", "parameters": {"not a name": 1}},
        {"id": "a", "prompt": "x", "parameters": {"a": (1,)}},
        {"id": "a", "prompt": "x", "parameters": {"a": float("nan")}},
        {"id": "a", "prompt": "x", "other": 1},
        {"id": "a", "prompt": "x", "check": {"kind": "guess"}},
        {"id": "a", "prompt": "x", "check": {"kind": "truth"}},
        {"id": "a", "prompt": "x", "check": {"kind": "truth", "answer": 1, "tolerance": {"absolute": -1.0}}},
        {"id": "a", "prompt": "x", "check": {"kind": "text", "answer": 5}},
    ],
)
def test_a_task_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Task.model_validate(bad)


def written(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "tasks.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def test_a_file_of_tasks_is_read_in_order(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "prompt": "Add", "parameters": {"n": 2**80}, "check": {"kind": "truth", "answer": 1.0}},
        {"id": "b", "prompt": "Sort", "check": {"kind": "tests", "cases": [{"parameters": {"x": [2]}, "answer": [2]}]}},
        {"id": "c", "prompt": "Say", "check": {"kind": "callable", "name": "polite"}},
        {"id": "d", "prompt": "Ask"},
    ]  # fmt: skip
    tasks = read_tasks(written(tmp_path, "\ufeff" + json.dumps(lines[0]), "", *map(json.dumps, lines[1:]), "  "))
    assert [task.id for task in tasks] == ["a", "b", "c", "d"]
    assert tasks[0].parameters == {"n": 2**80}
    assert isinstance(tasks[0].check, Truth)
    assert type(tasks[0].check.answer) is float
    assert isinstance(tasks[1].check, Calls)
    assert tasks[3].check is None
    assert [Task.model_validate_json(task.model_dump_json()) for task in tasks] == tasks


GOOD = '{"id": "a", "prompt": "Add"}'


@pytest.mark.parametrize(
    "bad",
    [
        "{", "[]", "1", '{"id": "b"}', '{"id": "b", "prompt": 1}', '{"id": "b", "prompt": "x", "parameters": [1]}',
        '{"id": "b", "prompt": "x", "prompt": "y"}', '{"id": "b", "prompt": "x", "parameters": {"n": NaN}}',
        b"\xff\xfe",
        '{"id": "a", "prompt": "Other"}', '{"id": "b", "prompt": " Add "}', '{"id": "b", "prompt": "x"} trailing',
        '{"id": "b", "prompt": "x", "check": {"kind": "truth", "answer": Infinity}}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_bad_line_is_named(bad: str | bytes, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, "", bad)
    with pytest.raises(InvalidTask) as caught:
        read_tasks(path)
    assert caught.value.line == 3
    assert f"{path}:3: " in str(caught.value)


def test_no_file_and_no_regular_file_are_reported(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidTask):
            read_tasks(path)


def test_the_packages_names_are_there_and_load_nothing_before() -> None:
    code = (
        "import sys, agentkv.flywheel as f; assert not {'numpy', 'pydantic'} & set(sys.modules);"
        "assert all(getattr(f, name) for name in f.__all__) and sorted(f.__all__) == dir(f);"
        "assert not hasattr(f, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
