"""``agentkv bench readme``: the README's tables from result files. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say
from agentkv.errors import AgentKVError, UsageError


def readme(
    file: Annotated[Path, typer.Argument(metavar="README", help="The file with the markers.")] = Path("README.md"),
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", show_default="tests/data/results beside it", help="Result files."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 65 if a table is another.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write each table between its markers, exactly as the result files give it."""
    from agentkv.bench import readme as maker
    from agentkv.bench.errors import ReadmeDiffers
    from agentkv.bench.results import read_all

    folder = results or file.parent / maker.FOLDER
    for path, known in ((file, file.is_file()), (folder, folder.is_dir())):
        if not known:
            raise UsageError(f"{path} is not there")
    text = file.read_text(encoding="utf-8")
    made, changed = maker.rendered(text, read_all(folder))
    failures: list[AgentKVError] = [ReadmeDiffers(str(file), changed)] if check and changed else []
    if changed and not check:
        maker.write(file, made)
    tables = maker.named(text)

    def show() -> None:
        for name in tables:
            say(f"{name}: {'as it was' if name not in changed else 'another' if check else 'written'}")

    finish({"readme": file, "tables": tables, "changed": changed}, as_json, show, failures)
