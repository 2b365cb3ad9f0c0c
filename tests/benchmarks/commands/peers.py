"""``peers``: asks for the benchmark and shows its result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, say, size, table
from tests.benchmarks.commands import common

ARMS = (
    *("agentkv-ram", "agentkv", "save-state", "ram-cache", "disk-cache"),
    *("slots", "stillwarm", "stillwarm-verify", "hearth"),
)


def peers(
    model: options.BenchModel = "smollm2-135m",
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", metavar="NAME", help=f"Only this arm; may be given several times. Of {', '.join(ARMS)}."),
    ] = None,
    lengths: common.Lengths = None,
    no_faults: Annotated[bool, typer.Option("--no-faults", help="Speed and size only.")] = False,
    small: Annotated[
        bool, typer.Option("--small", help="One length of 1,024 tokens and few cases a fault: some minutes.")
    ] = False,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep environments and what is done here, to go on with after a break."),
    ] = None,
    threads: options.Threads = None,
    ledger: options.Ledger = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """Side by side with llama-cpp-python's states and caches, llama-server's slots, stillwarm and hearth-llm."""
    from tests.benchmarks import peers as bench

    options.fetch_model(model)
    plan = bench.SMALL if small else bench.Plan()
    chosen = tuple(options.numbers(lengths) or plan.lengths)
    plan = dataclasses.replace(plan, lengths=chosen, threads=threads, faults=not no_faults)
    asked = {"model": model, "arms": list(arm or ()), **dataclasses.asdict(plan), "lengths": list(chosen)}
    run = common.begin(ledger, "peers", asked)
    result = bench.run(model, common.manual_texts(), plan, chosen=tuple(arm or ()), work=work)
    common.end(result, out, as_json, _show, bench.check, run)


def _show(result: dict[str, Any]) -> None:
    for n in dict.fromkeys(row["n"] for row in result["rows"]):
        _show_length(result, n)
    if result["faults"]:
        _show_faults(result["faults"])
    _show_slower(result["slower"])
    for aim in result["aims"]:
        where = f"{aim['n']:,} tokens" + (f", {aim['home']}" if aim["home"] else "")
        met = "met" if aim["met"] else "NOT MET"
        say(f"aim, {where}: {aim['aim']} at least {aim['least']:g}, is {aim['value']:.1f}: {met}")
    for one in result["failed"]:
        say(f"{one['label']}, {one['n']:,} tokens: no figures: {one['reason']}")
    for one in result["environments"].values():
        if "unavailable" in one:
            say(f"{one['label']}: left out: {one['unavailable']}")
    for n, reason in result["left_out"].items():
        say(f"{int(n):,} tokens left out: {reason}", dim=True)


def _show_length(result: dict[str, Any], n: int) -> None:
    say(f"{n:,} tokens, milliseconds, every step counted")
    rows: list[tuple[str, ...]] = [
        (
            "cold prefill, " + one["family"],
            "",
            "",
            "",
            duration(one["read_ms"] + one["first_ms"]),
            "",
            "",
            "",
            "",
            "",
            "",
        )
        for one in result["cold_prefill"]
        if one["n"] == n
    ]
    rows += [_row(row) for row in result["rows"] if row["n"] == n]
    columns = (
        *("arm", "state", "restore", "first token", "both", "of agentkv", "saving", "on disk", "peak"),
        *("evaluated", "steps equal"),
    )
    table(columns, rows, right=columns[2:], wraps=("arm",))
    for row in result["rows"]:
        if row["n"] == n:
            steps = ", ".join(f"{name} {ms:.1f}" for name, ms in row["steps_ms"].items())
            keep = f"; then keeps for {duration(row['keep_ms'])}" if row["keep_ms"] else ""
            say(f"{row['label']}, {row['home']}: {steps}{keep}; worth it from {row['break_even']:,} tokens", dim=True)
    say()


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = row["of_agentkv"]["total_ms"]
    return (
        row["label"],
        row["home"],
        f"{row['restore_ms']['median']:.1f}",
        f"{row['first_ms']['median']:.1f}",
        f"{row['total_ms']['median']:.1f}",
        "" if ratio is None else f"{ratio:.1f} ×",
        duration(row["save_ms"]),
        size(row["bytes"]) if row["bytes"] else "",
        size(row["peak_bytes"]) if row["peak_bytes"] else "",
        ", ".join(f"{count:,}" for count in dict.fromkeys(row["evaluated_each"])),
        f"{row['steps_equal']}/{row['steps']} {'bits' if row['evidence'] == 'bits' else 'tokens*'}",
    )


def _show_faults(faults: list[dict[str, Any]]) -> None:
    from tests.benchmarks.scorers.peers import FAULTS

    names = [name for name in FAULTS if any(row["fault"] == name for row in faults)]
    by_arm: dict[str, dict[str, dict[str, Any]]] = {}
    for row in faults:
        by_arm.setdefault(row["label"], {})[row["fault"]] = row
    rows = [(label, *(_verdict(of.get(name)) for name in names)) for label, of in by_arm.items()]
    table(("arm", *names), rows, wraps=("arm", *names))
    for row in faults:
        for case in row["cases"]:
            if not case["passed"]:
                say(f"{row['label']}: {row['fault']}, {case['case']}: {case['outcome']}: {case['detail']}", dim=True)
    say("tokens*: the token and its five likeliest with their printed log-probabilities; the server gives no logits")
    say()


def _verdict(row: dict[str, Any] | None) -> str:
    if row is None:
        return "in memory"
    return f"{'pass' if row['passed'] else 'FAIL'}: {row['outcome']}"


def _show_slower(slower: list[dict[str, Any]]) -> None:
    words = {
        "restore_ms": "restores faster",
        "total_ms": "is sooner at the first token",
        "save_ms": "saves faster",
        "bytes": "takes less disk",
        "peak_bytes": "takes less memory",
    }
    for one in slower:
        bytes_ = one["measure"].endswith("bytes")
        theirs, ours = ((size(int(v)) if bytes_ else duration(v)) for v in (one["theirs"], one["agentkv"]))
        where = f"{one['n']:,} tokens, {one['home']}"
        say(f"better than agentkv: {one['label']}, {where}, {words[one['measure']]}: {theirs} against {ours}")
