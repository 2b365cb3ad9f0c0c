"""What the model reads of a source, and where it may be cut: the text, headings and breaks of one file.

For all kinds but HTML the text read is the source itself, character for character. Every character of it knows the byte
of the source at which it begins, so that a piece of text is a range of source bytes and the pieces tile the source.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from agentkv.documents import outline
from agentkv.documents.outline import PARAGRAPH, Break, Heading
from agentkv.documents.source import Kind, Offsets, Source, decode
from agentkv.documents.tables import Table, columns_at

VERSION = 3
"""Of the rules by which text is made of a source. Another one makes a file be read anew when it is added again."""


@dataclass(frozen=True)
class Readable:
    """The text of one source. ``starts[i]``: the source byte of character i, never falling, shape (len(text) + 1,).

    ``starts[0]`` is 0 and the last is the number of source bytes. ``breaks`` are sorted by position.
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
        """For each heading the one around it, by number; -1 for none."""
        parents: list[int] = []
        for number, heading in enumerate(self.headings):
            parent = number - 1
            while parent >= 0 and self.headings[parent].depth >= heading.depth:
                parent = parents[parent]
            parents.append(parent)
        return parents

    def trail(self, position: int) -> tuple[str, ...]:
        """The headings in force at a character, outermost first."""
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
        """The lines that name the columns of the table that a piece beginning at ``position`` goes on with; or ""."""
        return columns_at(self.tables, position)

    def first_of_byte(self, position: int) -> int:
        """The first character with the source byte of the one at ``position``: there a piece can begin."""
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
        """The characters that begin within these source bytes; the inverse of :meth:`byte_range` of a window."""
        last = len(self.text) if stop == len(self.source.data) else self._characters_at(stop)
        return self._characters_at(start), last


def readable(path: Path, data: bytes, kind: Kind, encoding: str | None = None) -> Readable:
    """The text of a source of that kind, in ``encoding`` if that is known. Raises InvalidDocument."""
    source = decode(path, data, kind, encoding)
    if kind == "html":
        from agentkv.documents.html import read_html

        return read_html(source)
    headings, breaks, tables = outline.of(source.text, kind)
    order = in_order(breaks, headings)
    return Readable(source, kind, source.text, source.starts, tuple(headings), order, tables=tuple(tables))


def in_order(breaks: Iterable[Break], headings: Iterable[Heading]) -> tuple[Break, ...]:
    """One break a position, the strongest; a heading is a break of its depth, any other a paragraph's at most."""
    levels: dict[int, int] = {}
    for found in (*breaks, *(Break(heading.position, heading.depth) for heading in headings)):
        levels[found.position] = min(found.level, levels.get(found.position, PARAGRAPH + 100))
    return tuple(Break(position, levels[position]) for position in sorted(levels))
