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

__all__ = ["Readable", "readable"]


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

    @cached_property
    def _heading_positions(self) -> list[int]:
        return [heading.position for heading in self.headings]

    def trail(self, position: int) -> tuple[str, ...]:
        """The headings in force at a character, outermost first."""
        found: list[Heading] = []
        for heading in self.headings[: bisect.bisect_right(self._heading_positions, position)]:
            while found and found[-1].depth >= heading.depth:
                found.pop()
            found.append(heading)
        titles = [heading.title for heading in found if heading.title]
        return tuple(titles if titles or not self.title else [self.title])

    def byte_range(self, start: int, stop: int) -> tuple[int, int]:
        """The source bytes of the characters from ``start`` to ``stop``."""
        return int(self.starts[start]), int(self.starts[stop])

    def characters(self, start: int, stop: int) -> tuple[int, int]:
        """The characters that begin within these source bytes; the inverse of :meth:`byte_range` of a window."""
        first, last = np.searchsorted(self.starts, (start, stop))
        return int(first), len(self.text) if stop == len(self.source.data) else int(last)


def readable(path: Path, data: bytes, kind: Kind) -> Readable:
    """The text of a source of that kind. Raises InvalidDocument."""
    source = decode(path, data, kind)
    if kind == "html":
        from agentkv.documents.html import read_html

        return read_html(source)
    headings, breaks = outline.of(source.text, kind)
    return Readable(source, kind, source.text, source.starts, tuple(headings), _sorted(breaks, headings))


def _sorted(breaks: Iterable[Break], headings: Iterable[Heading]) -> tuple[Break, ...]:
    """One break a position, the strongest; a heading is a break of its depth, any other a paragraph's at most."""
    levels: dict[int, int] = {}
    for found in (*breaks, *(Break(heading.position, heading.depth) for heading in headings)):
        levels[found.position] = min(found.level, levels.get(found.position, PARAGRAPH + 100))
    return tuple(Break(position, levels[position]) for position in sorted(levels))
