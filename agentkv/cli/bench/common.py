"""Options that several benchmarks share, and the beginning and end of each: record, save, check, show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import finish
from agentkv.errors import GuaranteeViolated

if TYPE_CHECKING:
    from agentkv.evidence import Run

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the whole result as JSON.")]
Lengths = Annotated[
    str | None, typer.Option("--lengths", metavar="N,N,…", help="Block lengths in tokens, instead of the usual ones.")
]
Disk = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="DIR", show_default="the system's temporary folder", help="On the disk to be measured."
    ),
]
Small = Annotated[bool, typer.Option("--small", help="A part of it that takes a minute or two.")]
Skills = Annotated[
    Path | None, typer.Option("--skills", metavar="DIR", help="Skill folders; by default those that come along.")
]


def begin(ledger: Path | None, benchmark: str, settings: Mapping[str, Any], version: int = 1) -> Run | None:
    """A run in the ledger, if one was given, before anything is measured: if it breaks off, that is on record.

    ``settings``: what was asked for. ``version``: of the benchmark's figures.
    """
    opened = options.open_ledger(ledger)
    return None if opened is None else opened.begin(benchmark, version=version, settings=settings)


def end(
    result: dict[str, Any],
    out: Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
    check: Callable[[dict[str, Any]], None],
    run: Run | None = None,
) -> None:
    """Record and save the result, show it, and end with 60 if what it promises did not hold.

    ``run``: what :func:`begin` gave. Raw records go to the ledger and the file, not to the terminal.
    """
    from agentkv.bench.report import now, save

    result = {**result, "finished": now()}
    failures = []
    try:
        check(result)
    except GuaranteeViolated as error:
        failures.append(error)
    if run is not None:
        _record(run, result, failures[0].message if failures else None)
        result["ledger_run"] = run.id
    save(result, out)
    finish({key: value for key, value in result.items() if key != "raw"}, as_json, lambda: show(result), failures)


def _record(run: Run, result: dict[str, Any], failure: str | None) -> None:
    from agentkv.bench import measured
    from agentkv.evidence import Item

    items = measured.items_of(result)
    run.record_all([Item(measured.ORIGIN, measured.header(result)), *items])
    run.verdict("what is promised holds", failure is None, failure)
    run.scores(measured.figures_of(result))
    run.end()


def manual_texts() -> list[str]:
    """The bodies of the skills that come along: the real text of the benchmarks."""
    from agentkv.cli.options import skills_folder
    from agentkv.skills.manual import load_manuals

    return [manual.text for manual in load_manuals([skills_folder(None)]).loaded]
