"""One rule for every command that removes: what was named, and can be had again, goes at once; the rest is asked for.

Asked for is what goes by a rule (a budget, ``--recursive``, ``--all``, a folder) and what exists nowhere else. On a
terminal that is a question, after what would go was shown; elsewhere it takes ``--yes``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from agentkv.cli.output import printable
from agentkv.errors import NotConfirmed


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(what: str, *, yes: bool, as_json: bool, show: Callable[[], None] = lambda: None) -> None:
    """Return if ``what`` may be removed; ``show`` prints it in full. Raises NotConfirmed."""
    if yes:
        return
    if as_json or not is_terminal():
        raise NotConfirmed(what, asked=False)
    show()
    try:
        said = typer.confirm(printable(f"Remove {what}?"), default=False, err=True)
    except typer.Abort:
        said = False
    if not said:
        raise NotConfirmed(what, asked=True)
