"""What a table is, and how its figures are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.bench import base
from agentkv.bench.base import duration, gigabytes, megabytes, milliseconds
from agentkv.bench.base import interval as share
from agentkv.bench.results import Result
from agentkv.errors import InvalidResult

__all__ = ["MODELS", "Table", "duration", "gigabytes", "megabytes", "milliseconds", "share"]

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
