"""``negatives``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.output import say, table
from tests.benchmarks.commands import common


def negatives(
    model: options.BenchModel = "qwen2.5-coder-1.5b",
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Where the flywheel has nothing to give: solved tasks, a harmful procedure, baked-in solutions."""
    from tests.benchmarks.flywheel import grading
    from tests.benchmarks.flywheel import negatives as bench

    options.fetch_model(model)
    recorded = common.begin(ledger, grading.NEGATIVES, {"model": model, "small": small})
    result = bench.run(model, small=small, settings={"window": 2048, "threads": threads})
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    from tests.benchmarks.flywheel.grading import marks

    table(("easy task", "state", "why"), [(r["id"], r["state"], r["reason"]) for r in result["easy"]], wraps=("why",))
    procedure = result["procedure"]
    say(f"\na harmful procedure: {'kept' if procedure['kept'] else 'not kept'}: {procedure['reason']}\n")
    rows = []
    for row in result["baked"]:
        rows.append((row["id"], row["verdict"], "yes" if row["transferable"] else "no", ", ".join(marks(row))))
    table(("solution", "verdict", "transfers", "marked"), rows, wraps=("marked",))
