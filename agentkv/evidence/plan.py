"""A plan: what will be run, on which code and models, and which results are required.

Sealed by its digest before it is run. A plan's commands are benchmarks of agentkv and nothing else, so that a plan from
a stranger cannot run a program; what a benchmark reads is up to its arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError

from agentkv.errors import InvalidPlan
from agentkv.evidence.environment import source_code
from agentkv.evidence.files import now
from agentkv.evidence.records import Code
from agentkv.io import fsio
from agentkv.io.hashing import tagged_digest
from agentkv.records import Record, Sha256
from agentkv.store.format import Malformed, decode_record, encode_record

MAGIC = "agentkv-plan 1"
_LIMIT = 4 << 20
_Word = Annotated[str, Field(min_length=1, max_length=256)]
PROGRAMS = {"bench": ("agentkv", "bench"), "benchmarks": ("tests.benchmarks",)}
"""A step's first word -> the module that runs it: the product's own, or, in a checkout, the research benchmarks."""
_OURS = ("--out", "--json", "--ledger")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Criterion(Record):
    """A requirement: every value ``at`` the path ``must`` compare so with ``value``.

    A path is names and indices separated by dots, from the outcome (``exit_code``, ``result``); ``*`` is every member
    of a list or object, ``#`` their number. A path that does not exist is a failure.
    """

    at: _Word
    must: Literal["==", "!=", ">=", "<=", ">", "<"]
    value: bool | int | float | str | None

    def judge(self, outcome: Any) -> tuple[bool, list[Any]]:
        """Whether it holds of an outcome, and the values seen."""
        seen = _at(outcome, self.at.split("."))
        return bool(seen) and all(self._holds(value) for value in seen), seen

    def _holds(self, value: Any) -> bool:
        if isinstance(value, bool) != isinstance(self.value, bool):
            return False  # True == 1 in Python
        try:
            return _COMPARE[self.must](value, self.value)
        except TypeError:
            return False

    @property
    def text(self) -> str:
        """The criterion for people."""
        return f"{self.at} {self.must} {orjson.dumps(self.value).decode()}"


def _at(value: Any, path: list[str]) -> list[Any]:
    if not path:
        return [value]
    name, *rest = path
    inner: list[Any]
    match value:
        case dict() | list() if name == "#":
            inner = [len(value)]
        case dict() if name == "*":
            inner = list(value.values())
        case list() if name == "*":
            inner = value
        case dict() if name in value:
            inner = [value[name]]
        case list() if name.isdecimal() and int(name) < len(value):
            inner = [value[int(name)]]
        case _:
            return []
    found = [_at(item, rest) for item in inner]
    return [] if not all(found) else [item for part in found for item in part]


class Step(Record):
    """One command, its words after the program's name, and its required results."""

    name: _Word
    arguments: Annotated[tuple[_Word, ...], Field(min_length=2, max_length=64)]
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=256)]


class Draft(Record):
    """A plan without code and time, as shipped. ``models``: the names of those it runs; ``needs``: hardware."""

    format: Literal[1] = 1
    name: _Word
    title: str
    prediction: Annotated[str, Field(min_length=1)]
    needs: tuple[Literal["cuda"], ...] = ()
    models: tuple[_Word, ...] = ()
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=256)]


class ReplayPlan(Record):
    """A sealed plan: the draft, the source tree that it holds for, and the SHA-256 of each model file.

    ``created`` is informational: the order of events is that of the ledger.
    """

    draft: Draft
    created: str
    code: Code
    models: dict[str, Sha256]

    @property
    def digest(self) -> str:
        """What a ledger enters before the run: SHA-256 over all of it."""
        return tagged_digest("plan/1", self.model_dump(mode="json"))


def shipped() -> list[str]:
    """The names of the plans in the package."""
    folder = resources.files("agentkv.evidence") / "plans"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_draft(name_or_path: str) -> Draft:
    """A plan of the package, by name, or one in a JSON file. Raises InvalidPlan, StoreReadError."""
    if name_or_path in shipped():
        data = (resources.files("agentkv.evidence") / "plans" / f"{name_or_path}.json").read_bytes()
    else:
        found = fsio.read_regular(Path(name_or_path), _LIMIT)
        if found is None:
            raise InvalidPlan(repr(name_or_path), f"neither a file nor one of {', '.join(shipped())}")
        data = found
    try:
        draft = Draft.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidPlan(name_or_path, f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from error
    _check(draft, name_or_path)
    return draft


def make(draft: Draft, models: dict[str, str]) -> ReplayPlan:
    """The plan for the source tree as it is now; ``models``: name -> SHA-256, for each of the draft's."""
    return ReplayPlan(draft=draft, created=now(), code=source_code(), models=models)


def save(plan: ReplayPlan, path: Path) -> None:
    """Write a sealed plan. Raises StoreFull, StoreReadError."""
    fsio.write_durably(path, [encode_record(MAGIC, plan)])


def load(path: Path) -> ReplayPlan:
    """The plan in a file, exactly as it was sealed. Raises InvalidPlan, StoreReadError."""
    data = fsio.read_regular(path, _LIMIT)
    if data is None:
        raise InvalidPlan(str(path), "there is no such file")
    try:
        plan = decode_record(MAGIC, data, ReplayPlan)
    except Malformed as error:
        raise InvalidPlan(str(path), f"it was changed after it was sealed, or is not a plan ({error})") from error
    _check(plan.draft, str(path))
    if set(plan.models) != set(plan.draft.models):
        raise InvalidPlan(str(path), "its models are not those of its draft")
    return plan


def _check(draft: Draft, where: str) -> None:
    names = [step.name for step in draft.steps]
    if len(set(names)) != len(names):
        raise InvalidPlan(where, "two steps have one name")
    for step in draft.steps:
        if step.arguments[0] not in PROGRAMS:
            known = " and ".join(f"`{name}`" for name in PROGRAMS)
            raise InvalidPlan(where, f"step {step.name!r} runs {step.arguments[0]!r}; a plan runs {known} only")
        ours = [word for word in step.arguments if word.split("=")[0] in _OURS]
        if ours:
            raise InvalidPlan(where, f"step {step.name!r} gives {ours[0]}, which the replay gives")
