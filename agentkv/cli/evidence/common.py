"""Options of the evidence and replay commands, and how they open a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.evidence import Ledger
    from agentkv.evidence.anchors import Given

LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="DIR",
        envvar="AGENTKV_LEDGER",
        show_default="agentkv/ledger in the user's data folder",
        help="The ledger's folder.",
    ),
]
Anchors = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor",
        metavar="TEXT|FILE",
        help="What `agentkv evidence head` printed or wrote earlier, kept elsewhere; may be given several times.",
    ),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id or its first digits; `last`: the latest.")]


def ledger_path(folder: Path | None) -> Path:
    """The ledger's folder: as given, or the default."""
    if folder is not None:
        return folder
    import platformdirs

    return platformdirs.user_data_path("agentkv") / "ledger"


def open_ledger(folder: Path | None, *, there: bool = True) -> Ledger:
    """The ledger; with ``there`` it has to exist. Raises UsageError."""
    from agentkv.cli import options
    from agentkv.evidence.appending import FILE, HEAD

    path = ledger_path(folder)
    if there and not ((path / FILE).exists() or (path / HEAD).exists()):
        raise UsageError(
            f"there is no ledger in {path}. A benchmark with --ledger DIR, or `agentkv replay`, makes one."
        )
    opened = options.open_ledger(path)
    assert opened is not None
    return opened


def anchors(given: list[str] | None) -> list[Given]:
    """The anchors that were given. Raises LedgerDamaged for one that was changed, UsageError."""
    from agentkv.evidence.anchors import parse

    return [parse(text) for text in given or []]
