"""Answering from a kept solution: the same task again (:class:`Recurrence`), or another task (:class:`Transfer`).

*Recurrence.* The same task is one of the same identity (``task.py``), never a similar one. One lookup finds its live
solution. The check of the task that is asked now is run on it, whatever it was proven by before; only a task that is
asked without one is checked as it was when it was learned. A solution that fails is retired and does not answer. Then
its block is grafted and the model says the answer in a few tokens, bound to the answer's type. The answer returned is
the solution's: the model's is compared with it, and a difference is on record instead of in the answer.

*Transfer.* Three ways, each named in the record. Filling: the model writes the program's parameters for the new text,
as JSON under a grammar (``slots.py``). Rewriting: it writes a whole new program. Substitution: the new text's values
take the place of the old text's, without a model. The program then runs in the sandbox, and where the task can be
checked it is checked. Not guaranteed where nothing checks it: that the answer is right, or that the solution fits the
task at all; the record says "unverified" then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.flywheel import values
from agentkv.flywheel.library import (
    RECALL_QUESTION,
    UNREADABLE,
    Known,
    SolutionLibrary,
    parameters_question,
    rewriting_question,
)
from agentkv.flywheel.program import call, look
from agentkv.flywheel.slots import grammar, substituted, typed_grammar
from agentkv.flywheel.solution import Program, Verdict
from agentkv.flywheel.source import program_in
from agentkv.flywheel.task import ByCallable, Task
from agentkv.flywheel.verify import Judging, Verification, verify
from agentkv.records import Decision, Turn
from agentkv.sandbox.sandbox import Sandbox

ANSWER_TOKENS = 96
_MAX_READ = 200
_TEXT_TOLERANCE = values.Tolerance(relative=1e-12)


@dataclass(frozen=True)
class Recalled:
    """An answer from a live solution. ``turn``: the model's own answer from the block; None where that is too long, or
    there is no block on this model, or the engine knows no grammar.

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
        """Whether the model's answer is the solution's; None without a turn."""
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

    ``recheck=False`` does not run a check again if the proof names that very check.
    """

    library: SolutionLibrary
    sandbox: Sandbox
    callables: Mapping[str, Judging] = field(default_factory=dict)
    recheck: bool = True

    def recall(self, task: Task, cancellation: Cancellation | None = None) -> Recalled | None:
        """The answer; None if this task has no live solution, or has one that fails the check now.

        None too, with nothing retired, where a check that it was not proven by times out or raises. Where the check
        cannot be run at all, the answer is given and its verdict says so.
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
        """Run the check of ``task``, or the stored one if it has none, on its live solution; one that fails is retired.

        None where it was not run: there is no check, it is an unknown function, or ``recheck`` is off and the proof is
        of this very check.
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
        """Whether it may not answer ``task`` after that check; if it was retired, its block's name is removed."""
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


# --- another task ---------------------------------------------------------------------------------

FILL_TOKENS, REWRITE_TOKENS = 192, 512


class Way(StrEnum):
    """How a program was adapted."""

    FILL = "fill"
    REWRITE = "rewrite"
    SUBSTITUTE = "substitute"


@dataclass(frozen=True)
class Transferred:
    """One attempt to answer ``task`` from the solution ``source``.

    ``answered``: the program gave ``answer``; else ``reason`` says why not.
    """

    task: Task
    source: Known
    way: Way
    program: Program | None
    answered: bool
    answer: Any
    verdict: Verdict
    reason: str
    turn: Turn | None = None
    verification: Verification | None = None

    @property
    def parameters(self) -> dict[str, Any] | None:
        """What the program was called with."""
        return None if self.program is None else self.program.parameters

    @property
    def origin(self) -> str:
        """``transferred from solution/…, verified`` or ``…, unverified``."""
        word = "verified" if self.verdict is Verdict.VERIFIED else "unverified"
        return f"transferred from {self.source.name} by {_WORDS[self.way]}, {word}"


_WORDS = {Way.FILL: "filling its parameters", Way.REWRITE: "rewriting it", Way.SUBSTITUTE: "substitution"}


@dataclass
class Transfer:
    """Adapts solutions of a library. ``ways``: tried for one task in this order, until one is not refused.

    ``quote=False``: the grammar of the parameters binds types only, for comparison. ``rewrite_tokens``: most tokens of
    a new program.
    """

    library: SolutionLibrary
    sandbox: Sandbox
    callables: Mapping[str, Judging] = field(default_factory=dict)
    ways: Sequence[Way] = (Way.FILL, Way.REWRITE)
    quote: bool = True
    rewrite_tokens: int = REWRITE_TOKENS

    def route(self, task: Task) -> tuple[Decision, Known | None]:
        """Which solution the task gets."""
        return self.library.route(task.prompt)

    def answer(self, task: Task, source: Known, cancellation: Cancellation | None = None) -> list[Transferred]:
        """Every attempt; the last one counts: the first that answers and does not fail the check."""
        attempts: list[Transferred] = []
        for way in self.ways:
            attempts.append(self.adapt(task, source, way, cancellation))
            if attempts[-1].answered and attempts[-1].verdict is not Verdict.FAILED:
                break
        return attempts

    def adapt(self, task: Task, source: Known, way: Way, cancellation: Cancellation | None = None) -> Transferred:
        """One attempt in one way. Raises what a turn raises; a program's failure is in the record."""
        try:
            if way is Way.FILL:
                return self._fill(task, source, cancellation)
            if way is Way.REWRITE:
                return self._rewrite(task, source, cancellation)
        except UNREADABLE as error:
            return _none(task, source, way, error.message)
        filled = substituted(source.kept.task.prompt, source.slots, task.prompt)
        if filled is None:
            return _none(task, source, way, "the two texts do not mention the same number of values")
        return self._run(task, source, way, self._with(source, filled), None)

    def _fill(self, task: Task, source: Known, cancellation: Cancellation | None) -> Transferred:
        turn = self.library.memory.ask(
            parameters_question(task.prompt),
            skill=self.library.block(source, cancellation),
            grammar=grammar(source.slots, task.prompt, quote=self.quote),
            max_new=FILL_TOKENS,
            cancellation=cancellation,
        )
        try:
            filled = values.decode(turn.text)
        except ValueError as error:
            return _none(task, source, Way.FILL, f"the parameters are not JSON: {error}", turn)
        if not isinstance(filled, dict) or filled.keys() != source.kept.parameters.keys():
            return _none(task, source, Way.FILL, "these are not the program's parameters", turn)
        return self._run(task, source, Way.FILL, self._with(source, filled), turn)

    def _rewrite(self, task: Task, source: Known, cancellation: Cancellation | None) -> Transferred:
        turn = self.library.memory.ask(
            rewriting_question(task.prompt),
            skill=self.library.block(source, cancellation),
            max_new=self.rewrite_tokens,
            cancellation=cancellation,
        )
        program = program_in(turn.text)
        if program is None:
            return _none(task, source, Way.REWRITE, "there is no program in the answer", turn)
        seen = look(self.sandbox, program)
        if seen.error or not seen.has_solve:
            return _none(task, source, Way.REWRITE, seen.error or "it defines no function `solve`", turn)
        return self._run(task, source, Way.REWRITE, program, turn)

    def _with(self, source: Known, filled: dict[str, Any]) -> Program:
        candidate = source.solution.candidate
        assert isinstance(candidate, Program)
        return Program(source=candidate.source, parameters={**candidate.parameters, **filled})

    def _run(self, task: Task, source: Known, way: Way, program: Program, turn: Turn | None) -> Transferred:
        if task.check is not None:
            found = verify(task, program, self.sandbox, callables=self.callables)
            proof = found.proof
            return Transferred(
                task, source, way, program, found.answered, found.answer, proof.verdict, proof.reason, turn, found
            )
        outcome = call(self.sandbox, program, task.parameters)
        reason = "nothing checks this task" if outcome.answered else outcome.reason
        return Transferred(task, source, way, program, outcome.answered, outcome.value, outcome.verdict, reason, turn)


def _none(task: Task, source: Known, way: Way, reason: str, turn: Turn | None = None) -> Transferred:
    return Transferred(task, source, way, None, False, None, Verdict.FAILED, reason, turn)
