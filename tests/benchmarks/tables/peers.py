"""Beside what people use today: times, bytes, tokens and bits of each arm, and what it does with what is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkv.bench.base import markdown
from agentkv.bench.results import Result
from tests.benchmarks.scorers.peers import FAULTS
from tests.benchmarks.tables.base import gigabytes, megabytes, milliseconds


def speed(results: Sequence[Result]) -> str:
    """A row an arm and place of the state; times by length, everything else at the longest that the arm did."""
    rows: list[list[str]] = []
    lengths = sorted({row["n"] for one in results for row in one.data["rows"]})
    for one in results:
        rows += _cold(one, lengths)
        places = dict.fromkeys((row["label"], row["home"]) for row in one.data["rows"])
        for label, home in places:
            mine = {row["n"]: row for row in one.data["rows"] if (row["label"], row["home"]) == (label, home)}
            rows.append([one.model, label, home, *_speed_row(mine, lengths)])
        rows += [
            [one.model, failed["label"], failed["home"] or "", f"{failed['n']:,} tokens: {failed['reason']}", *[""] * 9]
            for failed in one.data["failed"]
        ]
    at = " / ".join(f"{n:,}" for n in lengths)
    headings = (
        *("model", "arm", "state in", f"restore, at {at} tokens", "restore + first token", "of agentkv’s"),
        *("saving, of agentkv’s", "on disk", "of agentkv’s", "peak memory"),
        *("tokens evaluated", "steps equal", "break-even at"),
    )
    return markdown(headings, rows)


def _cold(result: Result, lengths: Sequence[int]) -> list[list[str]]:
    """Reading without anything kept, by family of engine."""
    rows = []
    for family in dict.fromkeys(one["family"] for one in result.data["cold_prefill"]):
        mine = {one["n"]: one for one in result.data["cold_prefill"] if one["family"] == family}
        times = _each(lengths, mine, lambda one: milliseconds(one["read_ms"] + one["first_ms"]))
        last = mine[max(mine)]
        peak = gigabytes(last["peak_bytes"]) if last["peak_bytes"] else ""
        rows.append([result.model, f"cold prefill, {family}", "", "", f"{times} ms", *[""] * 4, peak, *[""] * 3])
    return rows


def _speed_row(mine: dict[int, dict[str, Any]], lengths: Sequence[int]) -> list[str]:
    last = mine[max(mine)]
    evaluated = ", ".join(f"{count:,}" for count in dict.fromkeys(last["evaluated_each"]))
    kind = "" if last["evidence"] == "bits" else " tokens*"
    return [
        _each(lengths, mine, lambda row: milliseconds(row["restore_ms"]["median"])) + " ms",
        _each(lengths, mine, lambda row: milliseconds(row["total_ms"]["median"])) + " ms",
        _each(lengths, mine, lambda row: _times(row["of_agentkv"]["total_ms"])),
        f"{milliseconds(last['save_ms'])} ms, {_times(last['of_agentkv']['save_ms'])}",
        megabytes(last["bytes"]) if last["bytes"] else "",
        _times(last["of_agentkv"]["bytes"]),
        gigabytes(last["peak_bytes"]) if last["peak_bytes"] else "",
        evaluated,
        f"{last['steps_equal']}/{last['steps']}{kind}",
        f"{last['break_even']:,} tokens",
    ]


def _each(lengths: Sequence[int], rows: dict[int, dict[str, Any]], told: Any) -> str:
    return " / ".join(told(rows[n]) if n in rows else "–" for n in lengths)


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    digits = 2 if ratio < 0.1 else 1 if ratio < 10 else 0
    return f"{ratio:.{digits}f} ×"


def faults(results: Sequence[Result]) -> str:
    """A row an arm, a column a fault: passed or failed, and how each case ended."""
    rows = []
    for one in results:
        for label in dict.fromkeys(row["label"] for row in one.data["faults"]):
            found = {row["fault"]: row for row in one.data["faults"] if row["label"] == label}
            rows.append([one.model, label, *(_verdict(found.get(name)) for name in FAULTS)])
    return markdown(("model", "arm", *FAULTS), rows)


def _verdict(row: dict[str, Any] | None) -> str:
    if row is None:
        return "in memory only"
    passed = sum(case["passed"] for case in row["cases"])
    counted = f"{passed} of {len(row['cases'])}" if len(row["cases"]) > 1 else ""
    return ": ".join(filter(None, ("pass" if row["passed"] else "**fail**", counted, row["outcome"])))
