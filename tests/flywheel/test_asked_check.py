"""What is asked now decides: "verified", "known" and "no better" are said of the check passed now, and of no other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import NotProven, UnknownTask
from agentkv.flywheel.book import KeptTask, SolutionBook
from agentkv.flywheel.gate import Gate
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.loop import Flywheel
from agentkv.flywheel.solution import Program, Verdict
from agentkv.flywheel.solvers import BestOfN
from agentkv.flywheel.task import ByCallable, Calls, Case, Task, TextTruth, Truth
from agentkv.flywheel.transfer import Recurrence
from agentkv.flywheel.values import Tolerance
from agentkv.flywheel.verify import verify
from agentkv.memory.memory import AgentMemory
from agentkv.sandbox.base import Limits
from agentkv.sandbox.sandbox import Sandbox

from .scripted import CRATES, MULTIPLY, crates, fenced, filled, memory, solution
from .test_loop import Helper, wheel
from .test_transfer import read_answer

OLD = Path(__file__).parents[1] / "data" / "flywheel-v1"
SLOW = "import time\n\ndef solve(crates, kg):\n    time.sleep(1.5)\n    return crates * kg\n"


def case(answer: Any, **parameters: Any) -> Case:
    return Case(parameters=parameters, answer=answer)


FAILED = [
    Truth(answer=1703),
    Truth(answer=1702.0),
    Truth(answer="1702"),
    Truth(answer=1704, tolerance=Tolerance(absolute=1)),
    TextTruth(answer="1702"),
    Calls(cases=(case(1702), case(5, crates=2, kg=3))),
    ByCallable(name="odd"),
]
PASSED = [
    Truth(answer=1702),
    Truth(answer=1703, tolerance=Tolerance(absolute=1)),
    Calls(cases=(case(1702), case(6, crates=2, kg=3))),
    ByCallable(name="even"),
]
CALLABLES = {"odd": lambda got, given: got % 2 == 1, "even": lambda got, given: type(got) is int and got == 1702}


def named(check: Any) -> str:
    return f"{check.kind} {str(check.model_dump())[:60]}"


@pytest.mark.parametrize("check", FAILED, ids=named)
@pytest.mark.parametrize("recheck", [True, False])
def test_a_live_solution_that_fails_what_is_asked_does_not_answer_and_is_retired(
    tmp_path: Path, strong: Sandbox, check: Any, recheck: bool
) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        asked = crates(prompt=f"  {CRATES}\n", check=check)  # the same task, in other white space
        assert Recurrence(library, strong, CALLABLES, recheck).recall(asked) is None
        standing = library.book.standing(asked.task_id)
        assert standing is not None
        assert (standing.live, standing.history[-1].event) == (None, "retired")
        assert standing.history[-1].reason.startswith("re-check by another check than that of its proof: failed")
        assert held.names() == []


@pytest.mark.parametrize("check", PASSED, ids=named)
@pytest.mark.parametrize("recheck", [True, False])
def test_one_that_passes_what_is_asked_answers_and_that_check_was_run(
    tmp_path: Path, strong: Sandbox, check: Any, recheck: bool
) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        found = Recurrence(library, strong, CALLABLES, recheck).recall(crates(check=check))
        assert found is not None
        assert (found.answer, found.read_rightly) == (1702, True)
        same = isinstance(check, Truth) and check.tolerance is None
        if same and not recheck:  # its proof names this very check, and to run it again was not wanted
            assert (found.verdict, found.verification) == (Verdict.UNVERIFIED, None)
            return
        assert found.verdict is Verdict.VERIFIED
        assert found.verification is not None
        assert found.verification.proof.check_sha256 == crates(check=check).check_sha256
        assert found.origin == f"recalled from {found.known.name}, verified"


def test_asked_without_a_check_the_answer_says_by_which_it_was_verified(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        found = Recurrence(filled(held, strong), strong).recall(crates(check=None))
        assert found is not None
        assert found.verdict is Verdict.VERIFIED
        assert found.origin.endswith(", verified by the check it was learned with")


def test_other_parameters_are_another_task(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        recurrence = Recurrence(filled(held, strong), strong)
        assert recurrence.recall(crates(parameters={"crates": 38, "kg": 46}, check=Truth(answer=1748))) is None
        assert recurrence.recall(crates(parameters={}, check=None)) is None
        assert recurrence.recall(crates()) is not None


def test_a_check_with_other_examples_gives_its_own_first_answer_and_retires_nothing(
    tmp_path: Path, strong: Sandbox
) -> None:
    first = crates(check=Calls(cases=(case(6, crates=2, kg=3), case(20, crates=4, kg=5))), parameters={})
    other = crates(check=Calls(cases=(case(35, crates=5, kg=7), case(2, crates=1, kg=2))), parameters={})
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong, first)
        found = Recurrence(library, strong).recall(other)
        assert found is not None
        assert (found.answer, found.verdict) == (35, Verdict.VERIFIED)
        assert library.find(first.task_id) is not None


def test_a_callable_is_known_by_running_it_and_never_by_its_name(tmp_path: Path, strong: Sandbox) -> None:
    asked = crates(check=ByCallable(name="right"))
    with memory(tmp_path, read_answer) as held:
        made = wheel(held, strong, Helper(MULTIPLY))
        made.callables = made.gate.callables = {"right": lambda got, given: got == 1702}
        assert made.learn(asked).state == "deposited"
        assert made.learn(asked).state == "known"
        made.callables = made.gate.callables = {"right": lambda got, given: got == 83}
        again = made.learn(asked)
        assert again.state == "not solved"
        assert made.library.find(asked.task_id) is None


def test_a_callable_that_is_not_known_here_proves_nothing_and_costs_nothing(tmp_path: Path, strong: Sandbox) -> None:
    asked = crates(check=ByCallable(name="elsewhere"))
    with memory(tmp_path, read_answer) as held:
        made = wheel(held, strong, Helper(MULTIPLY))
        found = made.learn(asked)
        assert (found.state, found.attempts) == ("unchecked", 0)
        assert "elsewhere" in found.reason
        filled(held, strong)
        recalled = Recurrence(made.library, strong).recall(asked)
        assert recalled is not None
        assert (recalled.verdict, recalled.verification) == (Verdict.UNVERIFIED, None)
        assert recalled.origin.endswith("not checked again")


def test_a_check_that_raises_over_the_answer_is_not_passed(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        callables = {"a field": lambda got, given: got["kg"] == 1702}
        assert Recurrence(library, strong, callables).recall(crates(check=ByCallable(name="a field"))) is None
        assert library.find(crates().task_id) is not None  # it may be the check's own fault


def test_tighter_limits_are_what_is_asked_too(tmp_path: Path, strong: Sandbox) -> None:
    quick = Sandbox(policy=strong.policy, limits=Limits(wall_s=1.0))
    wide = crates(check=Truth(answer=1703, tolerance=Tolerance(absolute=1)))
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong, crates(), SLOW)
        assert Recurrence(library, quick).recall(wide) is None  # another check, and it does not pass in time
        same = Recurrence(library, quick).recall(crates())  # the very one: the proof stands, the answer says "timeout"
        assert same is not None
        assert (same.verdict, same.origin.rpartition(", ")[2]) == (Verdict.TIMEOUT, "not verified (timeout)")
        assert library.find(crates().task_id) is not None


def test_a_check_that_any_stub_passes_verifies_nothing_and_retires_nothing(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        always = {"always": lambda got, given: True}
        found = Recurrence(library, strong, always).recall(crates(check=ByCallable(name="always")))
        assert found is not None
        assert (found.verdict, found.origin.rpartition(", ")[2]) == (Verdict.VACUOUS, "not verified (vacuous)")
        assert library.find(crates().task_id) is not None


def test_a_block_of_that_name_from_elsewhere_proves_and_answers_nothing(tmp_path: Path, strong: Sandbox) -> None:
    """Packs carry blocks and names, no solutions: what is live says the book, and its block is made from it."""
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        known = library.find(crates().task_id)
        assert known is not None
        held.deposit_text(known.name, "This task was solved.\nAnswer: 5\n")
        found = Recurrence(library, strong).recall(crates())
        assert found is not None
        assert (found.answer, found.verdict, found.read_rightly) == (1702, Verdict.VERIFIED, True)
    with memory(tmp_path / "other", read_answer) as held:
        held.deposit_text(known.name, "This task was solved.\nAnswer: 5\n")
        assert Recurrence(SolutionLibrary(held), strong).recall(crates()) is None


# --- learning and solving -------------------------------------------------------------------------

NINETEEN, TWENTY_ONE = "def solve():\n    return 19\n", "def solve():\n    return sum([10, 11])\n"
PRIMES = "How many primes are there below the number that I have in mind?"


def primes(answer: int) -> Task:
    return Task(id="primes", prompt=PRIMES, check=Truth(answer=answer))


def test_the_corrected_truth_decides(tmp_path: Path, strong: Sandbox) -> None:
    """Learned with truth 19; asked with 21 it was answered 19, "verified", and learning again said "known"."""
    with memory(tmp_path, lambda prompt: "no idea") as held:
        made = wheel(held, strong, Helper(NINETEEN))
        assert made.learn(primes(19)).state == "deposited"
        answered = made.solve(primes(21))
        assert (answered.by, answered.answered, answered.verdict) == ("none", False, Verdict.UNVERIFIED)
        made.solvers = (Helper(NINETEEN, TWENTY_ONE),)
        again = made.learn(primes(21))
        assert (again.state, again.attempts) == ("deposited", 4)
        assert made.learn(primes(21)).state == "known"
        answered = made.solve(primes(21))
        assert (answered.by, answered.answer, answered.verdict) == ("recurrence", 21, Verdict.VERIFIED)
        standing = made.library.book.standing(primes(21).task_id)
        assert standing is not None
        assert [event.event for event in standing.history] == ["live", "retired", "live"]


def test_learning_again_with_the_corrected_truth_solves_it_again_at_once(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: "no idea") as held:
        made = wheel(held, strong, Helper(NINETEEN, TWENTY_ONE))
        assert made.learn(primes(19)).state == "deposited"
        assert made.learn(primes(21)).state == "deposited"
        assert made.library.find(primes(21).task_id).solution.answer == 21  # type: ignore[union-attr]
        assert made.learn(primes(20)).state == "not solved"
        assert made.library.find(primes(21).task_id) is None


def test_a_worse_solution_of_another_check_takes_the_place_of_a_better_one(tmp_path: Path, strong: Sandbox) -> None:
    """ "No better than the live one" is said only of one check."""
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        asked = crates(check=Truth(answer=83))
        plus = "def solve(crates, kg):\n    return 37 + kg  # longer, and it cannot transfer\n"
        done = library.keep(KeptTask(task=asked, parameters=asked.parameters), solution(asked, plus, strong))
        assert (done.live, done.reason) == (True, "proven by another check")
        assert library.find(asked.task_id).solution.answer == 83  # type: ignore[union-attr]
        worse = solution(asked, f"{plus}# and longer still\n", strong)
        assert not library.keep(KeptTask(task=asked, parameters=asked.parameters), worse).live


def test_a_proof_is_of_its_own_task_and_check(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library, proven = SolutionLibrary(held), solution(crates(), MULTIPLY, strong)
        other = crates(prompt="Another one.")
        with pytest.raises(NotProven, match="another task"):
            library.book.deposit(proven.model_copy(update={"task_id": other.task_id}))
        for task in (other, crates(check=Truth(answer=9)), crates(check=None)):
            with pytest.raises(NotProven, match="another check"):
                library.keep(KeptTask(task=task, parameters={}), proven)
        assert list(library.live()) == []
        assert proven.proof.is_of(crates())
        assert not proven.proof.is_of(crates(check=Truth(answer=1702, tolerance=Tolerance(absolute=1))))


def test_a_lost_task_does_not_stand_in_the_way_of_a_new_proof(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        known = library.find(crates().task_id)
        assert known is not None
        library.tasks.keep(known.kept.model_copy(update={"solution_id": "0" * 64}))  # as a crash leaves it
        filled(held, strong, crates(), "def solve(crates, kg):\n    return 37 * kg  # worse\n")
        assert library.find(crates().task_id) is not None


def test_the_model_s_own_answer_that_the_check_refuses_is_none(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: fenced("def solve(crates, kg):\n    return crates + kg\n")) as held:
        made = wheel(held, strong)
        refused = made.solve(crates())
        assert (refused.by, refused.answered, refused.verdict) == ("none", False, Verdict.FAILED)
        assert refused.origin == "no answer: the check refuses the model's own"
        own = made.solve(crates(check=None))
        assert (own.by, own.answer, own.verdict) == ("own", 83, Verdict.UNVERIFIED)


def test_what_is_retired_by_hand_answers_nothing_and_can_be_learned_again(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        made = wheel(held, strong, Helper(MULTIPLY))
        assert made.learn(crates()).state == "deposited"
        made.retire(crates(), "the crates were weighed again")
        assert (made.solve(crates(), own=False).by, held.names()) == ("none", [])
        standing = made.library.book.standing(crates().task_id)
        assert standing is not None
        assert standing.history[-1].reason == "the crates were weighed again"
        with pytest.raises(UnknownTask):
            made.retire(crates().task_id, "again")
        assert made.learn(crates()).state == "deposited"


# --- records of before ----------------------------------------------------------------------------


def old(tmp_path: Path) -> AgentMemory:
    """A store with a solution of a version whose proofs named neither task nor check."""
    held = memory(tmp_path, read_answer)
    shutil.copytree(OLD, held.store.root / "flywheel")
    return held


def test_an_older_record_stays_readable_with_its_bytes_and_name(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "flywheel")
    (kept,) = SolutionBook(tmp_path).all_live()
    assert (kept.answer, kept.proof.task_id, kept.proof.check_sha256) == (1702, None, None)
    assert (OLD / "solutions" / kept.solution_id[:2] / f"{kept.solution_id}.json").is_file()
    assert not kept.proof.is_of(crates())


@pytest.mark.parametrize("recheck", [True, False])
def test_an_older_proof_is_no_proof_of_what_is_asked_until_it_is_run(
    tmp_path: Path, strong: Sandbox, recheck: bool
) -> None:
    with old(tmp_path) as held:
        found = Recurrence(SolutionLibrary(held), strong, recheck=recheck).recall(crates())
        assert found is not None
        assert (found.verdict, found.answer) == (Verdict.VERIFIED, 1702)
        assert Recurrence(SolutionLibrary(held), strong, recheck=recheck).recall(crates(check=Truth(answer=9))) is None


def test_an_older_solution_is_known_if_it_passes_and_gives_way_to_a_new_proof(tmp_path: Path, strong: Sandbox) -> None:
    with old(tmp_path) as held:
        made = wheel(held, strong, Helper(MULTIPLY))
        assert made.learn(crates()).state == "known"
        proven = solution(crates(), f"{MULTIPLY}# longer\n", strong)
        assert made.library.keep(KeptTask(task=crates(), parameters=crates().parameters), proven).live


def test_a_proof_made_now_names_task_and_check(strong: Sandbox) -> None:
    proof = verify(crates(), Program(source=MULTIPLY), strong).proof
    assert (proof.task_id, proof.check_sha256) == (crates().task_id, crates().check_sha256)
    assert len({crates(check=check).check_sha256 for check in (None, *FAILED, *PASSED)}) == 1 + len(FAILED + PASSED)


def test_the_gate_runs_the_check_handed_in(tmp_path: Path, strong: Sandbox) -> None:
    """The model's own solution is proven by what is asked, whatever is live."""
    with memory(tmp_path, lambda prompt: fenced(MULTIPLY)) as held:
        library = filled(held, strong)
        made = Flywheel(library, strong, Gate(BestOfN(held, n=1), strong, samples=1))
        assert made.learn(crates(check=Truth(answer=5))).state == "not solved"
        assert made.learn(crates()).state == "not lacking"
