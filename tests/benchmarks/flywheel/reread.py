"""What a model wrote in an earlier run, read anew by the code as it is now; its replies are kept, so it is not asked.

Knows a run's records of problems and the solver that made them; refuses to know how they are scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.errors import UsageError
from agentkv.evidence import Ledger
from agentkv.flywheel.solution import Provenance
from agentkv.flywheel.solvers import Attempt, BestOfN, Tried, task_message
from agentkv.flywheel.source import candidate_in
from agentkv.flywheel.task import Task
from agentkv.io.hashing import sha256


@dataclass(frozen=True)
class Reread:
    """What the model wrote in an earlier run, read by the code as it is now; the model is asked where there is nothing.

    ``written``: by digest of the message, that run's raw record of the problem.
    """

    solver: BestOfN
    written: Mapping[str, dict[str, Any]]

    @property
    def name(self) -> str:
        """The model's, whoever reads."""
        return self.solver.name

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """The attempt that was written then."""
        record = self._record(task)
        if record is None:
            return self.solver.attempt(task, earlier, cancellation)
        if len(earlier) >= len(record["attempts"]):
            return None
        then = record["attempts"][len(earlier)]
        by = Provenance(solver=self.name, seeds=tuple(then["seeds"]), tokens=then["tokens"])
        return Attempt(candidate_in(then["generated"]), by, task_message(task), then["generated"])

    def cost(self, task: Task) -> dict[str, Any] | None:
        """Seconds and joules of the earlier run; None where the model was asked now."""
        record = self._record(task)
        return None if record is None else {name: record[name] for name in ("seconds", "joules")}

    def _record(self, task: Task) -> dict[str, Any] | None:
        return self.written.get(sha256(task_message(task).encode()))


def replies(
    ledger: Ledger, run_id: str, model_sha256: str, settings: Mapping[str, Any], kind: str
) -> dict[str, dict[str, Any]]:
    """The base's raw records of a run, by digest of the message. Raises UsageError, UnknownRun."""
    run = ledger.find(run_id)
    then = run.body.settings
    differ = [name for name in ("samples", "max_new", "budget", "seed") if then.get(name) != settings[name]]
    if run.kind != kind or run.body.inputs.get("model") != model_sha256 or differ:
        what = ", ".join(differ) or "the model" if run.kind == kind else "the benchmark"
        raise UsageError(f"run {run_id} cannot be read again here: it has another {what}")
    records = [item.raw for item in ledger.items(run) if item.key.startswith("base/")]
    return {record["attempts"][0]["prompt"]: record for record in records if record["attempts"]}
