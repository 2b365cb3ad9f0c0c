"""Markdown, as markdown-it-py parses it, with its tables and those that a program has printed between fences."""

from __future__ import annotations

import bisect
import itertools
import re
from pathlib import Path
from typing import Any

from agentkv.documents.readers import tables
from agentkv.documents.readers.decoding import decode
from agentkv.documents.readers.document import (
    ITEM,
    PARAGRAPH,
    Break,
    Heading,
    Readable,
    document_of,
    lines_of,
    one_line,
    paragraphs,
    rows_of,
)
from agentkv.documents.readers.tables import Table
from agentkv.documents.records import Kind

_HASHES = re.compile(r"^[ \t]*#{1,6}[ \t]*|[ \t]#+[ \t]*$")


_LONE_RETURN = re.compile(r"\r(?!\n)")
_SLICE, _MOST_SLICE = 1 << 20, 8 << 20
"""Characters that are parsed at a time, so that the parser's tokens of a large file are never in memory together."""


def read(path: Path, data: bytes, kind: Kind, encoding: str | None) -> Readable:
    """See :class:`agentkv.documents.readers.Reader`."""
    source = decode(path, data, kind, encoding)
    text = source.text
    lines = lines_of(text)
    positions = [position for position, _ in lines]
    found = _Markdown(lines)
    first, size = 0, _SLICE
    while first < len(lines):
        last = bisect.bisect_right(positions, positions[first] + size, lo=first + 1)
        is_end = last == len(lines)
        part = text[positions[first] : len(text) if is_end else positions[last]]
        block = found.parse(part, first)
        if is_end or block > first:
            found.take(len(lines) if is_end else block)
            first, size = len(lines) if is_end else block, _SLICE
        elif size < _MOST_SLICE:
            size *= 2
        else:  # one block that is larger than all that: cut anywhere
            found.take(last)
            first, size = last, _SLICE
    breaks = [*found.breaks, *(Break(item.position, ITEM) for item in paragraphs(text))]
    return document_of(source, kind, found.headings, breaks, found.tables)


class _Markdown:
    """What is found slice by slice; the last block of a slice goes on in the next one."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        from markdown_it import MarkdownIt

        self._parser = MarkdownIt("commonmark").disable("inline")
        self._lines, self._tokens, self._first = lines, list[Any](), 0
        self.headings: list[Heading] = []
        self.breaks: list[Break] = []
        self.tables: list[Table] = []

    def parse(self, part: str, first: int) -> int:
        """Parse a slice that begins with line ``first``; the line at which its last block of the whole text begins."""
        self._tokens = self._parser.parse(_LONE_RETURN.sub(" ", part.replace("\0", " ")))
        self._first = first
        starts = [token.map[0] for token in self._tokens if token.map and token.level == 0 and token.nesting >= 0]
        return first + max(starts, default=0)

    def take(self, stop: int) -> None:
        """Keep what was found of the slice before line ``stop``."""
        for token, following in itertools.zip_longest(self._tokens, self._tokens[1:]):
            if token.map is None or token.nesting < 0 or not self._first <= self._first + token.map[0] < stop:
                continue
            line, past = self._first + token.map[0], self._first + token.map[1]
            position = self._lines[line][0]
            if token.type == "heading_open" and token.level == 0:
                title = following.content if following is not None else ""
                self.headings.append(Heading(position, int(token.tag[1:]), one_line(_HASHES.sub("", title))))
                continue
            if token.level == 0:
                self.breaks.append(Break(position, PARAGRAPH))
            elif token.type in {"list_item_open", "paragraph_open", "fence", "code_block"}:
                self.breaks.append(Break(position, ITEM))
            if token.type == "paragraph_open":
                self._table(line, min(past, len(self._lines)))
            elif token.type == "fence":
                self._printed(line + 1, min(past - 1, len(self._lines)))
            elif token.type == "html_block":
                self._html(line, min(past, len(self._lines)))
        self._tokens = []

    def _table(self, first: int, stop: int) -> None:
        """A table, which is a paragraph with a rule of dashes and bars under a line with as many bars."""
        rule = next((line for line in range(first + 1, stop) if tables.is_rule(self._lines[line][1])), stop)
        if rule + 1 < stop and tables.is_ruled(self._lines[rule - 1][1], self._lines[rule][1]):
            columns = "\n".join(self._lines[line][1].lstrip("> \t") for line in (rule - 1, rule))
            last, text = self._lines[stop - 1]
            self.tables.append(Table(self._lines[rule - 1][0], last + len(text), columns))
            self.breaks += [Break(self._lines[line][0], ITEM) for line in range(rule - 1, stop) if line != rule]

    def _printed(self, first: int, stop: int) -> None:
        """Tables that a program has printed, between fences."""
        lines = self._lines[first:stop]
        drawn = [table for table in tables.drawn(lines) if "-+-" in table.columns]
        self.tables += drawn
        self.breaks += rows_of(lines, drawn)

    def _html(self, first: int, stop: int) -> None:
        """A table in HTML, which is read as it is written; its names without their tags."""
        lines = self._lines[first:stop]
        header = _HEADER_ROW.match("\n".join(line for _, line in lines))
        if header is not None:
            names = [" ".join(_TAG.sub(" ", cell).split()) for cell in _HEADER_CELL.findall(header[1])]
            last, text = lines[-1]
            self.tables.append(Table(lines[0][0], last + len(text), " | ".join(names)))
            self.breaks += [Break(at, ITEM) for at, line in lines[1:] if line.lstrip().lower().startswith("<tr")]


_HEADER_ROW = re.compile(
    r"\s*<table\b[^>]*>(?:\s*<(?:thead|tbody|tr)\b[^>]*>){1,2}((?:\s*<th\b.{1,500}?</th>){1,64})", re.I | re.S
)
_HEADER_CELL, _TAG = re.compile(r"<th\b[^>]*>(.*?)</th>", re.I | re.S), re.compile(r"<[^>]*>")
