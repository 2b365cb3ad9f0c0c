"""The gate: only what the model lacks is worth a block.

Before anything is deposited, the model answers by itself, by programs or in words, and the answers are compared. A task
that it solves at the first try needs no help; nor does one without a check on whose answer its samples agree, of which
nothing could be proven anyway. A text that is to help is tried on checked tasks, with it and without; one that
makes the model worse is refused. Each decision says why. Refuses to know where deposits go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.flywheel import values
from agentkv.flywheel.checks import Judging
from agentkv.flywheel.program import call
from agentkv.flywheel.solution import Text, Verdict
from agentkv.flywheel.solvers import Attempt, Solver, Tried
from agentkv.flywheel.task import Task
from agentkv.flywheel.verify import Verification, verify
from agentkv.sandbox.sandbox import Sandbox

Observe = Callable[[Attempt, Verification | None, Any], None]
"""Sees every attempt: what was proposed, its verification (None where nothing could be run), its answer."""


@dataclass(frozen=True)
class Own:
    """What the model made of a task by itself.

    ``agreeing`` of ``samples`` attempts gave ``answer`` (the commonest; the earliest of equals). ``first_right``: its
    first attempt passed the check. ``tried`` can be gone on with by the same solver; ``proven`` is the first attempt
    that was verified, with its verification.
    """

    answer: Any
    answered: bool
    agreeing: int
    samples: int
    first_right: bool
    tokens: int
    tried: tuple[Tried, ...]
    proven: tuple[Attempt, Verification] | None

    @property
    def agreement(self) -> float:
        """Share of all samples that gave the commonest answer."""
        return self.agreeing / self.samples if self.samples else 0.0


@dataclass(frozen=True)
class Judged:
    """The gate's decision on a task: ``lacks`` it or not, and why."""

    lacks: bool
    reason: str
    own: Own


@dataclass
class Gate:
    """Asks ``solver`` (the local model's) for ``samples`` answers; all of them if the first does not settle it.

    ``agreement``: the share of samples that has to agree for an answer to count as confident.
    """

    solver: Solver
    sandbox: Sandbox
    samples: int = 3
    agreement: float = 1.0
    callables: Mapping[str, Judging] = field(default_factory=dict)

    def own(
        self,
        task: Task,
        *,
        settle: bool = True,
        observe: Observe | None = None,
        cancellation: Cancellation | None = None,
    ) -> Own:
        """The model's own answers; with ``settle`` it ends at the first that is verified."""
        tried: list[Tried] = []
        answers: list[str] = []
        proven: tuple[Attempt, Verification] | None = None
        while len(tried) < self.samples:
            attempt = self.solver.attempt(task, tried, cancellation)
            if attempt is None:
                break
            found, answered, answer = self.run(task, attempt)
            if observe is not None:
                observe(attempt, found, answer)
            tried.append(as_tried(attempt, found))
            if answered:
                answers.append(values.encode(answer))
            if found is not None and found.verified and proven is None:
                proven = attempt, found
                if settle:
                    break
        common = Counter(answers).most_common(1)
        return Own(
            answer=values.decode(common[0][0]) if common else None,
            answered=bool(common),
            agreeing=common[0][1] if common else 0,
            samples=len(tried),
            first_right=bool(tried) and tried[0].verdict == Verdict.VERIFIED,
            tokens=sum(one.attempt.provenance.tokens for one in tried),
            tried=tuple(tried),
            proven=proven,
        )

    def judge(self, task: Task, *, observe: Observe | None = None, cancellation: Cancellation | None = None) -> Judged:
        """Whether the model lacks the task."""
        own = self.own(task, observe=observe, cancellation=cancellation)
        if own.first_right:
            return Judged(False, "the model solves it at the first try: nothing to gain", own)
        confident = own.answered and own.agreement >= self.agreement
        if task.check is None and confident and own.samples > 1:
            return Judged(False, f"{own.agreeing} of {own.samples} samples agree, and nothing checks the task", own)
        if confident and own.samples > 1:
            reason = f"{own.agreeing} of {own.samples} samples agree on an answer that the check refuses"
        elif own.proven is not None:
            reason = f"solved, but not at the first try ({len(own.tried)} samples)"
        else:
            reason = f"not solved in {own.samples} samples; {own.agreeing} agree"
        return Judged(True, reason, own)

    def run(self, task: Task, attempt: Attempt) -> tuple[Verification | None, bool, Any]:
        """An attempt's verification, whether it answers, and its answer; also where nothing checks the task."""
        if attempt.candidate is None:
            return None, False, None
        found = verify(task, attempt.candidate, self.sandbox, callables=self.callables)
        if found.answered or task.check is not None:
            return found, found.answered, found.answer
        if isinstance(attempt.candidate, Text):
            return found, True, attempt.candidate.text
        outcome = call(self.sandbox, attempt.candidate, task.parameters)
        return found, outcome.answered, outcome.value


def as_tried(attempt: Attempt, found: Verification | None) -> Tried:
    """An attempt with what became of it, as a solver is shown it."""
    if found is None:
        return Tried(attempt, Verdict.FAILED, "the reply holds no program with a function `solve`")
    return Tried(attempt, found.proof.verdict, found.proof.reason, found.traceback)


# --- does a text help? --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """How many of ``n`` checked tasks the model answers rightly without a text and behind it."""

    n: int
    without: int
    behind: int

    @property
    def keeps(self) -> bool:
        """Whether the text is worth keeping: it makes the model better."""
        return self.behind > self.without

    @property
    def reason(self) -> str:
        """The decision in words."""
        figures = f"{self.without} of {self.n} right without it, {self.behind} behind it"
        if self.behind < self.without:
            return f"it makes the model worse: {figures}"
        return f"it helps: {figures}" if self.keeps else f"it changes nothing: {figures}"


def compare(
    tasks: Sequence[Task],
    without: Callable[[Task], str],
    behind: Callable[[Task], str],
    judge: Callable[[Task, str], bool],
) -> Compared:
    """Answer every task both ways and count."""
    return Compared(
        len(tasks),
        sum(judge(task, without(task)) for task in tasks),
        sum(judge(task, behind(task)) for task in tasks),
    )
