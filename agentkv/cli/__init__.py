"""The command line: every command and its place in the six groups that ``agentkv --help`` shows.

    command.py          how a command is declared, run and ended: option groups, ``--json``, errors and exit codes
    options.py          options that commands share; opens stores, models and memories
    output.py           JSON, tables, confirmation, the end of a command
    progress.py         bars on stderr, Ctrl-C within a token
    inventory.py        a store's content by name, id and model; what went for the budget
    engines.py          what is of another engine than the one that would be opened; commands that deposit it again
    deposit.py ask.py   deposit · ask, chat
    skills.py skills_deposit.py skills_test.py docs.py docs_add.py threads.py
    inspection.py       list, show
    stats.py settings.py
    check.py care.py    check, verify · gc, rm, pin, unpin
    forget.py flywheel.py route.py pack.py pack_import.py
    migrate.py doctor.py    migrate, store status · what is on this machine, and what to do next
    models.py bench.py evidence.py replay.py demo.py

Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv import __version__
from agentkv.cli import (
    ask,
    bench,
    care,
    check,
    demo,
    deposit,
    docs,
    docs_add,
    doctor,
    evidence,
    flywheel,
    forget,
    inspection,
    migrate,
    models,
    pack,
    pack_import,
    replay,
    route,
    settings,
    skills,
    skills_deposit,
    skills_test,
    stats,
    threads,
)
from agentkv.cli.command import PANELS, App, Commands, run

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


def _group(name: str, panel: str, text: str, **commands: Any) -> None:
    """A group of commands: keys are their names, a trailing underscore left out."""
    made = App(help=text, no_args_is_help=True)
    for key, function in commands.items():
        made.command(key.rstrip("_"))(function)
    app.add_typer(made, name=name, rich_help_panel=panel)


_DAILY, _SOURCES, _STORE, _CARE, _LEARN, _MEASURE = PANELS
app.command(rich_help_panel=_DAILY)(demo.demo)
app.command(rich_help_panel=_DAILY)(deposit.deposit)
app.command(rich_help_panel=_DAILY)(ask.ask)
app.command(rich_help_panel=_DAILY)(ask.chat)
_group(
    "skills",
    _SOURCES,
    "Skill folders: check them, keep the store in step with them, test them.",
    list=skills.list_,
    validate=skills.validate,
    deposit=skills_deposit.deposit,
    watch=skills_deposit.watch,
    test=skills_test.ask_routes,
)
_group(
    "docs",
    _SOURCES,
    "Documents far larger than the context window: add, find, ask, with a quote of the file.",
    add=docs_add.add,
    list=docs.list_,
    status=docs.status,
    rm=docs.rm,
    reindex=docs_add.reindex,
    find=docs.find,
    ask=docs.ask,
)
app.add_typer(threads.app, name="threads", rich_help_panel=_SOURCES)
app.command("list", rich_help_panel=_STORE)(inspection.list_)
app.command(rich_help_panel=_STORE)(inspection.show)
app.command(rich_help_panel=_STORE)(stats.stats)
app.command(rich_help_panel=_STORE)(settings.settings)
app.add_typer(migrate.app, name="store", rich_help_panel=_STORE)
app.command(rich_help_panel=_CARE)(doctor.doctor)
app.command(rich_help_panel=_CARE)(check.check)
app.command(rich_help_panel=_CARE)(check.verify)
app.command(rich_help_panel=_CARE)(migrate.migrate)
app.command(rich_help_panel=_CARE)(care.gc)
app.command(rich_help_panel=_CARE)(care.rm)
app.command(rich_help_panel=_CARE)(forget.forget)
app.command(rich_help_panel=_CARE)(care.pin)
app.command(rich_help_panel=_CARE)(care.unpin)
app.command(rich_help_panel=_LEARN)(flywheel.learn)
app.command(rich_help_panel=_LEARN)(flywheel.solve)
_group(
    "flywheel",
    _LEARN,
    "What was learned: tasks, solutions, their proofs.",
    report=flywheel.report,
    retire=flywheel.retire,
)
app.add_typer(route.app, name="route", rich_help_panel=_LEARN)
app.add_typer(pack.app, name="pack", rich_help_panel=_LEARN)
for _command in (pack_import.verify, pack_import.import_):
    pack.app.command(_command.__name__.rstrip("_"))(_command)
app.add_typer(models.app, name="models", rich_help_panel=_MEASURE)
app.add_typer(bench.app, name="bench", rich_help_panel=_MEASURE)
app.add_typer(evidence.app, name="evidence", rich_help_panel=_MEASURE)
app.add_typer(replay.app, name="replay", rich_help_panel=_MEASURE)
app.command("_demo-ask", hidden=True)(demo.demo_ask)


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
