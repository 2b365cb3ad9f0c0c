"""The scorer of ``agentkv route evaluate``: from recorded decisions to figures, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkv.evidence.records import Item
from agentkv.evidence.scoring import scorer
from agentkv.io.hashing import sha256
from agentkv.records import Decision
from agentkv.router.base import NONE
from agentkv.router.evaluate import Routed, summary

EVALUATE = "route evaluate"
KEPT_SCORES = 5


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
