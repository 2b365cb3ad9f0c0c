"""``NAME``: one command a file; exit codes as those of ``agentkv``."""

from __future__ import annotations

from agentkv.cli import Commands
from agentkv.cli import bench as own
from agentkv.cli.command import App
from agentkv.cli.evidence import app as evidence
from tests.benchmarks.commands import (
    all_,
    plot,
    readme,
)
from tests.benchmarks.declared import declared

__all__ = ["app"]

app = App(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Research benchmarks of agentkv, and all that makes tables and pictures of results.",
)
app.command()(plot.plot)
app.command()(readme.readme)
app.command("all")(all_.all_)
for _kind in declared():
    app.command(_kind.name)(own.command(_kind))
app.command()(own.score)
app.command()(own.ratio)
app.add_typer(evidence, name="evidence")
