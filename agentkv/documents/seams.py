"""Seams: a sentence that a window's end cuts counts in the neighbour that holds more of it.

Windows overlap, so what one cuts the other often has whole. With its value cut off a sentence still has the words of
the question, and the window that ends there may be found first by mere length; and half a sentence is nothing to quote
where the whole one stands beside it. Knows texts and words; refuses to know ranks and models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentkv.documents.quote import parts, stemmed
from agentkv.documents.readable import Readable
from agentkv.documents.records import DocumentRecord
from agentkv.text import words

_REACH = 2000
"""Characters before and after a seam within which a sentence has to begin and end."""

Span = tuple[int, int]


def cut_at(record: DocumentRecord, document: Readable, number: int) -> Span:
    """Characters at the beginning and at the end of window ``number`` that a neighbour has in a whole sentence."""
    start, stop = _window(record, document, number)
    lead = tail = 0
    if number > 0:
        cut = _cut(document, start, _window(record, document, number - 1))
        lead = 0 if cut is None else cut[1] - start
    if number + 1 < len(record.windows):
        cut = _cut(document, stop, _window(record, document, number + 1))
        tail = 0 if cut is None else stop - cut[0]
    return (lead, tail) if lead + tail < stop - start else (0, 0)


def better_of(terms: Sequence[str], record: DocumentRecord, document: Readable, number: int) -> int | None:
    """Which of window ``number`` and the next holds more of the sentence where both have the question's ``terms``.

    It is the one that holds it whole; where none does, the one that goes on with it. None where nothing tells them
    apart: they share no term, one of them has further ones, or each has the sentence whole.
    """
    here, there = _window(record, document, number), _window(record, document, number + 1)
    shared = there[0], min(here[1], there[1])
    if shared[0] >= shared[1]:
        return None
    wanted = {stemmed(term) for term in terms}
    both = _words(document.text, shared) & wanted
    own = [_words(document.text, span) & wanted - both for span in ((here[0], there[0]), (here[1], there[1]))]
    if not both or own[0] != own[1]:
        return None
    around = [span for span in _sentences(document, here[0], there[1]) if span[0] < shared[1] and shared[0] < span[1]]
    best = max(around, key=lambda span: len(_words(document.text, _overlap(span, shared)) & wanted))
    whole = [window[0] <= best[0] and best[1] <= window[1] for window in (here, there)]
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
    """Sentences from before ``start`` to after ``stop``, without the white space around them; those at the ends of what
    is looked at may go on."""
    least, most = max(0, start - _REACH), min(len(document.text), stop + _REACH)
    for first, last in parts(document.text[least:most], document.kind in {"code", "csv"}):
        piece = document.text[least + first : least + last]
        begin = least + first + len(piece) - len(piece.lstrip())
        yield begin, begin + len(piece.strip())


def _window(record: DocumentRecord, document: Readable, number: int) -> Span:
    window = record.windows[number]
    return document.characters(window.start, window.stop)


def _overlap(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])


def _words(text: str, span: Span) -> set[str]:
    return {stemmed(word) for word in words(text[span[0] : span[1]])}
