"""The book of solutions: what is live for each task, all that was live or tried before, and the tasks themselves.

Three folders of sealed files (:mod:`~agentkv.flywheel.files`). Write order: the solution (a crash here leaves a file
that no standing names, harmless), then the standing, which commits, then the task with the solution's id (a crash
before it leaves a solution that does not answer until the task is learned again). At most one solution of a task is
live, and only one whose proof says "verified" at the policy's isolation. Processes take turns by a lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from agentkv.errors import NotProven, StoreError, StoreReadError, UnknownTask
from agentkv.flywheel import values
from agentkv.flywheel.files import (
    FLYWHEEL,
    LOCK,
    MAX_RECORD_BYTES,
    SOLUTION_MAGIC,
    SOLUTIONS,
    STANDING_MAGIC,
    STANDINGS,
    TASK_MAGIC,
    TASKS,
    R,
    decode_record,
    encode_record,
)
from agentkv.flywheel.solution import Program, Proof, Short, Solution, Verdict
from agentkv.flywheel.task import Parameters, Task
from agentkv.flywheel.verify import Verification
from agentkv.io import fsio
from agentkv.io.hashing import sha256
from agentkv.notices import warn
from agentkv.records import Record, Sha256
from agentkv.sandbox.base import Policy
from agentkv.store.files import TEMPORARIES
from agentkv.store.format import Malformed
from agentkv.store.recordfiles import RecordFiles

_WAIT_S = 30.0


class Event(Record):
    """What happened to a solution. ``not better``: it was deposited, and the live one stayed live."""

    solution_id: Sha256
    event: Literal["live", "superseded", "not better", "retired"]
    reason: Short
    date: Annotated[str, Field(max_length=40)]


class Standing(Record):
    """A task's live solution (None for none) and its history, oldest first."""

    task_id: Sha256
    live: Sha256 | None
    history: tuple[Event, ...]


@dataclass(frozen=True)
class Deposited:
    """What a deposit did. ``live`` is False where the current live solution is at least as good."""

    solution_id: str
    live: bool
    superseded: str | None
    reason: str


class SolutionBook:
    """The solutions kept in the store at ``store``; made when the first is deposited."""

    def __init__(
        self,
        store: Path,
        policy: Policy | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.root, self.policy, self._now = store / FLYWHEEL, policy or Policy(), now
        temporaries = store / TEMPORARIES

        def folder(name: str, decode: Callable[[bytes, str], R]) -> RecordFiles[R]:
            what = name.removesuffix("s")
            return RecordFiles(self.root, name, what, decode, MAX_RECORD_BYTES, sharded=True, temporaries=temporaries)

        self._solutions: RecordFiles[Solution] = folder(SOLUTIONS, _decode_solution)
        self._standings: RecordFiles[Standing] = folder(STANDINGS, _decode_standing)

    # --- reading ----------------------------------------------------------------------------------

    def live(self, task_id: str) -> Solution | None:
        """The solution that may answer for the task; None if there is none. Raises CorruptBlock, StoreReadError."""
        standing = self._standings.read(task_id)
        if standing is None or standing.live is None:
            return None
        return self._solutions.read(standing.live)

    def standing(self, task_id: str) -> Standing | None:
        """What is live and what was; None for a task that was never deposited."""
        return self._standings.read(task_id)

    def solution(self, solution_id: str) -> Solution | None:
        """Any solution that was ever deposited, live or not."""
        return self._solutions.read(solution_id)

    def all_live(self) -> Iterator[Solution]:
        """Every live solution, by task: the candidates for routing. A corrupt one is skipped with a warning."""
        for standing in self._standings.all(skipped):
            try:
                solution = None if standing.live is None else self._solutions.read(standing.live)
            except StoreError as error:
                skipped(error)
                continue
            if solution is not None:
                yield solution

    # --- changing ---------------------------------------------------------------------------------

    def deposit(self, solution: Solution) -> Deposited:
        """Keep a verified solution; it becomes live unless the live one is at least as good by the same check.

        Better means: transferable, then more checks passed, then higher isolation, then shorter text. A live one that
        was proven by another check (a callable counts as another each time) is not compared but replaced: the current
        check decides. Raises NotProven, with nothing stored, if its proof is not that of a verified solution;
        StoreFull.
        """
        self._check_proof(solution)
        identity = solution.solution_id
        with self._changing():
            standing = self._standings.valid(solution.task_id) or Standing(
                task_id=solution.task_id, live=None, history=()
            )
            current = None if standing.live is None else self._solutions.valid(standing.live)
            if current is not None and current.solution_id == identity:
                return Deposited(identity, live=True, superseded=None, reason="it is live already")
            self._solutions.write(identity, encode_record(SOLUTION_MAGIC, solution))
            alike = current is not None and _same_check(solution.proof, current.proof)
            better = current is None or not alike or _merit(solution) > _merit(current)
            reason = "proven by another check"
            if current is None or alike:
                reason = "the first" if current is None else _compared(solution, current)
            events = [self._event(identity, "live" if better else "not better", reason)]
            if better and current is not None:
                events.insert(0, self._event(current.solution_id, "superseded", f"by {identity[:12]}: {reason}"))
            live = identity if better else standing.live
            self._write(Standing(task_id=solution.task_id, live=live, history=(*standing.history, *events)))
        superseded = current.solution_id if better and current is not None else None
        return Deposited(identity, better, superseded, reason)

    def retire(self, task_id: str, reason: str, *, only: str | None = None) -> bool:
        """Retire the live solution into the history; with ``only``, if it is that one. Returns whether it was.

        Raises UnknownTask.
        """
        with self._changing():
            standing = self._standings.read(task_id)
            if standing is None or standing.live is None:
                raise UnknownTask(task_id)
            if only is not None and standing.live != only:
                return False
            event = self._event(standing.live, "retired", reason)
            self._write(Standing(task_id=task_id, live=None, history=(*standing.history, event)))
        return True

    def recheck(self, task_id: str, check: Callable[[Solution], Verification], *, own: bool = True) -> Verification:
        """Check the live solution again with ``check``; one that fails, or gives another answer now, is retired.

        ``own``: it is the check that it was proven by. If that is found to be vacuous, the solution is retired too;
        another vacuous check says nothing about it. A timeout or an error of the verifier retires nothing, since it
        says more about this machine than about the solution; the verdict is then not "verified". Raises UnknownTask.
        """
        solution = self.live(task_id)
        if solution is None:
            raise UnknownTask(task_id)
        again = check(solution)
        verdict = again.proof.verdict
        by = "" if own else " by another check than that of its proof"
        reason = f"re-check{by}: {verdict}, {again.proof.reason}"
        asked_alike = _inputs(again.proof) == _inputs(solution.proof)
        changed = asked_alike and again.answered and not values.same(again.answer, solution.answer)
        if changed and verdict is Verdict.VERIFIED:
            reason = "re-check: it passed its check with another answer than before"
        if changed or verdict is Verdict.FAILED or (own and verdict is Verdict.VACUOUS):
            with contextlib.suppress(UnknownTask):
                self.retire(task_id, reason[:4000], only=solution.solution_id)
        return again

    # --- parts ------------------------------------------------------------------------------------

    def _check_proof(self, solution: Solution) -> None:
        proof = solution.proof

        def refuse(reason: str) -> NotProven:
            return NotProven(solution.task_id, proof.verdict, reason)

        if proof.verdict is not Verdict.VERIFIED:
            raise refuse(proof.reason)
        if not proof.checks or proof.checks_expected != proof.checks_run or not all(c.passed for c in proof.checks):
            raise refuse("its record does not show every check passed")
        if proof.task_id != solution.task_id or proof.check_sha256 is None:
            raise refuse("its proof is that of another task, or names neither task nor check")
        if proof.candidate_sha256 != solution.candidate.sha256:
            raise refuse("its proof is that of another text")
        own = sha256(values.encode(solution.answer).encode())
        if proof.check != "tests" and proof.checks[0].output_sha256 != own:
            raise refuse("its answer is not the one that was checked")
        if isinstance(solution.candidate, Program):
            level = None if proof.isolation is None else proof.isolation.level
            if level is None or level.rank < self.policy.deposit.rank:
                raise refuse(f"it was proven at isolation {level}, the policy asks for {self.policy.deposit}")

    def _event(
        self, solution_id: str, event: Literal["live", "superseded", "not better", "retired"], reason: str
    ) -> Event:
        date = self._now().isoformat(timespec="seconds")
        return Event(solution_id=solution_id, event=event, reason=reason, date=date)

    def _write(self, standing: Standing) -> None:
        self._standings.write(standing.task_id, encode_record(STANDING_MAGIC, standing))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            fsio.make_directory(self.root)
        except OSError as error:
            raise fsio.translated(error, self.root) from error
        with fsio.file_lock(self.root / LOCK, exclusive=True, wait_s=_WAIT_S) as held:
            if held is False:
                raise StoreReadError(self.root, f"another process has held its lock for {_WAIT_S:.0f} s")
            yield


def _same_check(one: Proof, other: Proof) -> bool:
    """Whether both were proven by the same check; never for a callable, of which only the name is known."""
    return one.check_sha256 is not None and one.check_sha256 == other.check_sha256 and one.check != "callable"


def _inputs(proof: Proof) -> str | None:
    """What its first check asked with."""
    return proof.checks[0].inputs_sha256 if proof.checks else None


def skipped(error: StoreError) -> None:
    """Warn of a corrupt record that is skipped."""
    warn(f"skipped: {error.message} `agentkv check` lists it; learning the task again replaces it.")


def _merit(solution: Solution) -> tuple[int, int, int, int]:
    parametric, isolation = solution.parametric, solution.proof.isolation
    text = solution.candidate.source if isinstance(solution.candidate, Program) else solution.candidate.text
    return (
        int(parametric is not None and parametric.transferable),
        solution.proof.checks_run,
        -1 if isolation is None else isolation.level.rank,
        -len(text),
    )


def _compared(new: Solution, old: Solution) -> str:
    names = ("transferable", "checks passed", "isolation", "shorter text")
    for name, here, there in zip(names, _merit(new), _merit(old), strict=True):
        if here != there:
            return f"{'better' if here > there else 'worse'} in: {name}"
    return "no better than the live one"


def _decode_solution(data: bytes, name: str) -> Solution:
    solution = decode_record(SOLUTION_MAGIC, data, Solution, "solution")
    if solution.solution_id != name:
        raise Malformed(f"it is solution {solution.solution_id[:12]}")
    return solution


def _decode_standing(data: bytes, name: str) -> Standing:
    standing = decode_record(STANDING_MAGIC, data, Standing, "standing")
    if standing.task_id != name:
        raise Malformed(f"it is the standing of task {standing.task_id[:12]}")
    return standing


# --- tasks ----------------------------------------------------------------------------------------


class KeptTask(Record):
    """A task, and the parameters with which the solution ``solution_id`` gave the answer."""

    task: Task
    parameters: Parameters
    solution_id: Sha256 | None = None


class KeptTasks:
    """The tasks kept in the store at ``store``."""

    def __init__(self, store: Path) -> None:
        self._files: RecordFiles[KeptTask] = RecordFiles(
            store / FLYWHEEL, TASKS, "task", _decode, MAX_RECORD_BYTES, sharded=True, temporaries=store / TEMPORARIES
        )

    def keep(self, kept: KeptTask) -> None:
        """Keep a task; it replaces the same task with other parameters or another check. Raises StoreFull."""
        self._files.write(kept.task.task_id, encode_record(TASK_MAGIC, kept))

    def find(self, task_id: str) -> KeptTask | None:
        """The task of that identity. Raises CorruptBlock, StoreReadError."""
        return self._files.read(task_id)

    def all(self) -> Iterator[KeptTask]:
        """Every kept task, whether its solution is live or not. A corrupt one is skipped with a warning."""
        yield from self._files.all(skipped)


def _decode(data: bytes, name: str) -> KeptTask:
    kept = decode_record(TASK_MAGIC, data, KeptTask, "task")
    if kept.task.task_id != name:
        raise Malformed(f"it is task {kept.task.task_id[:12]}")
    return kept
