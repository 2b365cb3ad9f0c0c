"""From a classifier's raw pick to what is grafted: one documented normalisation, then a policy, all on record.

Normalisation: the very label, else surrounding white space off, then casefold, compared as a whole with the live
labels and only if one matches. No prefix, no
substring, no index. Whatever else was picked goes to the fallback: no block, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from agentkv.records import Decision
from agentkv.router.base import NONE, Candidate, Classifier


def normalised(pick: str, labels: Collection[str]) -> str | None:
    """The live label that ``pick`` names, or None; the very label comes before one that differs in case."""
    if pick == NONE or pick in labels:
        return None if pick == NONE else pick
    wanted = pick.strip().casefold()
    matches = [label for label in labels if label.casefold() == wanted]
    return matches[0] if len(matches) == 1 else None


def decide(classifier: Classifier, question: str, candidates: Mapping[str, Candidate]) -> Decision:
    """Route one question; never raises on account of what the classifier answered."""
    start = time.perf_counter()
    result = classifier.classify(question, candidates)
    pick = normalised(result.raw_pick, candidates)
    fallback = None
    if not candidates:
        fallback = "no skill is stored: no block"
    elif pick is None and result.raw_pick != NONE:
        fallback = f"{result.raw_pick!r} is not a live label: no block"
    return Decision(
        raw_pick=result.raw_pick,
        pick=pick,
        fallback=fallback,
        scores={label: round(score, 4) for label, score in result.scores.items()},
        classifier=f"{classifier.name}/{classifier.version}",
        tokens=result.tokens,
        ms=(time.perf_counter() - start) * 1e3,
    )


def given(pick: str | None) -> Decision:
    """The record of a turn whose block the caller named."""
    return Decision(raw_pick=pick or NONE, pick=pick, fallback=None, scores={}, classifier="caller/1", tokens=0, ms=0.0)
