"""``agentkv bench architectures``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import table


def architectures(
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Real models, instead of the tiny ones.")
    ] = None,
    small: common.Small = False,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Which kinds of model graft exactly, and what changes their bits: tiny random models of every kind."""
    from agentkv.bench import architectures as bench

    for name in model or ():
        options.fetch_model(name)
    recorded = common.begin(ledger, "architectures", {"models": list(model or ()), "small": small})
    result = bench.run(model or (), lengths=bench.SMALL if small else bench.LENGTHS)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    rows = []
    for row in result["rows"]:
        flash = "on" if row["flash_attention"] else "off"
        if row["verdict"] == "refused":
            rows.append((row["name"], flash, "refused", "", row["reason"], ""))
            continue
        same = [name for name, equal in row["unchanged_by"].items() if equal]
        changed = [name for name, equal in row["unchanged_by"].items() if not equal]
        steps = f"{row['steps']}/{result['settings']['steps']}"
        rows.append((row["name"], flash, row["verdict"], steps, ", ".join(same), ", ".join(changed)))
    columns = ("model", "flash", "graft", "steps", "bits unchanged by", "bits changed by")
    table(columns, rows, wraps=columns[-2:])
