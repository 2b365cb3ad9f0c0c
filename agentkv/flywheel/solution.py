"""Solutions and what is known of them: the candidate, who made it, and the record of its proof.

Records only. A program is Python source that defines ``solve``; it may set ``PARAMETERS``, a dict of defaults:

```python
PARAMETERS = {"price": 12, "pieces": 4}

def solve(price, pieces):
    return price * pieces
```
It is called with keywords, ``PARAMETERS`` overlaid with the solution's and then the task's parameters, and returns a
value of :mod:`agentkv.flywheel.values` (a tuple counts as a list). Only Python's standard library is there.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, Field, SerializerFunctionWrapHandler, model_serializer

from agentkv.flywheel import values
from agentkv.flywheel.task import Parameters, Task, Value
from agentkv.io.hashing import sha256, tagged_digest
from agentkv.records import Count, Record, Sha256
from agentkv.sandbox.base import Isolation

Short = Annotated[str, Field(max_length=4000)]


def _text(text: str) -> str:
    values.check(text)
    return text


Source = Annotated[str, Field(min_length=1, max_length=1 << 20), AfterValidator(_text)]


class Program(Record):
    """A program, as the module's docstring describes it."""

    kind: Literal["program"] = "program"
    source: Source
    parameters: Parameters = Field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Of the source's UTF-8 bytes."""
        return sha256(self.source.encode())


class Text(Record):
    """A text that is the answer itself."""

    kind: Literal["text"] = "text"
    text: Source

    @property
    def sha256(self) -> str:
        """Of the text's UTF-8 bytes."""
        return sha256(self.text.encode())


Candidate = Annotated[Program | Text, Field(discriminator="kind")]


class Verdict(StrEnum):
    """What is known of a candidate. Only ``verified`` is good: every check passed, at the isolation that the policy
    asks for.

    ``failed``: a check did not pass. ``timeout``: a time limit ended it. ``unverified``: nothing was checked, or the
    isolation was too low. ``vacuous``: it passed, and so does a stub. ``error``: the verifier itself failed.
    """

    VERIFIED = "verified"
    FAILED = "failed"
    TIMEOUT = "timeout"
    UNVERIFIED = "unverified"
    VACUOUS = "vacuous"
    ERROR = "error"


class CheckRun(Record):
    """One check that was made. ``ending``: how the process ended, None where none was run; ``output_sha256``: of the
    answer's canonical JSON, None where there was none."""

    passed: bool
    reason: Short
    ending: str | None
    inputs_sha256: Sha256
    output_sha256: Sha256 | None
    wall_ms: float = 0.0


class Proof(Record):
    """The record of one verification, written by the parent process alone.

    ``inputs_sha256``: over the parameters of every check made; ``output_sha256``: over every answer. ``date``: UTC, ISO
    8601. ``task_id`` and ``check_sha256`` name the task and the check that were used; records of older versions have
    None there, and prove no check until it is run again.
    """

    added = frozenset({"task_id", "check_sha256"})

    verdict: Verdict
    reason: Short
    check: str | None
    checks_expected: Count
    checks: tuple[CheckRun, ...]
    isolation: Isolation | None
    candidate_sha256: Sha256
    inputs_sha256: Sha256
    output_sha256: Sha256
    date: Annotated[str, Field(max_length=40)]
    agentkv_version: str
    python_version: str
    task_id: Sha256 | None = None
    check_sha256: Sha256 | None = None

    def is_of(self, task: Task) -> bool:
        """Whether it was made with this task and check; never for a callable, which is known only by running it."""
        named = self.task_id is not None and self.check_sha256 is not None and self.check != "callable"
        return named and (self.task_id, self.check_sha256) == (task.task_id, task.check_sha256)

    @property
    def checks_run(self) -> int:
        """How many checks were made."""
        return len(self.checks)


class HardCoded(Record):
    """A constant in a program's text that belongs to the task: it is in the prompt, or is the answer."""

    value: Value
    line: Count
    of: Literal["prompt", "parameter", "answer"]


class ParameterUse(Record):
    """Whether other values of a parameter give other answers. ``unknown``: every other value tried gave an error."""

    name: str
    use: Literal["used", "ignored", "unknown"]
    tried: Count


class Parametric(Record):
    """How far a program depends on its parameters and on nothing else of its task."""

    parameters: tuple[ParameterUse, ...]
    hard_coded: tuple[HardCoded, ...] = Field(validation_alias=AliasChoices("baked_in", "hard_coded"))
    reason: Short = ""

    @model_serializer(mode="wrap")
    def _as_on_disk(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Under the name that the field has in files and digests."""
        dumped: dict[str, Any] = plain(self)
        if "hard_coded" in dumped:
            dumped["baked_in"] = dumped.pop("hard_coded")
        return dumped

    @property
    def transferable(self) -> bool:
        """Whether it has parameters, uses each, and has nothing of its task hard-coded."""
        return bool(self.parameters) and not self.hard_coded and all(p.use == "used" for p in self.parameters)


class Provenance(Record):
    """Where a candidate comes from: a model, an endpoint, a person, a file."""

    solver: Annotated[str, Field(min_length=1, max_length=400)]
    fingerprint_id: Sha256 | None = None
    seeds: tuple[int, ...] = ()
    tokens: Count = 0
    note: Short = ""


class Solution(Record):
    """A candidate for a task with its answer (None for none), its origin and its proof."""

    task_id: Sha256
    candidate: Candidate
    answer: Value
    provenance: Provenance
    proof: Proof
    parametric: Parametric | None = None

    @cached_property
    def solution_id(self) -> str:
        """SHA-256 over everything in it, 64 hex characters."""
        return tagged_digest("solution/1", values.encode(self.plain()))

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return self.on_disk()
