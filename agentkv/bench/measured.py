"""From raw records to figures by one pure function, in the benchmark, in the ledger and from a result file alike.

``agentkv bench score FILE`` and ``agentkv evidence score RUN`` call the same function again, with no model present. Not
guaranteed: that the raw records are true, which is for a replay to show.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkv.bench import BENCHMARKS
from agentkv.errors import InvalidResult
from agentkv.evidence.records import Item, plain
from agentkv.evidence.scoring import compute, differences, known_scorers, scorer

Raw = Mapping[str, Any]
"""Raw records by key, in the order in which they were seen. Inside a record keys come back sorted: where an order
counts, make it a list."""

HEADER = (
    *("format", "benchmark", "version", "run", "agentkv", "model", "model_sha256", "inputs_sha256", "settings"),
    *("machine", "versions", "started", "finished"),
)
"""The members of a result that are not figures."""

ORIGIN = "origin"
"""The key under which a ledger's run has the result's header; no scorer sees it."""

_OTHERS = ("agentkv.bench.scores", "agentkv.evidence.replay", "agentkv.flywheel.journal")
SCORERS = [*(f"agentkv.bench.{name}" for name in BENCHMARKS), *_OTHERS]
"""The modules that register scorers; those of a checkout add themselves."""


def measured(
    benchmark: str, version: int = 1, *, whole: bool = False
) -> Callable[[Callable[[Raw], dict[str, Any]]], Callable[..., Any]]:
    """Register ``figures(raw)`` as the scorer of ``benchmark``. A change of what is counted is a new version.

    ``whole``: each record is an item as a result has it, ``key``, ``raw``, ``expected``, ``tokens``.
    """

    def register(figures: Callable[[Raw], dict[str, Any]]) -> Callable[[Raw], dict[str, Any]]:
        def score(items: Sequence[Item]) -> dict[str, Any]:
            own = [item for item in items if item.key != ORIGIN]
            return figures({item.key: _record(item) if whole else item.raw for item in own})

        scorer(benchmark, version)(score)
        return figures

    return register


def load_scorers() -> None:
    """Import every module that registers a scorer; none of them loads llama.cpp for it."""
    for module in SCORERS:
        importlib.import_module(module)


def result(header: dict[str, Any], raw: Raw | Sequence[Item], *, under: str | None = None) -> dict[str, Any]:
    """The whole result: header, the figures that the scorer gives for ``raw``, and ``raw``.

    ``under``: the figures' own key, as ``summary``; else they stand beside the header. Raises InvalidResult without a
    scorer.
    """
    items = [Item(key, value) for key, value in raw.items()] if isinstance(raw, Mapping) else list(raw)
    records = [_record(item) for item in items]
    figures = _compute(header, [_item(record) for record in records])
    return {**header, **(figures if under is None else {under: figures}), "raw": records}


def _compute(result: dict[str, Any], items: Sequence[Item]) -> dict[str, Any]:
    """What the scorer of a result's benchmark and version gives. Raises InvalidResult if there is none."""
    benchmark, version = result.get("benchmark"), result.get("version")
    if (benchmark, version) not in known_scorers():
        load_scorers()
    if (benchmark, version) not in known_scorers():
        raise InvalidResult(str(benchmark), f"there is no scorer of its version {version}")
    return compute(result["benchmark"], result["version"], items)


def _record(item: Item) -> dict[str, Any]:
    """An item as JSON, with only what it has."""
    known = {"expected": item.expected, "tokens": item.tokens, "figures": item.figures}
    kept = {"key": item.key, "raw": item.raw, **{key: value for key, value in known.items() if value is not None}}
    record: dict[str, Any] = plain(kept, f"the record {item.key!r}")
    return record


def _item(record: dict[str, Any]) -> Item:
    return Item(record["key"], record["raw"], record.get("expected"), record.get("tokens"), record.get("figures"))


def items_of(result: dict[str, Any]) -> list[Item]:
    """The raw records of a result. Raises InvalidResult for a result without."""
    if "raw" not in result:
        raise InvalidResult(str(result.get("benchmark")), "it has no raw records, so nothing can be computed again")
    try:
        return [_item(record) for record in result["raw"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidResult(str(result.get("benchmark")), f"its raw records are malformed ({error!r})") from error


def header(result: dict[str, Any]) -> dict[str, Any]:
    """What a result says about where it comes from."""
    return {key: value for key, value in result.items() if key in HEADER}


def figures_of(result: dict[str, Any]) -> dict[str, Any]:
    """The figures that follow from a result's raw records, computed again. Raises InvalidResult."""
    items = items_of(result)
    try:
        computed: dict[str, Any] = plain(_compute(result, items), "the scores")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidResult(result["benchmark"], f"its raw records are not those of it ({error!r})") from error
    return computed


def rescore(result: dict[str, Any]) -> list[str]:
    """Compute a result's figures again from its raw records; where they differ, as ``path: reported, computed``.

    Raises InvalidResult.
    """
    computed = figures_of(result)
    summary = result.get("summary")
    if isinstance(summary, dict) and "summary" not in computed:
        return differences(summary, computed)
    return differences({key: result[key] for key in computed if key in result}, computed)
