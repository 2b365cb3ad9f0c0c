"""Plain text, reStructuredText, AsciiDoc and manual pages: titles by the form of their lines, tables as drawn.

A title is underlined, overlined, ``==``-marked, numbered, or in capitals as in manual pages. Not guaranteed: that every
one is found. A missed one costs a better place to cut and a word in a chunk's header, never text.
"""

from __future__ import annotations

import re
from pathlib import Path

from agentkv.documents.readers import tables
from agentkv.documents.readers.decoding import decode
from agentkv.documents.readers.document import (
    MAX_DEPTH,
    Heading,
    Readable,
    document_of,
    lines_of,
    one_line,
    paragraphs,
    rows_of,
)
from agentkv.documents.records import Kind

_LOOKED_AT = 1000
"""Characters of a line in which a title is looked for."""


def read(path: Path, data: bytes, kind: Kind, encoding: str | None) -> Readable:
    """See :class:`agentkv.documents.readers.Reader`."""
    source = decode(path, data, kind, encoding)
    lines = lines_of(source.text)
    drawn = tables.drawn(lines)
    return document_of(source, kind, _titles(lines), [*paragraphs(source.text), *rows_of(lines, drawn)], drawn)


_SHORTER = 3  # characters that AsciiDoc lets an underline fall short
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*$")
_ASCIIDOC = re.compile(r"^(={1,6})[ \t]+(\S.*?)(?:[ \t]+=+)?$")
_CAPITALS = re.compile(r"^[A-Z][A-Z0-9 ,/()'&-]{2,60}$")
_NUMBERED = re.compile(r"^(\d{1,2}(?:\.\d{1,2}){0,4})\.?[ \t]+([A-Z]\S.{1,90})$")


def _titles(lines: list[tuple[int, str]]) -> list[Heading]:
    found: list[Heading] = []
    styles: list[str] = []
    index = 0
    while index < len(lines):
        title = _adorned(lines, index)
        if title is None:
            heading = _lone(lines, index)
            if heading is not None:
                found.append(heading)
            index += 1
            continue
        style, at, used = title
        if style not in styles:
            styles.append(style)
        depth = min(styles.index(style) + 1, MAX_DEPTH)
        found.append(Heading(lines[index][0], depth, one_line(lines[at][1])))
        index += used
    return found


def _adorned(lines: list[tuple[int, str]], index: int) -> tuple[str, int, int] | None:
    """An underlined title from this line on: its style, the title's line, how many lines it takes."""
    line = lines[index][1]
    over = _ADORNMENT.fullmatch(line)
    if over and index + 2 < len(lines):
        title, under = lines[index + 1][1], lines[index + 2][1].rstrip()
        if title.strip() and under == line.rstrip() and len(under) >= len(title.strip()):
            return over[1] * 2, index + 1, 3
    if over or not line.strip() or line[:1].isspace() or index + 1 >= len(lines):
        return None
    if index and lines[index - 1][1].strip():
        return None
    under = lines[index + 1][1].rstrip()
    adorned = _ADORNMENT.fullmatch(under)
    if adorned is None or len(under) < len(line.rstrip()) - _SHORTER:
        return None
    return adorned[1], index, 2


def _lone(lines: list[tuple[int, str]], index: int) -> Heading | None:
    """A title that its own line shows: ``== Title``, ``SYNOPSIS``, ``2.1 Title``, with nothing before it."""
    position, line = lines[index]
    if len(line) > _LOOKED_AT or (index and lines[index - 1][1].strip()):
        return None
    asciidoc = _ASCIIDOC.match(line)
    if asciidoc:
        return Heading(position, len(asciidoc[1]), one_line(asciidoc[2]))
    if _CAPITALS.match(line):
        return Heading(position, 1, one_line(line))
    numbered = _NUMBERED.match(line)
    alone = index + 1 >= len(lines) or not lines[index + 1][1].strip()
    if numbered and alone:
        return Heading(position, min(numbered[1].count(".") + 1, MAX_DEPTH), one_line(line))
    return None
