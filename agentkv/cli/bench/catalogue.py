"""``agentkv bench catalogue``: asks for the benchmark and shows its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import count, say, table


def catalogue(
    blocks: Annotated[
        str | None, typer.Option("--blocks", metavar="N,N,…", show_default="1000,5000,20000", help="Numbers of blocks.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, show_default="3", help="How often each question is asked in a new process.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", show_default="the system's temporary folder", help="Where the store is made."),
    ] = None,
    small: common.Small = False,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """How opening, listing, finding and routing grow with the number of blocks. Loads no model."""
    from agentkv.bench import catalogue as bench

    chosen = options.numbers(blocks) or ([500, 2000] if small else list(bench.COUNTS))
    times = processes or (1 if small else bench.PROCESSES)
    recorded = common.begin(ledger, "catalogue", {"blocks": chosen, "processes": times})
    result = bench.run(chosen, processes=times, folder=folder)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    counts = [row["blocks"] for row in result["counts"]]
    rows = []
    for name in result["counts"][0]["questions"]:
        for when in ("first", "again"):
            found = [row["questions"][name][f"{when}_ms"] for row in result["counts"]]
            growth = result["growth"].get(name, {}).get(f"{when}_ms")
            cells = [f"{_ms(one['median'])} ms ({_ms(one['min'])}–{_ms(one['max'])})" for one in found]
            rows.append((name, when, *cells, "" if growth is None else f"{growth:.2f}"))
    columns = ("", "in a new process", *(f"{number:,} blocks" for number in counts), "growth")
    table(columns, rows, right=columns[2:])
    for part in result["created"]:
        each = part["seconds"] / part["blocks"] * 1e3
        how = "with every fsync" if part["synced"] else "without fsync"
        say(f"created {count(part['blocks'], 'block')} {how}: {each:.1f} ms each", dim=True)


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
