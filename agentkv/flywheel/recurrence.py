"""Recurrence: the same task again, answered from its verified solution.

The same task is one of the same identity (``task.py``), never a similar one. One lookup finds its live solution. The
check of the task that is asked now is run on it, whatever it was proven by before; only a task that is asked without
one is checked as it was when it was learned. A solution that fails is retired and does not answer. Then its block is
grafted and the model says the answer in a few tokens, bound to the answer's type. The answer that is given is the
solution's: what the model read is compared with it, and a misreading is on record instead of in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.flywheel import values
from agentkv.flywheel.blocktext import RECALL_QUESTION
from agentkv.flywheel.checks import Judging
from agentkv.flywheel.library import UNREADABLE, Known, SolutionLibrary
from agentkv.flywheel.slots import typed_grammar
from agentkv.flywheel.solution import Verdict
from agentkv.flywheel.task import ByCallable, Task
from agentkv.flywheel.verify import Verification, verify
from agentkv.records import Turn
from agentkv.sandbox.sandbox import Sandbox

ANSWER_TOKENS = 96
_MAX_READ = 200
_TEXT_TOLERANCE = values.Tolerance(relative=1e-12)


@dataclass(frozen=True)
class Recalled:
    """An answer from a live solution. ``turn``: how the model read it; None where it is too long to be read, or has no
    block on this model, or this engine knows no grammar.

    ``verification``: the check as it was run now; None where it was not. ``asked``: it is the check of the task that
    was asked; else the one that the solution was learned with.
    """

    known: Known
    answer: Any
    verdict: Verdict
    turn: Turn | None
    verification: Verification | None
    asked: bool = False

    @property
    def read_rightly(self) -> bool | None:
        """Whether the model said the answer; None where it was not asked."""
        if self.turn is None:
            return None
        try:
            return values.same(values.decode(self.turn.text), self.known.solution.answer, _TEXT_TOLERANCE)
        except ValueError:
            return False

    @property
    def origin(self) -> str:
        """Where the answer comes from."""
        if self.verdict is Verdict.VERIFIED:
            word = "verified" if self.asked else "verified by the check it was learned with"
        elif self.verdict is Verdict.UNVERIFIED and self.verification is None:
            word = "not checked again"
        else:
            word = f"not verified ({self.verdict})"
        return f"recalled from {self.known.name}, {word}"


@dataclass
class Recurrence:
    """Answers tasks that were solved before.

    ``recheck=False`` leaves the check as it was at deposit, where it is the very check that the proof names.
    """

    library: SolutionLibrary
    sandbox: Sandbox
    callables: Mapping[str, Judging] = field(default_factory=dict)
    recheck: bool = True

    def recall(self, task: Task, cancellation: Cancellation | None = None) -> Recalled | None:
        """The answer; None if this very task has no live solution, or had one that fails now what is asked.

        None too, with nothing retired, where a check that it was not proven by ends at a limit of time or raises.
        Where the check cannot be run at all, the answer is given and its verdict says so.
        """
        known = self.library.find(task.task_id)
        if known is None:
            return None
        again = self.check(known, task)
        if again is not None and self.is_refused(known, task, again):
            return None
        # A check with other examples asks with other parameters, and has another answer.
        answer = again.answer if again is not None and again.verified else known.solution.answer
        turn = self._read(known, known.solution.answer, cancellation)
        verdict = Verdict.UNVERIFIED if again is None else again.proof.verdict
        return Recalled(known, answer, verdict, turn, again, task.check is not None)

    def check(self, known: Known, task: Task) -> Verification | None:
        """Run the check of ``task`` on its live solution, or the kept one's if it has none; one that fails is retired.

        None where it was not run: there is none, it is a function that is not known here, or ``recheck`` is off and the
        proof is of this very check.
        """
        asked = known.kept.task if task.check is None else task
        proven = known.solution.proof.is_of(asked)
        if asked.check is None or (not self.recheck and (proven or task.check is None)):
            return None
        if isinstance(asked.check, ByCallable) and asked.check.name not in self.callables:
            return None
        return self.library.book.recheck(
            task.task_id,
            lambda solution: verify(asked, solution.candidate, self.sandbox, callables=self.callables),
            own=proven or task.check is None,
        )

    def is_refused(self, known: Known, task: Task, again: Verification) -> bool:
        """Whether it may not answer ``task`` after that check; the name of a retired one's block is taken away."""
        live = self.library.find(task.task_id)
        if live is None:
            self.library.forget_block(known.name)
        if live is None or live.solution.solution_id != known.solution.solution_id:
            return True
        own = task.check is None or known.solution.proof.is_of(task)
        return not own and bool(again.proof.checks) and again.proof.verdict in (Verdict.TIMEOUT, Verdict.ERROR)

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
        except UNREADABLE:
            return None
