"""Right or wrong: pure functions.

A program's answer is compared by type and value, numbers within half a cent. A reply in prose is right if its last
number, or for a text the reply after its last "answer", is the true one: taken generously, since it is the comparison
and not the claim.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any

from agentkv.flywheel.values import same
from agentkv.skills.questions import is_denied
from tests.benchmarks.flywheel.families.base import TOLERANCE

_NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?")


def is_same(answer: Any, expected: Any) -> bool:
    """Whether a value is the true one."""
    return same(answer, expected, TOLERANCE)


def said_rightly(reply: str, expected: Any) -> bool:
    """Whether a reply in prose gives the true answer."""
    tail = re.split(r"answer\b[^\w*]*(?:is\b)?", reply, flags=re.IGNORECASE)[-1]
    if type(expected) in (int, float):
        there = _asserted(_NUMBER, tail)
        numbers = there or _asserted(_NUMBER, reply)
        near = numbers[0] if len(tail) < len(reply) and there else numbers[-1] if numbers else None
        return near is not None and is_same(float(near.replace(",", "")), float(expected))
    text = str(expected).casefold()
    return bool(_asserted(re.compile(rf"(?<![\w*-]){re.escape(text)}(?![\w*-])"), tail.casefold()))


def _asserted(pattern: re.Pattern[str], text: str) -> list[str]:
    """Every match, but for what the text denies."""
    flat = " ".join(text.split())
    return [match[0] for match in pattern.finditer(flat) if not is_denied(flat, match.start(), match.end())]


def mean(values: Sequence[int]) -> float:
    """To a tenth; 0 of none."""
    return round(statistics.fmean(values), 1) if values else 0.0
