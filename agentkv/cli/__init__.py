"""The command line. One command a file; this one puts them together and turns errors into exit codes.

    options.py    options that commands share; opens stores, models and memories
    output.py     JSON, tables, the end of a command
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

Results go to stdout, progress and errors to stderr. An AgentKVError ends as one line and its own exit code;
anything else is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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
from agentkv.cli.flywheel import learn, solve
from agentkv.cli.output import error_record, print_json, report, show_warnings
from agentkv.errors import AgentKVError, Interrupted, StoreReadError, UsageError

__all__ = ["Commands", "app", "main", "run"]

_WRITE_FAILED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

_WrongUse: Any = typer.BadParameter.__base__
"""click's UsageError; Typer brings a click of its own from some version on."""


class Commands(TyperGroup):
    """The one place where an error becomes a message and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        ctx.meta["agentkv.json"] = "--json" in own
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                show_warnings()
                return super().invoke(ctx)
        except AgentKVError as error:
            failure = error
        except KeyboardInterrupt:
            failure = Interrupted()
        except _WrongUse as error:
            if ctx.meta["agentkv.json"]:
                found = {"type": UsageError.__name__, "message": error.format_message(), "exit_code": error.exit_code}
                print_json({"error": found}, indent=False)
            raise
        report(failure)
        if ctx.meta["agentkv.json"]:
            print_json({"error": error_record(failure)}, indent=False)
        raise typer.Exit(failure.exit_code)


app = typer.Typer(
    name="agentkv",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Agent memory made of KV states: read a manual once, graft it back in milliseconds.",
    epilog="Begin with `agentkv demo`.",
)
app.command()(demo.demo)
app.command()(deposit.deposit)
app.command()(ask.ask)
app.command()(chat.chat)
app.command()(learn.learn)
app.command()(solve.solve)
app.command("list")(list_command.list_)
app.command()(show.show)
app.command()(verify.verify)
app.command()(check.check)
app.command()(gc.gc)
app.command()(rm.rm)
app.command()(forget.forget)
app.command()(pin.pin)
app.command()(pin.unpin)
app.command()(stats.stats)
app.command()(settings.settings)
app.add_typer(route.app, name="route")
app.add_typer(models.app, name="models")
app.add_typer(bench.app, name="bench")
app.add_typer(pack.app, name="pack")
app.add_typer(skills.app, name="skills")
app.add_typer(docs.app, name="docs")
app.add_typer(threads.app, name="threads")
app.add_typer(flywheel.app, name="flywheel")
app.add_typer(evidence.app, name="evidence")
app.add_typer(replay.app, name="replay")
app.command("_demo-ask", hidden=True)(demo_ask.demo_ask)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"agentkv {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Agent memory made of KV states: read a manual once, graft it back in milliseconds."""


def main() -> None:
    """The command ``agentkv``."""
    run(app)


def run(app: typer.Typer) -> None:
    """Run a command line as this process's own.

    Where the output cannot be written (a full disk behind ``>``), that is one line and the exit code of StoreReadError.
    """
    if sys.stdout is None:  # closed by the caller: nobody reads
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        try:
            app()
        finally:
            _flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _WRITE_FAILED:
            raise  # not of a stream: a defect of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries once more at its end
        with contextlib.suppress(OSError):
            typer.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        sys.exit(StoreReadError.exit_code)


def _flush() -> None:
    """Flush now, so that a reader that has gone (`| head`) is no error at the interpreter's end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
