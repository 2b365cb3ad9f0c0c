"""``agentkv bench``: the benchmarks, one command and one file each. Exit code 60 when what is measured and promised
does not hold.

registry.py           every benchmark and its small size
all_.py               all of them in turn
readme.py plot.py     tables and pictures of results
score.py ratio.py     results' figures computed anew, and divided within one run
common.py resuming.py what the benchmarks share
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.bench import (
    agent,
    aime,
    all_,
    answers,
    architectures,
    catalogue,
    compose,
    depth,
    exactness,
    families,
    integrity,
    interference,
    interrupt,
    needles,
    negatives,
    peers,
    plot,
    portability,
    questions,
    ratio,
    readme,
    reread,
    restore,
    route,
    score,
    size,
    subsidy,
    variants,
    widen,
)
from agentkv.errors import UsageError

__all__ = ["app"]

app = typer.Typer(help="Measure what agentkv promises, on this machine.")


@app.callback(invoke_without_command=True)
def _group(
    ctx: typer.Context,
    small: Annotated[bool, typer.Option("--small", help="Run every benchmark in its small size.")] = False,
    work: all_.Work = None,
    model: options.Model = options.DEFAULT_MODEL,
    as_json: options.Json = False,
) -> None:
    """Measure what agentkv promises, on this machine. `agentkv bench --small` runs all of it in its small size."""
    if ctx.invoked_subcommand is not None:
        if small or work is not None or as_json:
            raise UsageError("before a benchmark's name there are no options; put them behind it")
        return
    if not small:
        typer.echo(ctx.get_help())
        raise typer.Exit(UsageError.exit_code)
    all_.all_(small=True, work=work, model=model, as_json=as_json)


for _command in (
    exactness.exactness,
    architectures.architectures,
    subsidy.subsidy,
    answers.answers,
    size.size,
    restore.restore,
    catalogue.catalogue,
    integrity.integrity,
    portability.portability,
    route.route,
    families.families,
    interference.interference,
    negatives.negatives,
    aime.aime,
    variants.variants,
    agent.agent,
    interrupt.interrupt,
    questions.questions,
    compose.compose,
    reread.reread,
    peers.peers,
    widen.widen,
    needles.needles,
    depth.depth,
    plot.plot,
    readme.readme,
    score.score,
    ratio.ratio,
):
    app.command()(_command)
app.command("all")(all_.all_)
