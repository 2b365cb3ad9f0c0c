"""How each kind of check judges an answer: verifiers behind one protocol, and the stubs that none may let pass.

A verifier turns a task into questions: parameters to ask with, and a judge of the answer. It runs in the parent, on
values that came out of the candidate's process; the candidate never meets a judge or an expected answer. Refuses to
know how an answer is got. What a stub passes is no proof: ``stub_that_passes`` finds the stub.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from agentkv.errors import UsageError
from agentkv.flywheel.task import ByCallable, Calls, Task, TextTruth, Truth
from agentkv.flywheel.values import same
from agentkv.records import Record

Judge = Callable[[Any], bool]
Judging = Callable[[Any, Mapping[str, Any]], bool]
"""A caller's function: the answer and the task's parameters in; True, and nothing else, means right."""

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True)
class Question:
    """One check: ask with ``parameters``, judge what comes."""

    parameters: dict[str, Any]
    judge: Judge


@runtime_checkable
class Verifier(Protocol):
    """Turns a task into the questions that prove a solution. None at all: nothing is checked."""

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
    """The answer is a text, the same as the truth but for white space, and case where the check says so."""

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
        """One a case; the task's parameters stand where a case gives none of that name."""
        check = _its(task, Calls)

        def judge(expected: Any) -> Judge:
            return lambda answer: same(answer, expected, check.tolerance)

        return [Question({**task.parameters, **case.parameters}, judge(case.answer)) for case in check.cases]


class CallableVerifier:
    """A function of the caller's judges the answer; it runs in the parent and must not execute what it is given."""

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
    """A program that computes nothing and passes every question, in words; None if there is none.

    Tried: returning nothing, each empty value, True, any one parameter, the prompt, and any one of the answers that
    the check expects of several cases. Each is judged as it stands; none is run.
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
