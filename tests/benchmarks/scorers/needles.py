"""The figures of ``needles``: found, said, and said without being there; ``needle/NNN`` as seen."""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import aim, share, spread

MOST_PREFILLED, LEAST = 60, 0.98
_MARKS = " \t\n.,;:!?\"'`*()[]«»“”‘’"


def is_value(answer: str | None, value: str) -> bool:
    """Whether an answer is the value and nothing else; case, white space and marks at the ends do not count.

    >>> is_value('"Amber  heron."', "amber heron"), is_value("It is amber heron", "amber heron")
    (True, False)
    """
    return answer is not None and _plain(answer) == _plain(value)


def _plain(text: str) -> str:
    return " ".join(text.strip(_MARKS).split()).casefold()


@measured("needles")
def figures(raw: Raw) -> dict[str, Any]:
    """Shares with Wilson intervals, and times."""
    rows = [_needle(key, record) for key, record in raw.items() if key.startswith("needle/")]
    n, depths = len(rows), [row["depth"] for row in rows]
    corpus = raw["corpus"]
    first, both = sum(row["rank"] == 1 for row in rows), sum(row["rank"] == 1 and row["said"] for row in rows)
    told = sum(row["said"] for row in rows)
    prefilled = [row["prefilled"] for row in rows]
    leaked = [row["needle"] for row in rows if row["leaked"]]
    return {
        "corpus": corpus,
        "needles": rows,
        "asked": n,
        "left_out": corpus["needles"] - n,
        "depth": {"first": min(depths, default=None), "last": max(depths, default=None), "of": corpus["windows"]},
        "retrieved": share(first, n),
        "among_five": share(sum(row["rank"] is not None for row in rows), n),
        "said": share(told, n),
        "retrieved_and_said": share(both, n),
        "quote_right": share(sum(row["quote_right"] for row in rows), n),
        "control_own": share(sum(row["own"] for row in rows), n),
        "control_other": share(sum(row["other"] for row in rows), n),
        "leaked": leaked,
        "prefilled": spread([float(count) for count in prefilled]),
        "ms": {key: spread([row[f"{key}_ms"] for row in rows]) for key in ("find", "restore", "answer")},
        "aims": [
            aim("retrieved", first / n if n else 0.0, LEAST, least=True),
            aim("said", told / n if n else 0.0, LEAST, least=True),
            aim("tokens prefilled, at most", max(prefilled, default=0), MOST_PREFILLED),
        ],
    }


def _needle(key: str, record: dict[str, Any]) -> dict[str, Any]:
    value = record["value"]
    rank = next((place for place, index in enumerate(record["ranked"], 1) if index in record["holding"]), None)
    return {
        "needle": key.partition("/")[2],
        **{name: record[name] for name in ("question", "value", "answer", "quote", "depth", "find_ms", "restore_ms")},
        "answer_ms": record["answer_ms"],
        "rank": rank,
        "said": is_value(record["answer"], value),
        "quote_right": record["quote"] is not None
        and bool(record["verified"])
        and record["quote"] == record["sentence"],
        "own": is_value(record["own"]["text"], value),
        "other": is_value(record["other"]["text"], value),
        "leaked": _plain(value) in _plain(record["other"]["text"]),
        "prefilled": record["tokens"]["prefilled"],
        "read_now": record["read_now"],
    }
