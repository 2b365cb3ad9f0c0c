"""Verifiers: one contract for all, and stubs that must not pass."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.errors import UsageError
from agentkv.flywheel.checks import (
    CallableVerifier,
    CallsVerifier,
    TextVerifier,
    TruthVerifier,
    Verifier,
    stub_that_passes,
    verifier_of,
)
from agentkv.flywheel.task import ByCallable, Calls, Case, Check, Task, TextTruth, Truth
from agentkv.flywheel.values import Tolerance
from tests.flywheel.contract import VerifierContract


def task(check: Check | None, **parameters: Any) -> Task:
    return Task(id="t", prompt="Add the two.", parameters=parameters, check=check)


class TestTruth(VerifierContract):
    def verifier(self) -> Verifier:
        return TruthVerifier()

    def task(self) -> Task:
        return task(Truth(answer=5), a=2, b=3)

    def right(self, parameters: dict[str, Any]) -> Any:
        return 5

    def wrong(self, parameters: dict[str, Any]) -> Any:
        return 5.0


class TestText(VerifierContract):
    def verifier(self) -> Verifier:
        return TextVerifier()

    def task(self) -> Task:
        return task(TextTruth(answer="Forty  two"))

    def right(self, parameters: dict[str, Any]) -> Any:
        return " Forty two\n"

    def wrong(self, parameters: dict[str, Any]) -> Any:
        return "forty two"


class TestCalls(VerifierContract):
    def verifier(self) -> Verifier:
        return CallsVerifier()

    def task(self) -> Task:
        cases = [Case(parameters={"a": a}, answer=a + 10) for a in (1, 2, 30)]
        return task(Calls(cases=tuple(cases)), b=10)

    def right(self, parameters: dict[str, Any]) -> Any:
        return parameters["a"] + parameters["b"]

    def wrong(self, parameters: dict[str, Any]) -> Any:
        return str(self.right(parameters))


class TestCallable(VerifierContract):
    def verifier(self) -> Verifier:
        return CallableVerifier(lambda answer, given: type(answer) is int and answer == given["a"] ** 2)

    def task(self) -> Task:
        return task(ByCallable(name="square"), a=7)

    def right(self, parameters: dict[str, Any]) -> Any:
        return 49

    def wrong(self, parameters: dict[str, Any]) -> Any:
        return 48


def test_a_callable_s_yes_is_true_and_nothing_else() -> None:
    for yes in (1, "yes", object()):
        questions = CallableVerifier(lambda *_, yes=yes: yes).questions(task(ByCallable(name="x")))  # type: ignore[misc]
        assert questions[0].judge(5) is False


def test_case_is_ignored_only_where_the_check_says_so() -> None:
    questions = TextVerifier().questions(task(TextTruth(answer="Straße", ignore_case=True)))
    assert questions[0].judge("STRASSE")
    assert not TextVerifier().questions(task(TextTruth(answer="Straße")))[0].judge("STRASSE")


def test_the_check_decides_the_verifier() -> None:
    assert verifier_of(task(None), {}) is None
    assert isinstance(verifier_of(task(Truth(answer=1)), {}), TruthVerifier)
    assert isinstance(verifier_of(task(TextTruth(answer="x")), {}), TextVerifier)
    assert isinstance(verifier_of(task(Calls(cases=())), {}), CallsVerifier)
    assert isinstance(verifier_of(task(ByCallable(name="x")), {"x": lambda *_: True}), CallableVerifier)
    with pytest.raises(UsageError, match="known: y"):
        verifier_of(task(ByCallable(name="x")), {"y": lambda *_: True})
    with pytest.raises(UsageError):
        TruthVerifier().questions(task(TextTruth(answer="x")))


def calls(*pairs: tuple[dict[str, Any], Any], tolerance: Tolerance | None = None) -> Calls:
    return Calls(cases=tuple(Case(parameters=given, answer=answer) for given, answer in pairs), tolerance=tolerance)


VACUOUS = [
    (task(Truth(answer=None)), "`return None`"),
    (task(Truth(answer=0)), "`return 0`"),
    (task(Truth(answer="")), "`return ''`"),
    (task(Truth(answer=[])), "`return []`"),
    (task(Truth(answer=True)), "`return True`"),
    (task(Truth(answer=7), a=7), "`return a`"),
    (task(Truth(answer=7), b=1, a=7), "`return a`"),
    (task(Truth(answer=12, tolerance=Tolerance(absolute=100))), "`return 0`"),
    (task(TextTruth(answer=" ")), "`return ''`"),
    (task(TextTruth(answer="add the  two.", ignore_case=True)), "`return 'Add the two.'`"),
    (task(calls(({"a": 1}, 0), ({"a": 2}, 0))), "`return 0`"),
    (task(calls(({"a": 1}, 9), ({"a": 2}, 9))), "`return 9`"),
    (task(calls(({"a": 1}, 1), ({"a": 2}, 2))), "`return a`"),
    (task(calls(({"a": 1}, 10), ({"a": 2}, 11), tolerance=Tolerance(absolute=1))), "`return 10`"),
]
SOUND = [
    task(Truth(answer=655), a=7),
    task(TextTruth(answer="forty two")),
    task(calls(({"a": 1}, 2), ({"a": 2}, 4))),
    task(calls(({"a": 1}, 1), ({"a": 2}, 4))),
    task(calls(({"a": 5}, 9))),
    task(calls(({"a": 1}, 0), ({"a": 2}, 1))),
]


@pytest.mark.parametrize(("of", "stub"), VACUOUS)
def test_a_check_that_a_stub_passes_is_found(of: Task, stub: str) -> None:
    verifier = verifier_of(of, {})
    assert verifier is not None
    assert stub_that_passes(of, verifier.questions(of)) == stub


@pytest.mark.parametrize("of", SOUND)
def test_a_check_that_no_stub_passes_is_let_be(of: Task) -> None:
    verifier = verifier_of(of, {})
    assert verifier is not None
    assert stub_that_passes(of, verifier.questions(of)) is None


def test_a_callable_that_always_agrees_is_found_and_one_that_raises_on_a_stub_is_not() -> None:
    of = task(ByCallable(name="x"), a=3)
    assert stub_that_passes(of, CallableVerifier(lambda *_: True).questions(of)) == "`return None`"
    assert stub_that_passes(of, CallableVerifier(lambda answer, _: answer % 9 == 8).questions(of)) is None
