"""HTML as plain text, each character with its place in the source.

Parsed with the standard library's ``html.parser``, the only well-kept parser that gives the position of each text and
entity (lxml and Beautiful Soup give a tag's line, selectolax nothing). It is a tokenizer: elements that are not closed
do no harm, because only what begins and ends a block matters here.

Headings get ``#`` marks, list items a dash, cells a bar; white space is collapsed outside ``<pre>``; an image is its
``alt``. What is left out (see ``is_left_out``) belongs, with its bytes, to the chunk around it.
Characters made from a tag or an entity share its byte, so that a slice cannot begin or end between them.
"""

from __future__ import annotations

import html as entities
import re
from array import array
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from agentkv.documents.readers.decoding import decode
from agentkv.documents.readers.document import ITEM, PARAGRAPH, Break, Heading, Readable, in_order, one_line
from agentkv.documents.readers.html_tables import Cells
from agentkv.documents.records import Kind

_PARAGRAPHS = frozenset(
    {"p", "div", "section", "article", "main", "blockquote", "ul", "ol", "dl", "table", "pre", "figure", "form"}
    | {"header", "hr", "details", "fieldset", "address", "aside", "body", "center", "dialog"}
)
_LINES = frozenset({"li", "dt", "dd", "tr", "br", "caption", "summary", "legend", "figcaption", "option", "title"})
_CELLS = frozenset({"td", "th"})
_GROUPS = frozenset({"thead", "tbody", "tfoot"})
_HEADING = re.compile(r"h([1-6])")
_RUN = re.compile(r"[^ \t\n\r\f\v\xa0]+(?: [^ \t\n\r\f\v\xa0]+)*")
"""Words with single blanks between them: the same in the text as in the source."""
_ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")
_ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{0,40});?")
_MOST_PASSES = 8


def read(path: Path, data: bytes, kind: Kind, encoding: str | None) -> Readable:
    """See :class:`agentkv.documents.readers.Reader`. An element to leave out that is never closed is kept."""
    source = decode(path, data, kind, encoding)
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
        kind,
        text,
        starts,
        tuple(headings),
        in_order(breaks, headings),
        one_line("".join(reader.title)),
        tuple(sorted(reader.cells.found, key=lambda table: table.start)),
    )


class _Reader(HTMLParser):
    """``kept``: the positions of elements that are kept although they look as if to be left out; None: all of them."""

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
        """Characters from ``position`` on (``verbatim``), or all made from what is at ``position`` (an entity)."""
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
        """Write what separates the text so far from what comes now: a break within a cell, or a space."""
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
            self.headings.append(Heading(position, depth, one_line("".join(self.pieces[first:]).lstrip("# "))))

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
        """An image's one_line, each character at its place in the tag."""
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


# --- what is left out -----------------------------------------------------------------------------

# Left out: scripts, styles, templates and what takes a browser to be text; what is hidden, not displayed, invisible or
# `aria-hidden`; closed dialogs; navigation by its element, its role, or the class that DocBook, Javadoc, Doxygen and
# Texinfo give it; `<noscript>`, which mostly asks for scripts. Read: closed `<details>`, and what is hidden "until
# found". Not seen: what a style sheet or a class of it hides.

Attributes = Mapping[str, str | None]

VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
ALWAYS_SILENT = frozenset({"script", "style", "template"})
_SILENT = frozenset(
    {"svg", "noscript", "select", "textarea", "iframe", "object", "math"}
    | {"canvas", "audio", "video", "datalist", "noframes", "noembed"}
)
_NAVIGATION = frozenset({"nav", "footer"})
_ROLES = frozenset({"navigation", "search", "contentinfo", "banner", "menubar", "directory"})
_CLASSES = frozenset(
    {"navheader", "navfooter", "nav-panel", "navpath", "nav-path", "breadcrumb", "breadcrumbs", "navbar", "topnav"}
    | {"bottomnav", "subnav", "sphinxsidebar", "pagination"}
)
_NEVER = frozenset({"html", "body", "main"})
_INVISIBLE = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|(?:content-)?visibility\s*:\s*(?:hidden|collapse))(?![\w-])", re.I
)
_ANCHOR = re.compile(r"\b(?:headerlink|anchor-link|sr-only|visually-hidden)\b")

_BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "blockquote", "ul", "ol", "dl", "table", "pre", "figure", "form"}
    | {"header", "footer", "nav", "aside", "hr", "details", "fieldset", "address", "h1", "h2", "h3", "h4", "h5", "h6"}
)
_ROWS = frozenset({"tr", "thead", "tbody", "tfoot"})
_CLOSED_BY: dict[str, frozenset[str]] = {
    "p": _BLOCKS,
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": _ROWS,
    "td": frozenset({"td", "th"}) | _ROWS,
    "th": frozenset({"td", "th"}) | _ROWS,
    "thead": frozenset({"tbody", "tfoot"}),
    "tbody": frozenset({"tbody", "tfoot"}),
}
"""Elements whose end tag is optional, and what then ends them."""
_ENDS = _BLOCKS | _ROWS | {"body", "html"}
_HOLDING = frozenset({"ul", "ol", "dl", "table"})
"""A tag within one of these ends nothing outside it."""


def is_never_read(tag: str, attributes: Attributes) -> bool:
    """Whether an element is never text of the page."""
    return tag in _SILENT or (tag == "dialog" and "open" not in attributes)


def is_left_out(tag: str, attributes: Attributes) -> bool:
    """Whether an element is hidden or navigation; does not count for one that is never closed."""
    classes = (attributes.get("class") or "").casefold()
    if _ANCHOR.search(classes):
        return tag in {"a", "span"}
    if tag == "a" and classes.startswith("skip"):  # to the text, past the navigation
        return True
    if tag in _NEVER:
        return False
    role = (attributes.get("role") or "").strip().casefold()
    if tag in _NAVIGATION or role in _ROLES or not _CLASSES.isdisjoint(classes.split()):
        return True
    if "hidden" in attributes and (attributes["hidden"] or "").strip().casefold() != "until-found":
        return True
    is_aria_hidden = (attributes.get("aria-hidden") or "").strip().casefold() == "true"
    return is_aria_hidden or _INVISIBLE.search(attributes.get("style") or "") is not None


def is_texinfo(attributes: Attributes) -> bool:
    """Whether a ``<meta>`` says that the page was made of Texinfo."""
    by = (attributes.get("content") or "").casefold().startswith(("texi2any", "makeinfo", "texi2html"))
    return by and (attributes.get("name") or "").casefold() == "generator"


def is_texinfo_navigation(tag: str, attributes: Attributes) -> bool:
    """Whether an element of a Texinfo page is its ``Next: …, Previous: …, Up: …``."""
    return tag in {"div", "table"} and (attributes.get("class") or "").split() in (["header"], ["node"], ["footer"])


class LeftOut:
    """An element that is left out, at ``position``, from its start to its end tag or where that is implied."""

    def __init__(self, tag: str, position: int) -> None:
        self.tag, self.position = tag, position
        self._open: list[str] = []

    @property
    def may_stay_open(self) -> bool:
        """Whether the page may end within it: its end tag is optional, or it is never text."""
        return self.tag in _CLOSED_BY or self.tag in ALWAYS_SILENT

    def start(self, tag: str) -> bool:
        """Whether a start tag ends the element, and so counts itself."""
        if tag in _CLOSED_BY.get(self.tag, ()) and _HOLDING.isdisjoint(self._open):
            return True
        if tag not in VOID and len(self._open) < 1000:
            self._open.append(tag)
        return False

    def end(self, tag: str) -> tuple[bool, bool]:
        """Whether an end tag ends the element, and whether the end tag counts for what is around it."""
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index] == tag:
                del self._open[index:]
                return False, False
        if tag == self.tag:
            return True, False
        is_unwritten = self.tag in _CLOSED_BY and tag in _ENDS
        return is_unwritten, is_unwritten
