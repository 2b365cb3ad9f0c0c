"""``compose``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.output import say, table
from tests.benchmarks.commands import common


def compose(
    model: options.BenchModel = options.DEFAULT_MODEL,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """Two texts in one context: read one behind the other, against states that are stitched together."""
    from tests.benchmarks.documents import compose as bench

    options.fetch_model(model)
    samples = 5 if small else bench.SAMPLES
    result = bench.run(model, common.manual_texts(), samples=samples, settings={"threads": threads})
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    from tests.benchmarks.documents.compose import PAPER

    rows = []
    for name, row in result["variants"].items():
        kl, equal, flips = row["kl"], row["equal"], row["flips"]
        rows.append(
            (
                name,
                f"{equal['k']}/{equal['n']}",
                f"{kl['median']:.3g}",
                f"{kl['mean']:.3g}",
                f"{kl['max']:.3g}",
                f"{flips['k']}/{flips['n']}",
            )
        )
    columns = ("against one prefill", "equal", "KL median", "mean", "max", "argmax flips")
    table(columns, rows, right=columns[1:])
    say(f"\nthe paper, stitched: KL {PAPER['kl']}, flips {PAPER['flips']}", dim=True)
