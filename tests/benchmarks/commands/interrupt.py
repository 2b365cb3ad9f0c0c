"""``interrupt``: asks for the benchmark and shows its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, say, table
from tests.benchmarks.commands import common


def interrupt(
    model: options.BenchModel = options.DEFAULT_MODEL,
    kills: Annotated[int, typer.Option(min=1, metavar="N", help="How often a deposit is killed.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Which random moments.")] = 6,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", show_default="the system's temporary folder", help="For the stores.")
    ] = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """A deposit of documents, killed at random moments and gone on with: is the store the same, byte for byte?

    `--model fake` needs no model: the engine that is shipped for tests.
    """
    from tests.benchmarks.documents import interrupt as bench

    options.fetch_model(model)
    texts = common.manual_texts()
    result = bench.run(
        model,
        texts[:3] if small else texts,
        kills=min(kills, 3) if small else kills,
        seed=seed,
        settings={"threads": threads},
        folder=folder,
    )
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    identical, delay = result["identical"], result["delay_s"]
    blocks = result["blocks_at_a_kill"]
    rows = [
        ("kills", f"{result['kills']}, {duration(delay['min'] * 1e3)} to {duration(delay['max'] * 1e3)} after a start"),
        ("blocks stored when killed", f"{blocks['min']:.0f} to {blocks['max']:.0f}"),
        ("damaged after a kill", str(result["damaged_after_a_kill"])),
        ("kills that left something over", str(result["kills_with_left_overs"])),
        ("stores that are the undisturbed one", f"{identical['k']} of {identical['n']}"),
        ("files compared", f"{result['files_compared']:,}"),
    ]
    table(("", "value"), rows, header=False)
    for store, files in result["other"].items():
        say(f"{store}: {', '.join(files[:5])}")
