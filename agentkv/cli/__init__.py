"""The command line: ``app`` puts the commands together, in the six groups that ``agentkv --help`` shows.

    command.py    how a command is declared, run and ended: option groups, ``--json``, errors and exit codes
    options.py    options that commands share; opens stores, models and memories
    output.py     JSON, tables, confirmation, the end of a command
    progress.py   bars on stderr
    differing.py  what is of another engine than the one that would be opened
    inventory.py  a store's content by name, id and model
    evictions.py  what went for the budget
    confirm.py    asking before something goes that was not named, or exists nowhere else
    again.py      the commands that deposit lost things again
    readd.py      deposit --again: what other engines have, for this one
    deposit.py ask.py chat.py threads.py list.py show.py verify.py models.py
    check.py gc.py rm.py forget.py pin.py stats.py settings.py
    route/ pack/ skills/ bench/ docs/ evidence/ replay/ demo.py

Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentkv import __version__
from agentkv.cli import (
    ask,
    bench,
    chat,
    check,
    demo,
    demo_ask,
    deposit,
    docs,
    evidence,
    flywheel,
    forget,
    gc,
    models,
    pack,
    pin,
    replay,
    rm,
    route,
    settings,
    show,
    skills,
    stats,
    threads,
    verify,
)
from agentkv.cli import list as list_command
from agentkv.cli.command import PANELS, App, Commands, run
from agentkv.cli.flywheel import learn, solve

__all__ = ["Commands", "app", "main", "run"]

_HELP = "Agent memory made of KV states: prefill a manual once, restore its state in milliseconds."

app = App(
    name="agentkv",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=_HELP,
    epilog="Begin with `agentkv demo`.",
)

_DAILY, _SOURCES, _STORE, _CARE, _LEARN, _MEASURE = PANELS
app.command(rich_help_panel=_DAILY)(demo.demo)
app.command(rich_help_panel=_DAILY)(deposit.deposit)
app.command(rich_help_panel=_DAILY)(ask.ask)
app.command(rich_help_panel=_DAILY)(chat.chat)
app.add_typer(skills.app, name="skills", rich_help_panel=_SOURCES)
app.add_typer(docs.app, name="docs", rich_help_panel=_SOURCES)
app.add_typer(threads.app, name="threads", rich_help_panel=_SOURCES)
app.command("list", rich_help_panel=_STORE)(list_command.list_)
app.command(rich_help_panel=_STORE)(show.show)
app.command(rich_help_panel=_STORE)(stats.stats)
app.command(rich_help_panel=_STORE)(settings.settings)
app.command(rich_help_panel=_CARE)(check.check)
app.command(rich_help_panel=_CARE)(verify.verify)
app.command(rich_help_panel=_CARE)(gc.gc)
app.command(rich_help_panel=_CARE)(rm.rm)
app.command(rich_help_panel=_CARE)(forget.forget)
app.command(rich_help_panel=_CARE)(pin.pin)
app.command(rich_help_panel=_CARE)(pin.unpin)
app.command(rich_help_panel=_LEARN)(learn.learn)
app.command(rich_help_panel=_LEARN)(solve.solve)
app.add_typer(flywheel.app, name="flywheel", rich_help_panel=_LEARN)
app.add_typer(route.app, name="route", rich_help_panel=_LEARN)
app.add_typer(pack.app, name="pack", rich_help_panel=_LEARN)
app.add_typer(models.app, name="models", rich_help_panel=_MEASURE)
app.add_typer(bench.app, name="bench", rich_help_panel=_MEASURE)
app.add_typer(evidence.app, name="evidence", rich_help_panel=_MEASURE)
app.add_typer(replay.app, name="replay", rich_help_panel=_MEASURE)
app.command("_demo-ask", hidden=True)(demo_ask.demo_ask)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"agentkv {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The command ``agentkv``."""
    run(app)
