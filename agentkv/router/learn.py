"""Learning to route from labelled questions: features, fit, and the file that keeps them.

Deterministic: the same questions, library and model give the same weights. Features are leave-one-out: a question's own
copy is left out while its features are made, as it will not be there when somebody asks. The model's word whether a
skill fits costs each decision some tokens, so where it had no weight it gets one only if that routes more held-out
questions rightly. Not guaranteed: that weights of one model suit another, so each fingerprint has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ValidationError

from agentkv.errors import CorruptBlock
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json
from agentkv.records import Count, Record, Sha256
from agentkv.router.base import Candidate
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.evaluate import Labelled
from agentkv.router.weights import FEATURES, LOSE, Examples, Rows, Weights, held_out, taught

_LIMIT = 16 << 20


class Learned(Record):
    """What a router of one fingerprint has learned: its weights, and the questions by label that it compares with.

    ``right_before`` and ``right_after``: of the ``weights.fitted_on`` questions, how many the weights it began with got
    right, and how many weights that were fitted without them. If that was fewer, the weights stayed as they were.
    NONE's weight is in both counts one that the others would have set.
    """

    format: Literal[1] = 1
    fingerprint_id: Sha256
    classifier: str
    weights: Weights
    right_before: Count
    right_after: Count
    labelled: dict[str, list[str]]


def learn(
    classifier: ChannelClassifier,
    questions: Sequence[Labelled],
    candidates: Mapping[str, Candidate],
    fingerprint_id: str,
    progress: Callable[[Iterable[Labelled]], Iterable[Labelled]] = lambda items: items,
    lose: float = LOSE,
) -> Learned:
    """Fit weights on ``questions``; those whose label is not a candidate are left out, a label of None means NONE.

    ``progress`` is passed the questions as they are worked on. ``lose``: the share of questions that may lose their
    label to NONE.
    """
    live = [question for question in questions if question.label is None or question.label in candidates]
    labelled = by_label(live)
    student = classifier.with_learned(classifier.weights, labelled)
    examples: list[tuple[Rows, int | None]] = []
    for question in progress(live):
        known = student.features(question.query, candidates, leave_one_out=True)
        if question.label is None:
            examples.append((known.rows, None))
        elif question.label in known.labels:
            examples.append((known.rows, known.labels.index(question.label)))
    weights, before, after = best_taught(examples, classifier.weights, lose)
    return Learned(
        fingerprint_id=fingerprint_id,
        classifier=f"{classifier.name}/{classifier.version}",
        weights=weights,
        right_before=before,
        right_after=after,
        labelled=labelled,
    )


def best_taught(examples: Examples, start: Weights, lose: float) -> tuple[Weights, int, int]:
    """What is learned from ``examples``, and how many are right by ``start`` and by weights taught without them.

    It is ``start`` if fewer are right then. Without and with the model's word, if that had no weight so far; on a tie
    without, which is cheaper.
    """
    silent = np.array([name != "fits" for name in FEATURES], np.float64)
    ways = [examples] if start.fits else [[(rows * silent, right) for rows, right in examples], examples]
    (before, after), way = max(((held_out(way, start, lose), way) for way in ways), key=lambda tried: tried[0][1])
    return taught(way, start, lose) if way and after >= before else start, before, after


def by_label(questions: Sequence[Labelled]) -> dict[str, list[str]]:
    """The questions of each label, in the order of their labels."""
    found: dict[str, list[str]] = {}
    for question in questions:
        if question.label is not None:
            found.setdefault(question.label, []).append(question.query)
    return dict(sorted(found.items()))


def apart(questions: Sequence[Labelled], train: Sequence[Labelled]) -> list[Labelled]:
    """``questions`` without those that are in ``train``, case and white space ignored."""
    known = {" ".join(question.query.casefold().split()) for question in train}
    return [question for question in questions if " ".join(question.query.casefold().split()) not in known]


def save(learned: Learned, folder: Path) -> Path:
    """Write the file, atomically; its path."""
    path = folder / f"{learned.fingerprint_id}.json"
    fsio.write_durably(path, [canonical_json(learned.model_dump(mode="json")) + b"\n"])
    return path


def forget(folder: Path, fingerprint_id: str) -> bool:
    """Remove the file; False if nothing was learned."""
    return fsio.remove_file(folder / f"{fingerprint_id}.json", sync_parent=True)


def load(folder: Path, fingerprint_id: str) -> Learned | None:
    """What was learned for this fingerprint, by whatever classifier, or None.

    Raises CorruptBlock, StoreReadError.
    """
    path = folder / f"{fingerprint_id}.json"
    data = fsio.read_regular(path, _LIMIT)
    if data is None:
        return None
    try:
        learned = Learned.model_validate_json(data)
    except ValidationError as error:
        raise CorruptBlock("what the router has learned", path, error.errors()[0]["msg"]) from error
    return learned if learned.fingerprint_id == fingerprint_id else None
