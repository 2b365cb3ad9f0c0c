"""``agentkv evidence list``: the runs of a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import finish, say, table

if TYPE_CHECKING:
    from agentkv.evidence.ledger import RecordedRun


def list_(ledger: common.LedgerFolder = None, as_json: options.Json = False) -> None:
    """Show the runs of a ledger: kind, when, how they ended, verdicts."""
    opened = common.open_ledger(ledger)
    runs = opened.runs()

    def show() -> None:
        if not runs:
            say("no run is recorded")
            return
        rows = []
        for run in runs:
            passed = sum(verdict.passed for verdict in run.verdicts)
            verdicts = f"{passed} of {len(run.verdicts)}" if run.verdicts else ""
            kind = f"{run.kind}/{run.body.version}"
            rows.append((run.id, kind, run.time[:19], run.status, f"{len(run.items):,}", verdicts))
        table(("run", "kind", "began (UTC)", "", "items", "verdicts passed"), rows, right=("items",))

    finish({"ledger": opened.folder, "runs": [record(run) for run in runs]}, as_json, show)


def record(run: RecordedRun) -> dict[str, Any]:
    """A run as JSON, its items left out."""
    body = run.body.model_dump(mode="json")
    body["code"] = {key: body["code"][key] for key in ("version", "tree_sha256")}
    return {
        "run": run.id,
        "seq": run.seq,
        "time": run.time,
        "status": run.status,
        "error": run.error,
        **body,
        "items": len(run.items),
        "verdicts": [verdict.model_dump(mode="json") for verdict in run.verdicts],
        "scores": run.scores,
    }
