"""Verification: what is counted, what is recorded, what is never called verified."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from agentkv.errors import UsageError
from agentkv.flywheel.solution import Program, Text, Verdict
from agentkv.flywheel.task import ByCallable, Calls, Case, Check, Task, TextTruth, Truth
from agentkv.flywheel.values import Tolerance
from agentkv.flywheel.verify import (
    CallableVerifier,
    CallsVerifier,
    TextVerifier,
    TruthVerifier,
    Verifier,
    stub_that_passes,
    verifier_of,
    verify,
)
from agentkv.io.hashing import sha256
from agentkv.sandbox.base import Level, Limits, Policy
from agentkv.sandbox.sandbox import Sandbox
from tests.flywheel.contract import VerifierContract

ADD = Program(source="def solve(a, b):\n    return a + b\n")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def task(check: Check | None, **parameters: Any) -> Task:
    return Task(id="t", prompt="Add the two.", parameters=parameters, check=check)


def sums(*pairs: tuple[int, int]) -> Calls:
    return Calls(cases=tuple(Case(parameters={"a": a, "b": b}, answer=a + b) for a, b in pairs))


def test_a_right_program_is_verified_and_all_is_on_record(strong: Sandbox) -> None:
    found = verify(task(sums((2, 3), (10, 20))), ADD, strong, now=lambda: NOON)
    proof = found.proof
    assert found.verified
    assert (found.answered, found.answer, found.traceback) == (True, 5, "")
    assert (proof.check, proof.checks_expected, proof.checks_run) == ("tests", 2, 2)
    assert proof.candidate_sha256 == sha256(ADD.source.encode())
    assert [check.inputs_sha256 for check in proof.checks] == [sha256(b'{"a":2,"b":3}'), sha256(b'{"a":10,"b":20}')]
    assert [check.output_sha256 for check in proof.checks] == [sha256(b"5"), sha256(b"30")]
    assert [check.ending for check in proof.checks] == ["exit", "exit"]
    assert proof.isolation is not None
    assert proof.isolation.level.rank >= Level.NAMESPACES.rank
    assert proof.date == "2026-01-02T12:00:00+00:00"


def test_the_same_verification_again_gives_the_same_digests(strong: Sandbox) -> None:
    of = task(sums((2, 3), (4, 4)))
    first, second = (verify(of, ADD, strong).proof for _ in range(2))
    assert (first.inputs_sha256, first.output_sha256) == (second.inputs_sha256, second.output_sha256)
    other = verify(of, Program(source="def solve(a, b):\n    return a * b\n"), strong).proof
    assert other.output_sha256 != first.output_sha256


def test_it_stops_at_the_first_check_that_is_not_passed(strong: Sandbox) -> None:
    found = verify(task(sums((2, 3), (4, 4), (5, 5))), Program(source="def solve(a, b):\n    return 5\n"), strong)
    assert found.proof.verdict is Verdict.FAILED
    assert [check.passed for check in found.proof.checks] == [True, False]
    assert found.proof.checks_expected == 3
    assert "8" not in found.proof.reason  # the expected answer is shown to nobody


def test_each_check_has_a_process_and_a_folder_of_its_own(strong: Sandbox) -> None:
    source = """
import os, tempfile
def solve(a, b):
    before = os.path.exists("seen") or os.path.exists("/tmp/seen") or os.path.exists("/dev/shm/seen")
    for place in ("seen", "/tmp/seen", "/dev/shm/seen"):
        open(place, "w").write(str(a + b))
    return -1 if before else a + b
"""
    assert verify(task(sums((2, 3), (4, 4), (5, 6))), Program(source=source), strong).verified


@pytest.mark.parametrize("check", [None, Calls(cases=())])
def test_zero_checks_verify_nothing(check: Check | None, strong: Sandbox) -> None:
    found = verify(task(check, a=1, b=2), ADD, strong)
    assert found.proof.verdict is Verdict.UNVERIFIED
    assert found.proof.checks_run == found.proof.checks_expected == 0


def test_a_check_that_a_stub_passes_is_vacuous_for_a_right_program_and_failed_for_a_wrong_one(strong: Sandbox) -> None:
    of = task(Calls(cases=tuple(Case(parameters={"a": a, "b": -a}, answer=0) for a in (1, 2))))
    found = verify(of, ADD, strong)
    assert found.proof.verdict is Verdict.VACUOUS
    assert "`return 0`" in found.proof.reason
    wrong = verify(of, Program(source="def solve(a, b):\n    return a\n"), strong)
    assert wrong.proof.verdict is Verdict.FAILED


def test_parameters_overlay_the_solution_s_and_those_the_program_s(strong: Sandbox) -> None:
    source = "PARAMETERS = {'a': 1, 'b': 10, 'c': 100}\ndef solve(a, b, c):\n    return [a, b, c]\n"
    program = Program(source=source, parameters={"b": 20, "c": 200})
    assert verify(task(Truth(answer=[1, 20, 300]), c=300), program, strong).verified


@pytest.mark.parametrize(
    ("returned", "truth", "right"),
    [
        ("1", 1, True), ("1", "1", False), ("1", 1.0, False), ("True", 1, False), ("(1, 2)", [1, 2], True),
        ("{'b': 1, 'a': None}", {"a": None, "b": 1}, True), ("10**30", 10**30, True), ("0.1 + 0.2", 0.3, False),
        ("'\u00e9'", "\u00e9", True), ("'e\u0301'", "\u00e9", False),
    ],
)  # fmt: skip
def test_answers_are_compared_by_type_and_value(returned: str, truth: Any, right: bool, strong: Sandbox) -> None:
    found = verify(task(Truth(answer=truth)), Program(source=f"def solve():\n    return {returned}\n"), strong)
    assert found.proof.verdict is (Verdict.VERIFIED if right else Verdict.FAILED)


def test_a_text_needs_no_process(strong: Sandbox) -> None:
    of = task(TextTruth(answer="forty two"))
    found = verify(of, Text(text="forty  two"), strong)
    assert found.verified
    assert found.proof.isolation is None
    assert verify(of, Text(text="forty three"), strong).proof.verdict is Verdict.FAILED


def test_a_callable_judges_the_answer_here_and_its_own_fault_is_not_the_candidate_s(strong: Sandbox) -> None:
    of = task(ByCallable(name="sum"), a=2, b=3)
    assert verify(of, ADD, strong, callables={"sum": lambda answer, given: answer == sum(given.values())}).verified
    assert verify(of, ADD, strong, callables={"sum": lambda *_: True}).proof.verdict is Verdict.VACUOUS
    broken = verify(of, ADD, strong, callables={"sum": lambda *_: 1 / 0 == 0})
    assert broken.proof.verdict is Verdict.ERROR
    assert "ZeroDivisionError" in broken.proof.reason
    assert verify(of, ADD, strong).proof.verdict is Verdict.ERROR


def test_what_the_program_raised_is_there_for_its_repair(strong: Sandbox) -> None:
    source = "def solve(a, b):\n    c = a + b\n    return c.missing\n"
    found = verify(task(Truth(answer=5), a=2, b=3), Program(source=source), strong)
    assert found.proof.verdict is Verdict.FAILED
    assert "AttributeError" in found.proof.reason
    assert "line 3, in solve" in found.traceback
    assert "c.missing" in found.traceback
    assert "agentkv" not in found.traceback


def test_a_level_that_is_too_low_for_a_deposit_is_unverified() -> None:
    weak = Sandbox(policy=Policy(run=Level.PROCESS), ceiling=Level.LIMITS)
    found = verify(task(Truth(answer=5), a=2, b=3), ADD, weak)
    assert found.proof.verdict is Verdict.UNVERIFIED
    assert found.proof.checks[0].passed
    assert found.proof.isolation is not None
    allowed = Sandbox(policy=Policy(run=Level.PROCESS, deposit=Level.PROCESS), ceiling=Level.LIMITS)
    assert verify(task(Truth(answer=5), a=2, b=3), ADD, allowed).verified


def test_a_level_that_is_too_low_for_running_runs_nothing() -> None:
    none = Sandbox(policy=Policy(run=Level.BUBBLEWRAP), ceiling=Level.LIMITS)
    found = verify(task(Truth(answer=5), a=2, b=3), ADD, none)
    assert found.proof.verdict is Verdict.UNVERIFIED
    assert found.proof.checks_run == 0
    assert "Nothing was run" in found.proof.reason


def test_a_limit_on_time_is_a_timeout_and_others_are_failures(strong: Sandbox) -> None:
    of = task(Truth(answer=5), a=2, b=3)
    slow = Program(source="def solve(a, b):\n    while True: pass\n")
    assert verify(of, slow, strong, limits=Limits(wall_s=0.5)).proof.verdict is Verdict.TIMEOUT
    large = Program(source="def solve(a, b):\n    return len(bytearray(1 << 30))\n")
    assert verify(of, large, strong).proof.verdict is Verdict.FAILED


def test_while_a_process_may_be_left_nothing_is_verified(strong: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Sandbox.run
    monkeypatch.setattr(Sandbox, "run", lambda *a, **k: dataclasses.replace(plain(*a, **k), survivors=True))
    assert verify(task(Truth(answer=5), a=2, b=3), ADD, strong).proof.verdict is Verdict.ERROR


def test_sets_are_in_the_same_order_in_every_run(strong: Sandbox) -> None:
    of = task(Truth(answer="?"))
    program = Program(source="def solve():\n    return list({'a', 'b', 'c', 'd', 'e', 'f', 'g'})\n")
    first, second = (verify(of, program, strong).answer for _ in range(2))
    assert first == second


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
        questions = CallableVerifier(lambda *_, yes=yes: yes).questions(task(ByCallable(name="x")))
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
