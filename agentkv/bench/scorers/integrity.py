"""The figures of ``agentkv bench integrity``: counts over its cases, of which each is on record.

``faults``: an operation's ``steps`` and ``cases`` as [mode, step, how it ended, wrong]; ``power``: an operation's
``prefixes``, ``possible`` and ``cases`` as [step, unsynced bytes, whether something waited for `collect`, wrong];
``corruption``: ``files`` as [kind, name] and a damage's cases as [number of the file, what was done, the error that
refused it, wrong]. ``wrong``: what must not be, by kind; empty where all was well. ``concurrency``: counts, as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from agentkv.bench.measured import Raw, measured

FAULTS = ("lost", "half", "leftovers_at_once", "leftovers", "not_repeatable", "foreign_errors")
POWER = ("lost", "half", "leftovers", "not_durable", "not_repeatable")
CORRUPTION = ("accepted", "wrong_error", "engine_called", "other_answers")

Wrong = dict[str, list[str]]


@measured("integrity")
def figures(raw: Raw) -> dict[str, Any]:
    """Each part that was run, and ``totals``."""
    parts: dict[str, Callable[[Any], Any]] = {
        "faults": faults,
        "power": power,
        "concurrency": dict,
        "corruption": corruption,
    }
    found = {name: part(raw[name]) for name, part in parts.items() if name in raw}
    return {**found, "totals": _totals(found)}


def faults(record: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row an operation and mode."""
    rows = []
    for part in record:
        modes: dict[str, list[tuple[str, Wrong]]] = {}
        for mode, _, end, wrong in part["cases"]:
            modes.setdefault(mode, []).append((end, wrong))
        for mode, cases in modes.items():
            rows.append(
                {
                    "operation": part["operation"],
                    "steps": part["steps"],
                    "mode": mode,
                    "cases": len(cases),
                    "ends": dict(Counter(end for end, _ in cases)),
                    **_counts(FAULTS, [wrong for _, wrong in cases], 3),
                }
            )
    return rows


def power(record: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row an operation."""
    return [
        {
            "operation": part["operation"],
            "prefixes": part["prefixes"],
            "possible": part["possible"],
            "states": len(part["cases"]),
            "waited_for_collect": sum(waited for _, _, waited, _ in part["cases"]),
            **_counts(POWER, [wrong for *_, wrong in part["cases"]], 3),
        }
        for part in record
    ]


def corruption(record: dict[str, Any]) -> dict[str, Any]:
    """``files`` by kind, and a tally of each kind of damage."""
    kinds = [kind for kind, _ in record["files"]]
    damages = {}
    for damage in record["damages"]:
        cases = damage["cases"]
        damages[damage["what"]] = {
            "cases": len(cases),
            "refused": dict(Counter(refused for _, _, refused, _ in cases if refused is not None)),
            "by_kind": dict(Counter(kinds[number] for number, *_ in cases)),
            **_counts(CORRUPTION, [wrong for *_, wrong in cases], 5),
        }
    return {"files": dict(Counter(kinds)), "damages": damages}


def _counts(kinds: tuple[str, ...], wrongs: list[Wrong], shown: int) -> dict[str, Any]:
    """How much of each kind was wrong in all cases, and the first few."""
    found = {kind: [text for wrong in wrongs for text in wrong.get(kind, ())] for kind in kinds}
    examples = {kind: texts[:shown] for kind, texts in found.items() if texts}
    return {**{kind: len(texts) for kind, texts in found.items()}, "examples": examples}


def _totals(result: dict[str, Any]) -> dict[str, Any]:
    """Cases by part, and what was wrong in all of them together."""
    fault_rows, power_rows = result.get("faults", []), result.get("power", [])
    damages = result.get("corruption", {}).get("damages", {}).values()
    return {
        "fault_cases": sum(row["cases"] for row in fault_rows),
        "power_states": sum(row["states"] for row in power_rows),
        "lost": sum(row["lost"] for row in [*fault_rows, *power_rows]),
        "half": sum(row["half"] for row in [*fault_rows, *power_rows]),
        "leftovers": sum(row["leftovers"] for row in [*fault_rows, *power_rows]),
        "damages": sum(tally["cases"] for tally in damages),
        "refused": sum(sum(tally["refused"].values()) for tally in damages),
    }
