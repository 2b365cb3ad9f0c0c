"""The figures of ``agent``; the record ``plan`` says of which part.

``conversation``: a record an arm, with a row a turn. ``secrets``: the turns asked, what each said alone, and what it
said beside the others. ``threads``: a row a turn, with what the thread said and what a fresh conversation did.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from agentkv.bench.measured import Raw, measured

LENGTHS = (1, 500)
"""Answers, in tokens, for which the conversation is computed beside the measured one."""


@measured("agent")
def figures(raw: Raw) -> dict[str, Any]:
    """Those of the part."""
    plan = raw["plan"]
    match plan["part"]:
        case "conversation":
            arms = {name: {**arm, **summary(arm, plan["before"])} for name, arm in raw.items() if name != "plan"}
            return {"manual_tokens": plan["manual_tokens"], "arms": arms, **compared(arms, plan["ours"])}
        case "secrets":
            return secrets(plan, raw["alone"], raw["together"])
        case "threads":
            return threads(plan, raw["rows"])
        case other:
            raise ValueError(f"there is no part {other!r}")


def secrets(plan: dict[str, Any], alone: list[Any], together: list[Any]) -> dict[str, Any]:
    """Leaks, and answers or logits that are not those of the turn asked alone."""
    known = {tuple(turn): said for turn, said in alone}
    turns, words = plan["turns"], plan["secrets"]
    leaks = [
        index
        for index, (text, _) in together
        if any(word in text for number, word in enumerate(words) if number != turns[index][0])
    ]
    return {
        "asked": len(together),
        "once_each": Counter(index for index, _ in together) == Counter(range(len(turns))),
        "leaks": leaks,
        "unequal": [index for index, said in together if known[tuple(turns[index])] != said],
        "own_secret": sum(words[turns[index][0]] in text for index, (text, _) in together),
        "distinct_answers": len({tuple(said) for _, said in alone}),
    }


def threads(plan: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Which turns are those of a fresh conversation, and how much each read."""
    rows = [{**row, "equal": None if row["fresh"] is None else row["fresh"] == row["thread"]} for row in records]
    told = [
        {key: row[key] for key in ("branch", "turn", "restored", "prefilled", "equal")}
        | {"logits_sha256": row["thread"]["logits_sha256"]}
        for row in rows
    ]
    equal = [row["equal"] for row in rows if row["equal"] is not None]
    return {
        "rows": told,
        "original_untouched": plan["original_untouched"],
        "turns": len(rows),
        "compared": {"k": sum(equal), "n": len(equal)},
        "most_prefilled": max(row["prefilled"] for row in rows[1:]),
    }


def summary(arm: dict[str, Any], before: int) -> dict[str, Any]:
    if "skipped" in arm:
        return {}
    rows = arm["rows"]
    steps = sum(row["generated"] - 1 for row in rows)
    token_ms = sum(row["generate_ms"] for row in rows) / steps if steps else 0.0
    restarted = next(row for row in rows if row["turn"] > before)
    usual = [row for row in rows if row["turn"] not in (1, restarted["turn"])] or rows
    out: dict[str, Any] = {
        "token_ms": token_ms,
        "first_turn": _told(rows[0]),
        "restarted": _told(restarted),
        "usual": {key: statistics.median(row[key] for row in usual) for key in ("evaluated", "first_ms", "total_ms")},
    }
    if arm["all_turns"]:
        rest = sum(row["total_ms"] - row["generate_ms"] for row in rows)
        prepare = arm["prepare"]["total_ms"] if arm["prepare"] else 0.0
        out["whole_ms"] = {
            "measured": sum(row["total_ms"] for row in rows),
            **{str(n): rest + len(rows) * (n - 1) * token_ms for n in LENGTHS},
        }
        out["whole_with_prepare_ms"] = {key: value + prepare for key, value in out["whole_ms"].items()}
        out["evaluated"] = sum(row["evaluated"] for row in rows)
    return out


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("turn", "evaluated", "first_ms", "total_ms")}


def compared(told: dict[str, Any], ours_name: str) -> dict[str, Any]:
    """Every arm against agentkv: answers that are equal, and how many times longer it took."""
    ours = told.get(ours_name, {"skipped": ""})
    if "skipped" in ours:
        return {"against": {}}
    answers = {row["turn"]: _plain(row["answer"]) for row in ours["rows"]}
    against: dict[str, Any] = {}
    for name, arm in told.items():
        if name == ours_name or "skipped" in arm:
            continue
        equal = [answers[row["turn"]] == _plain(row["answer"]) for row in arm["rows"]]
        against[name] = {
            "answers_equal": {"k": sum(equal), "n": len(equal)},
            "first_after_restart": arm["restarted"]["first_ms"] / ours["restarted"]["first_ms"],
            "usual_first": arm["usual"]["first_ms"] / ours["usual"]["first_ms"],
        }
        for key in ("whole_ms", "whole_with_prepare_ms"):
            if key in arm:
                against[name][key] = {n: value / ours[key][n] for n, value in arm[key].items()}
    return {"against": against}


def _plain(text: str) -> str:
    """White space does not count: one arm gives calls as objects, another as text."""
    return " ".join(text.split())
