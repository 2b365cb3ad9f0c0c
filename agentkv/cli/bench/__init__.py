"""``agentkv bench``: the benchmarks, one command and one file each. Exit code 60 when what is measured and promised
does not hold.
"""

from __future__ import annotations

import typer

from agentkv.cli.bench import (
    agent,
    aime,
    answers,
    architectures,
    catalogue,
    exactness,
    families,
    integrity,
    interference,
    negatives,
    portability,
    restore,
    route,
    size,
    subsidy,
)

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Measure what agentkv promises, on this machine.")
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
    agent.agent,
):
    app.command()(_command)
