"""Carries out a sealed plan, and judges whether its predictions held.

Order, by the hash chain and not by a clock: the plan's digest is recorded, then a run begins that names the plan, then
each step's outcome is recorded as soon as it is known. An interrupted run is resumed; an attempt without a result stays
on record. All runs of a plan count: a pass does not cancel an earlier failure.

A ledger alone cannot show that the plan was not run before, in another ledger. An anchor published between plan and run
shows that the plan was not made after that ledger's run (``anchored``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from agentkv.errors import PlanRefused, StepFailed, UsageError
from agentkv.evidence.anchors import Given
from agentkv.evidence.environment import differences, require, source_code
from agentkv.evidence.ledger import Ledger, RecordedRun, Run, find_run, runs_of
from agentkv.evidence.plan import PROGRAMS, Criterion, ReplayPlan, Step
from agentkv.evidence.records import Entry, Item
from agentkv.evidence.scoring import scorer
from agentkv.evidence.verify import verify

KIND, VERSION = "replay", 1
_RESULT_CODES = {0, 60}
"""Exit codes of a benchmark that measured something: it held, or it did not (GuaranteeViolated)."""
_FROM_OUTSIDE = ("AGENTKV_MODEL", "AGENTKV_STORE", "AGENTKV_CODEC", "AGENTKV_LEDGER")

Outcome = dict[str, Any]
"""``exit_code``: the command's; ``result``: what it wrote with ``--out``, or None."""


@dataclass(frozen=True)
class Judged:
    """One criterion of one step: ``seen`` are the values at its path."""

    step: str
    criterion: str
    passed: bool
    seen: list[Any]


@dataclass(frozen=True)
class RunVerdict:
    """The verdict of one run of a plan. ``attempts``: outcomes without a result, by step."""

    run: str
    status: str
    judged: list[Judged]
    attempts: dict[str, int]

    @property
    def passed(self) -> bool:
        """Whether the run is complete and every criterion was met."""
        return self.status == "finished" and all(row.passed for row in self.judged)

    @property
    def failures(self) -> list[str]:
        """The criteria that were not met, with what was seen."""
        return [
            f"run {self.run}, {row.step}: {row.criterion}, seen {orjson.dumps(row.seen[:8]).decode()[:120]}"
            for row in self.judged
            if not row.passed
        ]


def run_command(step: Step) -> Outcome:
    """Run a step's command in a new process, its progress on this one's stderr."""
    kept = {name: value for name, value in os.environ.items() if name not in _FROM_OUTSIDE}
    with tempfile.TemporaryDirectory(prefix="agentkv-replay-") as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", *PROGRAMS[step.arguments[0]], *step.arguments[1:], "--out", str(out)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, env=kept)
        result = orjson.loads(out.read_bytes()) if out.exists() else None
    return {"exit_code": done.returncode, "result": result}


def run(
    plan: ReplayPlan,
    ledger: Ledger,
    *,
    runner: Callable[[Step], Outcome] | None = None,
    progress: Callable[[Step, int, int], None] = lambda step, done, total: None,
    again: bool = False,
) -> RunVerdict:
    """Carry out the plan and record it; a run of it without an end is resumed, unless ``again``.

    ``progress`` is called before each step with its index and the number of steps. Raises MachineUnsuitable and
    PlanRefused before anything is run or recorded; StepFailed; UsageError if the plan is being run already.
    """
    _require_tree(plan)
    system = require(plan.draft.needs)
    ledger.register_plan(plan.digest, plan.draft.name)
    lock = FileLock(ledger.folder / f"replay-{plan.digest[:16]}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UsageError(f"plan {plan.digest[:12]} is being run in this ledger by another process") from error
    try:
        going, recorded = _begin(plan, ledger, system, again)
        done = {
            body.key for body, item in zip(recorded.items, ledger.items(recorded), strict=True) if _is_outcome(item.raw)
        }
        for index, step in enumerate(plan.draft.steps):
            if step.name in done:
                continue
            progress(step, index, len(plan.draft.steps))
            _carry_out(plan, step, going, runner or run_command)
        _require_tree(plan)  # the steps ran in processes of their own
        verdict = _judge(plan, ledger, ledger.find(going.id), status="finished")
        for row in verdict.judged:
            going.verdict(f"{row.step}: {row.criterion}", row.passed)
        going.scores(_counts(verdict.judged))
        going.end()
    finally:
        lock.release()
    return verdict


def judge(
    plan: ReplayPlan, ledger: Ledger, *, run_id: str | None = None, anchors: Sequence[Given] = ()
) -> tuple[list[RunVerdict], bool]:
    """The verdict of every run of the plan, from the recorded outcomes; and whether it is ``anchored``.

    ``run_id``: that one only. ``anchored``: one of ``anchors`` holds and was made after the plan was entered and before
    the first of these runs began. Raises PlanRefused, UnknownRun, LedgerDamaged, NotScorable.
    """
    report = verify(ledger.folder, anchors)
    report.require_sound()
    runs = [known for known in runs_of(report.entries) if known.body.plan is not None]
    mine = [known for known in runs if known.body.plan == plan.digest]
    if run_id is not None:
        chosen = find_run(runs, run_id)
        if chosen not in mine:
            raise PlanRefused(plan.digest, f"run {chosen.id} is one of another plan, {str(chosen.body.plan)[:12]}")
        mine = [chosen]
    if not mine:
        raise PlanRefused(plan.digest, "the ledger has no run of it; was the plan changed after its run?")
    entered = _entered(plan, report.entries, mine)
    for known in mine:
        found = differences(plan.code.files, known.body.code.files)
        if found:
            raise PlanRefused(plan.digest, f"run {known.id} was of another source tree", found)
    verdicts = [_judge(plan, ledger, known, status=known.status) for known in mine]
    first = min(known.seq for known in mine)
    return verdicts, any(entered < given.anchor.count <= first for given in anchors)


def _entered(plan: ReplayPlan, entries: Sequence[Entry], runs: Sequence[RecordedRun]) -> int:
    """The number of the record that enters the plan, which has to be before every one of its runs."""
    entered = next((e.seq for e in entries if e.type == "plan" and e.body["plan"] == plan.digest), None)
    if entered is None:
        raise PlanRefused(plan.digest, "it was never entered in the ledger")
    for known in runs:
        if known.seq < entered:
            raise PlanRefused(
                plan.digest, f"it was entered (record {entered}) after run {known.id} (record {known.seq})"
            )
    return entered


def _require_tree(plan: ReplayPlan) -> None:
    found = differences(plan.code.files, source_code().files)
    if found:
        raise PlanRefused(plan.digest, "the source tree here is not the plan's", found)


def _begin(plan: ReplayPlan, ledger: Ledger, system: dict[str, object] | None, again: bool) -> tuple[Run, RecordedRun]:
    mine = [known for known in ledger.runs() if known.body.plan == plan.digest and known.status == "unfinished"]
    if mine and not again:
        return ledger.resume(mine[-1]), mine[-1]
    settings = {"name": plan.draft.name, "steps": [list(step.arguments) for step in plan.draft.steps]}
    models = {f"model {name}": digest for name, digest in plan.models.items()}
    new = ledger.begin(
        KIND, version=VERSION, settings={**settings, "accelerator": system}, inputs=models, plan=plan.digest
    )
    return new, ledger.find(new.id)


def _carry_out(plan: ReplayPlan, step: Step, going: Run, runner: Callable[[Step], Outcome]) -> None:
    start = time.perf_counter()
    outcome = runner(step)
    seconds = round(time.perf_counter() - start, 3)
    expected = {"criteria": [criterion.model_dump() for criterion in step.criteria], "models": plan.models}
    going.record(step.name, outcome, expected=expected, figures={"seconds": seconds})
    if not _is_outcome(outcome):
        raise StepFailed(step.name, outcome["exit_code"])


def _is_outcome(outcome: Any) -> bool:
    return isinstance(outcome, dict) and outcome.get("exit_code") in _RESULT_CODES and outcome.get("result") is not None


def _judge(plan: ReplayPlan, ledger: Ledger, known: RecordedRun, *, status: str) -> RunVerdict:
    outcomes: dict[str, Outcome] = {}
    attempts: dict[str, int] = {}
    for item in ledger.items(known):
        if not _is_outcome(item.raw):
            attempts[item.key] = attempts.get(item.key, 0) + 1
        elif item.key in outcomes:
            raise PlanRefused(plan.digest, f"run {known.id} has two results for step {item.key!r}")
        else:
            outcomes[item.key] = item.raw
    judged = [
        row
        for step in plan.draft.steps
        for row in _rows(step.name, step.criteria, plan.models, outcomes.get(step.name))
    ]
    return RunVerdict(known.id, status, judged, attempts)


def _rows(step: str, criteria: Sequence[Criterion], models: dict[str, str], outcome: Outcome | None) -> list[Judged]:
    rows = []
    for criterion in criteria:
        passed, seen = (False, []) if outcome is None else criterion.judge(outcome)
        rows.append(Judged(step, criterion.text, passed, seen))
    result = {} if outcome is None else outcome["result"]
    if result.get("model") in models:
        digest = result.get("model_sha256")
        name = f"the SHA-256 of {result['model']}"
        rows.append(Judged(step, name, digest == models[result["model"]], [digest]))
    return rows


def _counts(rows: Sequence[Judged]) -> dict[str, Any]:
    return {"criteria": len(rows), "met": sum(row.passed for row in rows)}


@scorer(KIND, VERSION)
def _score(items: Sequence[Item]) -> dict[str, Any]:
    """The number of criteria, and of those that were met, from the recorded outcomes."""
    rows: list[Judged] = []
    for item in items:
        if _is_outcome(item.raw):
            criteria = [Criterion.model_validate(value) for value in item.expected["criteria"]]
            rows += _rows(item.key, criteria, item.expected["models"], item.raw)
    return _counts(rows)
