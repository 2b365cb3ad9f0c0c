"""The figures of ``agentkv bench route``.

``size/N``, ``learned`` and ``reading/N``: every decision, with the five best scores and that of NONE, in their order;
``order``: the picks as the catalogue is and in each shuffle; ``begging``: the picks before and behind each begging
description; ``cost``: milliseconds of each decision and each answer.
"""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import share, spread
from agentkv.records import Decision
from agentkv.router.evaluate import Routed, summary


@measured("route")
def figures(raw: Raw) -> dict[str, Any]:
    """``sizes``, ``learned`` (None where it was left out), ``reading``, ``order``, ``begging`` and ``cost``."""
    return {
        "sizes": [size(record) for key, record in raw.items() if key.startswith("size/")],
        "learned": learned(raw["learned"]) if "learned" in raw else None,
        "reading": [reading(record) for key, record in raw.items() if key.startswith("reading/")],
        "order": order(raw["order"]),
        "begging": begging(raw["begging"]),
        "cost": cost(raw["cost"]),
    }


def size(record: dict[str, Any]) -> dict[str, Any]:
    """Of one library."""
    routed = [_routed(one) for one in record["decisions"]]
    return {"size": record["size"], "made_up": record["made_up"], **summary(routed)}


def learned(record: dict[str, Any]) -> dict[str, Any]:
    """The same, with what it learned from."""
    return {**size(record), "lessons": record["lessons"], "weights": record["weights"]}


def reading(record: dict[str, Any]) -> dict[str, Any]:
    """Accuracy and cost where the model reads so many candidates of each question."""
    told = summary([_routed(one) for one in record["decisions"]])
    kept = ("right", "abstained_on_covered", "abstained_on_uncovered", "tokens", "ms")
    return {"read": record["read"], **{name: told[name] for name in kept}}


def _routed(record: dict[str, Any]) -> Routed:
    decision = Decision.model_validate(record["decision"] | {"scores": dict(record["decision"]["scores"])})
    return Routed(record["query"], record["label"], decision)


def order(record: dict[str, Any]) -> dict[str, Any]:
    """How many picks another order changed."""
    straight, shuffled = record["straight"], record["shuffled"]
    changed = sum(one != two for picks in shuffled for one, two in zip(picks, straight, strict=True))
    n = len(shuffled) * len(straight)
    return {"shuffles": len(shuffled), "questions": len(straight), "changed": share(changed, n)}


def begging(record: dict[str, Any]) -> dict[str, Any]:
    """How often a tool is picked that begs, against before; None where none was picked before."""
    before = record["before"]
    rows = [
        {"name": one["name"], "before": before.count(one["name"]), "after": one["picks"].count(one["name"])}
        for one in record["after"]
    ]
    total = sum(row["before"] for row in rows)
    times = sum(row["after"] for row in rows) / total if total else None
    return {"questions": len(before), "beggars": rows, "times_as_often": times}


def cost(record: dict[str, Any]) -> dict[str, Any]:
    """A decision's share of an answer's time."""
    decision, answer = spread(record["decision_ms"]), spread(record["answer_ms"])
    return {
        "decision_ms": decision,
        "answer_tokens": record["answer_tokens"],
        "answer_ms": answer,
        "share_of_answer": decision["median"] / answer["median"],
    }
