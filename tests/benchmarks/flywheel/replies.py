"""What a model wrote in an earlier run of ``aime``, parsed by the code as it is now; the model is not asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict

from agentkv.bench.base import Row
from agentkv.engine.base import Cancellation
from agentkv.errors import UsageError
from agentkv.evidence import Ledger
from agentkv.flywheel.solution import Provenance
from agentkv.flywheel.solvers import Attempt, BestOfN, Tried, task_message
from agentkv.flywheel.source import candidate_in
from agentkv.flywheel.task import Task
from agentkv.io.hashing import sha256


class Attempted(Row):
    """One sample, beside what else :func:`agentkv.flywheel.journal.attempt_record` says. ``prompt``: its digest."""

    model_config = ConfigDict(frozen=True, extra="allow")

    prompt: str
    generated: str
    seeds: list[int]
    tokens: int
    answer: Any
    verdict: str


class Base(Row):
    """The raw record of a problem: every sample, and the commonest answer."""

    attempts: list[Attempted]
    answer: Any
    agreeing: int
    samples: int
    confident: bool
    seconds: float
    joules: float | None


@dataclass(frozen=True)
class Replayed:
    """A solver that gives what the model wrote in an earlier run; the model is asked where there is nothing.

    ``written``: by digest of the message, that run's record of the problem.
    """

    solver: BestOfN
    written: Mapping[str, Base]

    @property
    def name(self) -> str:
        """The model's, whoever parses."""
        return self.solver.name

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """The attempt that was written then."""
        record = self._record(task)
        if record is None:
            return self.solver.attempt(task, earlier, cancellation)
        if len(earlier) >= len(record.attempts):
            return None
        then = record.attempts[len(earlier)]
        by = Provenance(solver=self.name, seeds=tuple(then.seeds), tokens=then.tokens)
        return Attempt(candidate_in(then.generated), by, task_message(task), then.generated)

    def cost(self, task: Task) -> dict[str, float | None] | None:
        """Seconds and joules of the earlier run; None where the model was asked now."""
        record = self._record(task)
        return None if record is None else {"seconds": record.seconds, "joules": record.joules}

    def _record(self, task: Task) -> Base | None:
        return self.written.get(sha256(task_message(task).encode()))


def replies(ledger: Ledger, run_id: str, model_sha256: str, settings: Mapping[str, Any], kind: str) -> dict[str, Base]:
    """The base's records of a run, by digest of the message. Raises UsageError, UnknownRun."""
    run = ledger.find(run_id)
    then = run.body.settings
    differ = [name for name in ("samples", "max_new", "budget", "seed") if then.get(name) != settings[name]]
    if run.kind != kind or run.body.inputs.get("model") != model_sha256 or differ:
        what = ", ".join(differ) or "the model" if run.kind == kind else "the benchmark"
        raise UsageError(f"run {run_id} cannot be parsed again here: it has another {what}")
    found = [Base.model_validate(item.raw) for item in ledger.items(run) if item.key.startswith("base/")]
    return {record.attempts[0].prompt: record for record in found if record.attempts}
