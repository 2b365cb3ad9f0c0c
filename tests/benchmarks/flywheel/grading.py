"""Right or wrong, from what was recorded: pure functions, and the scorers of the flywheel's benchmarks.

A program's answer is compared by type and value, numbers within half a cent. A reply in words is right if its last
number, or for a text the reply after its last "answer", is the true one: read generously, since it is the comparison
and not the claim.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any

from agentkv.evidence.records import Item
from agentkv.evidence.scoring import scorer
from agentkv.figures import share
from agentkv.flywheel import values
from agentkv.flywheel.values import same
from agentkv.skills.questions import is_denied
from tests.benchmarks.flywheel.families.base import TOLERANCE

FAMILIES, INTERFERENCE, AIME, VARIANTS = "bench families", "bench interference", "bench aime", "bench variants"
NEGATIVES = "bench negatives"
WAYS = ("fill", "rewrite", "substitute")
_NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?")


def is_same(answer: Any, expected: Any) -> bool:
    """Whether a value is the true one."""
    return same(answer, expected, TOLERANCE)


def said_rightly(reply: str, expected: Any) -> bool:
    """Whether a reply in words gives the true answer."""
    tail = re.split(r"answer\b[^\w*]*(?:is\b)?", reply, flags=re.IGNORECASE)[-1]
    if type(expected) in (int, float):
        there = _said(_NUMBER, tail)
        found = there or _said(_NUMBER, reply)
        near = found[0] if len(tail) < len(reply) and there else found[-1] if found else None
        return near is not None and is_same(float(near.replace(",", "")), float(expected))
    text = str(expected).casefold()
    return bool(_said(re.compile(rf"(?<![\w*-]){re.escape(text)}(?![\w*-])"), tail.casefold()))


def _said(pattern: re.Pattern[str], text: str) -> list[str]:
    """What is found, but for what the text denies."""
    flat = " ".join(text.split())
    return [match[0] for match in pattern.finditer(flat) if not is_denied(flat, match.start(), match.end())]


def families_row(item: Item) -> dict[str, Any]:
    """One held-out instance: was it routed, filled and answered rightly."""
    raw, expected = item.raw, item.expected
    direct = raw["direct"]
    return {
        "family": expected["family"],
        "routed": raw["pick"] == expected["block"],
        "abstained": raw["pick"] is None,
        "filled": raw["parameters"] is not None and same(raw["parameters"], expected["parameters"], TOLERANCE),
        "answered": raw["answered"] and is_same(raw["answer"], expected["answer"]),
        "answered_given": None if raw["given"] is None else is_same(raw["given"]["answer"], expected["answer"]),
        "answered_typed": None if raw["typed"] is None else is_same(raw["typed"]["answer"], expected["answer"]),
        "substituted": is_same(raw["substituted"], expected["answer"]),
        "direct": None if direct is None else said_rightly(direct["text"], expected["answer"]),
        "tokens": (item.tokens or {}).get("generated", 0),
        "direct_tokens": None if direct is None else direct["tokens"],
        "ms": raw["ms"],
    }


@scorer(FAMILIES, 1)
def families(items: Sequence[Item]) -> dict[str, Any]:
    """The summary of ``families``."""
    rows = [families_row(item) for item in items]
    by_family: dict[str, list[int]] = {}
    for row in rows:
        known = by_family.setdefault(row["family"], [0, 0])
        known[0] += row["answered"]
        known[1] += 1

    def counted(name: str) -> dict[str, Any]:
        measured = [row[name] for row in rows if row[name] is not None]
        return share(sum(measured), len(measured))

    direct = [row["direct_tokens"] for row in rows if row["direct_tokens"] is not None]
    return {
        "instances": len(rows),
        "families": {name: f"{right} of {n}" for name, (right, n) in sorted(by_family.items())},
        **{
            name: counted(name)
            for name in (
                *("routed", "abstained", "filled", "answered", "answered_given", "answered_typed", "substituted"),
                "direct",
            )
        },
        "tokens": {"sum": sum(row["tokens"] for row in rows), "a_task": _mean([row["tokens"] for row in rows])},
        "direct_tokens": {"sum": sum(direct), "a_task": _mean(direct)},
    }


def _mean(values: Sequence[int]) -> float:
    return round(statistics.fmean(values), 1) if values else 0.0


@scorer(INTERFERENCE, 1)
def interference(items: Sequence[Item]) -> dict[str, Any]:
    """The summary of ``interference``: one routed block against all of them in one prompt."""
    rows = [
        {key: is_same(item.raw[key]["answer"], item.expected["answer"]) for key in ("one", "all")} for item in items
    ]
    routed = [item.raw["pick"] == item.expected["block"] for item in items]
    return {
        "routed": share(sum(routed), len(items)),
        "one_block": share(sum(row["one"] for row in rows), len(rows)),
        "all_blocks": share(sum(row["all"] for row in rows), len(rows)),
        "only_one_block": sum(row["one"] and not row["all"] for row in rows),
        "only_all_blocks": sum(row["all"] and not row["one"] for row in rows),
        "prompt_tokens": {
            key: _mean([item.raw[key]["tokens"]["restored"] + item.raw[key]["tokens"]["prefilled"] for item in items])
            for key in ("one", "all")
        },
    }


@scorer(AIME, 1)
def aime(items: Sequence[Item]) -> dict[str, Any]:
    """The summary of ``aime``, from its records."""
    base = {item.key.removeprefix("base/"): item for item in items if item.key.startswith("base/")}
    learned = [item.key.removeprefix("learned/") for item in items if item.key.startswith("learned/")]
    repeats = [item.raw["rows"] for item in items if item.key.startswith("recall/")]
    right = {key: is_same(item.raw["answer"], item.expected["answer"]) for key, item in base.items()}
    sure = [key for key, item in base.items() if item.raw["confident"]]
    ever = [any(one["verdict"] == "verified" for one in item.raw["attempts"]) for item in base.values()]
    recalled = {row["id"] for row in repeats[0] if row["right"]} if repeats else set()
    seen = [[(row["id"], row["read"], row["logits_sha256"]) for row in rows] for rows in repeats]
    return {
        "base": share(sum(right.values()), len(base)),
        "base_confident": share(sum(right[key] for key in sure), len(sure)),
        "base_any_sample": share(sum(ever), len(base)),
        "base_answered": [
            sum(one["answer"] is not None for item in base.values() for one in item.raw["attempts"]),
            sum(len(item.raw["attempts"]) for item in base.values()),
        ],
        "base_tokens": sum((item.tokens or {}).get("generated", 0) for item in base.values()),
        "base_seconds": round(sum(item.raw["seconds"] for item in base.values()), 1),
        "base_joules": _joules([item.raw["joules"] for item in base.values()]),
        "library": learned,
        "recurrence": share(len(recalled), len(learned)),
        "recurrence_read_rightly": sum(row["read_rightly"] for row in repeats[0]) if repeats else 0,
        "recurrence_tokens": sum(row["tokens"] for row in repeats[0]) if repeats else 0,
        "recurrence_seconds": round(sum(row["seconds"] for row in repeats[0]), 3) if repeats else 0.0,
        "recurrence_check_seconds": round(sum(row.get("check_seconds", 0.0) for row in repeats[0]), 3)
        if repeats
        else 0.0,
        "recurrence_joules": [item.raw["joules"] for item in items if item.key.startswith("recall/")],
        "repeats": len(repeats),
        "repeats_equal": all(one == seen[0] for one in seen),
        "system": share(sum(right[key] or key in recalled for key in right), len(base)),
    }


def _joules(measured: Sequence[float | None]) -> float | None:
    """The sum; None where one was not measured."""
    known = [one for one in measured if one is not None]
    return round(sum(known), 3) if known and len(known) == len(measured) else None


def variants_row(item: Item) -> dict[str, Any]:
    """One variant: routed, and by each way answered rightly, from the routed block and from the right one."""
    raw, expected = item.raw, item.expected

    def right(outcome: dict[str, Any] | None) -> bool:
        return outcome is not None and outcome["answered"] and is_same(outcome["answer"], expected["answer"])

    return {
        "variant": item.key,
        "routed": raw["pick"] == expected["block"],
        "abstained": raw["pick"] is None,
        "answered": {way: right(raw["ways"][way]) for way in WAYS},
        "answered_given": {way: right(raw["given"][way]) for way in WAYS},
        "filled": raw["given"]["fill"]["parameters"] == expected["parameters"],
    }


@scorer(VARIANTS, 1)
def variants(items: Sequence[Item]) -> dict[str, Any]:
    """The summary of ``variants``."""
    rows = [variants_row(item) for item in items]
    n = len(rows)

    def by_way(key: str) -> dict[str, Any]:
        return {way: share(sum(row[key][way] for row in rows), n) for way in WAYS}

    tokens = {way: sum((item.raw["ways"][way] or {}).get("tokens", 0) for item in items) for way in ("fill", "rewrite")}
    return {
        "variants": n,
        "routed": share(sum(row["routed"] for row in rows), n),
        "abstained": share(sum(row["abstained"] for row in rows), n),
        "answered": by_way("answered"),
        "answered_given": by_way("answered_given"),
        "tokens": tokens,
        "missed": {way: [row["variant"] for row in rows if not row["answered"][way]] for way in WAYS},
    }


@scorer(NEGATIVES, 1)
def negatives(items: Sequence[Item]) -> dict[str, Any]:
    """The figures of ``negatives``; answers behind the procedure and without it are judged again."""

    def under(part: str) -> list[Item]:
        return [item for item in items if item.key.startswith(f"{part}/")]

    def right(part: str) -> int:
        return sum(_is_value(item.raw["generated"], item.expected["answer"]) for item in under(part))

    told = next(item.raw for item in items if item.key == "procedure")
    return {
        "easy": [{"id": item.key.removeprefix("easy/"), **item.raw} for item in under("easy")],
        "procedure": {"without": right("without"), "behind": right("behind"), "n": len(under("without")), **told},
        "baked": [{"id": item.key.removeprefix("baked/"), **item.raw} for item in under("baked")],
    }


def marks(row: dict[str, Any]) -> list[str]:
    """What a solution of ``negatives`` is marked with: constants of its task, parameters that it ignores."""
    baked = [f"{one['value']} ({one['of']})" for one in row["baked_in"]]
    return baked + [f"{name} is ignored" for name in row["ignored"]]


def _is_value(text: str, expected: Any) -> bool:
    try:
        return is_same(values.decode(text), expected)
    except ValueError:
        return False
