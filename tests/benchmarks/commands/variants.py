"""``variants``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import say, table
from tests.benchmarks.commands import common


def variants(
    model: options.BenchModel = "qwen2.5-coder-1.5b",
    origins: Annotated[
        str | None,
        typer.Option(
            metavar="ID,ID,…",
            show_default="the library of the ledger's latest `bench aime` of this model, else all",
            help="Problems whose programs are the library.",
        ),
    ] = None,
    per_origin: Annotated[int, typer.Option(min=1, help="Variants of each.")] = 1,
    rewrite_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a rewritten program.")] = 768,
    small: common.Small = False,
    embedder: options.Embedder = None,
    window: options.Window = 4096,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Transfer: hard problems' programs, adapted to others with new numbers and words, in three ways."""
    from tests.benchmarks.commands.resuming import unfinished
    from tests.benchmarks.flywheel import adaptation as bench

    opened = options.open_ledger(ledger)
    names = [name.strip() for name in origins.split(",") if name.strip()] if origins is not None else []
    if not names and small:
        names = list(bench.SMALL)
    if not names and opened is not None:
        from agentkv.evidence.files import FILE

        if (opened.folder / FILE).exists():
            names = bench.in_library(opened, model)
    library = bench.chosen(names)
    for name in (model, embedder):
        if name is not None:
            options.fetch_model(name)
    if small:
        rewrite_tokens = min(rewrite_tokens, 256)
    how = bench.settings_of(library, per_origin, rewrite_tokens, embedder)
    result = bench.run(
        model,
        origins=library,
        per_origin=per_origin,
        rewrite_tokens=rewrite_tokens,
        embedder=embedder,
        settings={"window": window, "threads": threads},
        ledger=opened,
        found=unfinished(opened, "bench variants", how | {"model": model}),
    )
    common.end(result, out, as_json, _show, bench.check)


_WAYS = {
    "fill": "its parameters filled by the model",
    "rewrite": "the program rewritten by the model",
    "substitute": "values substituted, no model",
}


def _show(result: dict[str, Any]) -> None:
    summary = result["summary"]
    rows = [("routed to the right block", _told(summary["routed"]), "", "")]
    for way, label in _WAYS.items():
        answered, given = summary["answered"][way], summary["answered_given"][way]
        rows.append((f"answered: {label}", _told(answered), _told(given), f"{summary['tokens'].get(way, 0):,}"))
    table(("variants", "right", "right block given", "tokens"), rows, right=("right", "right block given", "tokens"))
    missed = [(way, ", ".join(names)) for way, names in summary["missed"].items() if names]
    say()
    for way, names in missed:
        say(f"missed by {way}: {names}")


def _told(found: dict[str, Any]) -> str:
    return f"{found['k']} of {found['n']}"
