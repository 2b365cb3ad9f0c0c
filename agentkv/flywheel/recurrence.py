"""Recurrence: the same task again, answered from its verified solution.

The same task is one of the same identity (``task.py``), never a similar one. One lookup finds its live solution; its
check is run again where it can be, and a solution that fails now is retired and does not answer; its block is grafted
and the model says the answer in a few tokens, bound to the answer's type. The answer that is given is the solution's:
what the model read is compared with it, and a misreading is on record instead of in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.flywheel import values
from agentkv.flywheel.blocktext import RECALL_QUESTION
from agentkv.flywheel.checks import Judging
from agentkv.flywheel.library import NO_BLOCK, Known, SolutionLibrary
from agentkv.flywheel.sandbox.sandbox import Sandbox
from agentkv.flywheel.slots import typed_grammar
from agentkv.flywheel.solution import Verdict
from agentkv.flywheel.task import Task
from agentkv.flywheel.verify import Verification, verify
from agentkv.records import Turn

ANSWER_TOKENS = 96
_MAX_READ = 200
_TEXT_TOLERANCE = values.Tolerance(relative=1e-12)


@dataclass(frozen=True)
class Recalled:
    """An answer from a live solution. ``turn``: how the model read it; None where it is too long to be read, or has no
    block on this model.

    ``verification``: the check as it was run now; None where it was not.
    """

    known: Known
    answer: Any
    verdict: Verdict
    turn: Turn | None
    verification: Verification | None

    @property
    def read_rightly(self) -> bool | None:
        """Whether the model said the answer; None where it was not asked."""
        if self.turn is None:
            return None
        try:
            return values.same(values.decode(self.turn.text), self.answer, _TEXT_TOLERANCE)
        except ValueError:
            return False

    @property
    def origin(self) -> str:
        """Where the answer comes from."""
        word = "verified" if self.verdict is Verdict.VERIFIED else "not checked again"
        return f"recalled from {self.known.name}, {word}"


@dataclass
class Recurrence:
    """Answers tasks that were solved before. ``recheck=False`` leaves the check as it was at deposit."""

    library: SolutionLibrary
    sandbox: Sandbox
    callables: Mapping[str, Judging] = field(default_factory=dict)
    recheck: bool = True

    def recall(self, task: Task, cancellation: Cancellation | None = None) -> Recalled | None:
        """The answer; None if this very task has no live solution, or had one that fails now."""
        known = self.library.find(task.task_id)
        if known is None:
            return None
        again = self._checked(known)
        if again is not None and self.library.find(task.task_id) is None:
            self.library.forget_block(known.name)
            return None
        answer = known.solution.answer
        turn = self._read(known, answer, cancellation)
        verdict = Verdict.UNVERIFIED if again is None else again.proof.verdict
        return Recalled(known, answer, verdict, turn, again)

    def _checked(self, known: Known) -> Verification | None:
        task = known.kept.task
        if not self.recheck or task.check is None:
            return None
        if task.check.kind == "callable" and task.check.name not in self.callables:
            return None
        return self.library.book.recheck(
            task.task_id,
            lambda solution: verify(task, solution.candidate, self.sandbox, callables=self.callables),
        )

    def _read(self, known: Known, answer: Any, cancellation: Cancellation | None) -> Turn | None:
        if len(values.encode(answer)) > _MAX_READ:
            return None
        try:
            return self.library.memory.ask(
                RECALL_QUESTION,
                skill=self.library.block(known, cancellation),
                grammar=typed_grammar(answer),
                max_new=ANSWER_TOKENS,
                cancellation=cancellation,
            )
        except NO_BLOCK:
            return None
