"""``reread``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import say, size, table
from tests.benchmarks.commands import common


def reread(
    model: options.BenchModel = options.DEFAULT_MODEL,
    windows: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", show_default="512,1024,2048,4096", help="Window sizes in tokens."),
    ] = None,
    folder: common.Disk = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """A document's window restored from disk, cold and warm, against reading it anew, by window size."""
    from tests.benchmarks.documents import reread as bench

    options.fetch_model(model)
    sizes = options.numbers(windows) or ([256, 512] if small else list(bench.WINDOWS))
    result = bench.run(model, common.manual_texts(), windows=sizes, settings={"threads": threads}, folder=folder)
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    from tests.benchmarks.documents.reread import PAPER_MS

    rows = [
        (
            f"{row['window']:,}",
            f"{row['tokens']:,.0f}",
            size(row["stored_bytes"] / row["windows"]),
            *(_cell(row[way]) for way in ("reread", "warm", "cold")),
            *(f"{row['ratio'][way]:,.0f} ×" if way in row["ratio"] else "" for way in ("warm", "cold")),
        )
        for row in result["sizes"]
    ]
    columns = ("window", "tokens", "stored", "read anew", "restored, warm", "cold", "warm", "cold ")
    table(columns, rows, right=columns)
    growth = ", ".join(f"{way} {times:.1f} ×" for way, times in result["growth"].items())
    say(f"\nover {result['range']:.1f} × the tokens: {growth}")
    paper = ", ".join(f"{way} {low} to {high} ms" for way, (low, high) in PAPER_MS.items())
    say(f"the paper, over 8 ×: {paper}", dim=True)


def _cell(times: dict[str, float] | None) -> str:
    return "not cold" if times is None else f"{times['median']:,.0f} ms ({times['min']:,.0f}–{times['max']:,.0f})"
