"""``depth``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, say, size, table
from agentkv.cli.progress import cancelled_by_ctrl_c
from tests.benchmarks.commands import common
from tests.benchmarks.commands.widen import AnyVersion, Folder, SameSeed, SameWindow, Work, engine, planned, watching

_SMALL_SIZES = (4, 10)


def depth(
    work: Work,
    model: options.BenchModel = "gemma-3-270m",
    window: SameWindow = None,
    folder: Folder = None,
    any_version: AnyVersion = False,
    needles: Annotated[
        int | None, typer.Option(metavar="N", min=0, show_default="60", help="As of `bench widen`.")
    ] = None,
    seed: SameSeed = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="N,N,…", show_default="10,100", help="Windows of the smaller stores.")
    ] = None,
    points: Annotated[int | None, typer.Option(metavar="N", min=1, show_default="10", help="Depths a store.")] = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", min=1, show_default="5", help="Of each.")] = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Restore and first token by depth and by size of the store that `bench widen` filled, and peak memory."""
    from tests.benchmarks.documents import depth as bench
    from tests.benchmarks.documents import widen

    plan = planned(small, any_version, folder, window=window, needles=needles, seed=seed)
    how: dict[str, Any] = {
        "sizes": options.numbers(sizes) or list(_SMALL_SIZES if small else bench.SIZES),
        "points": points or (3 if small else bench.POINTS),
        "repeats": repeats or (2 if small else bench.REPEATS),
    }
    options.fetch_model(model)
    recorded = common.begin(ledger, "depth", {"model": model, "threads": threads, **how, **widen.told(plan)})
    with cancelled_by_ctrl_c() as cancellation, watching(cancellation) as watch:
        result = bench.run(engine(model), work, plan, **how, settings={"threads": threads}, watch=watch)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    say(f"{result['model']}: medians of one run, {result['prefilled']} tokens read a question\n")
    names = list(result["flat"])
    rows = [
        (
            f"{store['windows']:,}",
            f"{store['depths'][0]:,}–{store['depths'][1]:,}",
            f"{store['tokens']:,.0f}",
            duration(store["find_ms"]),
            *(duration(store["ms"][name]) for name in names),
        )
        for store in result["stores"]
    ]
    columns = ("windows", "depths", "tokens", "find", *names)
    table(columns, rows, right=columns)
    flat = ", ".join(f"{name} {one['max_of_median']:.2f}" for name, one in result["flat"].items())
    say(f"\nlargest of all {len(result['points'])} points, of their median: {flat}")
    if not result["cold"]:
        say("cold is left out: pages stay in the page cache here", dim=True)
    memory = result["memory"]
    if memory is not None:
        say(
            f"peak memory: {size(memory['one_bytes'])} with one window, {size(memory['many_bytes'])} with "
            f"{memory['windows']}: {memory['ratio']:.4f}"
        )
    for aim in result["aims"]:
        met = "met" if aim["met"] else "NOT MET"
        say(f"aim: {aim['aim']} at most {aim['limit']}, is {aim['value']:.3f}: {met}")
