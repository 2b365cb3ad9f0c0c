"""Transfer: a new task is answered by the program that solved another one.

Three ways, each told in the record. *Filling*: the model writes the program's parameters for the new text, as JSON
under a grammar (``slots.py``). *Rewriting*: it writes the whole program anew. *Substitution*: the new text's values
are put where the old text's stood, no model is asked. The program then runs in the sandbox, and where the task can be
checked it is checked. Not guaranteed, where nothing checks it: that the answer is right, or that the solution fits the
task at all; the record says "unverified" then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.flywheel import values
from agentkv.flywheel.blocktext import parameters_question, rewriting_question
from agentkv.flywheel.checks import Judging
from agentkv.flywheel.library import UNREADABLE, Known, SolutionLibrary
from agentkv.flywheel.program import call, look
from agentkv.flywheel.slots import grammar, substituted
from agentkv.flywheel.solution import Program, Verdict
from agentkv.flywheel.source import program_in
from agentkv.flywheel.task import Task
from agentkv.flywheel.verify import Verification, verify
from agentkv.records import Decision, Turn
from agentkv.sandbox.sandbox import Sandbox

FILL_TOKENS, REWRITE_TOKENS = 192, 512


class Way(StrEnum):
    """How a program was adapted."""

    FILL = "fill"
    REWRITE = "rewrite"
    SUBSTITUTE = "substitute"


@dataclass(frozen=True)
class Transferred:
    """One attempt to answer ``task`` from the solution ``source``.

    ``answered``: the program gave ``answer``; else ``reason`` says why not. ``generated``: the model's own words.
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
    """Adapts solutions of a library. ``ways``: those tried for one task, in order, until one is not refused.

    ``quote=False``: the grammar of the parameters binds types alone, for comparison. ``rewrite_tokens``: most tokens of
    a program that is written anew.
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
        """Every attempt, the last the one that counts: the first that answers and is not found wrong."""
        attempts: list[Transferred] = []
        for way in self.ways:
            attempts.append(self.adapt(task, source, way, cancellation))
            if attempts[-1].answered and attempts[-1].verdict is not Verdict.FAILED:
                break
        return attempts

    def adapt(self, task: Task, source: Known, way: Way, cancellation: Cancellation | None = None) -> Transferred:
        """One attempt in one way. Raises what a turn raises; what the program does is told in the record."""
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
            return _none(task, source, Way.FILL, f"the parameters are no JSON: {error}", turn)
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
