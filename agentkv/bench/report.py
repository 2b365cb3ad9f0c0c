"""What every result file says about where it comes from, and how figures are told.

Figures are ratios of things measured in one run; a result carries the machine, the versions, the settings and the
SHA-256 of its inputs, so that it cannot be mixed with another run's unnoticed.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from agentkv._version import __version__
from agentkv.hashing import sha256


def origin(benchmark: str, model: str, model_sha256: str, inputs: bytes, **settings: Any) -> dict[str, Any]:
    """The header of a result: benchmark, machine, versions, settings and digests."""
    return {
        "benchmark": benchmark,
        "agentkv": __version__,
        "model": model,
        "model_sha256": model_sha256,
        "inputs_sha256": sha256(inputs),
        "settings": settings,
        "machine": {
            "system": platform.system(),
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in ("llama-cpp-python", "numpy", "zstandard")},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def save(result: dict[str, Any], path: Path | None) -> None:
    """Write a result as JSON, if a path was given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def say(line: str) -> None:
    """One line of progress, on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def timed(work: Callable[[], object], repeats: int, warm_up: int = 1) -> dict[str, float]:
    """Median, minimum and maximum milliseconds of ``work`` over ``repeats`` runs after ``warm_up``."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return {"median": statistics.median(times), "min": min(times), "max": max(times), "repeats": float(repeats)}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
