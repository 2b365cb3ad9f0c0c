"""``agentkv replay verify``: pass or fail, judged anew from the recorded outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import count, finish, one_line, say, table
from agentkv.errors import AgentKVError

if TYPE_CHECKING:
    from agentkv.evidence.replay import RunVerdict


def verify(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The sealed plan.")],
    ledger: common.LedgerFolder = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only this run of the plan.")] = None,
    anchor: common.Anchors = None,
    as_json: options.Json = False,
) -> None:
    """Judge the runs of a plan: all have to meet it. Exit code 106 if one does not, 105 if the plan came after its run.

    The order is the ledger's own; --anchor with the line that was published after planning shows it to others.
    """
    from agentkv.evidence import plan as plans
    from agentkv.evidence import replay

    sealed = plans.load(plan)
    opened = common.open_ledger(ledger)
    verdicts, anchored = replay.judge(sealed, opened, run_id=run, anchors=common.anchors(anchor))
    failures = failed(sealed.digest, verdicts)
    result = {
        "plan": sealed.digest,
        "name": sealed.draft.name,
        "passed": not failures,
        "anchored": anchored,
        "runs": [record_of(verdict) for verdict in verdicts],
    }

    def show() -> None:
        for verdict in verdicts:
            say_verdict(verdict)
        say(f"plan {sealed.draft.name}: {'FAIL' if failures else 'PASS'}, {count(len(verdicts), 'run')}")
        if not anchored:
            say("that the plan came first rests on this ledger alone: no anchor from between plan and run", dim=True)

    finish(result, as_json, show, failures)


def failed(plan: str, verdicts: Sequence[RunVerdict]) -> list[AgentKVError]:
    """ReplayFailed, unless every run is whole and met every criterion."""
    from agentkv.errors import ReplayFailed

    reasons = [text for verdict in verdicts for text in verdict.failures]
    reasons += [f"run {verdict.run} is {verdict.status}" for verdict in verdicts if verdict.status != "finished"]
    return [ReplayFailed(plan, reasons)] if reasons else []


def record_of(verdict: RunVerdict) -> dict[str, Any]:
    """A verdict as JSON."""
    return {**asdict(verdict), "passed": verdict.passed}


def say_verdict(verdict: RunVerdict) -> None:
    """A verdict for people: every criterion, with what was seen."""
    say(f"run {verdict.run}, {verdict.status}: {'pass' if verdict.passed else 'FAIL'}")
    rows = [
        (row.step, row.criterion, "met" if row.passed else "NOT MET", one_line(orjson.dumps(row.seen).decode(), 60))
        for row in verdict.judged
    ]
    table(("step", "criterion", "", "seen"), rows, wraps=("criterion", "seen"))
    for step, attempts in verdict.attempts.items():
        say(f"{step}: {count(attempts, 'attempt')} without a result")
