"""A model with scripted replies, and a library that it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentkv import AgentMemory, FakeEngine
from agentkv.flywheel.book import KeptTask
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.program import examine
from agentkv.flywheel.solution import Program, Provenance, Solution
from agentkv.flywheel.task import Task, Truth
from agentkv.flywheel.verify import verify
from agentkv.sandbox.sandbox import Sandbox

CRATES = "A lorry carries 37 crates of 46 kg. How many kg is that?"
BOXES = "A van carries 12 boxes of 31 kg each. How many kg does it carry?"
MULTIPLY = "def solve(crates, kg):\n    return crates * kg\n"


def memory(folder: Path, replies: Callable[[str], str], window: int = 16384) -> AgentMemory:
    """A memory on the fake engine; a reply is a function of all that stands before it."""
    return AgentMemory(folder / "store", FakeEngine(window=window, replies=replies, keeps_grammar=True))


def crates(**changes: Any) -> Task:
    """The task of the lorry."""
    given: dict[str, Any] = {
        "id": "lorry",
        "prompt": CRATES,
        "parameters": {"crates": 37, "kg": 46},
        "check": Truth(answer=1702),
    }
    return Task(**(given | changes))


def fenced(source: str) -> str:
    """A program as a model says it."""
    return f"Here it is:\n```python\n{source}```\nDone."


def solution(task: Task, source: str, box: Sandbox) -> Solution:
    """The program as a verified solution of the task."""
    program = Program(source=source)
    found = verify(task, program, box)
    assert found.verified, found.proof.reason
    return Solution(
        task_id=task.task_id,
        candidate=program,
        answer=found.answer,
        provenance=Provenance(solver="test"),
        proof=found.proof,
        parametric=examine(box, program, task),
    )


def filled(held: AgentMemory, box: Sandbox, task: Task | None = None, source: str = MULTIPLY) -> SolutionLibrary:
    """A library with one solution."""
    library, task = SolutionLibrary(held), task or crates()
    library.keep(KeptTask(task=task, parameters=task.parameters), solution(task, source, box))
    return library
