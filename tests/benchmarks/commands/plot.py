"""``plot``: pictures of result files. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say
from agentkv.errors import UsageError


def plot(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT…", help="Files that --out wrote, or folders of such files.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")] = Path(),
    kind: Annotated[str, typer.Option("--format", metavar="svg|png")] = "svg",
    as_json: options.Json = False,
) -> None:
    """Draw what subsidy, agent, depth, restore, size, route and route evaluate measured; one picture a result.

    Needs the extra `plots`.
    """
    from agentkv.bench.results import read, read_all
    from tests.benchmarks import plots

    if kind not in plots.FORMATS:
        raise UsageError(f"--format is {' or '.join(plots.FORMATS)}, not {kind!r}")
    found = [one for path in results for one in (read_all(path) if path.is_dir() else [read(path)])]
    if not found:
        raise UsageError(
            f"there is no result in {', '.join(map(str, results))}; `agentkv bench NAME --out FILE` writes one"
        )
    files = plots.plot(found, out, kind)

    def show() -> None:
        for path in files:
            say(str(path))

    finish({"files": files}, as_json, show)
