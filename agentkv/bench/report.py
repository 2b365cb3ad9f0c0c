"""What every result file says about where it comes from, and how figures are told.

One form for all benchmarks, a JSON object written by :func:`save`:

======================  ==============================================================================================
``format``              1
``benchmark``           its name; with ``version`` it names the scorer (:mod:`agentkv.bench.measured`)
``run``                 64 random bits as hex; figures of different runs are not compared (:mod:`agentkv.bench.results`)
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

A new benchmark begins with ``started = now()``, collects raw records, makes the header with :func:`origin`, and returns
``measured.result(header, items)``, or, if it has no scorer, the header with its figures. Its command ends with
``agentkv.cli.bench.common.end``, which saves it in this form. Shares and ratios are of things measured in one run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from agentkv._version import __version__
from agentkv.io import fsio
from agentkv.io.hashing import file_sha256, sha256

FORMAT = 1


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


def clocked(work: Callable[[], object], repeats: int, warm_up: int = 1) -> list[float]:
    """Milliseconds of each of ``repeats`` runs of ``work``, after ``warm_up`` runs that are not timed."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def told(times: Sequence[float]) -> dict[str, float]:
    """Median, minimum, maximum and number of ``times``."""
    return {"median": statistics.median(times), "min": min(times), "max": max(times), "repeats": float(len(times))}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
