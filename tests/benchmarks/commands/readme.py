"""``readme``: the tables of Markdown files from result files. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say
from agentkv.errors import AgentKVError, UsageError


def readme(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…", show_default="RESULTS.md and EXACTNESS.md of this checkout", help="Files with the markers."
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", show_default="tests/data/results", help="Result files."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 65 if a table differs.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write each table between its markers, exactly as the result files give it."""
    from agentkv.bench.results import read_all
    from tests.benchmarks import readme as maker
    from tests.benchmarks.errors import ReadmeDiffers

    given, folder = files or [Path(file) for file in maker.FILES], results or maker.FOLDER
    for path in (*given, folder):
        if not path.exists():
            raise UsageError(f"{path} is not there. Run this in a checkout, or name the files and --results.")
    read = read_all(folder)
    tables: dict[str, list[str]] = {}
    differing: dict[str, list[str]] = {}
    for file in given:
        text = file.read_text(encoding="utf-8")
        made, changed = maker.rendered(text, read)
        tables[str(file)] = maker.named(text)
        if changed:
            differing[str(file)] = changed
            if not check:
                maker.write(file, made)
    failures: list[AgentKVError] = [ReadmeDiffers(*each) for each in differing.items()] if check else []

    def show() -> None:
        for file, names in tables.items():
            for name in names:
                state = "unchanged" if name not in differing.get(file, ()) else "differs" if check else "written"
                say(f"{file}: {name}: {state}")

    finish({"tables": tables, "changed": differing}, as_json, show, failures)
