"""How a benchmark fills a library: tasks with known programs, each verified and examined in the sandbox."""

from __future__ import annotations

from collections.abc import Iterable

from agentkv.bench.results import say
from agentkv.errors import GuaranteeViolated
from agentkv.flywheel.book import KeptTask
from agentkv.flywheel.library import Known, SolutionLibrary
from agentkv.flywheel.program import examine
from agentkv.flywheel.solution import Program, Provenance, Solution
from agentkv.flywheel.task import Task
from agentkv.flywheel.verify import verify
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel.families import Family


def solution_of(task: Task, source: str, sandbox: Sandbox, solver: str) -> Solution:
    """The program as a solution of the task, proven now. Raises GuaranteeViolated where it is not verified."""
    program = Program(source=source)
    found = verify(task, program, sandbox)
    if not found.verified:
        raise GuaranteeViolated(f"the program of {task.id} is {found.proof.verdict}: {found.proof.reason}")
    return Solution(
        task_id=task.task_id,
        candidate=program,
        answer=found.answer,
        provenance=Provenance(solver=solver),
        proof=found.proof,
        parametric=examine(sandbox, program, task),
    )


def deposit(library: SolutionLibrary, task: Task, source: str, sandbox: Sandbox, solver: str) -> Known:
    """The program as the live solution of the task, to be adapted to others. Raises GuaranteeViolated."""
    solution = solution_of(task, source, sandbox, solver)
    library.keep(KeptTask(task=task, parameters=task.parameters), solution)
    known = library.find(task.task_id)
    if known is None or not known.can_transfer:
        raise GuaranteeViolated(f"the solution of {task.id} cannot transfer: {solution.parametric}")
    say(f"deposited {known.name}")
    return known


def fill(library: SolutionLibrary, families: Iterable[Family], sandbox: Sandbox) -> dict[str, Known]:
    """The solution of one instance of each family, by family."""
    by = "written for this benchmark"
    return {
        family.name: deposit(library, family.instances("library", 1)[0].task(checked=True), family.program, sandbox, by)
        for family in families
    }
