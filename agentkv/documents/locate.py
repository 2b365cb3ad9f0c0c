"""Which windows a question is about: full-text search, and on top of it, where asked for, the model or an embedding.

``rerank`` orders the first windows by the model's own log probability of the question behind each, over that without
any window: how much the window makes the question expected. Each of them has to be read once for it.

``embed`` is an :class:`Embedder`, whose vectors are kept beside the index and compared with all of them, or any
callable that gives vectors for texts: then those of the windows that words put first are made, and kept nowhere. The
order by nearness is fused with the full-text one by reciprocal ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.documents.index import Index, Match, Window
from agentkv.documents.meaning import Meaning, nearest_first, passage_texts
from agentkv.documents.reading import Reader
from agentkv.documents.records import DocumentRecord, WindowRecord
from agentkv.documents.seams import better_of, cut_at
from agentkv.documents.shelf import Shelf
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.errors import StaleDocument
from agentkv.fusion import reciprocal_rank_fusion
from agentkv.notices import warn
from agentkv.text import terms

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | NDArray[np.floating[Any]]]
"""Vectors of texts, one each, all of one length; the first text is the question."""

_POOL = 15
"""Windows, first by words, whose vectors are made for a question where they are not there."""
_NEAR = 200
_SHOWN = 20
_CONSTANT = 20.0
"""On the 26 tuned questions of the benchmark ``questions`` (3,227 windows, 12,648 passages) words put the right window
first 9 times, among three 16, among ten 20; all-MiniLM-L6-v2 alone 8, 11 and 19; fused so 11, 18 and 22. Constants of
5 to 60, meaning weighted by half, and passages of 400 characters instead of 1,000 gave 10 to 13, 15 to 18 and 21 to 23:
all within chance. What meaning adds is windows that words do not find at all: among fifty 25 instead of 23."""


@dataclass(frozen=True)
class Hit:
    """A window that was found. ``number``: which chunk of the document, from 0. ``start`` to ``stop`` are source bytes;
    ``score``: more is better, by ``method``.

    ``text``: the window's piece of the document, without its header. ``cut``: characters at its beginning and end that
    are half of a sentence, which the window before or after has whole.
    """

    key: str
    document: DocumentRecord
    number: int
    score: float
    method: str
    text: str
    cut: tuple[int, int] = (0, 0)

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
    def columns(self) -> str:
        """The names of a table's columns that go with the window, where it begins within one; else ""."""
        return self.document.columns_of(self.window)

    @property
    def start(self) -> int:
        """First source byte."""
        return self.window.start

    @property
    def stop(self) -> int:
        """Source byte behind the last."""
        return self.window.stop


def locate(
    shelf: Shelf,
    index: Index,
    question: str,
    k: int,
    embed: Embed | Embedder | None = None,
    *,
    passages: bool = True,
) -> list[Hit]:
    """The ``k`` best windows for a question, best first; see :meth:`Index.search`.

    A window whose source is gone is passed over with a warning. Raises StaleDocument where that leaves none.
    """
    if embed is None:
        return _hits(shelf, _settled(shelf, question, index.search(question, k, passages=passages), k), "bm25")
    by_words = index.search(question, _NEAR, passages=passages)
    if isinstance(embed, Embedder):
        with Meaning(shelf, index, embed) as meaning:
            near = meaning.order(question, _NEAR, [(match.key, match.number) for match in by_words[:_POOL]])
    else:
        by_words = by_words[: max(k, _POOL)]
        near = _nearest(question, _hits(shelf, by_words, "bm25"), embed)
    orders = (1.0, enumerate((match.key, match.number) for match in by_words)), (1.0, enumerate(near))
    matches = [Match(key, number, score) for (key, number), score in reciprocal_rank_fusion(orders, _CONSTANT)[:k]]
    return _hits(shelf, _settled(shelf, question, matches, k), "bm25+embedding")


def _settled(shelf: Shelf, question: str, matches: Sequence[Match], k: int) -> list[Match]:
    """The first ``k`` in their order, but of two neighbours that share what they were found by the better first."""
    asked, order = terms(question), [(match.key, match.number) for match in matches[:k]]
    for key, number in list(order):
        for better, worse in _told_apart(shelf, asked, key, number):
            if worse in order and better not in order[: order.index(worse)]:
                order = [window for window in order if window != better]
                order.insert(order.index(worse), better)
    scores = [match.score for match in matches[:k]]
    scores += scores[-1:] * (len(order) - len(scores))
    return [Match(key, number, score) for (key, number), score in zip(order[:k], scores, strict=False)]


def _told_apart(shelf: Shelf, asked: Sequence[str], key: str, number: int) -> Iterator[tuple[Window, Window]]:
    """The better and the worse one of a window and each of its neighbours, where something tells them apart."""
    record = shelf.documents.valid(key)
    for first in (number - 1, number):
        if record is None or not 0 <= first < len(record.windows) - 1:
            continue
        try:
            better = better_of(asked, record, shelf.readable(record), first)
        except StaleDocument:
            return
        if better is not None:
            yield (key, better), (key, 2 * first + 1 - better)


def _hits(shelf: Shelf, matches: Sequence[Match], method: str) -> list[Hit]:
    documents: dict[str, DocumentRecord] = {}
    hits: list[Hit] = []
    stale: list[StaleDocument] = []
    for match in matches:
        record = documents.get(match.key) or shelf.documents.valid(match.key)
        if record is None or match.number >= len(record.windows):  # retired a moment ago
            continue
        documents[match.key] = record
        try:
            hits.append(_hit(shelf, record, match, method))
        except StaleDocument as error:
            stale.append(error)
    return _after(hits, stale)


def _after(hits: list[Hit], stale: Sequence[StaleDocument]) -> list[Hit]:
    """The hits that are left, with a warning of those that are not; raises the first where none is."""
    if stale and not hits:
        raise stale[0]
    for error in stale:
        warn(f"a window was passed over: {error.message}")
    return hits


def _hit(shelf: Shelf, record: DocumentRecord, match: Match, method: str) -> Hit:
    document, window = shelf.readable(record), record.windows[match.number]
    start, stop = document.characters(window.start, window.stop)
    cut = cut_at(record, document, match.number)
    return Hit(match.key, record, match.number, match.score, method, document.text[start:stop], cut)


def _nearest(question: str, hits: list[Hit], embed: Embed) -> list[Window]:
    """The windows of ``hits`` by their nearest passage."""
    if not hits:
        return []
    parts = [(number, text) for number, hit in enumerate(hits) for text in passage_texts(hit.heading, hit.text)]
    vectors = np.asarray(embed([question, *(text for _, text in parts)]), np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    order = nearest_first(vectors[1:] @ vectors[0], [number for number, _ in parts])
    return [(hits[at].key, hits[at].number) for at in order]


def nothing_found(question: str, what: str = "window") -> str:
    """Why words found no ``what``: which words were looked for."""
    looked_for = terms(question)
    if not looked_for:
        return "there is no word in the question that could be looked for"
    return f"no {what} has any of these words: {', '.join(looked_for[:_SHOWN])}{', …' * (len(looked_for) > _SHOWN)}"


def rerank(reader: Reader, question: str, hits: Sequence[Hit], cancellation: Cancellation | None = None) -> list[Hit]:
    """The same hits by the model's gain in log probability of the question (nats), most first.

    Reads the windows that are not stored. Raises what :meth:`Reader.live` raises; stale windows as :func:`locate`.
    """
    engine, blocks = reader.memory.engine, reader.memory.blocks
    ids = engine.tokenize(f"\n\n{question}", special=False)
    if len(ids) < 2 or len(hits) < 2:
        return list(hits)
    with blocks.exclusive():
        engine.extend(reader.prompt("\n").prefix, cancellation)
        alone = float(engine.score(ids).sum())
    scored: list[Hit] = []
    stale: list[StaleDocument] = []
    for hit in hits:
        try:
            with reader.live(hit.document, hit.window, question, cancellation):
                gain = float(engine.score(ids).sum()) - alone
        except StaleDocument as error:
            stale.append(error)
            continue
        scored.append(replace(hit, score=gain, method="likelihood"))
    return _after(sorted(scored, key=lambda hit: -hit.score), stale)
