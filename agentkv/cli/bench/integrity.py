"""``agentkv bench integrity``: asks for the benchmark and shows its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import say, table

_ZERO = ("lost", "half", "leftovers")


def integrity(
    small: common.Small = False,
    only: Annotated[
        str | None, typer.Option(metavar="PART,…", help="Of faults, power, concurrency, corruption; by default all.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to try it; by default the system's temporary folder.")
    ] = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Whether a store loses anything: failing disks, kills, power failures, many processes, damaged files. No model."""
    from agentkv.bench import integrity as bench
    from agentkv.errors import UsageError

    parts = tuple(part.strip() for part in only.split(",")) if only else bench.PARTS
    unknown = [part for part in parts if part not in bench.PARTS]
    if unknown:
        raise UsageError(f"there is no part {unknown[0]!r}; there are {', '.join(bench.PARTS)}")
    recorded = common.begin(ledger, "integrity", {"small": small, "parts": list(parts)})
    result = bench.run(small=small, parts=parts, folder=folder)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    if "faults" in result:
        _show_faults(result["faults"])
    if "power" in result:
        _show_power(result["power"])
    if "concurrency" in result:
        _show_concurrency(result["concurrency"])
    if "corruption" in result:
        _show_corruption(result["corruption"])


def _show_faults(rows: list[dict[str, Any]]) -> None:
    operations = {row["operation"]: row["steps"] for row in rows}
    lines = []
    for operation, steps in operations.items():
        own = [row for row in rows if row["operation"] == operation]
        kills = sum(row["cases"] for row in own if row["mode"].startswith("SIGKILL"))
        cases = sum(row["cases"] for row in own)
        repeated = cases - sum(row["not_repeatable"] for row in own)
        zeros = [str(sum(row[kind] for row in own)) for kind in _ZERO]
        lines.append((operation, str(steps), str(cases - kills), str(kills), *zeros, str(repeated)))
    columns = ("each step fails or is the last", "steps", "failed", "killed", *_ZERO, "done again")
    table(columns, lines, right=columns[1:])
    say()


def _show_power(rows: list[dict[str, Any]]) -> None:
    lines = [
        (
            row["operation"],
            str(row["prefixes"]),
            f"{row['states']:,} of {row['possible']:,}",
            *(str(row[kind]) for kind in _ZERO),
            str(row["waited_for_collect"]),
            str(row["not_durable"]),
        )
        for row in rows
    ]
    columns = ("power failures", "moments", "states", *_ZERO, "left to collect", "done but undone")
    table(columns, lines, right=columns[1:])
    say()


def _show_concurrency(part: dict[str, Any]) -> None:
    rounds = ", ".join(f"{role} {count:,}" for role, count in part["rounds"].items())
    longest = max(part["longest_ms"].values())
    say(
        f"{part['processes']} processes, {part['deposits']:,} deposits of {part['blocks']:,} blocks: "
        f"{part['errors']} errors, {part['missing']} missing, {part['unexpected']} unexpected, "
        f"{part['temporaries'] + part['leftovers']} left over; rounds: {rounds}; "
        f"longest {longest:,.0f} ms, collector {part['longest_ms']['collect']:,.0f} ms"
    )
    say()


def _show_corruption(part: dict[str, Any]) -> None:
    lines = []
    for what, tally in part["damages"].items():
        refused = sum(tally["refused"].values())
        classes = " ".join(f"{name} {count:,}" for name, count in sorted(tally["refused"].items()))
        lines.append(
            (
                what,
                f"{tally['cases']:,}",
                f"{refused:,}",
                str(tally["engine_called"]),
                str(tally["other_answers"]),
                classes,
            )
        )
    columns = ("damage", "cases", "refused", "reached the engine", "other answers", "as")
    table(columns, lines, right=columns[1:-1], wraps=("as",))
