"""Chunks: slices of a document of at most so many of the model's tokens, cut on the document's own structure.

A chunk's text is a header, which says where it comes from, and an unchanged slice of the document. The slices cover the
document; with an overlap, a slice also begins with the end of the one before it, unless it begins with a heading. Sizes
are counted with the engine's tokenizer over exactly the token ids that become the block. Characters are never cut.

Not guaranteed: that no chunk is much smaller than requested: a section that does not fit begins the next one.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from agentkv.documents.readers.document import ITEM, LINE, MAX_DEPTH, PARAGRAPH, SENTENCE, WORD, Readable
from agentkv.engine.base import Engine
from agentkv.errors import UsageError

MIN_CHUNK_TOKENS = 64
_HEADER_SHARE, _HEADER_TOKENS = 4, 64
_MAX_OVERLAP_SHARE = 4
_COLUMNS_SHARE = 3
"""A table's column names may take one part in so many of a chunk."""
_MOST_COLUMNS = 8000
"""Most characters of column names: a record holds no more."""
_FULL = {PARAGRAPH: 0.6, ITEM: 0.7, SENTENCE: 0.8, LINE: 0.8, WORD: 0.85}
"""How full (0 to 1) a chunk has to be for a cut at a break of that level; at a heading ``_FULL_HEADING``."""
_FULL_HEADING = 0.5
_SENTENCE_END = re.compile(r"[.!?…][)\]\"'”’]*\s+|[。！？]")
_LINE_END = re.compile(r"\n")
_WORD_END = re.compile(r"\s+|(?<=[,;/|)\]}>])")
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}


@dataclass(frozen=True)
class Slice:
    """Characters ``start`` to ``stop`` of a document and the header before them; ``n_tokens`` counts both, unpadded.

    ``heading_path``: at its beginning; ``within``: other headings in it. ``columns``: the column names of the table
    that it begins within, "" if none; they come between header and slice, and count.
    """

    start: int
    stop: int
    header: str
    heading_path: tuple[str, ...]
    within: tuple[str, ...]
    n_tokens: int
    columns: str = ""


def block_text(header: str, body: str, columns: str = "") -> str:
    """The text of a block. ``columns``: the lines that name the columns of the table with which the body begins."""
    return f"{header}\n\n{columns}\n{body}\n" if columns else f"{header}\n\n{body}\n"


class Splitter:
    """Cuts documents for one engine. Raises UsageError for sizes that are out of range.

    ``chunk_tokens``: most tokens of a chunk, header included, rounded down to the engine's alignment; ``overlap``:
    tokens, at most a quarter of it.
    """

    def __init__(self, engine: Engine, chunk_tokens: int, overlap: int) -> None:
        if chunk_tokens < MIN_CHUNK_TOKENS:
            raise UsageError(f"a chunk of {chunk_tokens} tokens is too small; it takes {MIN_CHUNK_TOKENS} or more")
        if not 0 <= overlap <= chunk_tokens // _MAX_OVERLAP_SHARE:
            raise UsageError(
                f"the overlap is 0 to a quarter of the chunk ({chunk_tokens // _MAX_OVERLAP_SHARE}), not {overlap}"
            )
        self._engine = engine
        self.chunk_tokens, self.overlap = chunk_tokens, overlap
        self._limit = chunk_tokens // engine.alignment * engine.alignment
        self._length = cache(lambda token: len(engine.token_bytes(token)))

    def split(self, path: str, document: Readable) -> list[Slice]:
        """The document's chunks, in order; none for one that has no text."""
        return list(self._slices(path, document))

    def _slices(self, path: str, document: Readable) -> Iterator[Slice]:
        text, start, done = document.text, 0, 0
        cutter = _Cutter(document)
        while done < len(text):
            position = start + len(text[start : start + 400]) - len(text[start : start + 400].lstrip())
            heading_path = document.heading_path(position)
            header, columns = self.header(path, heading_path), self._columns(document.columns(position))
            before = block_text(header, "", columns)
            stop, n_tokens = self._stop(cutter, before, start, done)
            within = document.headings_within(start, stop)
            among = tuple(title for title in within if title not in heading_path)
            yield Slice(start, stop, header, heading_path, among, n_tokens, columns)
            done = stop
            if done < len(text):
                start = self._next_start(cutter, start, stop)

    def _columns(self, columns: str) -> str:
        """The names of a table's columns, cut short where they would take much of the chunk."""
        most = self._limit // _COLUMNS_SHARE
        columns = columns[: min(_MOST_COLUMNS, 16 * most)]
        while columns and self._count(columns) > most:
            columns = columns[: min(len(columns) - 1, len(columns) * most // self._count(columns))].rstrip()
        return columns

    # --- the end of a chunk ---

    def _stop(self, cutter: _Cutter, before: str, start: int, done: int) -> tuple[int, int]:
        """Where the chunk from ``start`` ends, past ``done``, and its tokens. ``before``: the text before it."""
        text, head = cutter.text, before.removesuffix("\n")
        reach, least = self._reach(text, start, self._limit - self._count(before)), cutter.next_clean(done)
        while True:
            stop = len(text) if reach >= len(text) else cutter.cut(start, max(reach, least), done)
            n_tokens = self._count(f"{head}{text[start:stop]}\n")
            if n_tokens <= self._limit:
                return stop, n_tokens
            # The tokens of a whole are not the sum of its parts': come nearer from above.
            nearer = start + int((stop - start) * min(0.97, self._limit / n_tokens))
            if nearer <= done:
                if stop <= least:
                    raise UsageError(
                        f"a chunk of {self.chunk_tokens} tokens has no room for a character after its header"
                    )
                nearer = max(done + 1, (done + stop) // 2)
            reach = nearer

    def _reach(self, text: str, start: int, budget: int) -> int:
        """About how far ``budget`` tokens go."""
        n_characters = 4 * budget
        while True:
            ids = self._engine.tokenize(text[start : start + n_characters], special=False)
            if len(ids) > budget or start + n_characters >= len(text):
                break
            n_characters *= 2
        if len(ids) <= budget:
            return len(text)
        n_bytes = sum(map(self._length, ids[:budget]))
        return start + len(text[start : start + n_characters].encode()[:n_bytes].decode("utf-8", "ignore"))

    # --- the beginning of the next ---

    def _next_start(self, cutter: _Cutter, start: int, stop: int) -> int:
        if not self.overlap or cutter.is_heading(stop):
            return stop
        text, first = cutter.text, max(start + 1, stop - 8 * self.overlap)
        ids = self._engine.tokenize(text[first:stop], special=False)
        n_bytes = sum(map(self._length, ids[-self.overlap :]))
        tail = text[first:stop].encode()
        n_overlap = len(tail[max(0, len(tail) - n_bytes) :].decode("utf-8", "ignore"))
        begin = cutter.overlap_start(max(first, stop - n_overlap), stop)
        return begin if begin > start else stop

    # --- headers ---

    def header(self, path: str, heading_path: tuple[str, ...]) -> str:
        """``[path | heading > heading]``, shortened from the outside in until it is small beside the chunk."""
        most = min(_HEADER_TOKENS, self._limit // _HEADER_SHARE)
        names = path.split("/")
        for keep in range(len(heading_path), -1, -1):
            header = _header("/".join(names), heading_path[len(heading_path) - keep :])
            if self._count(header) <= most:
                return header
        while len(names) > 1 and self._count(_header("/".join(names), ())) > most:
            names = names[1:]
        name = "/".join(names)
        while name and self._count(_header(name, ())) > most:
            name = name[: len(name) * 3 // 4]
        return _header(name, ())

    def _count(self, text: str) -> int:
        return len(self._engine.tokenize(text, special=False)) if text else 0


def _header(path: str, heading_path: tuple[str, ...]) -> str:
    return f"[{path} | {' > '.join(heading_path)}]" if heading_path else f"[{path}]"


class _Cutter:
    """The places to cut one document: never between characters that share a source byte."""

    def __init__(self, document: Readable) -> None:
        self.text, self._document, self._is_code = document.text, document, document.kind in {"code", "csv"}
        self._breaks = document.breaks
        self._positions = [found.position for found in document.breaks]
        self._headings = {document.first_of_byte(heading.position) for heading in document.headings}

    def is_heading(self, position: int) -> bool:
        """Whether a heading begins there."""
        return position in self._headings

    def next_clean(self, done: int) -> int:
        """The first place past ``done`` where a slice can end."""
        starts, place = self._document.starts, done + 1
        while place < len(self.text) and starts[place] == starts[place - 1]:
            place += 1
        return min(place, len(self.text))

    def cut(self, start: int, reach: int, done: int) -> int:
        """The best place to cut in (done, reach] for a chunk from ``start`` that could go on to ``reach``."""
        marked = self._marked(done + 1, reach)
        for levels, full in (((1, MAX_DEPTH), _FULL_HEADING), *(((level, level), _FULL[level]) for level in _FULL)):
            least = max(done + 1, start + int((reach - start) * full))
            if levels[0] in (PARAGRAPH, ITEM, 1):
                found = [item for item in marked if levels[0] <= item[0] <= levels[1] and item[1] >= least]
                best = min((level for level, _ in found), default=0)
                places = [position for level, position in found if level == best]
            else:
                places = self._unmarked(levels[0], least, reach)
            for place in sorted(places, reverse=True):
                clean = self._document.first_of_byte(place)
                if clean > done:
                    return clean
        clean = self._document.first_of_byte(self._character(reach, done + 1))
        return clean if clean > done else self.next_clean(done)

    def overlap_start(self, earliest: int, stop: int) -> int:
        """The best place to begin in [earliest, stop): the strongest break, the earliest of those."""
        return self._document.first_of_byte(self._overlap_start(earliest, stop))

    def _overlap_start(self, earliest: int, stop: int) -> int:
        marked = self._marked(earliest, stop - 1)
        for group in ((1, MAX_DEPTH), (PARAGRAPH, PARAGRAPH), (ITEM, ITEM)):
            places = [position for level, position in marked if group[0] <= level <= group[1]]
            if places:
                return min(places)
        for level in (SENTENCE, LINE, WORD):
            places = [place for place in self._unmarked(level, earliest, stop - 1) if place < stop]
            if places:
                return min(places)
        return self._character(earliest, earliest)

    def _marked(self, first: int, last: int) -> list[tuple[int, int]]:
        low, high = bisect.bisect_left(self._positions, first), bisect.bisect_right(self._positions, last)
        return [(found.level, found.position) for found in self._breaks[low:high]]

    def _unmarked(self, level: int, first: int, last: int) -> list[int]:
        pattern = {SENTENCE: _SENTENCE_END, LINE: _LINE_END, WORD: _WORD_END}[level]
        if level == SENTENCE and self._is_code:
            pattern = _LINE_END
        return [m.end() for m in pattern.finditer(self.text, max(0, first - 1), last) if first <= m.end() <= last]

    def _character(self, position: int, least: int) -> int:
        """The end of a grapheme at or shortly before ``position``."""
        for candidate in range(position, max(least, position - 16) - 1, -1):
            if self._is_between(candidate):
                return candidate
        return position

    def _is_between(self, position: int) -> bool:
        if not 0 < position < len(self.text):
            return True
        before, after = self.text[position - 1], self.text[position]
        glued = after in _JOINERS or before == "\u200d" or unicodedata.category(after).startswith("M")
        return not glued and (before, after) != ("\r", "\n") and not "\U0001f3fb" <= after <= "\U0001f3ff"
