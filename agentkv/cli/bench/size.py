"""``agentkv bench size``: asks for the benchmark and shows its result."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from agentkv.cli import options, output
from agentkv.cli.bench import common
from agentkv.cli.output import say, table


def size(
    model: options.BenchModel = options.DEFAULT_MODEL,
    skills: Annotated[
        int | None, typer.Option(metavar="N", min=0, show_default="50", help="Skills behind one prefix; 0: leave out.")
    ] = None,
    turns: Annotated[
        int | None, typer.Option(metavar="N", min=0, show_default="40", help="Turns of the thread; 0: leave out.")
    ] = None,
    lengths: common.Lengths = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """What blocks take up: many skills behind one prefix, a thread's checkpoints, codecs against their bound."""
    from agentkv.bench import size as bench

    options.fetch_model(model)
    plan = bench.SMALL if small else bench.Plan()
    chosen = options.numbers(lengths)
    plan = dataclasses.replace(
        plan,
        skills=plan.skills if skills is None else skills,
        turns=plan.turns if turns is None else turns,
        lengths=tuple(chosen or plan.lengths),
    )
    asked = {
        "model": model,
        "threads": threads,
        "skills": plan.skills,
        "turns": plan.turns,
        "lengths": list(plan.lengths),
    }
    recorded = common.begin(ledger, "size", asked)
    result = bench.run(model, common.manual_texts(), plan, settings={"threads": threads})
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    for row in result["codecs"]:
        _show_codecs(row)
    if "shared_prefix" in result:
        _show_shared(result["shared_prefix"])
    if "thread" in result:
        _show_thread(result["thread"])
    for aim in result["aims"]:
        met = "met" if aim["met"] else "NOT MET"
        say(f"aim: {aim['aim']} at most {aim['limit']:.2f}, is {aim['value']:.3f}: {met}")


def _show_codecs(row: dict[str, Any]) -> None:
    say(f"{row['n']:,} tokens, {row['segments']:,} segments, speeds on one thread")
    rows = [
        (
            one["codec"],
            f"{one['bytes'] / row['n']:,.0f}",
            f"{one['of_raw']:.3f}",
            _number(one, "over_bound", ".3f"),
            _number(one, "encode_mb_s", ",.0f"),
            _number(one, "decode_mb_s", ",.0f"),
        )
        for one in row["codecs"]
    ]
    columns = ("", "bytes a token", "of raw", "of bound", "encode MB/s", "decode MB/s")
    table(columns, rows, right=columns[1:])
    say()
    others = [
        (
            one["variant"],
            "" if one["bytes"] is None else f"{one['bytes'] / row['raw_bytes']:.4f}",
            f"{one['bound_bytes'] / row['raw_bytes']:.4f}",
        )
        for one in row["variants"]
    ]
    if others:
        titles = ("arrangements, planes 1", "of raw", "bound, of raw")
        table(titles, others, right=titles[1:])
        say()


def _number(one: dict[str, Any], key: str, form: str) -> str:
    return format(one[key], form) if one.get(key) is not None else ""


def _show_shared(part: dict[str, Any]) -> None:
    usage = part["bytes"]
    say(
        f"{part['skills']} skills of {part['skill_tokens']:,} tokens behind {part['prefix_tokens']:,}: "
        f"{output.size(usage['total'])} in all ({output.size(usage['manifests'])} manifests); "
        f"{part['ratio']:.4f} of own rows + one prefix, segments alone {part['ratio_segments']:.4f}; "
        f"{output.size(part['unshared_bytes'])} if nothing were shared"
    )


def _show_thread(part: dict[str, Any]) -> None:
    excess = ", ".join(f"{name.replace('_', ' ')} {share:+.1%}" for name, share in part["excess"].items())
    say(
        f"{part['turns']} checkpoints, {part['tokens']:,} tokens: {part['ratio']:.4f} of the final state alone, "
        f"segments {part['ratio_segments']:.4f} ({excess})"
    )
