"""Tasks: what is asked, with which parameters, and how an answer is checked; files of them.

A task's identity is exact, never by similarity. Before it is hashed, a prompt is brought to Unicode NFC, line ends to
``\\n``, and white space at its ends goes. Runs of white space inside become one space, unless the prompt may quote
something: if it holds a quotation mark, a backtick or an indented line, what is inside stays as it is. Case, digits,
punctuation and words are never touched.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from agentkv.errors import InvalidTask, StoreError
from agentkv.flywheel import values
from agentkv.flywheel.values import Tolerance
from agentkv.io import fsio
from agentkv.io.hashing import tagged_digest
from agentkv.records import Record

_QUOTES = re.compile(r"""["`“”„«»‘‚]|(?<!\w)'|\n[ \t]+\S""")
_FILE_BYTES = 256 << 20
_MAX_CASES = 1000


def _value(value: Any) -> Any:
    values.check(value)
    return value


def _parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    values.check(parameters)
    for name in parameters:
        if not name.isidentifier():
            raise ValueError(f"a parameter {name[:40]!r}, which is not a Python name")
    return parameters


def _prompt(text: str) -> str:
    values.check(text)
    if not text.strip():
        raise ValueError("an empty prompt")
    return text


Value = Annotated[Any, AfterValidator(_value)]
Parameters = Annotated[dict[str, Any], AfterValidator(_parameters)]


class Truth(Record):
    """The answer is the value ``answer``: one check."""

    kind: Literal["truth"] = "truth"
    answer: Value
    tolerance: Tolerance | None = None


class TextTruth(Record):
    """The answer is the text ``answer``, after NFC and with runs of white space taken as one space: one check."""

    kind: Literal["text"] = "text"
    answer: Annotated[str, AfterValidator(_value)]
    ignore_case: bool = False


class Case(Record):
    """What the program must return for these parameters."""

    parameters: Parameters
    answer: Value


class Calls(Record):
    """Calls with expected answers, one check a case. No cases check nothing, which proves nothing."""

    kind: Literal["tests"] = "tests"
    cases: Annotated[tuple[Case, ...], Field(max_length=_MAX_CASES)]
    tolerance: Tolerance | None = None


class ByCallable(Record):
    """A function of the caller, found by name, judges the answer: one check."""

    kind: Literal["callable"] = "callable"
    name: Annotated[str, Field(min_length=1, max_length=200)]


Check = Annotated[Truth | TextTruth | Calls | ByCallable, Field(discriminator="kind")]


class Task(Record):
    """One task. ``id`` is the caller's name for it; ``task_id`` its identity. ``check`` is None where nothing checks
    it.

    >>> Task(id="a", prompt="Sort  ascending").task_id == Task(id="b", prompt="Sort ascending ").task_id
    True
    >>> Task(id="a", prompt="Sort ascending").task_id == Task(id="a", prompt="Sort descending").task_id
    False
    """

    id: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_value)]
    prompt: Annotated[str, Field(max_length=200_000), AfterValidator(_prompt)]
    parameters: Parameters = Field(default_factory=dict)
    check: Check | None = None

    @cached_property
    def task_id(self) -> str:
        """SHA-256 over the normalised prompt and the parameters, 64 hex characters; the check is not part of it."""
        return task_id(self.prompt, self.parameters)

    @cached_property
    def check_sha256(self) -> str | None:
        """SHA-256 over the check: its kind, its answers, its tolerance; None without a check.

        Of a callable it covers the name only: what the function does is known only by running it.
        """
        return (
            None if self.check is None else tagged_digest("check/1", values.encode(self.check.model_dump(mode="json")))
        )


def normalised(prompt: str) -> str:
    """The prompt as it is hashed; the module's docstring says how."""
    text = unicodedata.normalize("NFC", prompt).replace("\r\n", "\n").replace("\r", "\n").strip()
    return text if _QUOTES.search(text) else " ".join(text.split())


def task_id(prompt: str, parameters: dict[str, Any] | None = None) -> str:
    """The identity of a task: 64 hex characters."""
    return tagged_digest("task/1", normalised(prompt), values.encode(parameters or {}))


def read_tasks(path: Path) -> list[Task]:
    """The tasks of a file with one JSON object a line; empty lines are skipped.

    Raises InvalidTask with the line number, also for an ``id`` or an identity that occurs twice.
    """
    data = read_file(path, _FILE_BYTES)
    tasks: list[Task] = []
    lines: dict[str, int] = {}
    for number, line in _lines(data):
        task = _task(path, number, line)
        for key in (f"id {task.id!r}", f"task {task.task_id[:12]}"):
            if key in lines:
                raise InvalidTask(path, f"{key} is that of line {lines[key]}", number)
            lines[key] = number
        tasks.append(task)
    return tasks


def read_file(path: Path, limit: int) -> bytes:
    """The bytes of a file of tasks or solutions, of at most ``limit``. Raises InvalidTask."""
    try:
        data = fsio.read_regular(path, limit)
    except StoreError as error:
        raise InvalidTask(path, error.message) from error
    if data is None:
        raise InvalidTask(path, "no such file")
    return data


def first_fault(error: ValidationError) -> str:
    """The first fault of a line: the field and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}"


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            yield number, line


def _task(path: Path, number: int, line: bytes) -> Task:
    try:
        values.decode(line)  # stricter than what follows: no NaN, no key twice
        return Task.model_validate_json(line)
    except ValidationError as error:
        raise InvalidTask(path, first_fault(error), number) from error
    except ValueError as error:
        raise InvalidTask(path, f"not one strict JSON object: {error}", number) from error
