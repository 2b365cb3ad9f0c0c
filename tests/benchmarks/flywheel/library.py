"""How a benchmark fills a library with verified programs, and what it records of routing and of an attempt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from agentkv.bench.base import Row
from agentkv.bench.results import say
from agentkv.errors import GuaranteeViolated
from agentkv.flywheel.book import KeptTask
from agentkv.flywheel.library import Known, SolutionLibrary
from agentkv.flywheel.program import examine
from agentkv.flywheel.solution import Program, Provenance, Solution, Verdict
from agentkv.flywheel.task import Task
from agentkv.flywheel.transfer import Transferred
from agentkv.flywheel.verify import verify
from agentkv.records import Decision
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel.families import Family, Instance
from tests.benchmarks.flywheel.grading import is_same
from tests.benchmarks.flywheel.variants import BY, Origin, Variant

HERE = "written for this benchmark"
_BEST = 4


def family_of(task: Instance | Variant) -> str:
    """The family or hard problem that it is one of."""
    return task.key.rpartition("/")[0]


class Expected(Row):
    """What a task is scored against: the block of its solution, its text, its true answer."""

    block: str
    prompt: str
    answer: Any

    @classmethod
    def of(cls, task: Instance | Variant, right: Known) -> Self:
        """Of a task like that of ``right``, with as much of it as the class has."""
        known = {**vars(task), "family": family_of(task), "block": right.name}
        return cls(**{name: known[name] for name in cls.model_fields})


class Outcome(Row):
    """What became of an attempt."""

    generated: str | None
    parameters: dict[str, Any] | None
    answered: bool
    answer: Any
    reason: str

    def right(self, expected: Expected) -> bool:
        """Whether it gave the true answer."""
        return self.answered and is_same(self.answer, expected.answer)


def decided(decision: Decision) -> dict[str, Any]:
    """A decision's fields in a record, of whose scores only the best are kept."""
    best = dict(list(decision.scores.items())[:_BEST])
    return {"raw_pick": decision.raw_pick, "pick": decision.pick, "scores": best}


def outcome(done: Transferred | None) -> dict[str, Any]:
    """The fields of an :class:`Outcome`; ``done`` is None where there was no block."""
    if done is None:
        return {"generated": None, "parameters": None, "answered": False, "answer": None, "reason": "no block"}
    text = None if done.turn is None else done.turn.text
    return {"generated": text, **{name: getattr(done, name) for name in ("parameters", "answered", "answer", "reason")}}


def solution_of(task: Task, source: str, sandbox: Sandbox, solver: str = HERE) -> Solution:
    """The program as a solution of the task, with what checking and examining it gave now."""
    program = Program(source=source)
    found = verify(task, program, sandbox)
    return Solution(
        task_id=task.task_id,
        candidate=program,
        answer=found.answer,
        provenance=Provenance(solver=solver),
        proof=found.proof,
        parametric=examine(sandbox, program, task),
    )


def deposit(library: SolutionLibrary, task: Task, source: str, sandbox: Sandbox, solver: str = HERE) -> Known:
    """The program as the live solution of the task, to be adapted to others. Raises GuaranteeViolated."""
    solution = solution_of(task, source, sandbox, solver)
    if solution.proof.verdict is not Verdict.VERIFIED:
        raise GuaranteeViolated(f"the program of {task.id} is {solution.proof.verdict}: {solution.proof.reason}")
    library.keep(KeptTask(task=task, parameters=task.parameters), solution)
    known = library.find(task.task_id)
    if known is None or not known.can_transfer:
        raise GuaranteeViolated(f"the solution of {task.id} cannot transfer: {solution.parametric}")
    say(f"deposited {known.name}")
    return known


def of_families(library: SolutionLibrary, families: Iterable[Family], sandbox: Sandbox) -> dict[str, Known]:
    """The solution of one instance of each family, by family."""
    solved = [(family, family.instances("library", 1)[0].task(checked=True)) for family in families]
    return {family.name: deposit(library, task, family.program, sandbox) for family, task in solved}


def of_origins(library: SolutionLibrary, origins: Iterable[Origin], sandbox: Sandbox) -> dict[str, Known]:
    """The solution of each hard problem, by its name."""
    return {one.name: deposit(library, one.task(), one.source, sandbox, BY) for one in origins}
