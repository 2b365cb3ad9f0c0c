"""``agentkv bench``: what a user measures on a machine and a model of his own, one command and one file each.

Exit code 60 when what is measured and promised does not hold. Research benchmarks are in a checkout:
``python -m tests.benchmarks``.

score.py ratio.py     results' figures computed again, and divided within one run
common.py             what the benchmarks share
"""

from __future__ import annotations

import typer

from agentkv.cli.bench import (
    architectures,
    catalogue,
    exactness,
    integrity,
    portability,
    ratio,
    restore,
    route,
    score,
    size,
    subsidy,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Measure what agentkv promises, on this machine.",
    epilog="Research benchmarks, in a checkout: `python -m tests.benchmarks`.",
)
for _command in (
    exactness.exactness,
    architectures.architectures,
    subsidy.subsidy,
    size.size,
    restore.restore,
    catalogue.catalogue,
    integrity.integrity,
    portability.portability,
    route.route,
    score.score,
    ratio.ratio,
):
    app.command()(_command)
