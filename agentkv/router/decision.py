"""From a classifier's raw pick to what is grafted: one documented normalisation, then a policy, all on record.

Normalisation: the very label, else surrounding white space off, then casefold, compared as a whole with the live
labels and only if one matches. No prefix, no substring, no index. Whatever else was picked goes to the fallback, which
is the caller's policy; the reason says what was picked and what was done.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from enum import StrEnum

from agentkv.errors import InvalidPick
from agentkv.records import Decision
from agentkv.router.base import NONE, Candidate, Classification, Classifier
from agentkv.router.lexical import LexicalIndex


def normalised(pick: str, labels: Collection[str]) -> str | None:
    """The live label that ``pick`` names, or None; the very label comes before one that differs in case."""
    if pick == NONE or pick in labels:
        return None if pick == NONE else pick
    folded = pick.strip().casefold()
    matches = [label for label in labels if label.casefold() == folded]
    return matches[0] if len(matches) == 1 else None


class Fallback(StrEnum):
    """What is done with a raw pick that is not a live label. That no skill fits is a pick, not a case for this."""

    NO_BLOCK = "no-block"
    RUNNER_UP = "runner-up"
    """The live label with the best score of the same classifier."""
    LEXICAL = "lexical"
    """The live label whose name, description and text are lexically nearest, if they share any words."""
    ERROR = "error"


def decide(
    classifier: Classifier,
    question: str,
    candidates: Mapping[str, Candidate],
    fallback: Fallback = Fallback.NO_BLOCK,
) -> Decision:
    """Route one question; on account of what the classifier answered it raises only InvalidPick, for Fallback.ERROR."""
    start = time.perf_counter()
    result = classifier.classify(question, candidates)
    pick = normalised(result.raw_pick, candidates)
    reason = None
    if not candidates:
        reason = "no skill is stored: no block"
    elif pick is None and result.raw_pick != NONE:
        pick = _instead(fallback, result, question, candidates)
        reason = f"{result.raw_pick!r} is not a live label: {fallback.value}"
        reason += "" if pick is not None or fallback is Fallback.NO_BLOCK else ", and there is none: no block"
    return Decision(
        raw_pick=result.raw_pick,
        pick=pick,
        fallback=reason,
        scores={label: round(score, 4) for label, score in result.scores.items()},
        classifier=f"{classifier.name}/{classifier.version}",
        tokens=result.tokens,
        ms=(time.perf_counter() - start) * 1e3,
        confidence=result.confidence,
    )


def _instead(
    fallback: Fallback, result: Classification, question: str, candidates: Mapping[str, Candidate]
) -> str | None:
    if fallback is Fallback.ERROR:
        raise InvalidPick(result.raw_pick, sorted(candidates))
    if fallback is Fallback.RUNNER_UP:
        scored = [label for label in candidates if label in result.scores]
        return max(scored, key=lambda label: (result.scores[label], label), default=None)
    if fallback is Fallback.LEXICAL:
        texts = {label: known.words(label) for label, known in candidates.items()}
        words = LexicalIndex(texts).similarity(question)
        best = max(words, key=lambda label: (words[label], label))
        return best if words[best] > 0 else None
    return None


def given(pick: str | None) -> Decision:
    """The record of a turn whose block the caller named."""
    return Decision(raw_pick=pick or NONE, pick=pick, fallback=None, scores={}, classifier="caller/1", tokens=0, ms=0.0)
