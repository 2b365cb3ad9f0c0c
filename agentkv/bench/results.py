"""Reads result files, and refuses to compare figures of different runs.

>>> one = Result({"format": 1, "benchmark": "x", "run": "1", "cold": 9.0, "warm": 3.0}, "one.json")
>>> one.figure("cold").over(one.figure("warm"))
3.0
>>> other = Result({"format": 1, "benchmark": "x", "run": "2", "warm": 2.0}, "other.json")
>>> one.figure("cold").over(other.figure("warm"))  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
agentkv.errors.base.DifferentRuns: one.json: cold and other.json: warm are of different runs: ...

Knows the form of a result (:mod:`agentkv.bench.report`) and no benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench.report import FORMAT
from agentkv.errors import DifferentRuns, InvalidResult
from agentkv.io import fsio

LIMIT = 256 << 20
"""Bytes of a result file that are read at most."""


@dataclass(frozen=True)
class Figure:
    """One number of one run. ``where``: file and path, for messages."""

    value: float
    run: str
    where: str

    def over(self, other: Figure) -> float:
        """This figure as a multiple of ``other``. Raises DifferentRuns, InvalidResult if that is 0."""
        require_one_run([self, other])
        if other.value == 0:
            raise InvalidResult(other.where, "nothing can be divided by 0")
        return self.value / other.value


def require_one_run(figures: Iterable[Figure]) -> None:
    """Raise DifferentRuns unless all are of one run."""
    known = list(figures)
    for figure in known[1:]:
        if figure.run != known[0].run:
            raise DifferentRuns(known[0].where, figure.where)


@dataclass(frozen=True)
class Result:
    """A result as it was saved: ``data`` is the whole object, ``where`` its file."""

    data: dict[str, Any]
    where: str

    def __post_init__(self) -> None:
        if self.data.get("format") != FORMAT:
            raise InvalidResult(self.where, f"it is of format {self.data.get('format')!r}, not {FORMAT}")
        for key in ("benchmark", "run"):
            if not isinstance(self.data.get(key), str):
                raise InvalidResult(self.where, f"it does not say its {key}")

    @property
    def benchmark(self) -> str:
        """The benchmark's name."""
        return str(self.data["benchmark"])

    @property
    def model(self) -> str:
        """The model's name or path."""
        return str(self.data.get("model", ""))

    def figure(self, path: str) -> Figure:
        """The number at ``path``, names and indices with dots between. Raises InvalidResult."""
        value: Any = self.data
        for name in path.split("."):
            try:
                value = value[int(name)] if isinstance(value, list) else value[name]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise InvalidResult(self.where, f"it has no figure {path}") from error
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidResult(self.where, f"{path} is no number")
        return Figure(float(value), str(self.data["run"]), f"{self.where}: {path}")


def read(path: Path) -> Result:
    """The result in a file. Raises InvalidResult, StoreReadError."""
    data = fsio.read_regular(path, LIMIT)
    if data is None:
        raise InvalidResult(str(path), "there is no such file")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidResult(str(path), f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise InvalidResult(str(path), "it is no JSON object")
    return Result(found, str(path))


def read_all(folder: Path) -> list[Result]:
    """Every result of a folder, by file name. Raises InvalidResult, StoreReadError."""
    return [read(path) for path in sorted(folder.glob("*.json"))]
