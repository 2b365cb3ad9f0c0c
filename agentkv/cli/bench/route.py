"""``agentkv bench route``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import duration, say, table
from agentkv.cli.route import show_trade_off


def route(
    model: options.BenchModel = options.DEFAULT_MODEL,
    embedder: options.Embedder = None,
    answer_model: Annotated[
        str | None,
        typer.Option("--answer-model", metavar="NAME|PATH", help="Whose answer a decision is compared with."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="N,N,…", show_default="8,40,72,200,1000", help="Library sizes.")
    ] = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Routing: accuracy and cost by library size, order, and descriptions that beg to be chosen."""
    from agentkv.bench import route as bench

    for name in (model, embedder, answer_model):
        if name is not None:
            options.fetch_model(name)
    chosen = options.numbers(sizes) or list(bench.SIZES)
    asked = {"model": model, "embedder": embedder, "answer_model": answer_model, "sizes": chosen, "small": small}
    recorded = common.begin(ledger, "route", asked)
    result = bench.run(
        model,
        embedder=embedder,
        answer_model=answer_model,
        sizes=chosen,
        small=small,
        threads=threads,
    )
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    rows = []
    for row in [*result["sizes"], *([result["learned"]] if result["learned"] else [])]:
        right, top, kept = row["right"], row["right_in_top_5"], row["abstained_on_uncovered"]
        low, high = right["wilson_95"]
        rows.append(
            (
                f"{row['size']:,}" + _of(row),
                f"{right['k']}/{right['n']}",
                f"{low:.2f} to {high:.2f}",
                f"{top['k']}/{top['n']}",
                f"{kept['k']}/{kept['n']}",
                f"{row['abstained_on_covered']['k']}/{row['abstained_on_covered']['n']}",
                f"{row['tokens']['median']:.0f}",
                duration(row["ms"]["median"]),
            )
        )
    columns = ("library", "right", "95 %", "in top 5", "none, rightly", "none, wrongly", "tokens", "time")
    table(columns, rows, right=columns[1:])
    _show_reading(result["reading"])
    for row in result["sizes"]:
        show_trade_off(row)
    cost, order, begging = result["cost"], result["order"], result["begging"]
    say(
        f"\na decision takes {cost['share_of_answer']:.0%} of the time of a {cost['answer_tokens']}-token answer "
        f"({duration(cost['decision_ms']['median'])} of {duration(cost['answer_ms']['median'])}, medians)"
    )
    changed = order["changed"]
    say(f"the catalogue shuffled {order['shuffles']} times: {changed['k']} of {changed['n']:,} picks changed")
    often = begging["times_as_often"]
    told = "was not picked before" if often is None else f"is picked {often:.2f} times as often as before"
    say(f"a description that begs {told}")


def _show_reading(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    say("\nby how many candidates the model reads:")
    cells = []
    for row in rows:
        right, rightly, wrongly = row["right"], row["abstained_on_uncovered"], row["abstained_on_covered"]
        counts = [f"{part['k']}/{part['n']}" for part in (right, rightly, wrongly)]
        cells.append((f"{row['read']}", *counts, f"{row['tokens']['median']:.0f}", duration(row["ms"]["median"])))
    columns = ("read", "right", "none, rightly", "none, wrongly", "tokens", "time")
    table(columns, cells, right=columns)


def _of(row: dict[str, Any]) -> str:
    if row.get("lessons"):
        return f", taught with {row['lessons']} questions"
    return f" ({row['made_up']:,} made up)" if row["made_up"] else ""
