"""Options that several benchmarks share, and the beginning and end of each: record, save, check, show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.bench.texts import manual_texts
from agentkv.cli.bench import Out, Small, begin, end

__all__ = ["Disk", "Lengths", "Out", "Skills", "Small", "begin", "end", "manual_texts"]

Lengths = Annotated[
    str | None, typer.Option("--lengths", metavar="N,N,…", help="Block lengths in tokens, instead of the usual ones.")
]
Disk = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="DIR", show_default="the system's temporary folder", help="On the disk to be measured."
    ),
]
Skills = Annotated[
    Path | None, typer.Option("--skills", metavar="DIR", help="Skill folders; by default those that come along.")
]
