"""Verification: a candidate and a task in, a proof record out.

The verdict is formed here, in the parent, from values: every question is asked in a fresh process of its own, which
knows the parameters and nothing else; here it is counted, compared, and decided after the last one. So a candidate can
neither see an expected answer, nor answer for another question, nor say that it has passed. Zero questions is
"unverified". Not guaranteed: that a program which passes its checks is right elsewhere, or that it gives the same
answer twice (its hash seed is fixed, its clock and random numbers are not).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentkv._version import __version__
from agentkv.errors import IsolationTooLow, SandboxUnavailable, UsageError
from agentkv.flywheel import values
from agentkv.flywheel.checks import Judging, Question, stub_that_passes, verifier_of
from agentkv.flywheel.program import call
from agentkv.flywheel.solution import CheckRun, Program, Proof, Text, Verdict
from agentkv.flywheel.task import Task
from agentkv.io.hashing import sha256, tagged_digest
from agentkv.sandbox.base import Isolation, Limits, Policy
from agentkv.sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class Verification:
    """A proof, and what goes with it: ``answer`` to the first question (None without one), ``traceback`` of a failure.

    ``answered`` tells an answer of None from no answer.
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
    """What has come of the questions so far. ``stopped``: the verdict that ended the asking."""

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
    """Check ``candidate`` against the task's own check; it stops at the first question that is not passed.

    ``limits`` hold for each question. Never raises for what a candidate does; a verifier or sandbox that cannot do its
    part gives the verdict "error", one that may not, by the sandbox's policy, "unverified".
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
    """Names the answer, never the expected one: a model that is shown this must not learn the truth from it."""
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
