"""``agentkv bench portability``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import say


def portability(
    model: options.Model = options.DEFAULT_MODEL,
    skills: common.Skills = None,
    per: Annotated[int, typer.Option("--skills-count", metavar="N", min=1, help="How many manuals.")] = 2,
    threads: options.Threads = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """A pack imported in another folder, home, user, locale, umask and time zone: the same bytes, the same proofs."""
    from agentkv.bench import portability as bench

    options.fetch_model(model)
    result = bench.run(model, options.skills_folder(skills), per=per, threads=threads)
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    here, there = result["here"], result["there"]
    same = sum(there["segments"].get(digest) == value for digest, value in here["segments"].items())
    proofs = sum(there["probes"].get(block_id) == value for block_id, value in here["probes"].items())
    blocks = len(here["probes"])
    say(f"segments equal       {same}/{len(here['segments'])}")
    say(f"probe hashes equal   {proofs}/{blocks}; repeated there {there['prove']}/{blocks}")
    say(f"read anew, equal     {there['recompute']}/{blocks}")
    say(f"the pack made again  {'the same bytes' if there['pack_sha256'] == result['pack_sha256'] else 'OTHER BYTES'}")
    say(f"there: another folder, home, locale, time zone, umask; {there['user']}", dim=True)
