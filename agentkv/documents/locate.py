"""Which chunks a question is about: full-text search, combined on request with embeddings or the model itself.

``embed`` is an :class:`Embedder`, whose vectors of all chunks are kept beside the index, or any callable that gives
vectors for texts: then only the first chunks of the full-text search are embedded, and nothing is kept. The two orders
are combined by reciprocal rank fusion.

``rerank`` orders the first chunks by how much each raises the model's log probability of the question. Each of them has
to be prefilled once for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.documents.chunks import Chunks
from agentkv.documents.embeddings import EmbeddingIndex, nearest_first, passage_texts
from agentkv.documents.index import Chunk, Index, Match
from agentkv.documents.quote import parts, stemmed
from agentkv.documents.readers.document import Readable
from agentkv.documents.records import ChunkRecord, DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.errors import StaleDocument
from agentkv.fusion import reciprocal_rank_fusion
from agentkv.notices import warn
from agentkv.text import terms, words

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | NDArray[np.floating[Any]]]
"""Vectors of texts, one each, all of one length; the first text is the question."""

_POOL = 15
"""How many chunks, first by full-text search, are embedded for a question where they have no vectors."""
_NEAR = 200
_SHOWN = 20
_CONSTANT = 20.0
"""Of the reciprocal rank fusion. On the 26 tuned questions of the benchmark ``questions`` (3,227 chunks, 12,648
passages) full-text search has the right chunk first 9 times, among three 16, among ten 20; all-MiniLM-L6-v2 alone 8, 11
and 19; both 11, 18 and 22. Constants of 5 to 60, embeddings weighted by half, and passages of 400 characters instead of
1,000 gave 10 to 13, 15 to 18 and 21 to 23: all within chance. What embeddings add is chunks that full-text search does
not find at all: among fifty 25 instead of 23."""


@dataclass(frozen=True)
class Hit:
    """A chunk that was found, ``number`` of the document, counted from 0.

    ``start`` to ``stop`` are source bytes; ``score``: more is better, by ``method``.

    ``text``: the chunk without its header. ``cut``: how many characters at its beginning and end are half of a sentence
    that the chunk before or after has in full.
    """

    key: str
    document: DocumentRecord
    number: int
    score: float
    method: str
    text: str
    cut: tuple[int, int] = (0, 0)

    @property
    def chunk(self) -> ChunkRecord:
        """The chunk's record."""
        return self.document.chunks[self.number]

    @property
    def path(self) -> str:
        """The file's name in the corpus."""
        return self.document.path

    @property
    def heading(self) -> str:
        """The heading path at the chunk's beginning."""
        return " > ".join(self.chunk.heading_path)

    @property
    def columns(self) -> str:
        """The column names of the table that the chunk begins within; "" if it does not."""
        return self.document.columns_of(self.chunk)

    @property
    def start(self) -> int:
        """First source byte."""
        return self.chunk.start

    @property
    def stop(self) -> int:
        """Source byte after the last."""
        return self.chunk.stop


def locate(
    shelf: Shelf,
    index: Index,
    question: str,
    k: int,
    embed: Embed | Embedder | None = None,
    *,
    passages: bool = True,
) -> list[Hit]:
    """The ``k`` best chunks for a question, best first; see :meth:`Index.search`.

    A chunk whose source is gone is passed over with a warning. Raises StaleDocument where that leaves none.
    """
    if embed is None:
        return _hits(shelf, _ordered(shelf, question, index.search(question, k, passages=passages), k), "bm25")
    by_words = index.search(question, _NEAR, passages=passages)
    if isinstance(embed, Embedder):
        with EmbeddingIndex(shelf, index, embed) as meaning:
            near = meaning.order(question, _NEAR, [(match.key, match.number) for match in by_words[:_POOL]])
    else:
        by_words = by_words[: max(k, _POOL)]
        near = _nearest(question, _hits(shelf, by_words, "bm25"), embed)
    orders = (1.0, enumerate((match.key, match.number) for match in by_words)), (1.0, enumerate(near))
    matches = [Match(key, number, score) for (key, number), score in reciprocal_rank_fusion(orders, _CONSTANT)[:k]]
    return _hits(shelf, _ordered(shelf, question, matches, k), "bm25+embedding")


def _ordered(shelf: Shelf, question: str, matches: Sequence[Match], k: int) -> list[Match]:
    """The first ``k`` in their order, but of two neighbours that share the sentence found, the better one first."""
    query, order = terms(question), [(match.key, match.number) for match in matches[:k]]
    for key, number in list(order):
        for better, worse in _distinguished(shelf, query, key, number):
            if worse in order and better not in order[: order.index(worse)]:
                order = [chunk for chunk in order if chunk != better]
                order.insert(order.index(worse), better)
    scores = [match.score for match in matches[:k]]
    scores += scores[-1:] * (len(order) - len(scores))
    return [Match(key, number, score) for (key, number), score in zip(order[:k], scores, strict=False)]


def _distinguished(shelf: Shelf, query: Sequence[str], key: str, number: int) -> Iterator[tuple[Chunk, Chunk]]:
    """The better and the worse one of a chunk and each of its neighbours, where there is a difference."""
    record = shelf.documents.valid(key)
    for first in (number - 1, number):
        if record is None or not 0 <= first < len(record.chunks) - 1:
            continue
        try:
            better = better_of(query, record, shelf.readable(record), first)
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
        if record is None or match.number >= len(record.chunks):  # retired a moment ago
            continue
        documents[match.key] = record
        try:
            hits.append(_hit(shelf, record, match, method))
        except StaleDocument as error:
            stale.append(error)
    return _with_warnings(hits, stale)


def _with_warnings(hits: list[Hit], stale: Sequence[StaleDocument]) -> list[Hit]:
    """The hits, with a warning for each stale document; raises the first of those where no hit is left."""
    if stale and not hits:
        raise stale[0]
    for error in stale:
        warn(f"a chunk was passed over: {error.message}")
    return hits


def _hit(shelf: Shelf, record: DocumentRecord, match: Match, method: str) -> Hit:
    document, chunk = shelf.readable(record), record.chunks[match.number]
    start, stop = document.characters(chunk.start, chunk.stop)
    cut = cut_sentences(record, document, match.number)
    return Hit(match.key, record, match.number, match.score, method, document.text[start:stop], cut)


def _nearest(question: str, hits: list[Hit], embed: Embed) -> list[Chunk]:
    """The chunks of ``hits`` by their nearest passage."""
    if not hits:
        return []
    parts = [(number, text) for number, hit in enumerate(hits) for text in passage_texts(hit.heading, hit.text)]
    vectors = np.asarray(embed([question, *(text for _, text in parts)]), np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    order = nearest_first(vectors[1:] @ vectors[0], [number for number, _ in parts])
    return [(hits[at].key, hits[at].number) for at in order]


def nothing_found(question: str, what: str = "chunk") -> str:
    """Why full-text search found no ``what``: which words it looked for."""
    looked_for = terms(question)
    if not looked_for:
        return "there is no word in the question that could be looked for"
    return f"no {what} has any of these words: {', '.join(looked_for[:_SHOWN])}{', …' * (len(looked_for) > _SHOWN)}"


def rerank(chunks: Chunks, question: str, hits: Sequence[Hit], cancellation: Cancellation | None = None) -> list[Hit]:
    """The same hits, sorted by how much each raises the model's log probability of the question (nats).

    Prefills the chunks that are not stored. Raises what :meth:`Chunks.live` raises; stale chunks as :func:`locate`.
    """
    engine, blocks = chunks.memory.engine, chunks.memory.blocks
    ids = engine.tokenize(f"\n\n{question}", special=False)
    if len(ids) < 2 or len(hits) < 2:
        return list(hits)
    with blocks.exclusive():
        engine.extend(chunks.prompt("\n").prefix, cancellation)
        without = float(engine.score(ids).sum())
    scored: list[Hit] = []
    stale: list[StaleDocument] = []
    for hit in hits:
        try:
            with chunks.live(hit.document, hit.chunk, question, cancellation):
                gain = float(engine.score(ids).sum()) - without
        except StaleDocument as error:
            stale.append(error)
            continue
        scored.append(replace(hit, score=gain, method="likelihood"))
    return _with_warnings(sorted(scored, key=lambda hit: -hit.score), stale)


# --- sentences across a chunk's end ---------------------------------------------------------------
# Chunks overlap, so a sentence that one cuts is often complete in its neighbour. With its value cut off a sentence
# still has the words of the question, so that the chunk that ends there may be found first by mere length; and half a
# sentence is nothing to quote where the complete one is next to it.

_REACH = 2000
"""Characters before and after a seam within which a sentence has to begin and end."""

Span = tuple[int, int]


def cut_sentences(record: DocumentRecord, document: Readable, number: int) -> Span:
    """How many characters at the beginning and end of chunk ``number`` are in a complete sentence of a neighbour."""
    start, stop = _chunk(record, document, number)
    lead = tail = 0
    if number > 0:
        cut = _cut(document, start, _chunk(record, document, number - 1))
        lead = 0 if cut is None else cut[1] - start
    if number + 1 < len(record.chunks):
        cut = _cut(document, stop, _chunk(record, document, number + 1))
        tail = 0 if cut is None else stop - cut[0]
    return (lead, tail) if lead + tail < stop - start else (0, 0)


def better_of(query: Sequence[str], record: DocumentRecord, document: Readable, number: int) -> int | None:
    """Which of chunk ``number`` and the next holds more of the sentence where both have words of ``query``.

    It is the one with the complete sentence; where none has it, the one that goes on with it. None where there is no
    difference: they share no word, one of them has further ones, or each has the complete sentence.
    """
    here, there = _chunk(record, document, number), _chunk(record, document, number + 1)
    shared = there[0], min(here[1], there[1])
    if shared[0] >= shared[1]:
        return None
    stems = {stemmed(word) for word in query}
    both = _words(document.text, shared) & stems
    own = [_words(document.text, span) & stems - both for span in ((here[0], there[0]), (here[1], there[1]))]
    if not both or own[0] != own[1]:
        return None
    around = [span for span in _sentences(document, here[0], there[1]) if span[0] < shared[1] and shared[0] < span[1]]
    best = max(around, key=lambda span: len(_words(document.text, _overlap(span, shared)) & stems))
    whole = [chunk[0] <= best[0] and best[1] <= chunk[1] for chunk in (here, there)]
    if whole[0] != whole[1]:
        return number + whole.index(True)
    return number + 1 if not whole[0] and best[1] > here[1] else None


def _cut(document: Readable, seam: int, neighbour: Span) -> Span | None:
    """The sentence across the seam, if the neighbour holds it from its first to its last character."""
    for start, stop in _sentences(document, seam, seam):
        if start < seam < stop and neighbour[0] <= start and stop <= neighbour[1]:
            return start, stop
    return None


def _sentences(document: Readable, start: int, stop: int) -> Iterator[Span]:
    """Sentences from before ``start`` to after ``stop``, stripped; the first and last may be incomplete."""
    least, most = max(0, start - _REACH), min(len(document.text), stop + _REACH)
    for first, last in parts(document.text[least:most], document.kind in {"code", "csv"}):
        piece = document.text[least + first : least + last]
        begin = least + first + len(piece) - len(piece.lstrip())
        yield begin, begin + len(piece.strip())


def _chunk(record: DocumentRecord, document: Readable, number: int) -> Span:
    chunk = record.chunks[number]
    return document.characters(chunk.start, chunk.stop)


def _overlap(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])


def _words(text: str, span: Span) -> set[str]:
    return set(map(stemmed, words(text[span[0] : span[1]])))
