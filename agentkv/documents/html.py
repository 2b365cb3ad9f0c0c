"""HTML as text that a model can read, each character with its place in the source.

Read with the standard library's ``html.parser``: of the well-kept parsers it alone tells where each piece of text and
each entity stands (lxml and Beautiful Soup give a tag's line, selectolax nothing). It is a tokenizer: elements that
are not closed do no harm, because only what begins and ends a block matters here.

Headings get ``#`` marks, list items a dash, cells a bar; white space is collapsed outside ``<pre>``; an image is its
``alt``. What is left out says :mod:`agentkv.documents.html_rules`; its bytes belong to the chunk around it.
Characters that stand for a tag or an entity share its byte, so that a piece cannot begin or end between them.
"""

from __future__ import annotations

import html as entities
import re
from array import array
from html.parser import HTMLParser

import numpy as np

from agentkv.documents.html_rules import (
    ALWAYS_SILENT,
    VOID,
    LeftOut,
    is_left_out,
    is_never_read,
    is_texinfo,
    is_texinfo_navigation,
)
from agentkv.documents.html_tables import Cells
from agentkv.documents.outline import ITEM, PARAGRAPH, Break, Heading, words
from agentkv.documents.readable import Readable, in_order
from agentkv.documents.source import Source

_PARAGRAPHS = frozenset(
    {"p", "div", "section", "article", "main", "blockquote", "ul", "ol", "dl", "table", "pre", "figure", "form"}
    | {"header", "hr", "details", "fieldset", "address", "aside", "body", "center", "dialog"}
)
_LINES = frozenset({"li", "dt", "dd", "tr", "br", "caption", "summary", "legend", "figcaption", "option", "title"})
_CELLS = frozenset({"td", "th"})
_GROUPS = frozenset({"thead", "tbody", "tfoot"})
_HEADING = re.compile(r"h([1-6])")
_RUN = re.compile(r"[^ \t\n\r\f\v\xa0]+(?: [^ \t\n\r\f\v\xa0]+)*")
"""Words with single blanks between them: these stand in the text as in the source."""
_ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")
_ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{0,40});?")
_MOST_PASSES = 8


def read_html(source: Source) -> Readable:
    """The readable text of an HTML source. Something left out that is never closed is read after all."""
    kept: set[int] = set()
    reader = _Reader(source.text, kept)
    reader.run()
    for passes in range(2, _MOST_PASSES + 1):
        if reader.left_out is None or reader.left_out.may_stay_open:
            break
        kept.add(reader.left_out.position)
        reader = _Reader(source.text, kept if passes < _MOST_PASSES else None)
        reader.run()
    text = "".join(reader.pieces)
    at = np.frombuffer(reader.at, dtype=np.uint32) if text else np.zeros(0, np.uint32)
    starts = np.append(source.starts[at], source.starts[-1:])
    starts[0] = 0
    headings = [heading for heading in reader.headings if heading.position < len(text)]
    breaks = [found for found in reader.breaks if found.position < len(text)]
    return Readable(
        source,
        "html",
        text,
        starts,
        tuple(headings),
        in_order(breaks, headings),
        words("".join(reader.title)),
        tuple(sorted(reader.cells.found, key=lambda table: table.start)),
    )


class _Reader(HTMLParser):
    """``kept``: where elements begin that are read although they look left out; None: all that look so."""

    def __init__(self, text: str, kept: set[int] | None) -> None:
        super().__init__(convert_charrefs=False)
        self._text, self._kept = text, kept
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.pieces: list[str] = []
        self.at = array("I")
        self.headings: list[Heading] = []
        self.breaks: list[Break] = []
        self.title: list[str] = []
        self.cells = Cells(self.pieces)
        self.left_out: LeftOut | None = None
        self._is_texinfo = False
        self._in_title = False
        self._pre = 0
        self._space: int | None = None  # where a space stood that is not written yet
        self._newlines = 2  # how many newlines the text ends with; 2 at its beginning
        self._heading: tuple[int, int, int] | None = None  # character, depth, piece

    def run(self) -> None:
        """Read all of it."""
        self.feed(self._text)
        self.close()
        self._end_heading()
        while self.cells.is_open:
            self.cells.end_table(len(self.at))

    def _position(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    # --- writing ---

    def _write(self, text: str, position: int, *, verbatim: bool) -> None:
        """Characters that stand at ``position``: one after the other in the source, or (an entity) all there."""
        if not text:
            return
        self.pieces.append(text)
        self.at.extend(range(position, position + len(text)) if verbatim else [position] * len(text))
        stripped = text.rstrip("\n")
        self._newlines = len(text) - len(stripped) + (0 if stripped else self._newlines)

    def _words(self, text: str, position: int, *, verbatim: bool = True) -> None:
        last = 0
        for match in _RUN.finditer(text):
            if match.start() > last and self._space is None:
                self._space = position + last if verbatim else position
            self._flush()
            self._write(match[0], position + match.start() if verbatim else position, verbatim=verbatim)
            last = match.end()
        if last < len(text) and self._space is None:
            self._space = position + last if verbatim else position

    def _flush(self) -> None:
        """Write what stands between the text so far and what comes now: a break within a cell, or a space."""
        put_off = self.cells.take_break()
        if put_off is not None:
            self._break_now(*put_off)
        if self._space is not None and not self._newlines and not self.pieces[-1].endswith(" "):
            self._write(" ", self._space, verbatim=False)
        self._space = None

    def _break(self, level: int, position: int) -> None:
        """End a line or a paragraph; within a table's cell only if more text of the cell comes."""
        self._space = None
        if not self.cells.puts_off(level, position, len(self.at)):
            self._break_now(level, position)

    def _break_now(self, level: int, position: int) -> None:
        self._space = None
        requested = 1 if level > PARAGRAPH else 2
        if self._newlines < requested:
            self._write("\n" * (requested - self._newlines), position, verbatim=False)
        if self.at:
            self.breaks.append(Break(len(self.at), level))

    # --- what the parser finds ---

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self.left_out is not None:
            if not self.left_out.start(tag):
                return
            self.left_out = None
        position = self._position()
        if self._is_left_out(tag, attributes, position):
            if tag in _CELLS:  # an empty place
                self._cell(tag, attributes, position)
            if tag not in VOID:
                self.left_out = LeftOut(tag, position)
            return
        heading = _HEADING.fullmatch(tag)
        if tag == "meta":
            self._is_texinfo |= is_texinfo(attributes)
        elif tag == "title":
            self._in_title = True
        elif heading:
            self._begin_heading(int(heading[1]), position)
        elif tag in _PARAGRAPHS:
            self._paragraph(tag, position)
        elif tag in _CELLS:
            self._cell(tag, attributes, position)
        elif tag in _LINES:
            self._line(tag, position)
        elif tag in _GROUPS:
            self.cells.group(len(self.at), is_head=tag == "thead")
        elif tag in {"b", "strong"}:
            self.cells.bold()
        elif tag in {"img", "area"} or (tag == "input" and attributes.get("type") == "image"):
            self._alternative(position)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self.left_out is not None:
            ended, is_read = self.left_out.end(tag)
            if ended:
                self.left_out = None
            if not is_read:
                return
        if tag == "title":
            self._in_title = False
        elif _HEADING.fullmatch(tag):
            self._end_heading()
            self._break(PARAGRAPH, self._position())
        elif tag in _PARAGRAPHS:
            self._pre = max(0, self._pre - (tag == "pre"))
            if tag == "table":
                self.cells.end_table(len(self.at))
            self._break(PARAGRAPH, self._position())
        elif tag in _CELLS:
            self.cells.end_cell()
        elif tag in _GROUPS:
            self.cells.group(len(self.at), is_head=False)
        elif tag in _LINES:
            if tag == "tr":
                self.cells.end_row(len(self.at))
            self._break(ITEM, self._position())

    def handle_data(self, data: str) -> None:
        self._take(data, self._position(), verbatim=True)

    def handle_entityref(self, name: str) -> None:
        self._entity(f"&{name}")

    def handle_charref(self, name: str) -> None:
        self._entity(f"&#{name}")

    def _entity(self, written: str) -> None:
        position = self._position()
        ended = self._text.startswith(";", position + len(written))
        self._take(entities.unescape(written + ";" * ended), position, verbatim=False)

    def _take(self, text: str, position: int, *, verbatim: bool) -> None:
        if self.left_out is not None:
            return
        if self._in_title:
            self.title.append(text)
        elif self._pre:
            self._flush()
            self._write(text.replace("\xa0", " "), position, verbatim=verbatim)
        else:
            self._words(text, position, verbatim=verbatim)

    def _is_left_out(self, tag: str, attributes: dict[str, str | None], position: int) -> bool:
        if tag in ALWAYS_SILENT:
            return True
        if self._kept is None or position in self._kept:
            return False
        if self._is_texinfo and is_texinfo_navigation(tag, attributes):
            return True
        return is_never_read(tag, attributes) or is_left_out(tag, attributes)

    # --- blocks ---

    def _begin_heading(self, depth: int, position: int) -> None:
        self._end_heading()
        self.cells.is_layout()
        self._break(PARAGRAPH, position)
        self._heading = (len(self.at), depth, len(self.pieces))
        self._write("#" * depth + " ", position, verbatim=False)

    def _end_heading(self) -> None:
        if self._heading is not None:
            position, depth, first = self._heading
            self._heading = None
            self.headings.append(Heading(position, depth, words("".join(self.pieces[first:]).lstrip("# "))))

    def _paragraph(self, tag: str, position: int) -> None:
        if tag in {"table", "pre"}:
            self.cells.is_layout()
        self._break(PARAGRAPH, position)
        self._pre += tag == "pre"
        if tag == "table":
            self.cells.begin_table()

    def _line(self, tag: str, position: int) -> None:
        if tag == "tr":
            self.cells.end_row(len(self.at))
        if tag == "br" and self.cells.is_in_row:
            self._space = position if self._space is None else self._space
            return
        self._break(ITEM, position)
        if tag == "tr":
            self.cells.begin_row(len(self.at))
        elif tag == "li":
            self._flush()
            self._write("- ", position, verbatim=False)
            self._newlines = 2  # so that a paragraph in an item follows its dash

    def _cell(self, tag: str, attributes: dict[str, str | None], position: int) -> None:
        self._space = None
        bars, is_layout = self.cells.begin_cell(tag, attributes, len(self.at))
        if is_layout:
            self._break_now(PARAGRAPH, position)
        else:
            self._write(" | " * bars, position, verbatim=False)
        self.cells.begin_text(len(self.at))

    def _alternative(self, position: int) -> None:
        """An image's words, each character at its place in the tag."""
        written = self.get_starttag_text() or ""
        for match in _ATTRIBUTE.finditer(written, 1):
            if match[1].lower() == "alt" and match[2]:
                quoted = match[2][0] in "\"'"
                first, last = match.start(2) + quoted, match.end(2) - quoted
                self._space = position if self._space is None else self._space
                self._escaped(written[first:last], position + first)
                self._space = position + last if self._space is None else self._space
                return

    def _escaped(self, written: str, position: int) -> None:
        last = 0
        for match in _ENTITY.finditer(written):
            self._take(written[last : match.start()], position + last, verbatim=True)
            self._take(entities.unescape(match[0]), position + match.start(), verbatim=False)
            last = match.end()
        self._take(written[last:], position + last, verbatim=True)
