"""Headings and places to cut in text, Markdown, reStructuredText and source code.

Markdown is read by markdown-it-py, Python by the standard library's parser where it parses; the others by the form of
their lines: underlined, overlined or ``==``-marked titles, manual pages' capitals, definitions at the left margin.
Not guaranteed: that every heading of a file is found. A missed one costs a better place to cut and a word in a header,
never text.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentkv.documents import tables
from agentkv.documents.source import Kind
from agentkv.documents.tables import Table

PARAGRAPH, ITEM, SENTENCE, LINE, WORD, CHARACTER = 10, 20, 30, 35, 40, 50
"""Levels of places to cut, after those of headings, 1 (the whole document's) to 6; the lower, the better."""

MAX_DEPTH = 6
_MAX_TITLE = 160
_LOOKED_AT = 1000
"""Characters of a line in which a title or a definition is looked for."""


@dataclass(frozen=True)
class Heading:
    """A heading, or a definition in source code: the character at which it begins, its depth from 1, its words."""

    position: int
    depth: int
    title: str


@dataclass(frozen=True)
class Break:
    """A place to cut, before the character at ``position``."""

    position: int
    level: int


Found = tuple[list[Heading], list[Break], list[Table]]


def of(text: str, kind: Kind) -> Found:
    """The headings, paragraph breaks and tables of a text of that kind (not HTML), in order."""
    match kind:
        case "markdown":
            return _markdown(text)
        case "code":
            return _code(text), _paragraphs(text), []
        case "csv":
            return _values(text)
        case _:
            lines = _lines(text)
            drawn = tables.drawn(lines)
            return _titles(lines), [*_paragraphs(text), *_rows(lines, drawn)], drawn


def _values(text: str) -> Found:
    found, records = tables.separated(text, _lines(text))
    return [], [Break(position, ITEM) for position in records if 0 < position < len(text)], found


def _rows(lines: list[tuple[int, str]], found: list[Table]) -> list[Break]:
    """The lines of tables, as places to cut."""
    positions = [position for position, _ in lines]
    rows: list[Break] = []
    for table in found:
        first, last = (bisect.bisect_left(positions, at) for at in (table.start, table.stop))
        rows += [Break(position, ITEM) for position in positions[first:last]]
    return rows


def words(title: str) -> str:
    """A heading as it is shown: one line, not endless."""
    return " ".join(title.split())[:_MAX_TITLE]


# --- lines ----------------------------------------------------------------------------------------


def _lines(text: str) -> list[tuple[int, str]]:
    """Each line without its end, and where it begins. Only \\n ends a line, as in Markdown's and Python's counts."""
    found, position = [], 0
    for line in text.split("\n"):
        found.append((position, line.rstrip("\r")))
        position += len(line) + 1
    return found


_BLANK = re.compile(r"\n[ \t\r]*\n[ \t\r\n]*")


def _paragraphs(text: str) -> list[Break]:
    """Behind each run of blank lines; the indentation goes with the paragraph."""
    found = []
    for match in _BLANK.finditer(text):
        position = text.rfind("\n", 0, match.end()) + 1
        if position < len(text):
            found.append(Break(position, PARAGRAPH))
    return found


# --- Markdown -------------------------------------------------------------------------------------

_HASHES = re.compile(r"^[ \t]*#{1,6}[ \t]*|[ \t]#+[ \t]*$")


_LONE_RETURN = re.compile(r"\r(?!\n)")
_SLICE, _MOST_SLICE = 1 << 20, 8 << 20
"""Characters that are parsed at a time, so that the parser's tokens of a large file are never in memory together."""


def _markdown(text: str) -> Found:
    lines = _lines(text)
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
    breaks = [*found.breaks, *(Break(item.position, ITEM) for item in _paragraphs(text))]
    return found.headings, breaks, found.tables


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
                self.headings.append(Heading(position, int(token.tag[1:]), words(_HASHES.sub("", title))))
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
        self.breaks += _rows(lines, drawn)

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


# --- reStructuredText, AsciiDoc, plain text -------------------------------------------------------

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
        found.append(Heading(lines[index][0], depth, words(lines[at][1])))
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
        return Heading(position, len(asciidoc[1]), words(asciidoc[2]))
    if _CAPITALS.match(line):
        return Heading(position, 1, words(line))
    numbered = _NUMBERED.match(line)
    alone = index + 1 >= len(lines) or not lines[index + 1][1].strip()
    if numbered and alone:
        return Heading(position, min(numbered[1].count(".") + 1, MAX_DEPTH), words(line))
    return None


# --- source code ----------------------------------------------------------------------------------

_DEFINITION = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?:export|public|private|protected|static|final|abstract|async|pub(?:\([^)]*\))?|default|"
    r"inline|extern|virtual|override|unsafe|const)[ \t]+)*"
    r"(?:def|class|fn|func|function|struct|enum|union|trait|impl|interface|module|namespace|package|sub|type|macro_rules!|"
    r"typedef[ \t]+struct|CREATE[ \t]+(?:OR[ \t]+REPLACE[ \t]+)?\w+)[ \t]+(?P<name>[\w.:<>$~]+)",
    re.I,
)
_C_FUNCTION = re.compile(r"^[A-Za-z_][\w \t*&:<>,]*?[ \t*&](?P<name>[A-Za-z_~][\w:]*)[ \t]*\([^;]*$")
_C_KEYWORD = re.compile(r"^(?:if|for|while|switch|return|else|do|case|sizeof|goto)\b")
_SECTION = re.compile(r"^\[{1,2}([^\[\]]{1,80})\]{1,2}[ \t]*$")
_BELONGS = re.compile(r"^[ \t]*(?:[@#*]|//|/\*|--|\*/|\[[A-Za-z#])")


def _code(text: str) -> list[Heading]:
    lines = _lines(text)
    parsed = _python(text, lines)
    return parsed if parsed is not None else list(_definitions(lines))


def _python(text: str, lines: list[tuple[int, str]]) -> list[Heading] | None:
    """Functions and classes by Python's parser; None for what is no Python of this version."""
    if not re.search(r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+[^\n]*:", text, re.M):
        return None
    if "\r" in text.replace("\r\n", "") or "\f" in text or len(text) > 4 << 20:  # Python counts lines otherwise there
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: list[Heading] = []

    def walk(node: ast.AST, depth: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)]) - 1
                found.append(Heading(lines[_with_comments(lines, first, 0)][0], min(depth, MAX_DEPTH), child.name))
                walk(child, depth + 1)

    walk(tree, 1)
    return sorted(found, key=lambda heading: heading.position)


def _definitions(lines: list[tuple[int, str]]) -> Iterator[Heading]:
    taken = -1
    for index, (_, whole) in enumerate(lines):
        line = whole[:_LOOKED_AT]
        match = _DEFINITION.match(line)
        name, depth = "", 1
        if match:
            indent = len(match["indent"].expandtabs(4))
            name, depth = match["name"], min(1 + indent // 4, MAX_DEPTH)
        elif not _C_KEYWORD.match(line) and (section := _SECTION.match(line)):
            name = section[1]
        elif not _C_KEYWORD.match(line) and (function := _C_FUNCTION.match(line)):
            name = function["name"]
        if name:
            first, taken = _with_comments(lines, index, taken + 1), index
            yield Heading(lines[first][0], depth, words(name))


def _with_comments(lines: list[tuple[int, str]], index: int, least: int) -> int:
    """The first line, from ``least`` on, of the comments and decorators that stand right above a definition."""
    while index > least and _BELONGS.match(lines[index - 1][1]):
        index -= 1
    return index
