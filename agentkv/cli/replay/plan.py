"""``agentkv replay plan``: a sealed plan from one that comes along, or from a JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import count, finish, say, table
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.evidence.plan import Plan


def plan(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|FILE]", help="A plan that comes along, or a JSON file; none: list them."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where the sealed plan goes.")] = None,
    ledger: common.LedgerFolder = None,
    as_json: options.Json = False,
) -> None:
    """Seal a plan for the source tree as it is now, and enter its digest in the ledger, before anything is run."""
    from agentkv.evidence import plan as plans

    if name is None:
        known = [plans.load_draft(each) for each in plans.shipped()]
        record = {"plans": [{"name": draft.name, "title": draft.title} for draft in known]}
        finish(record, as_json, lambda: table(("plan", ""), [(draft.name, draft.title) for draft in known]))
        return
    draft = plans.load_draft(name)
    target = out if out is not None else Path(f"{draft.name}.plan")
    if target.exists():
        raise UsageError(f"{target} is there already; a plan is never overwritten. Choose another file with --out.")
    made = plans.make(draft, {model: _sha256(model) for model in draft.models})
    opened = common.open_ledger(ledger, there=False)
    plans.save(made, target)
    opened.register_plan(made.digest, draft.name)
    head = opened.head()
    result = {"file": target, "ledger": opened.folder, "anchor": None if head is None else head.text, **record_of(made)}

    def show() -> None:
        say_plan(made)
        say(f"sealed in {target}, entered in the ledger {opened.folder}")
        if head is not None:
            say(f"publish this to show that the plan came first: {head.text}")

    finish(result, as_json, show)


def _sha256(model: str) -> str:
    """The SHA-256 that the catalogue says, so that no file is needed to plan; of a file, its own."""
    from agentkv.models import CATALOGUE, resolve

    if model in CATALOGUE:
        return CATALOGUE[model].sha256
    return resolve(model).sha256


def record_of(made: Plan) -> dict[str, Any]:
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


def say_plan(made: Plan) -> None:
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
