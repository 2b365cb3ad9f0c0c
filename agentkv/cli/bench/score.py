"""``agentkv bench score``: the figures of result files from their raw records, with no model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, say
from agentkv.errors import AgentKVError


def score(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT…", help="Files that --out wrote.")],
    as_json: options.Json = False,
) -> None:
    """Compute every figure of result files anew and compare. Exit code 103 if one differs."""
    from agentkv.bench.measured import rescore
    from agentkv.bench.results import read
    from agentkv.errors import ScoreMismatch

    rows: list[dict[str, Any]] = []
    failures: list[AgentKVError] = []
    for path in results:
        found = read(path)
        differences = rescore(found.data)
        if differences:
            failures.append(ScoreMismatch(str(path), differences))
        records = len(found.data["raw"])
        rows.append({"file": path, "benchmark": found.benchmark, "records": records, "differences": differences})

    def show() -> None:
        for row in rows:
            told = "every figure is equal" if not row["differences"] else "; ".join(row["differences"])
            say(f"{row['file']}: {row['benchmark']}, {count(row['records'], 'raw record')}: {told}")

    finish({"results": rows}, as_json, show, failures)
