"""``agentkv forget``: a person's words out of every file of the store, and the proof that they are gone."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import count, say, size, table
from agentkv.errors import NotConfirmed

if TYPE_CHECKING:
    from agentkv.forget.forgetting import ForgetReport


def forget(
    *,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Words, in any case.")] = None,
    before: Annotated[
        str | None, typer.Option(metavar="DATE", help="What is from before a day or time, such as 2026-10-14.")
    ] = None,
    thread: Annotated[str | None, typer.Option(metavar="NAME", help="A conversation, by its name.")] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Items with this label in their namespace, threads with it in their name."),
    ] = None,
    ledger: Annotated[
        list[Path] | None,
        typer.Option("--ledger", metavar="DIR", show_default="none", help=options.LEDGER_HELP),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME|PATH",
            show_default="none: token ids are not searched as text",
            help=options.MODEL_HELP,
        ),
    ] = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    as_json: bool,
    store: StoreOptions,
) -> Result:
    """Remove a person's words from logs, conversations, indexes, items and blocks; every file is read to prove it."""
    from agentkv.errors import StillReadable
    from agentkv.forget import Selection
    from agentkv.forget import forget as removed
    from agentkv.forget.selection import parsed_date

    moment = None if before is None else parsed_date(before)
    selection = Selection(text, moment, thread, user)
    settings = options.engine_settings(None, None, "f16", False, 0)
    with store.open() as opened, options.opened_engine(model, settings) as engine:
        remove = partial(removed, opened, selection, engine=engine, ledgers=ledger or ())
        report = remove(dry_run=True)
        if not dry_run and (yes or not report.removed.total() or _is_wanted(report, as_json)):
            report = remove()
        record = {"store": opened.root, **vars(report), "removed": {k: n for k, n in report.removed.items() if n}}
    failures = [StillReadable(report.remaining)] if report.remaining else []
    return Result(record, lambda: _show(report), failures)


def _is_wanted(report: ForgetReport, as_json: bool) -> bool:
    """Show what would go, and ask. Raises NotConfirmed where there is nobody to ask."""
    if not as_json:
        _show(report)
    if as_json or not sys.stdin.isatty():
        raise NotConfirmed("what `--dry-run` shows", asked=False)
    return bool(typer.confirm("Remove these for good?", err=True))


def _show(report: ForgetReport) -> None:
    rows = [(kind, f"{number:,}") for kind, number in sorted(report.removed.items()) if number]
    if rows:
        table(("would be removed" if report.dry_run else "removed", "number"), rows, right=("number",))
    else:
        say("nothing of it was found")
    for reason in report.could_not:
        say(f"not removed: {reason}")
    if not report.dry_run:
        where = f"{count(report.files, 'file')}, {size(report.n_bytes)}"
        say(f"read through: {where}; {'found no more' if not report.remaining else 'still found, see below'}")
