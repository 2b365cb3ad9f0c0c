"""``plot``: pictures of result files. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say
from agentkv.errors import UsageError


def plot(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT…", help="Files that --out wrote.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")] = Path(),
    kind: Annotated[str, typer.Option("--format", metavar="svg|png")] = "svg",
    as_json: options.Json = False,
) -> None:
    """Draw what subsidy, agent, depth, restore, size and route measured; one picture a result.

    Needs the extra `plots`.
    """
    from agentkv.bench.results import read
    from tests.benchmarks import plots

    if kind not in plots.FORMATS:
        raise UsageError(f"--format is {' or '.join(plots.FORMATS)}, not {kind!r}")
    files = plots.plot([read(path) for path in results], out, kind)

    def show() -> None:
        for path in files:
            say(str(path))

    finish({"files": files}, as_json, show)
