"""Which windows a question is about: full-text search, and on top of it, where asked for, the model or an embedding.

``rerank`` orders the first windows by the model's own log probability of the question behind each, over that without
any window: how much the window makes the question expected. Each of them has to be read once for it.

``embed`` is any callable that gives vectors for texts. A window is as near as its nearest passage; the order by
nearness is fused with the full-text one by reciprocal ranks. The vectors are kept nowhere: the callable may keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.documents.index import RANK_CONSTANT, Index, Match, passages_of
from agentkv.documents.reading import Reader
from agentkv.documents.records import DocumentRecord, WindowRecord
from agentkv.documents.shelf import Shelf
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.router.vectors import Vectors

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | NDArray[np.floating[Any]]]
"""Vectors of texts, one each, all of one length; the first text is the question. See :func:`by_meaning`."""

_EMBED_POOL = 15
"""Windows whose passages are embedded for a question. On the tuned half of ``agentkv bench questions`` fusing 10 to 60
put the right window first 12 of 26 times and among three 18 or 19 times; without, 11 and 15 times."""


@dataclass(frozen=True)
class Hit:
    """A window that was found. ``start`` to ``stop`` are source bytes; ``score``: more is better, by ``method``.

    ``text``: the window's piece of the document, without its header.
    """

    key: str
    document: DocumentRecord
    number: int
    score: float
    method: str
    text: str

    @property
    def window(self) -> WindowRecord:
        """The window's record."""
        return self.document.windows[self.number]

    @property
    def path(self) -> str:
        """What the file is called."""
        return self.document.path

    @property
    def heading(self) -> str:
        """The headings in force at the window's beginning."""
        return " > ".join(self.window.trail)

    @property
    def start(self) -> int:
        """First source byte."""
        return self.window.start

    @property
    def stop(self) -> int:
        """Source byte behind the last."""
        return self.window.stop


def by_meaning(embedder: Embedder | None) -> Embed | None:
    """An embedder's vectors, each text's made once; None for none."""
    return None if embedder is None else Vectors(embedder).of


def locate(
    shelf: Shelf, index: Index, question: str, k: int, embed: Embed | None = None, *, passages: bool = True
) -> list[Hit]:
    """The ``k`` best windows for a question, best first; see :meth:`Index.search`. Raises StaleDocument."""
    documents: dict[str, DocumentRecord] = {}
    hits = []
    for match in index.search(question, k if embed is None else max(k, _EMBED_POOL), passages=passages):
        record = documents.get(match.key) or shelf.documents.sound(match.key)
        if record is None or match.number >= len(record.windows):  # retired a moment ago
            continue
        documents[match.key] = record
        hits.append(_hit(shelf, record, match))
    return hits if embed is None else _fused(question, hits, embed)[:k]


def _hit(shelf: Shelf, record: DocumentRecord, match: Match) -> Hit:
    document, window = shelf.readable(record), record.windows[match.number]
    start, stop = document.characters(window.start, window.stop)
    return Hit(match.key, record, match.number, match.score, "bm25", document.text[start:stop])


def _fused(question: str, hits: list[Hit], embed: Embed) -> list[Hit]:
    if not hits:
        return hits
    parts = [(number, part) for number, hit in enumerate(hits) for part in passages_of(hit.text) or [""]]
    vectors = np.asarray(embed([question, *(f"{hits[number].heading}\n{part}" for number, part in parts)]), np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    nearest = np.full(len(hits), -np.inf)
    np.maximum.at(nearest, [number for number, _ in parts], vectors[1:] @ vectors[0])
    by_meaning = np.argsort(-nearest, kind="stable")
    scores = np.zeros(len(hits))
    for rank, index in enumerate(by_meaning):
        scores[index] = 1 / (RANK_CONSTANT + rank) + 1 / (RANK_CONSTANT + index)
    order = np.argsort(-scores, kind="stable")
    return [replace(hits[index], score=float(scores[index]), method="bm25+embedding") for index in order]


def rerank(reader: Reader, question: str, hits: Sequence[Hit], cancellation: Cancellation | None = None) -> list[Hit]:
    """The same hits by the model's gain in log probability of the question (nats), most first.

    Reads the windows that are not stored. Raises what :meth:`Reader.live` raises.
    """
    engine, blocks = reader.memory.engine, reader.memory.blocks
    ids = engine.tokenize(f"\n\n{question}", special=False)
    if len(ids) < 2 or len(hits) < 2:
        return list(hits)
    with blocks.exclusive():
        engine.extend(reader.prompt("\n").prefix, cancellation)
        alone = float(engine.score(ids).sum())
    scored = []
    for hit in hits:
        with reader.live(hit.document, hit.window, question, cancellation):
            gain = float(engine.score(ids).sum()) - alone
        scored.append(replace(hit, score=gain, method="likelihood"))
    return sorted(scored, key=lambda hit: -hit.score)
