"""Routers on one file of questions."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.bench.base import markdown
from agentkv.bench.results import Result
from tests.benchmarks.tables.base import duration


def route_evaluate(results: Sequence[Result]) -> str:
    """A row a router, over one file of questions: results of another file are refused."""
    asked = {one.data["questions_sha256"] for one in results}
    if len(asked) > 1:
        raise ValueError(f"the results are about {len(asked)} files of questions")
    rows = []
    for one in results:
        (row,) = one.data["sizes"]
        low, high = (round(100 * end) for end in row["right"]["wilson_95"])
        silent = row["tokens"]["median"] == 0  # a router that asks no language model
        rows.append(
            [
                one.data["settings"]["classifier"] if silent else f"{one.model}: {one.data['settings']['classifier']}",
                f"{row['right']['k']} of {row['right']['n']} ({low}–{high} %)",
                f"{row['right_in_top_5']['k']}",
                f"{row['abstained_on_covered']['k']}",
                f"{row['tokens']['median']:.0f}, {duration(row['ms']['median'])}",
            ]
        )
    headings = ("router", "right", "among the five best", "no block, though one fits", "tokens, time a decision")
    return markdown(headings, rows)
