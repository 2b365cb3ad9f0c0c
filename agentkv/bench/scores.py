"""The scorers of benchmarks whose runs a ledger records: from raw generations to figures, with no model present.

A benchmark records with :func:`answer_item` or :func:`decision_item` and reports with the same pure functions as the
scorer, so that its figures can be computed anew from what it recorded, and from nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from agentkv.bench.grading import Route, contains_answer
from agentkv.evidence.records import Item
from agentkv.evidence.scoring import scorer
from agentkv.figures import share
from agentkv.hashing import sha256
from agentkv.records import Decision, Turn
from agentkv.router.base import NONE
from agentkv.router.evaluate import Routed, summary

ANSWERS, EVALUATE = "answers", "route evaluate"
KEPT_SCORES = 5


# --- answers --------------------------------------------------------------------------------------


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
    """The summary of ``agentkv bench answers``."""
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


# --- route evaluate -------------------------------------------------------------------------------


def decision_item(row: int, number: int, size: int, made_up: int, routed: Routed) -> Item:
    """A question, its label, and the decision in a library of ``size``. Scores are a list: their order counts.

    ``row``: which of the sizes that the run was asked for; ``number``: which question.
    """
    raw = routed.decision.model_dump(mode="json") | {"scores": list(routed.decision.scores.items())}
    figures = {"row": row, "size": size, "made_up": made_up}
    return Item(f"{row}/{number}", raw, {"query": routed.query, "label": routed.label}, figures=figures)


def kept_scores(scores: Sequence[Any]) -> list[Any]:
    """Of pairs of label and score the best few and that of NONE, in their order."""
    best = [pair for pair in scores if pair[0] != NONE][:KEPT_SCORES]
    return [pair for pair in scores if pair in best or pair[0] == NONE]


def without_text(item: Item) -> Item:
    """A decision for a result file: the question's SHA-256, and of the scores the five best and that of NONE.

    The scorer gives the same figures for it; the question itself is only in the ledger.
    """
    expected = {"query": sha256(item.expected["query"].encode()), "label": item.expected["label"]}
    return Item(item.key, {**item.raw, "scores": kept_scores(item.raw["scores"])}, expected, figures=item.figures)


@scorer(EVALUATE, 1)
def evaluate(items: Sequence[Item]) -> dict[str, Any]:
    """The figures of ``agentkv route evaluate``, one row a library size, in the order of the run."""
    sizes: dict[tuple[int, int, int], list[Routed]] = {}
    for item in items:
        figures = item.figures or {}
        decision = Decision.model_validate(item.raw | {"scores": dict(item.raw["scores"])})
        routed = Routed(item.expected["query"], item.expected["label"], decision)
        sizes.setdefault((figures["row"], figures["size"], figures["made_up"]), []).append(routed)
    return {
        "sizes": [{"size": size, "made_up": made_up, **summary(rows)} for (_, size, made_up), rows in sizes.items()]
    }
