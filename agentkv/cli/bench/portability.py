"""``agentkv bench portability``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import say


def portability(
    model: options.BenchModel = options.DEFAULT_MODEL,
    skills: common.Skills = None,
    per: Annotated[
        int | None, typer.Option("--skills-count", metavar="N", min=1, show_default="2", help="How many manuals.")
    ] = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """A pack imported in another folder, home, user, locale, umask and time zone: the same bytes, the same proofs."""
    from agentkv.bench import portability as bench

    options.fetch_model(model)
    count = per or (1 if small else 2)
    recorded = common.begin(ledger, "portability", {"model": model, "manuals": count, "threads": threads})
    result = bench.run(model, options.skills_folder(skills), per=count, threads=threads)
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    same = {name: f"{part['k']}/{part['n']}" for name, part in result["same"].items() if name != "pack"}
    say(f"segments equal       {same['segments']}")
    say(f"probe hashes equal   {same['probes']}; repeated there {same['prove']}")
    say(f"read anew, equal     {same['recompute']}")
    say(f"the pack made again  {'the same bytes' if result['same']['pack'] else 'OTHER BYTES'}")
    say(f"there: another folder, home, locale, time zone, umask; {result['there']['user']}", dim=True)
