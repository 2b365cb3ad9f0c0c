"""``agentkv replay plan``: a sealed plan from one that comes along, or from a JSON file. ``replay run`` carries it out,
into a ledger. ``replay verify``: pass or fail, judged again from the recorded outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.evidence import Anchors, anchors, open_ledger
from agentkv.cli.output import count, one_line, say, table, tell
from agentkv.errors import AgentKVError, UsageError

if TYPE_CHECKING:
    from agentkv.evidence.plan import ReplayPlan, Step
    from agentkv.evidence.replay import RunVerdict


app = App(help="Pre-registered runs: plan, carry out, judge.", no_args_is_help=True)


@app.command()
def plan(
    *,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|FILE]", help="A plan that comes along, or a JSON file; none: list them."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where the sealed plan goes.")] = None,
    ledger: options.LedgerFolder = None,
) -> Result:
    """Seal a plan for the source tree as it is now, and enter its digest in the ledger, before anything is run."""
    from agentkv.evidence import plan as plans

    if name is None:
        known = [plans.load_draft(each) for each in plans.shipped()]
        record = {"plans": [{"name": draft.name, "title": draft.title} for draft in known]}
        return Result(record, lambda: table(("plan", ""), [(draft.name, draft.title) for draft in known]))
    draft = plans.load_draft(name)
    target = out if out is not None else Path(f"{draft.name}.plan")
    if target.exists():
        raise UsageError(f"{target} is there already; a plan is never overwritten. Choose another file with --out.")
    made = plans.make(draft, {model: _sha256(model) for model in draft.models})
    opened = open_ledger(ledger, there=False)
    plans.save(made, target)
    opened.register_plan(made.digest, draft.name)
    head = opened.head()
    result = {
        "file": target,
        "ledger": opened.folder,
        "anchor": None if head is None else head.text,
        **record_of_plan(made),
    }

    def show() -> None:
        say_plan(made)
        say(f"sealed in {target}, entered in the ledger {opened.folder}")
        if head is not None:
            say(f"publish this to show that the plan came first: {head.text}")

    return Result(result, show)


def _sha256(model: str) -> str:
    """The SHA-256 that the catalogue says, so that no file is needed to plan; of a file, its own."""
    from agentkv.models import CATALOGUE, resolve

    if model in CATALOGUE:
        return CATALOGUE[model].sha256
    return resolve(model).sha256


def record_of_plan(made: ReplayPlan) -> dict[str, Any]:
    """A plan as JSON, without the list of its files."""
    body = made.model_dump(mode="json")
    body["code"] = {key: body["code"][key] for key in ("version", "tree_sha256")}
    return {
        "digest": made.digest,
        **body["draft"],
        "created": made.created,
        "code": body["code"],
        "models": made.models,
    }


def say_plan(made: ReplayPlan) -> None:
    """A plan for people."""
    draft = made.draft
    say(f"plan {made.digest}\n{draft.title}\n\nprediction: {draft.prediction}\n")
    for step in draft.steps:
        say(f"{step.name}: agentkv {' '.join(step.arguments)}")
        for criterion in step.criteria:
            say(f"    {criterion.text}")
    say(f"\nneeds: {', '.join(draft.needs) or 'any machine'}")
    code = made.code
    say(f"code: agentkv {code.version}, tree {code.tree_sha256[:16]}…, {count(len(code.files), 'file')}")


# --- verify ---------------------------------------------------------------------------------------


@app.command()
def verify(
    *,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The sealed plan.")],
    ledger: options.LedgerFolder = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only this run of the plan.")] = None,
    anchor: Anchors = None,
) -> Result:
    """Judge the runs of a plan: all have to meet it. Exit code 106 if one does not, 105 if the plan came after its run.

    The order is the ledger's own; --anchor with the line that was published after planning shows it to others.
    """
    from agentkv.evidence import plan as plans
    from agentkv.evidence import replay

    sealed = plans.load(plan)
    opened = open_ledger(ledger)
    verdicts, anchored = replay.judge(sealed, opened, run_id=run, anchors=anchors(anchor))
    failures = failed(sealed.digest, verdicts)
    result = {
        "plan": sealed.digest,
        "name": sealed.draft.name,
        "passed": not failures,
        "anchored": anchored,
        "runs": [record_of_verify(verdict) for verdict in verdicts],
    }

    def show() -> None:
        for verdict in verdicts:
            say_verdict(verdict)
        say(f"plan {sealed.draft.name}: {'FAIL' if failures else 'PASS'}, {count(len(verdicts), 'run')}")
        if not anchored:
            say("that the plan came first rests on this ledger alone: no anchor from between plan and run", dim=True)

    return Result(result, show, failures)


def failed(plan: str, verdicts: Sequence[RunVerdict]) -> list[AgentKVError]:
    """ReplayFailed, unless every run is whole and met every criterion."""
    from agentkv.errors import ReplayFailed

    reasons = [text for verdict in verdicts for text in verdict.failures]
    reasons += [f"run {verdict.run} is {verdict.status}" for verdict in verdicts if verdict.status != "finished"]
    return [ReplayFailed(plan, reasons)] if reasons else []


def record_of_verify(verdict: RunVerdict) -> dict[str, Any]:
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


# --- run ------------------------------------------------------------------------------------------


@app.command()
def run(
    *,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The sealed plan, as `agentkv replay plan` wrote it.")],
    ledger: options.LedgerFolder = None,
    again: Annotated[bool, typer.Option("--again", help="Begin again, also if a run of it was broken off.")] = False,
) -> Result:
    """Carry a plan out and record it. A run that was broken off goes on; exit code 106 if the prediction fails."""
    from agentkv.evidence import plan as plans
    from agentkv.evidence import replay

    sealed = plans.load(plan)
    opened = open_ledger(ledger, there=False)

    def progress(step: Step, index: int, total: int) -> None:
        tell(f"step {index + 1} of {total}, {step.name}: agentkv {' '.join(step.arguments)}")

    verdict = replay.run(sealed, opened, progress=progress, again=again)
    result = {"plan": sealed.digest, "ledger": opened.folder, **record_of_verify(verdict)}
    return Result(result, lambda: say_verdict(verdict), failed(sealed.digest, [verdict]))
