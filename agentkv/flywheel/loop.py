"""The flywheel: learn a task once, answer it and tasks like it from then on.

Learning: a task whose live solution passes the check that is passed now is known and left alone; one that fails it is
retired. Then the gate asks whether the model lacks it; solvers are asked in turn until one proposes a program that is
verified; that is examined, deposited, and prefilled as a block. Solving: recurrence, then transfer, then the model by
itself; the answer says which it was and whether it was checked. Every attempt is recorded when it ends, so an
interruption loses at most the one under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentkv.engine.base import Cancellation
from agentkv.engine.generate import MAX_NEW
from agentkv.errors import UsageError
from agentkv.flywheel.book import KeptTask, SolutionBook
from agentkv.flywheel.gate import Gate, Judged, MarginGate, OwnAnswers, as_tried
from agentkv.flywheel.journal import NoRecorder, Recorder, attempt_record, transfer_record, turn_tokens
from agentkv.flywheel.library import SolutionLibrary, retire
from agentkv.flywheel.program import examine, look
from agentkv.flywheel.solution import Parametric, Program, Solution, Verdict
from agentkv.flywheel.solvers import Attempt, BestOfN, Solver, Tried
from agentkv.flywheel.task import Task
from agentkv.flywheel.transfer import Recalled, Recurrence, Transfer, Transferred
from agentkv.flywheel.verify import Judging, Verification, verifier_of
from agentkv.memory.memory import AgentMemory
from agentkv.records import Decision
from agentkv.sandbox.base import Policy
from agentkv.sandbox.sandbox import Sandbox

State = Literal["known", "not lacking", "deposited", "not solved", "unchecked"]


@dataclass(frozen=True)
class Learned:
    """The result for one task. ``tokens`` and ``attempts``: of all solvers together."""

    task: Task
    state: State
    reason: str
    attempts: int = 0
    tokens: int = 0
    solver: str | None = None
    solution_id: str | None = None
    parametric: Parametric | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "id": self.task.id,
            "task": self.task.task_id,
            "state": self.state,
            "reason": self.reason,
            "attempts": self.attempts,
            "tokens": self.tokens,
            "solver": self.solver,
            "solution": self.solution_id,
            "transferable": None if self.parametric is None else self.parametric.transferable,
            "baked_in": [] if self.parametric is None else [one.model_dump() for one in self.parametric.hard_coded],
        }


@dataclass(frozen=True)
class Answered:
    """An answer and its source. ``by``: recurrence, transfer, the model itself, or nothing."""

    task: Task
    by: Literal["recurrence", "transfer", "own", "none"]
    answered: bool
    answer: Any
    verdict: Verdict
    origin: str
    tokens: int
    recalled: Recalled | None = None
    transfers: tuple[Transferred, ...] = ()
    own: OwnAnswers | None = None
    decision: Decision | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        last = self.transfers[-1] if self.transfers else None
        return {
            "task": self.task.task_id,
            "by": self.by,
            "answered": self.answered,
            "answer": self.answer,
            "verdict": self.verdict.value,
            "origin": self.origin,
            "tokens": self.tokens,
            "parameters": None if last is None else last.parameters,
            "read_rightly": None if self.recalled is None else self.recalled.read_rightly,
            "decision": None if self.decision is None else self.decision.model_dump(mode="json"),
        }


@dataclass
class Flywheel:
    """A library, a gate, solvers, and the record of what they do."""

    library: SolutionLibrary
    sandbox: Sandbox
    gate: Gate
    solvers: Sequence[Solver] = ()
    callables: Mapping[str, Judging] = field(default_factory=dict)
    recorder: Recorder = field(default_factory=NoRecorder)

    @classmethod
    def of(
        cls,
        memory: AgentMemory,
        *,
        solvers: Sequence[Solver] = (),
        samples: int = 3,
        agreement: float = 1.0,
        margin: float | None = None,
        best_of: int = 0,
        budget: int = 4096,
        max_new: int = MAX_NEW,
        seed: int = 0,
        policy: Policy | None = None,
        callables: Mapping[str, Judging] | None = None,
        recorder: Recorder | None = None,
    ) -> Flywheel:
        """The flywheel in a memory's store, with its model as the first solver.

        ``samples``: own answers that are compared before anything is deposited; ``agreement``: the share that has to
        agree. ``margin``: instead one direct answer, confident from this many nats. ``best_of``: own programs in all,
        within ``budget`` generated tokens a task; then ``solvers`` in turn. ``policy``: the isolation that a deposit
        needs.
        """
        policy, known = policy or Policy(), dict(callables or {})
        sandbox = Sandbox(policy=policy)
        library = SolutionLibrary(memory, SolutionBook(memory.store.root, policy))
        base = BestOfN(memory, n=max(samples, best_of), budget=budget, max_new=max_new, seed=seed)
        gate = Gate(base, sandbox, samples=samples, agreement=agreement, callables=known)
        if margin is not None:
            gate = MarginGate(base, sandbox, samples, agreement, known, memory, margin)
        own = (base,) if best_of and (best_of > samples or margin is not None) else ()
        return cls(library, sandbox, gate, (*own, *solvers), known, recorder or NoRecorder())

    @property
    def recurrence(self) -> Recurrence:
        """Answers the very tasks that were solved."""
        return Recurrence(self.library, self.sandbox, self.callables)

    @property
    def transfer(self) -> Transfer:
        """Answers tasks like them."""
        return Transfer(self.library, self.sandbox, self.callables)

    # --- learning ---------------------------------------------------------------------------------

    def learn(self, task: Task, cancellation: Cancellation | None = None) -> Learned:
        """Solve a task and keep its solution, if the model lacks it. Raises what solvers and the store raise.

        A task is known if its live solution passes the check passed here, or, where that cannot be run, if the proof is
        of this very check.
        """
        known = self._known(task)
        if known:
            return self._outcome(Learned(task, "known", known))
        unchecked = self._unchecked(task)
        if unchecked:
            return self._outcome(Learned(task, "unchecked", unchecked))
        tally = _Tally()
        judged = self.gate.judge(task, observe=self._observing(task, "own", tally), cancellation=cancellation)
        if not judged.lacks:
            return self._outcome(
                Learned(task, "not lacking", judged.reason, tally.attempts, tally.tokens, self.gate.solver.name)
            )
        proven, last = self._proven(task, judged, tally, cancellation)
        if proven is None:
            reason = f"{judged.reason}; {last or 'no solver has a solution'}"
            return self._outcome(Learned(task, "not solved", reason, tally.attempts, tally.tokens))
        return self._outcome(self._deposit(task, *proven, judged, tally, cancellation))

    def _known(self, task: Task) -> str:
        """Why nothing is to be learned; "" if there is something."""
        known = self.library.find(task.task_id)
        if known is None:
            return ""
        if task.check is None:
            return "it has a live solution, and the task has no check"
        again = self.recurrence.check(known, task)
        if again is not None and self.recurrence.is_refused(known, task, again):
            return ""
        if again is not None and again.verified:
            return f"its live solution passes this check: {again.proof.reason}"
        why = "" if again is None else f"; run again it is {again.proof.verdict}: {again.proof.reason}"
        return f"its live solution was proven by this check{why}" if known.solution.proof.is_of(task) else ""

    def _unchecked(self, task: Task) -> str:
        """Why nothing could be proven; "" if something can."""
        try:
            return "nothing checks it, so nothing could be proven" if verifier_of(task, self.callables) is None else ""
        except UsageError as error:
            return f"{error.message}, so nothing could be proven"

    def _proven(
        self, task: Task, judged: Judged, tally: _Tally, cancellation: Cancellation | None
    ) -> tuple[tuple[Attempt, Verification] | None, str]:
        """The first verified attempt, of the gate's and the solvers'; else how the last one failed."""
        if judged.own.proven is not None:
            return judged.own.proven, ""
        last = judged.own.tried[-1].reason if judged.own.tried else ""
        for number, solver in enumerate(self.solvers):
            observe = self._observing(task, f"solver-{number}", tally)
            tried: list[Tried] = list(judged.own.tried) if solver == self.gate.solver else []
            while (attempt := solver.attempt(task, tried, cancellation)) is not None:
                found, _, answer = self.gate.run(task, attempt)
                observe(attempt, found, answer)
                if found is not None and found.verified:
                    return (attempt, found), ""
                tried.append(as_tried(attempt, found))
                last = tried[-1].reason
        return None, last

    def _deposit(
        self,
        task: Task,
        attempt: Attempt,
        found: Verification,
        judged: Judged,
        tally: _Tally,
        cancellation: Cancellation | None,
    ) -> Learned:
        candidate = attempt.candidate
        assert candidate is not None
        parametric, parameters = None, dict(task.parameters)
        if isinstance(candidate, Program):
            parametric = examine(self.sandbox, candidate, task)
            parameters = {**look(self.sandbox, candidate).parameters, **candidate.parameters, **task.parameters}
        solution = Solution(
            task_id=task.task_id,
            candidate=candidate,
            answer=found.answer,
            provenance=attempt.provenance,
            proof=found.proof,
            parametric=parametric,
        )
        self.library.keep(KeptTask(task=task, parameters=parameters), solution, cancellation)
        return Learned(
            task,
            "deposited",
            judged.reason,
            tally.attempts,
            tally.tokens,
            attempt.provenance.solver,
            solution.solution_id,
            parametric,
        )

    def _observing(self, task: Task, who: str, tally: _Tally) -> Any:
        def observe(attempt: Attempt, found: Verification | None, answer: Any) -> None:
            tally.attempts += 1
            tally.tokens += attempt.provenance.tokens
            key = f"attempt/{task.id}/{who}/{tally.attempts}"
            tokens = {"generated": attempt.provenance.tokens}
            self.recorder.record(key, attempt_record(task, attempt, found, answer), tokens=tokens)

        return observe

    def _outcome(self, learned: Learned) -> Learned:
        self.recorder.record(f"outcome/{learned.task.id}", learned.plain())
        return learned

    def retire(self, task: Task | str, reason: str) -> None:
        """Retire a task's live solution, by the task or its identity. Raises UnknownTask.

        It answers nothing from then on; the task can be learned again.
        """
        retire(self.library.memory.store, task if isinstance(task, str) else task.task_id, reason, self.library.book)

    # --- solving ----------------------------------------------------------------------------------

    def solve(self, task: Task, *, own: bool = True, cancellation: Cancellation | None = None) -> Answered:
        """Answer a task: by recurrence, else transfer, else (with ``own``) the model by itself.

        An answer that the task's own check refuses is never returned.
        """
        recalled = self.recurrence.recall(task, cancellation)
        if recalled is not None:
            tokens = 0 if recalled.turn is None else recalled.turn.tokens.generated
            return self._answered(
                Answered(task, "recurrence", True, recalled.answer, recalled.verdict, recalled.origin, tokens, recalled)
            )
        decision, source = self.transfer.route(task)
        transfers = [] if source is None else self.transfer.answer(task, source, cancellation)
        for number, done in enumerate(transfers):
            tokens_of = turn_tokens(done.turn)
            self.recorder.record(f"transfer/{task.id}/{number}", transfer_record(done), tokens=tokens_of)
        spent = sum(done.turn.tokens.generated for done in transfers if done.turn is not None)
        nothing = Answered(
            task, "none", False, None, Verdict.UNVERIFIED, "no answer", spent, None, tuple(transfers), None, decision
        )
        last = transfers[-1] if transfers else None
        if last is not None and last.answered and last.verdict is not Verdict.FAILED:
            found = replace(
                nothing, by="transfer", answered=True, answer=last.answer, verdict=last.verdict, origin=last.origin
            )
            return self._answered(found)
        return self._answered(self._own(task, nothing, cancellation) if own else nothing)

    def _own(self, task: Task, nothing: Answered, cancellation: Cancellation | None) -> Answered:
        """The model's own answer, in place of ``nothing``."""
        made = self.gate.own(task, observe=self._observing(task, "own", _Tally()), cancellation=cancellation)
        nothing = replace(nothing, tokens=nothing.tokens + made.tokens)
        if not made.answered:
            return nothing
        if _refused(task, made):
            origin = "no answer: the check refuses the model's own"
            return replace(nothing, own=made, verdict=Verdict.FAILED, origin=origin)
        if made.proven is None:
            origin = f"the model's own, {made.agreeing} of {made.samples} samples agree, unverified"
            return replace(nothing, by="own", answered=True, answer=made.answer, origin=origin, own=made)
        answer, origin = made.proven[1].answer, "the model's own, verified"
        return replace(
            nothing, by="own", answered=True, answer=answer, verdict=Verdict.VERIFIED, origin=origin, own=made
        )

    def _answered(self, answered: Answered) -> Answered:
        self.recorder.record(f"answer/{answered.task.id}", answered.plain())
        return answered


def _refused(task: Task, made: OwnAnswers) -> bool:
    """Whether the task's check was run on every one of the model's own answers and none passed."""
    failed = (Verdict.FAILED, Verdict.TIMEOUT)
    return task.check is not None and made.proven is None and all(one.verdict in failed for one in made.tried)


@dataclass
class _Tally:
    attempts: int = 0
    tokens: int = 0
