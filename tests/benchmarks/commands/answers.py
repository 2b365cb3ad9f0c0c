"""``answers``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import say, table
from tests.benchmarks.commands import common


def answers(
    model: options.BenchModel = "smollm2-135m",
    skills: common.Skills = None,
    per_skill: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions a skill.")] = None,
    small: common.Small = False,
    reread: Annotated[bool, typer.Option(help="Also answer by reading the manual, and compare.")] = True,
    store: options.Store = None,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """The skills' own labelled questions: routed rightly, answered rightly, grafted and re-read alike.

    With --ledger a run that was broken off is gone on with.
    """
    from tests.benchmarks import answers as bench
    from tests.benchmarks.commands.resuming import unfinished

    options.fetch_model(model)
    folder = options.skills_folder(skills)
    chosen = options.store_path(store) if store else None
    n_skills, uncovered = (4, 5) if small else (None, None)
    each = per_skill or (1 if small else None)
    opened = options.open_ledger(ledger)
    how = bench.settings_of(n_skills, each, uncovered, reread)
    result = bench.run(
        model,
        folder,
        n_skills=n_skills,
        per_skill=each,
        uncovered=uncovered,
        reread=reread,
        store=chosen,
        settings={"threads": threads},
        ledger=opened,
        found=unfinished(opened, "answers", how | {"model": model}),
    )
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    names = {
        "routed": "routed rightly",
        "answered": "answered rightly",
        "answered_when_routed": "answered rightly, where routed rightly",
        "identical": "grafted answer identical to the re-read one",
        "abstained_on_covered": "no block, though a skill covers it",
        "abstained_on_uncovered": "no block, where no skill covers it",
    }
    summary = result["summary"]
    rows = []
    for key, name in names.items():
        part = summary[key]
        if part["n"]:
            low, high = part["wilson_95"]
            rows.append((name, f"{part['k']}/{part['n']}", f"{part['share']:.3f}", f"{low:.3f} to {high:.3f}"))
    table(("", "questions", "share", "Wilson 95 %"), rows, right=("questions", "share"))
    first = summary["median_ms_to_first_token"]
    say()
    say(
        f"first token after {first['graft']:,.0f} ms from a graft"
        + (f", {first['reread']:,.0f} ms by reading (medians)" if first["reread"] is not None else " (median)")
    )
    say(f"a decision: {summary['median_router_tokens']:.0f} tokens, {summary['median_router_ms']:,.0f} ms (medians)")
