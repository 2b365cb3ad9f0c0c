"""The tables between the markers of Markdown files, each from result files of one benchmark.

Pure: a table takes the results of its benchmark in the order in which rows shall stand, and no figure comes from two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.bench import base
from agentkv.bench.base import duration, markdown
from agentkv.bench.results import Result
from agentkv.errors import InvalidResult
from tests.benchmarks.declared import declared

MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
"""The order of rows; other models come after these, by name."""


@dataclass(frozen=True)
class Table:
    """``name``: between the README's markers; ``benchmark``: whose results it is made of."""

    name: str
    benchmark: str
    render: Callable[[Sequence[Result]], str]

    @classmethod
    def of(cls, table: base.Table[Any], benchmark: str) -> Table:
        """A table that a benchmark declares itself."""
        return cls(table.name or benchmark, benchmark, lambda results: table.markdown(one.data for one in results))

    def markdown(self, results: Sequence[Result]) -> str:
        """The table. Raises InvalidResult if there is no result, or one lacks a figure."""
        mine = sorted((one for one in results if one.benchmark == self.benchmark), key=_place)
        if not mine:
            raise InvalidResult(f"the table {self.name}", f"there is no result of {self.benchmark}")
        try:
            return self.render(mine)
        except (KeyError, IndexError, TypeError, StopIteration, ValueError) as error:
            names = ", ".join(one.where for one in mine)
            raise InvalidResult(names, f"a figure of the table {self.name} is missing ({error!r})") from error


def _place(result: Result) -> tuple[int, str, str]:
    known = MODELS.index(result.model) if result.model in MODELS else len(MODELS)
    return known, result.model, result.where


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


TABLES = (
    *(Table.of(one, kind.kind) for kind in declared() for one in kind.tables if one.name is not None),
    Table("route-evaluate", "route evaluate", route_evaluate),
)
