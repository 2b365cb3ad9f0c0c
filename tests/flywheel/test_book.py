"""The book: one live solution a task, the rest history, nothing unproven."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentkv import BlockStore
from agentkv.errors import CorruptBlock, NotProven, UnknownTask
from agentkv.flywheel.book import KeptTask, KeptTasks, SolutionBook
from agentkv.flywheel.files import entries
from agentkv.flywheel.program import examine
from agentkv.flywheel.solution import (
    CheckRun,
    ParameterUse,
    Parametric,
    Program,
    Proof,
    Provenance,
    Solution,
    Text,
    Verdict,
)
from agentkv.flywheel.task import Task, Truth, task_id
from agentkv.flywheel.verify import Verification, verify
from agentkv.sandbox.base import Isolation, Level, Policy
from agentkv.sandbox.sandbox import Sandbox
from agentkv.store.check import check

from .scripted import crates

TASK = task_id("Add the two.", {"a": 2, "b": 3})
DIGEST = "0" * 64
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TRANSFERABLE = Parametric(parameters=(ParameterUse(name="a", use="used", tried=1),), hard_coded=())


def isolation(level: Level = Level.NAMESPACES) -> Isolation:
    return Isolation(
        level=level,
        descendants="pid namespace",
        network="none",
        files="read-only selection",
        identity="user namespace",
        system_calls="filtered",
        processes="rlimit",
        memory="rlimit",
    )


def proof(candidate: Program | Text, verdict: Verdict = Verdict.VERIFIED, checks: int = 1, **other: Any) -> Proof:
    passed = CheckRun(passed=True, reason="", ending="exit", inputs_sha256=DIGEST, output_sha256=DIGEST)
    fields: dict[str, Any] = {
        "verdict": verdict,
        "reason": "1 of 1 checks passed",
        "check": "tests",
        "checks_expected": checks,
        "checks": (passed,) * checks,
        "isolation": isolation() if isinstance(candidate, Program) else None,
        "candidate_sha256": candidate.sha256,
        "inputs_sha256": DIGEST,
        "output_sha256": DIGEST,
        "date": NOON.isoformat(),
        "agentkv_version": "0",
        "python_version": "3",
        "task_id": TASK,
        "check_sha256": DIGEST,
    }
    return Proof(**{**fields, **other})


def solution(
    source: str = "def solve(a, b):\n    return a + b\n",
    *,
    of: str = TASK,
    answer: Any = 5,
    parametric: Parametric | None = None,
    **other: Any,
) -> Solution:
    candidate = Program(source=source)
    return Solution(
        task_id=of,
        candidate=candidate,
        answer=answer,
        provenance=Provenance(solver="test", seeds=(1, 2), tokens=9),
        proof=proof(candidate, **{"task_id": of, **other}),
        parametric=parametric,
    )


def again(verdict: Verdict, answer: Any = 5, answered: bool = True) -> Verification:
    return Verification(proof(Program(source="x"), verdict), answer, answered, "")


@pytest.fixture
def book(tmp_path: Path) -> SolutionBook:
    return SolutionBook(tmp_path / "store", now=lambda: NOON)


def test_what_is_deposited_is_live_in_another_process_too(tmp_path: Path, book: SolutionBook) -> None:
    kept = solution(answer=[2**90, 1, 1.0, "é", None])
    done = book.deposit(kept)
    assert (done.live, done.superseded, done.solution_id) == (True, None, kept.solution_id)
    fresh = SolutionBook(tmp_path / "store")
    assert fresh.live(TASK) == kept
    assert list(fresh.all_live()) == [kept]
    assert type(fresh.live(TASK).answer[2]) is float  # type: ignore[union-attr]
    assert fresh.live(task_id("Add the three.")) is None
    assert fresh.standing(task_id("Add the three.")) is None


def test_the_same_solution_twice_changes_nothing(book: SolutionBook) -> None:
    book.deposit(solution())
    before = book.standing(TASK)
    assert book.deposit(solution()).live
    assert book.standing(TASK) == before


BETTER = [
    (solution(), solution("def solve(a, b):\n    return b + a  # longer\n", parametric=TRANSFERABLE)),
    (solution(), solution("def solve(a, b):\n    return b + a  # longer\n", checks=2)),
    (solution(), solution("def solve(a,b): return a+b\n")),
    (solution(), solution("def solve(a, b):\n    return b + a  # longer\n", isolation=isolation(Level.BUBBLEWRAP))),
]


@pytest.mark.parametrize(("worse", "better"), BETTER)
def test_a_better_one_supersedes_and_the_old_one_is_history(
    worse: Solution, better: Solution, book: SolutionBook
) -> None:
    book.deposit(worse)
    done = book.deposit(better)
    assert (done.live, done.superseded) == (True, worse.solution_id)
    assert list(book.all_live()) == [better]
    assert book.solution(worse.solution_id) == worse
    history = book.standing(TASK)
    assert history is not None
    assert [event.event for event in history.history] == ["live", "superseded", "live"]


@pytest.mark.parametrize(("worse", "better"), BETTER)
def test_one_that_is_no_better_is_kept_and_not_live(worse: Solution, better: Solution, book: SolutionBook) -> None:
    book.deposit(better)
    done = book.deposit(worse)
    assert (done.live, done.superseded) == (False, None)
    assert list(book.all_live()) == [better]
    assert book.solution(worse.solution_id) == worse


def unproven() -> list[Solution]:
    good = solution()
    failed = CheckRun(passed=False, reason="no", ending="exit", inputs_sha256=DIGEST, output_sha256=None)
    other: list[dict[str, Any]] = [
        {"checks": (), "checks_expected": 0},
        {"checks": (), "checks_expected": 1},
        {"checks": (failed,), "checks_expected": 1},
        {"checks_expected": 2},
        {"candidate_sha256": "1" * 64},
        {"task_id": None},
        {"task_id": "1" * 64},
        {"check_sha256": None},
        {"check": "truth"},
        {"isolation": None},
        {"isolation": isolation(Level.LIMITS)},
        *({"verdict": verdict} for verdict in Verdict if verdict is not Verdict.VERIFIED),
    ]
    return [good.model_copy(update={"proof": good.proof.model_copy(update=changes)}) for changes in other]


@pytest.mark.parametrize("bad", unproven())
def test_what_is_not_proven_is_refused_and_nothing_is_written(
    bad: Solution, tmp_path: Path, book: SolutionBook
) -> None:
    with pytest.raises(NotProven):
        book.deposit(bad)
    assert not (tmp_path / "store").exists()


def test_the_policy_says_how_far_apart_is_enough(tmp_path: Path) -> None:
    lax = SolutionBook(tmp_path, Policy(deposit=Level.LIMITS))
    assert lax.deposit(solution(isolation=isolation(Level.LIMITS))).live
    strict = SolutionBook(tmp_path, Policy(deposit=Level.BUBBLEWRAP))
    with pytest.raises(NotProven):
        strict.deposit(solution("def solve(a, b): return 5\n"))


def test_a_text_needs_no_isolation(book: SolutionBook) -> None:
    text = Text(text="forty two")
    kept = Solution(
        task_id=TASK, candidate=text, answer="forty two", provenance=Provenance(solver="t"), proof=proof(text)
    )
    assert book.deposit(kept).live


def test_what_verify_says_can_be_deposited_as_it_is(strong: Sandbox, book: SolutionBook) -> None:
    task = Task(id="t", prompt="Add the two.", parameters={"a": 2, "b": 3}, check=Truth(answer=5))
    program = Program(source="def solve(a, b):\n    return a + b\n")
    found = verify(task, program, strong)
    kept = Solution(
        task_id=task.task_id,
        candidate=program,
        answer=found.answer,
        provenance=Provenance(solver="a person"),
        proof=found.proof,
        parametric=examine(strong, program, task),
    )
    assert book.deposit(kept).live
    assert book.live(task.task_id) == kept
    assert book.recheck(task.task_id, lambda live: verify(task, live.candidate, strong)).verified
    assert book.live(task.task_id) == kept
    with pytest.raises(NotProven, match="not the one that was checked"):
        book.deposit(kept.model_copy(update={"answer": 6}))


@pytest.mark.parametrize("found", [again(Verdict.FAILED), again(Verdict.FAILED, None, False), again(Verdict.VACUOUS),
                                   again(Verdict.VERIFIED, answer=5.0), again(Verdict.VERIFIED, answer=6)])  # fmt: skip
def test_a_re_check_that_fails_retires(found: Verification, book: SolutionBook) -> None:
    kept = solution()
    book.deposit(kept)
    assert book.recheck(TASK, lambda _: found) is found
    assert book.live(TASK) is None
    assert list(book.all_live()) == []
    assert book.solution(kept.solution_id) == kept
    standing = book.standing(TASK)
    assert standing is not None
    assert standing.history[-1].event == "retired"
    assert standing.history[-1].reason.startswith("re-check")


@pytest.mark.parametrize("found", [again(Verdict.VERIFIED), again(Verdict.TIMEOUT, None, False),
                                   again(Verdict.ERROR, None, False), again(Verdict.UNVERIFIED)])  # fmt: skip
def test_a_re_check_that_says_nothing_of_the_solution_leaves_it(found: Verification, book: SolutionBook) -> None:
    kept = solution()
    book.deposit(kept)
    assert book.recheck(TASK, lambda _: found) is found
    assert book.live(TASK) == kept


def test_what_was_superseded_during_a_re_check_is_not_retired_in_its_successor_s_place(book: SolutionBook) -> None:
    book.deposit(solution())
    better = solution("def solve(a,b): return a+b\n")

    def check(_: Solution) -> Verification:
        book.deposit(better)
        return again(Verdict.FAILED)

    book.recheck(TASK, check)
    assert book.live(TASK) == better


def test_a_retired_task_can_be_solved_again(book: SolutionBook) -> None:
    book.deposit(solution())
    assert book.retire(TASK, "it harms")
    with pytest.raises(UnknownTask):
        book.retire(TASK, "again")
    with pytest.raises(UnknownTask):
        book.recheck(TASK, lambda _: again(Verdict.VERIFIED))
    assert book.deposit(solution("def solve(a, b):\n    return sum((a, b))\n")).live


def test_every_flipped_or_cut_byte_of_a_file_is_found(tmp_path: Path, book: SolutionBook) -> None:
    kept = solution()
    book.deposit(kept)
    for path in (tmp_path / "store" / "flywheel").rglob("*.json"):
        whole = path.read_bytes()
        damaged = [whole[:-1], whole + b"\n", whole.replace(b"5", b"6"), b"", *(whole[:cut] for cut in (1, 60, 100))]
        damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 37)]
        for data in damaged:
            path.write_bytes(data)
            with pytest.raises(CorruptBlock):
                SolutionBook(tmp_path / "store").live(TASK)
        path.write_bytes(whole)
    assert SolutionBook(tmp_path / "store").live(TASK) == kept


def test_a_file_in_another_s_place_is_found(tmp_path: Path, book: SolutionBook) -> None:
    first, second = solution(), solution(of=task_id("Other."))
    book.deposit(first)
    book.deposit(second)
    folder = tmp_path / "store" / "flywheel" / "solutions"
    place = {s.solution_id: folder / s.solution_id[:2] / f"{s.solution_id}.json" for s in (first, second)}
    place[first.solution_id].write_bytes(place[second.solution_id].read_bytes())
    with pytest.raises(CorruptBlock):
        SolutionBook(tmp_path / "store").live(TASK)


def test_threads_that_deposit_at_once_leave_one_live_and_a_whole_history(tmp_path: Path) -> None:
    sources = [f"def solve(a, b):\n    return a + b  {'#' * k}\n" for k in range(1, 9)]

    def deposit(source: str) -> None:
        SolutionBook(tmp_path).deposit(solution(source))

    threads = [threading.Thread(target=deposit, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book = SolutionBook(tmp_path)
    live = book.live(TASK)
    assert live is not None
    assert live.candidate == Program(source=sources[0])
    standing = book.standing(TASK)
    assert standing is not None
    assert len({event.solution_id for event in standing.history}) == 8


def test_a_store_with_solutions_is_sound_and_one_with_a_damaged_solution_is_not(tmp_path: Path) -> None:
    with BlockStore(tmp_path) as store:
        kept = solution()
        SolutionBook(tmp_path).deposit(kept)
        assert list(store.check().findings) == []
        path = tmp_path / "flywheel" / "solutions" / kept.solution_id[:2] / f"{kept.solution_id}.json"
        path.write_bytes(path.read_bytes().replace(b"5", b"6"))
        (tmp_path / "flywheel" / "stray").write_text("x")
        assert sorted(str(finding.kind) for finding in store.check().findings) == ["corrupt", "foreign"]


def test_a_task_is_kept_by_its_identity(tmp_path: Path) -> None:
    kept = KeptTask(task=crates(), parameters={"crates": 37, "kg": 46})
    KeptTasks(tmp_path).keep(kept)
    again = KeptTasks(tmp_path)
    assert again.find(crates().task_id) == kept
    assert again.find(crates(prompt="another").task_id) is None
    assert list(again.all()) == [kept]
    again.keep(KeptTask(task=crates(check=None), parameters={}))
    assert [one.task.check for one in again.all()] == [None]


def test_a_changed_file_is_found_and_not_used(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "store") as store:
        KeptTasks(store.root).keep(KeptTask(task=crates(), parameters={}))
        ((path, _, own),) = entries(store.root)
        assert own
        assert not check(store.files).findings
        data = bytearray(path.read_bytes())
        for at in (10, 40, len(data) - 3):
            changed = bytearray(data)
            changed[at] ^= 1
            path.write_bytes(changed)
            with pytest.raises(CorruptBlock):
                KeptTasks(store.root).find(crates().task_id)
            assert len(check(store.files).findings) == 1
        path.write_bytes(data)
        other = path.parent.parent / "00" / ("0" * 64 + ".json")
        other.parent.mkdir()
        other.write_bytes(data)
        with pytest.raises(CorruptBlock):
            KeptTasks(store.root).find("0" * 64)
