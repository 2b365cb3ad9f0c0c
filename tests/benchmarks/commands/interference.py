"""``interference``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import say, table
from tests.benchmarks.commands import common


def interference(
    model: options.BenchModel = "smollm2-135m",
    per_family: Annotated[int, typer.Option(min=1, help="New tasks for each of the eight.")] = 4,
    problems: Annotated[
        bool, typer.Option("--problems", help="Eight hard problems and their variants, in place of families.")
    ] = False,
    quote: Annotated[bool, typer.Option(help="Bind values to those that the text mentions.")] = True,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Eight solutions in one prompt against the one that is routed, on the same questions."""
    from tests.benchmarks.flywheel import interference as bench

    options.fetch_model(model)
    result = bench.run(
        model,
        per_family=1 if small else per_family,
        problems=problems,
        quote=quote,
        settings={"threads": threads},
        ledger=options.open_ledger(ledger),
    )
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    summary, rows = result["summary"], []
    for key, label in (("one_block", "the routed block"), ("all_blocks", "all eight in one prompt")):
        found, tokens = summary[key], summary["prompt_tokens"]["one" if key == "one_block" else "all"]
        low, high = found["wilson_95"]
        rows.append((label, f"{found['k']} of {found['n']}", f"{low:.2f} to {high:.2f}", f"{tokens:,.0f}"))
    table(("in the prompt", "right", "95 %", "prompt tokens"), rows, right=("right", "95 %", "prompt tokens"))
    say(f"\nrouted rightly: {summary['routed']['k']} of {summary['routed']['n']}")
