"""What a reader makes of a file: its text, headings, places to cut and tables, each character with its source byte."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agentkv.documents.readers.decoding import Offsets, Source
from agentkv.documents.readers.tables import Lines, Table, columns_at
from agentkv.documents.records import Kind

PARAGRAPH, ITEM, SENTENCE, LINE, WORD, CHARACTER = 10, 20, 30, 35, 40, 50
"""Levels of places to cut; headings have 1 to 6, their depth. The lower, the better."""

MAX_DEPTH = 6
_MAX_TITLE = 160


@dataclass(frozen=True)
class Heading:
    """A heading, or a definition in source code: its first character, its depth from 1, its text."""

    position: int
    depth: int
    title: str


@dataclass(frozen=True)
class Break:
    """A place to cut, before the character at ``position``."""

    position: int
    level: int


@dataclass(frozen=True)
class Readable:
    """The text of one source. ``starts[i]``: the source byte of character i, ascending, shape (len(text) + 1,).

    ``starts[0]`` is 0 and the last is the number of source bytes, so that a slice of text is a range of source bytes
    and slices cover the source. ``breaks`` are sorted by position.
    """

    source: Source
    kind: Kind
    text: str
    starts: Offsets
    headings: tuple[Heading, ...]
    breaks: tuple[Break, ...]
    title: str = ""
    tables: tuple[Table, ...] = ()

    @cached_property
    def _heading_positions(self) -> list[int]:
        return [heading.position for heading in self.headings]

    @cached_property
    def _parents(self) -> list[int]:
        """For each heading the number of its parent; -1 for none."""
        parents: list[int] = []
        for number, heading in enumerate(self.headings):
            parent = number - 1
            while parent >= 0 and self.headings[parent].depth >= heading.depth:
                parent = parents[parent]
            parents.append(parent)
        return parents

    def heading_path(self, position: int) -> tuple[str, ...]:
        """The titles of the headings that a character is under, outermost first."""
        found: list[str] = []
        number = bisect.bisect_right(self._heading_positions, position) - 1
        while number >= 0:
            found.append(self.headings[number].title)
            number = self._parents[number]
        titles = [title for title in reversed(found) if title]
        return tuple(titles if titles or not self.title else [self.title])

    def headings_within(self, start: int, stop: int) -> list[str]:
        """The titles of the headings that begin in these characters."""
        first, last = (bisect.bisect_left(self._heading_positions, position) for position in (start, stop))
        return [heading.title for heading in self.headings[first:last] if heading.title]

    def columns(self, position: int) -> str:
        """The lines that name the columns of the table that ``position`` is within, past its beginning; else ""."""
        return columns_at(self.tables, position)

    def first_of_byte(self, position: int) -> int:
        """The first character with the source byte of the one at ``position``: a slice can begin there."""
        if position >= len(self.text):
            return len(self.text)
        return self._characters_at(int(self.starts[position]))

    def _characters_at(self, byte: int) -> int:
        # In the array's own type: searchsorted copies the whole array to compare it with a Python int.
        return int(np.searchsorted(self.starts, self.starts.dtype.type(byte)))

    def byte_range(self, start: int, stop: int) -> tuple[int, int]:
        """The source bytes of the characters from ``start`` to ``stop``."""
        return int(self.starts[start]), int(self.starts[stop])

    def characters(self, start: int, stop: int) -> tuple[int, int]:
        """The characters that begin within these source bytes; the inverse of :meth:`byte_range`."""
        last = len(self.text) if stop == len(self.source.data) else self._characters_at(stop)
        return self._characters_at(start), last


def in_order(breaks: Iterable[Break], headings: Iterable[Heading]) -> tuple[Break, ...]:
    """The strongest break at each position; a heading is a break of its depth."""
    levels: dict[int, int] = {}
    for found in (*breaks, *(Break(heading.position, heading.depth) for heading in headings)):
        levels[found.position] = min(found.level, levels.get(found.position, PARAGRAPH + 100))
    return tuple(Break(position, levels[position]) for position in sorted(levels))


def one_line(title: str) -> str:
    """A heading as it is shown: on one line, cut to ``_MAX_TITLE`` characters."""
    return " ".join(title.split())[:_MAX_TITLE]


def document_of(
    source: Source,
    kind: Kind,
    headings: Sequence[Heading],
    breaks: Iterable[Break],
    tables: Sequence[Table] = (),
) -> Readable:
    """A document whose text is its source, character for character."""
    order = in_order(breaks, headings)
    return Readable(source, kind, source.text, source.starts, tuple(headings), order, tables=tuple(tables))


# --- lines and paragraphs of any text ---------------------------------------------------------------


def lines_of(text: str) -> list[tuple[int, str]]:
    """Each line without its end, and where it begins. Only \\n ends a line, as in Markdown's and Python's counts."""
    found, position = [], 0
    for line in text.split("\n"):
        found.append((position, line.rstrip("\r")))
        position += len(line) + 1
    return found


_BLANK = re.compile(r"\n[ \t\r]*\n[ \t\r\n]*")


def paragraphs(text: str) -> list[Break]:
    """A place to cut after each run of blank lines; the indentation goes with the paragraph."""
    found = []
    for match in _BLANK.finditer(text):
        position = text.rfind("\n", 0, match.end()) + 1
        if position < len(text):
            found.append(Break(position, PARAGRAPH))
    return found


def rows_of(lines: Lines, found: Sequence[Table]) -> list[Break]:
    """The rows of tables, as places to cut."""
    positions = [position for position, _ in lines]
    rows: list[Break] = []
    for table in found:
        first, last = (bisect.bisect_left(positions, at) for at in (table.start, table.stop))
        rows += [Break(position, ITEM) for position in positions[first:last]]
    return rows
