"""Options that several benchmarks share, and the beginning and end of each: record, save, check, show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.bench.texts import manual_texts
from agentkv.cli.bench import Out, Small, begin, ended
from agentkv.cli.output import finish

if TYPE_CHECKING:
    from agentkv.evidence import Run

__all__ = ["Out", "Small", "begin", "end", "manual_texts"]


def end(
    result: dict[str, Any],
    out: Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
    check: Callable[[dict[str, Any]], None],
    run: Run | None = None,
) -> None:
    """Record and save the result, show it, and end with 60 if what it promises did not hold."""
    made = ended(result, out, show, check, run)
    finish(made.record, as_json, made.show, made.failures)
