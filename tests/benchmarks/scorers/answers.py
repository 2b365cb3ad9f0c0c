"""The figures of ``answers``: from raw generations to shares, with no model present."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from agentkv.evidence.records import Item
from agentkv.evidence.scoring import scorer
from agentkv.figures import share
from agentkv.records import Decision, Turn
from agentkv.skills.questions import Route, contains_answer

ANSWERS = "answers"


def answer_item(key: str, skill: str, route: Route, turn: Turn, reread: Turn | None) -> Item:
    """A question of ``skill``, what was answered from a graft, and what by reading."""
    raw = {
        **{name: getattr(turn.decision, name) for name in ("raw_pick", "pick", "fallback")},
        "scores": list(turn.decision.scores.items()),
        "router_tokens": turn.decision.tokens,
        "not_restored": turn.not_restored,
        "graft": _answer(turn),
        "reread": None if reread is None else _answer(reread),
    }
    return Item(key, raw, _expected(route, skill), turn.tokens.model_dump())


def abstention_item(key: str, route: Route, decision: Decision) -> Item:
    """A question that no skill covers, and what the router made of it."""
    return Item(key, {"raw_pick": decision.raw_pick, "pick": decision.pick}, _expected(route, None))


def _expected(route: Route, skill: str | None) -> dict[str, Any]:
    return {"query": route.query, "skill": skill, "answers": list(route.answers)}


def _answer(turn: Turn) -> dict[str, Any]:
    return {
        "text": turn.text,
        "token_ids": list(turn.token_ids),
        "logits_sha256": turn.logits_sha256,
        "ms": turn.ms.model_dump(),
    }


def answer_row(item: Item) -> dict[str, Any]:
    """One question's line of the result, from its raw generations."""
    raw, expected, graft, reread = item.raw, item.expected, item.raw["graft"], item.raw["reread"]
    same = reread is not None and all(graft[key] == reread[key] for key in ("token_ids", "logits_sha256"))
    return {
        "query": expected["query"],
        "skill": expected["skill"],
        **{key: raw[key] for key in ("raw_pick", "pick", "fallback")},
        "scores": dict(raw["scores"]),
        "routed": raw["pick"] == expected["skill"],
        "text": graft["text"],
        "right": contains_answer(graft["text"], expected["answers"]),
        "identical": None if reread is None else raw["not_restored"] is None and same,
        "logits_sha256": graft["logits_sha256"],
        "tokens": item.tokens,
        "ms": graft["ms"],
        "reread_ms": None if reread is None else reread["ms"],
        "router_tokens": raw["router_tokens"],
    }


@scorer(ANSWERS, 1)
def answers(items: Sequence[Item]) -> dict[str, Any]:
    """The summary of ``answers``."""
    rows = [answer_row(item) for item in items if item.expected["skill"] is not None]
    abstained = [item.raw["pick"] is None for item in items if item.expected["skill"] is None]
    compared = [row for row in rows if row["identical"] is not None]
    routed = [row for row in rows if row["routed"]]
    return {
        "routed": share(len(routed), len(rows)),
        "answered": share(sum(row["right"] for row in rows), len(rows)),
        "answered_when_routed": share(sum(row["right"] for row in routed), len(routed)),
        "identical": share(sum(row["identical"] for row in compared), len(compared)),
        "abstained_on_covered": share(sum(row["pick"] is None for row in rows), len(rows)),
        "abstained_on_uncovered": share(sum(abstained), len(abstained)),
        "median_ms_to_first_token": {
            "graft": statistics.median(row["ms"]["restore"] + row["ms"]["prefill"] for row in rows),
            "reread": statistics.median(row["reread_ms"]["prefill"] for row in compared) if compared else None,
        },
        "median_router_tokens": statistics.median(row["router_tokens"] for row in rows),
        "median_router_ms": statistics.median(row["ms"]["route"] for row in rows),
    }
