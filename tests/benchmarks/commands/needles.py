"""``needles``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, one_line, say, table
from agentkv.cli.progress import cancelled_by_ctrl_c
from tests.benchmarks.commands import common
from tests.benchmarks.commands.widen import AnyVersion, Folder, SameSeed, SameWindow, Work, engine, planned, watching


def needles(
    work: Work,
    model: options.BenchModel = "gemma-3-270m",
    window: SameWindow = None,
    folder: Folder = None,
    any_version: AnyVersion = False,
    count: Annotated[
        int | None, typer.Option("--needles", metavar="N", min=1, show_default="60", help="As of `bench widen`.")
    ] = None,
    seed: SameSeed = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Values hidden in the documents that `bench widen` stored: found, said, and not said without their window."""
    from tests.benchmarks.documents import needles as bench
    from tests.benchmarks.documents import widen

    plan = planned(small, any_version, folder, window=window, needles=count, seed=seed)
    options.fetch_model(model)
    recorded = common.begin(ledger, "needles", {"model": model, "threads": threads, **widen.told(plan)})
    with cancelled_by_ctrl_c() as cancellation, watching(cancellation) as watch:
        result = bench.run(engine(model), work, plan, settings={"threads": threads}, watch=watch)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    depth = result["depth"]
    say(
        f"{result['model']}: {result['asked']} needles in windows {depth['first']:,} to {depth['last']:,} of "
        f"{depth['of']:,} ({result['corpus']['stored']:,} stored)\n"
    )
    rows = [
        (label, f"{one['k']} of {one['n']}", f"{one['wilson_95'][0]:.3f}–{one['wilson_95'][1]:.3f}")
        for label, one in (
            ("window found first", result["retrieved"]),
            ("among the first five", result["among_five"]),
            ("quoted sentence right", result["quote_right"]),
            ("answer is the value alone", result["said"]),
            ("found first and said", result["retrieved_and_said"]),
            ("control: own window, free answer", result["control_own"]),
            ("control: another window, free answer", result["control_other"]),
        )
    ]
    table(("", "", "95 %"), rows, right=("95 %",))
    times = ", ".join(f"{name} {duration(ms['median'])}" for name, ms in result["ms"].items())
    read = result["prefilled"]
    say(f"\nmedians: {times}; tokens prefilled {read['median']:.0f}, at most {read['max']:.0f}")
    for row in result["needles"]:
        if row["rank"] != 1 or not row["said"]:
            said = one_line(str(row["answer"]), 60)
            say(
                f"missed at {row['depth']:,}: {row['question']} {row['value']!r}, said {said!r}, rank {row['rank']}",
                dim=True,
            )
    if result["left_out"]:
        say(f"{result['left_out']} needles left out: their windows are not stored, or do not hold them whole", dim=True)
    for aim in result["aims"]:
        say(f"aim: {aim['aim']} {aim['limit']}, is {aim['value']:.3g}: {'met' if aim['met'] else 'NOT MET'}")
