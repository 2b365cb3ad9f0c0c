"""Verification: a candidate and a task in, a proof record out.

A verifier turns a task's check into questions: parameters to ask with, and a judge of the answer. Every question is
asked in a fresh process, which gets the parameters and nothing else; judging, counting and the verdict happen here, in
the parent, after the last one. So a candidate can neither see an expected answer, nor answer for another question, nor
say that it has passed. Zero questions is "unverified"; a check that a stub passes too is "vacuous".

Not guaranteed: that a program which passes its checks is right elsewhere, or that it gives the same answer twice (its
hash seed is fixed, its clock and random numbers are not).
"""

from __future__ import annotations

import platform
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

from agentkv._version import __version__
from agentkv.errors import IsolationTooLow, SandboxUnavailable, UsageError
from agentkv.flywheel import values
from agentkv.flywheel.program import call
from agentkv.flywheel.solution import CheckRun, Program, Proof, Text, Verdict
from agentkv.flywheel.task import ByCallable, Calls, Task, TextTruth, Truth
from agentkv.flywheel.values import same
from agentkv.io.hashing import sha256, tagged_digest
from agentkv.records import Record
from agentkv.sandbox.base import Isolation, Limits, Policy
from agentkv.sandbox.sandbox import Sandbox

Judge = Callable[[Any], bool]
Judging = Callable[[Any, Mapping[str, Any]], bool]
"""A caller's function: the answer and the task's parameters in; True, and nothing else, means right."""


@dataclass(frozen=True)
class Question:
    """One check: ask with ``parameters``, judge what comes."""

    parameters: dict[str, Any]
    judge: Judge


@runtime_checkable
class Verifier(Protocol):
    """Turns a task into the questions that prove a solution; without questions nothing is checked."""

    def questions(self, task: Task) -> Sequence[Question]:
        """In the order in which they are asked. Raises UsageError where the task cannot be checked so."""
        ...


class TruthVerifier:
    """The answer to the task's own parameters is the truth, by type and value."""

    def questions(self, task: Task) -> Sequence[Question]:
        """One."""
        check = _its(task, Truth)
        return [Question(task.parameters, lambda answer: same(answer, check.answer, check.tolerance))]


class TextVerifier:
    """The answer is a text that equals the truth, except for white space, and for case where the check says so."""

    def questions(self, task: Task) -> Sequence[Question]:
        """One."""
        check = _its(task, TextTruth)

        def plain(text: str) -> str:
            one_line = " ".join(unicodedata.normalize("NFC", text).split())
            return one_line.casefold() if check.ignore_case else one_line

        return [Question(task.parameters, lambda got: type(got) is str and plain(got) == plain(check.answer))]


class CallsVerifier:
    """Each case's answer is the expected one, by type and value."""

    def questions(self, task: Task) -> Sequence[Question]:
        """One a case; the task's parameters are added where a case does not set them."""
        check = _its(task, Calls)

        def judge(expected: Any) -> Judge:
            return lambda answer: same(answer, expected, check.tolerance)

        return [Question({**task.parameters, **case.parameters}, judge(case.answer)) for case in check.cases]


class CallableVerifier:
    """A function of the caller judges the answer. It runs in the parent and must not execute what it is given."""

    def __init__(self, judging: Judging) -> None:
        self._judging = judging

    def questions(self, task: Task) -> Sequence[Question]:
        """One."""
        return [Question(task.parameters, lambda answer: self._judging(answer, task.parameters) is True)]


K = TypeVar("K", bound=Record)


def _its(task: Task, kind: type[K]) -> K:
    if not isinstance(task.check, kind):
        raise UsageError(f"task {task.id!r} is not checked by {kind.__name__}")
    return task.check


def verifier_of(task: Task, callables: Mapping[str, Judging]) -> Verifier | None:
    """The verifier that the task's check asks for; None if it has none. Raises UsageError for an unknown callable."""
    check = task.check
    if isinstance(check, ByCallable):
        if check.name not in callables:
            known = ", ".join(sorted(callables)) or "none is"
            raise UsageError(f"task {task.id!r} is checked by {check.name!r}; known: {known}")
        return CallableVerifier(callables[check.name])
    by_kind: dict[type[Record], type[Verifier]] = {Truth: TruthVerifier, TextTruth: TextVerifier, Calls: CallsVerifier}
    return None if check is None else by_kind[type(check)]()


# --- stubs ----------------------------------------------------------------------------------------

_EMPTY: tuple[Any, ...] = (None, False, True, 0, 0.0, "", [], {})


def stub_that_passes(task: Task, questions: Sequence[Question]) -> str | None:
    """A program that computes nothing and passes every question, as a line to show; None if there is none.

    Tried: returning nothing, each empty value, True, any one parameter, the prompt, and any one of the answers that the
    check expects of several cases. They are judged as values; nothing is run.
    """
    constants = [*_EMPTY, task.prompt]
    if isinstance(task.check, Calls) and len(task.check.cases) > 1:
        constants += [case.answer for case in task.check.cases]
    for constant in constants:
        if all(_passes(question, constant) for question in questions):
            return f"`return {constant!r:.60}`"
    for name in questions[0].parameters if questions else ():
        if all(name in q.parameters and _passes(q, q.parameters[name]) for q in questions):
            return f"`return {name}`"
    return None


def _passes(question: Question, answer: Any) -> bool:
    try:
        return question.judge(answer)
    except Exception:  # noqa: BLE001 - a caller's judge may raise whatever it likes at what it did not expect
        return False


# --- verification ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verification:
    """A proof with ``answer``, that to the first question, and ``traceback``, of a failure.

    ``answered``: whether there is an answer, which may be None.
    """

    proof: Proof
    answer: Any
    answered: bool
    traceback: str

    @property
    def verified(self) -> bool:
        """Whether the verdict is "verified"."""
        return self.proof.verdict is Verdict.VERIFIED


@dataclass
class _Asked:
    """The results of the questions so far. ``stopped``: the verdict that ended them early, and its reason."""

    checks: list[CheckRun]
    answers: list[Any]
    isolation: Isolation | None = None
    stopped: tuple[Verdict, str] | None = None
    traceback: str = ""


def verify(
    task: Task,
    candidate: Program | Text,
    sandbox: Sandbox,
    *,
    callables: Mapping[str, Judging] | None = None,
    limits: Limits | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Verification:
    """Check ``candidate`` against the task's own check; it ends at the first question that does not pass.

    ``limits`` apply to each question. Never raises for what a candidate does: a verifier or sandbox that fails gives
    the verdict "error", a sandbox below the policy's isolation "unverified".
    """
    asked, questions = _Asked([], []), list[Question]()
    try:
        verifier = verifier_of(task, callables or {})
        questions = list(verifier.questions(task)) if verifier is not None else []
        for question in questions:
            _ask(asked, question, candidate, sandbox, limits)
            if asked.stopped is not None:
                break
        verdict, reason = asked.stopped or _judged(task, questions, asked, sandbox.policy)
    except (UsageError, SandboxUnavailable) as error:
        verdict, reason = Verdict.ERROR, error.message
    except IsolationTooLow as error:
        verdict, reason = Verdict.UNVERIFIED, error.message
    proof = Proof(
        verdict=verdict,
        reason=reason[:4000],
        check=None if task.check is None else task.check.kind,
        checks_expected=len(questions),
        checks=tuple(asked.checks),
        isolation=asked.isolation,
        candidate_sha256=candidate.sha256,
        inputs_sha256=tagged_digest("inputs/1", [check.inputs_sha256 for check in asked.checks]),
        output_sha256=tagged_digest("outputs/1", [check.output_sha256 for check in asked.checks]),
        date=now().isoformat(timespec="seconds"),
        agentkv_version=__version__,
        python_version=platform.python_version(),
        task_id=task.task_id,
        check_sha256=task.check_sha256,
    )
    return Verification(proof, asked.answers[0] if asked.answers else None, bool(asked.answers), asked.traceback)


def _ask(asked: _Asked, question: Question, candidate: Program | Text, sandbox: Sandbox, limits: Limits | None) -> None:
    if isinstance(candidate, Text):
        answer: Any = candidate.text
        inputs = sha256(values.encode(question.parameters).encode())
        ending: str | None = None
        output: str | None = sha256(values.encode(answer).encode())
        wall_ms = 0.0
    else:
        outcome = call(sandbox, candidate, question.parameters, limits)
        run, inputs, output = outcome.run, outcome.inputs_sha256, outcome.output_sha256
        ending, wall_ms = run.ending.value, run.wall_s * 1e3
        asked.isolation = run.isolation
        if not outcome.answered:
            asked.stopped, asked.traceback = (outcome.verdict, outcome.reason), outcome.traceback
            asked.checks.append(_check(False, outcome.reason, ending, inputs, None, wall_ms))
            return
        answer = outcome.value
    asked.answers.append(answer)
    try:
        passed = question.judge(answer) is True
        reason = "" if passed else _unlike(answer)
    except Exception as error:  # noqa: BLE001 - the caller's function; its fault is the verifier's, not the candidate's
        passed, reason = False, f"the check itself raised {type(error).__name__}: {error}"
        asked.stopped = Verdict.ERROR, reason
    asked.checks.append(_check(passed, reason, ending, inputs, output, wall_ms))
    if not passed and asked.stopped is None:
        asked.stopped = Verdict.FAILED, f"check {len(asked.checks)}: {reason}"


def _check(passed: bool, reason: str, ending: str | None, inputs: str, output: str | None, ms: float) -> CheckRun:
    return CheckRun(
        passed=passed, reason=reason[:4000], ending=ending, inputs_sha256=inputs, output_sha256=output, wall_ms=ms
    )


def _unlike(answer: Any) -> str:
    """The reason, with the answer and without the expected one, which a model that sees this must not learn."""
    shown = values.encode(answer)
    return f"the answer {shown[:200]}{'…' if len(shown) > 200 else ''} ({type(answer).__name__}) is not the right one"


def _judged(task: Task, questions: Sequence[Question], asked: _Asked, policy: Policy) -> tuple[Verdict, str]:
    """The verdict when every question was passed, formed after the last."""
    passed = sum(check.passed for check in asked.checks)
    if not questions or passed != len(questions):
        return Verdict.UNVERIFIED, "nothing checks this task" if task.check is None else "the check checks nothing"
    stub = stub_that_passes(task, questions)
    if stub is not None:
        return Verdict.VACUOUS, f"the check is passed by {stub} as well"
    if asked.isolation is not None and asked.isolation.level.rank < policy.deposit.rank:
        level = f"{asked.isolation.level} is less than {policy.deposit}"
        return Verdict.UNVERIFIED, f"every check was passed, but not far enough apart: {level}"
    return Verdict.VERIFIED, f"{passed} of {len(questions)} checks passed"
