"""How a benchmark fills a library: tasks with known programs, each verified and examined in the sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentkv.bench.flywheel.families import Family
from agentkv.bench.report import say
from agentkv.errors import GuaranteeViolated
from agentkv.flywheel.kept import Kept
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.parametric import examine
from agentkv.flywheel.sandbox.sandbox import Sandbox
from agentkv.flywheel.solution import Program, Provenance, Solution
from agentkv.flywheel.task import Task
from agentkv.flywheel.verify import verify


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


def fill(library: SolutionLibrary, families: Iterable[Family], sandbox: Sandbox) -> dict[str, Any]:
    """One instance of each family; the block's name by family."""
    names: dict[str, str] = {}
    for family in families:
        task = family.instances("library", 1)[0].task(checked=True)
        kept = Kept(task=task, parameters=task.parameters)
        solution = solution_of(task, family.program, sandbox, "written for this benchmark")
        library.keep(kept, solution)
        known = library.find(task.task_id)
        if known is None or not known.can_transfer:
            raise GuaranteeViolated(f"the solution of {family.name} cannot transfer: {solution.parametric}")
        names[family.name] = known.name
        say(f"deposited {known.name}")
    return names
