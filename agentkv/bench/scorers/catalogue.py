"""The figures of ``agentkv bench catalogue``: a record a number of blocks, with each question's answers by process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import spread


@measured("catalogue")
def figures(raw: Raw) -> dict[str, Any]:
    """``counts`` and ``growth``."""
    rows = [
        {"blocks": int(key), "questions": {one["question"]: _question(one["answers"]) for one in record}}
        for key, record in raw.items()
    ]
    return {"counts": rows, "growth": growth(rows)}


def _question(answers: list[dict[str, Any]]) -> dict[str, Any]:
    times = {key: spread([one[key] for one in answers]) for key in ("open_ms", "first_ms", "again_ms")}
    return {**times, "right": all(one["right"] for one in answers)}


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The exponent by question, ``first`` and ``again``; nothing for a single count."""
    if len(rows) < 2:
        return {}
    small, large = rows[0], rows[-1]
    factor = math.log(large["blocks"] / small["blocks"])
    return {
        name: {
            when: math.log(large["questions"][name][when]["median"] / small["questions"][name][when]["median"]) / factor
            for when in ("first_ms", "again_ms")
        }
        for name in large["questions"]
    }
