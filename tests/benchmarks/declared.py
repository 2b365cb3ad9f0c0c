"""The benchmarks that are declared by a class: those of the package, and those of this folder."""

from __future__ import annotations

import importlib
from typing import Any

from agentkv.bench import BENCHMARKS
from agentkv.bench.base import Benchmark, load
from tests.benchmarks import DECLARED


def declared() -> list[type[Benchmark[Any]]]:
    """Each class; its module is imported now."""
    own = [getattr(importlib.import_module(module), name) for module, name in DECLARED]
    return [*(load(name) for name in BENCHMARKS), *own]
