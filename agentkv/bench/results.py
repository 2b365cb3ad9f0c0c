"""The form of a result file: written, read, and compared within one run only.

One form for all benchmarks, a JSON object written by :func:`save`:

======================  ==============================================================================================
``format``              1
``benchmark``           its name; with ``version`` it names the scorer (:mod:`agentkv.bench.measured`)
``run``                 64 random bits as hex; figures of different runs are not compared
``agentkv``             version of the package
``model``               name or path; ``model_sha256``: of the file, empty where no model was used
``inputs_sha256``       over everything that was read or asked
``settings``            what was asked for on the command line, and what follows from it
``machine``             system, release, machine, processor, cores, memory_bytes, python
``versions``            of the libraries; ``llama_cpp_sha256``: over llama.cpp's shared libraries as installed
``started, finished``   UTC, to the second
``raw``                 list of {key, raw, expected, tokens, figures}, what was seen; the last three may be left out
all else                figures. Those that follow from ``raw`` are what the benchmark's scorer gives for it
======================  ==============================================================================================

>>> one = Result({"format": 1, "benchmark": "x", "run": "1", "cold": 9.0, "warm": 3.0}, "one.json")
>>> one.figure("cold").over(one.figure("warm"))
3.0
>>> other = Result({"format": 1, "benchmark": "x", "run": "2", "warm": 2.0}, "other.json")
>>> one.figure("cold").over(other.figure("warm"))  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
agentkv.errors.base.DifferentRuns: one.json: cold and other.json: warm are of different runs: ...
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from agentkv._version import __version__
from agentkv.errors import DifferentRuns, InvalidResult
from agentkv.io import fsio
from agentkv.io.hashing import file_sha256, sha256

FORMAT = 1
LIMIT = 256 << 20
"""Bytes of a result file that are read at most."""


def now() -> str:
    """The time, UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def origin(
    benchmark: str, model: str, model_sha256: str, inputs: bytes, *, started: str | None = None, **settings: Any
) -> dict[str, Any]:
    """The header of a result, without its end. ``started``: what :func:`now` gave when the benchmark began."""
    return {
        "format": FORMAT,
        "benchmark": benchmark,
        "version": 1,
        "run": secrets.token_hex(8),
        "agentkv": __version__,
        "model": model,
        "model_sha256": model_sha256,
        "inputs_sha256": sha256(inputs),
        "settings": settings,
        "machine": {
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory_bytes(),
            "python": platform.python_version(),
        },
        "versions": {
            **{name: version(name) for name in ("llama-cpp-python", "numpy", "zstandard")},
            "llama_cpp_sha256": _llama_cpp_sha256(),
        },
        "started": started or now(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


@functools.cache
def _llama_cpp_sha256() -> str:
    """One digest over the shared libraries of the installed llama.cpp, which is not loaded for it."""
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        return ""
    digest = hashlib.sha256()
    for path in sorted((Path(found.origin).parent / "lib").glob("lib*")):
        if path.is_file() and not path.is_symlink():
            digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    return digest.hexdigest()


def save(result: dict[str, Any], path: Path | None) -> None:
    """Write a result as JSON, if a path was given: raw records one a line, everything else indented."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    rest = {"finished": now(), **{key: value for key, value in result.items() if key != "raw"}}
    data = orjson.dumps(rest, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    if "raw" in result:
        lines = b",\n".join(b"    " + orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in result["raw"])
        data = data.removesuffix(b"\n}") + b',\n  "raw": [\n' + lines + b"\n  ]\n}"
    fsio.write_durably(path, [data + b"\n"])


def say(line: str) -> None:
    """One line of progress, on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


# --- read -------------------------------------------------------------------------------------------


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
    """A result as it was saved: ``data`` is the whole object, ``where`` its file. Raises InvalidResult."""

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
            raise InvalidResult(self.where, f"{path} is not a number")
        return Figure(float(value), str(self.data["run"]), f"{self.where}: {path}")


def read(path: Path) -> Result:
    """The result in a file. Raises InvalidResult, StoreReadError."""
    data = fsio.read_regular(path, LIMIT)
    if data is None:
        raise InvalidResult(str(path), "there is no such file")
    try:
        text = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidResult(str(path), f"it is not JSON ({error})") from error
    if not isinstance(text, dict):
        raise InvalidResult(str(path), "it is not a JSON object")
    return Result(text, str(path))


def read_all(folder: Path) -> list[Result]:
    """Every result of a folder, by file name. Raises InvalidResult, StoreReadError."""
    return [read(path) for path in sorted(folder.glob("*.json"))]
