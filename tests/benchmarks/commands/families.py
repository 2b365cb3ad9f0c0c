"""``families``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, say, table
from tests.benchmarks.commands import common


def families(
    model: options.BenchModel = "smollm2-135m",
    per_family: Annotated[int, typer.Option(min=1, help="Held-out instances a family.")] = 10,
    direct: Annotated[
        int | None, typer.Option(min=0, show_default="all", help="Instances a family that are also answered directly.")
    ] = None,
    small: common.Small = False,
    typed: Annotated[bool, typer.Option(help="Also fill under a grammar of types alone.")] = True,
    embedder: options.Embedder = None,
    window: options.Window = 2048,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Transfer: one solved task of each of 27 families, others in other words; routed, filled, run."""
    from tests.benchmarks.commands.resuming import unfinished
    from tests.benchmarks.flywheel import transfer as bench
    from tests.benchmarks.flywheel.families import FAMILIES

    chosen = bench.SMALL if small else FAMILIES
    if small:
        per_family, direct = min(per_family, 2), 1
    options.fetch_model(model)
    if embedder is not None:
        options.fetch_model(embedder)
    opened = options.open_ledger(ledger)
    how = bench.settings_of(chosen, per_family, "held-out", direct, typed, embedder)
    result = bench.run(
        model,
        per_family=per_family,
        direct=direct,
        typed=typed,
        families=chosen,
        embedder=embedder,
        settings={"window": window, "threads": threads},
        ledger=opened,
        found=unfinished(opened, "bench families", how | {"model": model}),
    )
    common.end(result, out, as_json, _show, bench.check)


_ROWS = {
    "routed": "routed to the right block",
    "answered": "answered rightly, all in all",
    "answered_given": "answered rightly, the right block given",
    "answered_typed": "… the grammar binding types alone",
    "substituted": "… by substitution, no model",
    "direct": "answered directly, ten times the tokens",
}


def _show(result: dict[str, Any]) -> None:
    summary, rows = result["summary"], []
    for name, label in _ROWS.items():
        found = summary[name]
        if found["n"]:
            low, high = found["wilson_95"]
            rows.append((label, f"{found['k']} of {found['n']}", f"{found['share']:.3f}", f"{low:.2f} to {high:.2f}"))
    table(("held-out instances", "right", "share", "95 %"), rows, right=("right", "share", "95 %"))
    say()
    weak = [f"{name} {right}" for name, right in summary["families"].items() if len(set(right.split(" of "))) > 1]
    say(f"families with mistakes: {', '.join(weak) or 'none'}")
    ms = sorted(row["ms"]["all"] for row in result["rows"])
    say(
        f"tokens a task: {summary['tokens']['a_task']} to transfer, {summary['direct_tokens']['a_task']} directly; "
        f"median time of a transfer {duration(ms[len(ms) // 2])}"
    )
