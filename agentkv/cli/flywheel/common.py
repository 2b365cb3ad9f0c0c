"""Options of the flywheel's commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.output import printable

if TYPE_CHECKING:
    from agentkv.sandbox.base import Policy

_GATE = "Gate"
Samples = Annotated[
    int, typer.Option(metavar="N", min=1, rich_help_panel=_GATE, help="The model's own programs before help is asked.")
]
Agreement = Annotated[
    float, typer.Option(min=0, max=1, rich_help_panel=_GATE, help="Share of them that has to agree to be confident.")
]
Margin = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        min=0,
        rich_help_panel=_GATE,
        show_default="agreement of programs",
        help="Instead: one direct answer, confident from this margin over the next best token on.",
    ),
]
MaxNew = Annotated[int, typer.Option(metavar="N", min=1, help="Most tokens of one program.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first sample; the others count on from it.")]
Isolation = Annotated[
    str,
    typer.Option(
        metavar="LEVEL", help="What a proof needs: limits, namespaces or bubblewrap. Below namespaces it can be forged."
    ),
]
LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="DIR",
        envvar="AGENTKV_LEDGER",
        show_default="agentkv/ledger in the user's data folder",
        help="Where every attempt is recorded.",
    ),
]


def policy(isolation: str) -> Policy:
    """The policy by which a deposit needs that level of isolation. Raises UsageError."""
    from agentkv.errors import UsageError
    from agentkv.sandbox.base import Level, Policy

    known = [one.value for one in Level if one is not Level.PROCESS]
    if isolation not in known:
        raise UsageError(f"--isolation is one of {', '.join(known)}, not {isolation!r}")
    return Policy(deposit=Level(isolation))


def shown(value: Any) -> str:
    """An answer for people."""
    from agentkv.flywheel import values

    return printable(value if isinstance(value, str) else values.encode(value))
