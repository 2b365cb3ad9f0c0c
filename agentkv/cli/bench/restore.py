"""``agentkv bench restore``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options, output
from agentkv.cli.bench import common
from agentkv.cli.output import say, table


def restore(
    model: options.BenchModel = options.DEFAULT_MODEL,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="No model: random states, the disk only.")] = False,
    lengths: common.Lengths = None,
    codecs: Annotated[
        str | None,
        typer.Option(metavar="S,S,…", show_default="planes 1,zstd 1,raw", help="Settings to compare: codec and level."),
    ] = None,
    folder: common.Disk = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """From RAM, warm and cold disk: how fast states come back, against copying and reading as many bytes."""
    from agentkv.bench import restore as bench

    chosen = options.numbers(lengths) or ([512, 2048] if small else list(bench.LENGTHS))
    ways = [part.strip() for part in codecs.split(",")] if codecs else list(bench.SETTINGS)
    asked = {"model": None if synthetic else model, "lengths": chosen, "codecs": ways, "threads": threads}
    recorded = common.begin(ledger, "restore", asked)
    if synthetic:
        result = bench.run(None, lengths=chosen, codecs=ways, folder=folder)
    else:
        options.fetch_model(model)
        texts, settings = common.manual_texts(), {"threads": threads}
        result = bench.run(model, texts, lengths=chosen, codecs=ways, settings=settings, folder=folder)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    for row in result["lengths"]:
        _show_length(row)
    best = result["recommended"]
    scores = ", ".join(f"{name} {score['time × bytes']:.2f}" for name, score in best["scores"].items())
    agrees = "the default" if best["agrees"] else f"NOT the default, which is {best['default']}"
    say(f"recommended: {best['setting']}, {agrees} (time × bytes: {scores})")
    modes = list(next(iter(best["scores"].values()))["by_mode"])
    cells = [(name, *(f"{score['by_mode'][mode]:.2f}" for mode in modes)) for name, score in best["scores"].items()]
    table(("time × bytes", *modes), cells, right=modes)
    for aim in result["aims"]:
        met = "met" if aim["met"] else "NOT MET"
        say(f"aim at {aim['n']:,} tokens: {aim['aim']} at least {aim['least']:.1f}, is {aim['value']:.2f}: {met}")
    for n, reason in result["left_out"].items():
        say(f"{int(n):,} tokens left out: {reason}", dim=True)


def _show_length(row: dict[str, Any]) -> None:
    mb = row["state_bytes"] / 1e6
    disk = [f"{name} disk {_speed(mb, one)}" for name, one in row["disk_ms"].items() if one]
    native = "" if row["native_ms"] is None else f"; from RAM {_cell(row['native_ms'], row['ram_of_memcpy'])} of memcpy"
    say(f"{row['n']:,} tokens, {mb:,.0f} MB; memcpy {_speed(mb, row['memcpy_ms'])}, {', '.join(disk)}{native}")
    names = [name for name in ("cold first", "cold again", "warm first", "warm again") if _has(row, name)]
    rows = [
        (
            way["setting"],
            output.size(way["stored_bytes"]),
            *(_cell(way["modes"][name]["ms"], way["modes"][name]["of_disk"]) for name in names),
        )
        for way in row["settings"]
    ]
    columns = ("assembly, share of disk", "stored", *names)
    table(columns, rows, right=columns[1:])
    for reason in sorted({way["cold"] for way in row["settings"] if "left out" in way["cold"]}):
        say(f"cold {reason}", dim=True)
    say()


def _has(row: dict[str, Any], name: str) -> bool:
    return all(name in way["modes"] for way in row["settings"])


def _speed(mb: float, stats: dict[str, float]) -> str:
    return f"{mb / stats['median']:.1f} GB/s"


def _cell(stats: dict[str, float], share: float | None) -> str:
    spread = f"{stats['median']:.1f} ms ({stats['min']:.1f}–{stats['max']:.1f})"
    return spread if share is None else f"{spread} {share:.2f}"
