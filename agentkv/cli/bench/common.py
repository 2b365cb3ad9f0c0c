"""Options that several benchmarks share, and the end of each: save, check, show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli.output import finish
from agentkv.errors import GuaranteeViolated

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the whole result as JSON.")]
Lengths = Annotated[
    str | None, typer.Option("--lengths", metavar="N,N,…", help="Block lengths in tokens, instead of the usual ones.")
]
Small = Annotated[bool, typer.Option("--small", help="A part of it that takes a minute or two.")]
Skills = Annotated[
    Path | None, typer.Option("--skills", metavar="DIR", help="Skill folders; by default those that come along.")
]


def end(
    result: dict[str, Any],
    out: Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
    check: Callable[[dict[str, Any]], None],
) -> None:
    """Save the result, show it, and end with 60 if what it promises did not hold."""
    from agentkv.bench.report import save

    save(result, out)
    failures = []
    try:
        check(result)
    except GuaranteeViolated as error:
        failures.append(error)
    finish(result, as_json, lambda: show(result), failures)


def manual_texts() -> list[str]:
    """The bodies of the skills that come along: the real text of the benchmarks."""
    from agentkv.cli.options import skills_folder
    from agentkv.skills.manual import load_manuals

    return [manual.text for manual in load_manuals([skills_folder(None)]).loaded]
