"""HTML as text that a model can read, each character with its place in the source.

Read with the standard library's ``html.parser``: of the well-kept parsers it alone tells where each piece of text and
each entity stands (lxml and Beautiful Soup give a tag's line, selectolax nothing). It is a tokenizer: elements that
are not closed do no harm, because only what begins and ends a block matters here.

Headings get ``#`` marks, list items a dash, cells a bar; white space is collapsed outside ``<pre>``. Left out are
scripts, styles, and what is marked as navigation. Their bytes belong to the window around them all the same.
"""

from __future__ import annotations

import html as entities
import re
from array import array
from html.parser import HTMLParser

import numpy as np

from agentkv.documents.outline import ITEM, PARAGRAPH, Break, Heading, words
from agentkv.documents.readable import Readable, _sorted
from agentkv.documents.source import Source

_SILENT = frozenset(
    {"script", "style", "template", "svg", "noscript", "select", "textarea", "iframe", "object", "math"}
)
_NAVIGATION = frozenset({"nav", "footer"})
_ROLES = frozenset({"navigation", "search", "contentinfo", "banner"})
_PARAGRAPHS = frozenset(
    {
        "p",
        "div",
        "section",
        "article",
        "main",
        "blockquote",
        "ul",
        "ol",
        "dl",
        "table",
        "pre",
        "figure",
        "form",
        "header",
    }
    | {"hr", "details", "fieldset", "address", "aside", "body", "center"}
)
_LINES = frozenset({"li", "dt", "dd", "tr", "br", "caption", "summary", "legend", "figcaption", "option", "title"})
_CELLS = frozenset({"td", "th"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_HEADING = re.compile(r"h([1-6])")
_RUN = re.compile(r"[^ \t\n\r\f\v\xa0]+")
_ANCHOR = re.compile(r"\b(?:headerlink|anchor-link|sr-only|visually-hidden)\b")


def read_html(source: Source) -> Readable:
    """The readable text of an HTML source; navigation is left out unless it is never closed."""
    reader = _Reader(source.text, skip_navigation=True)
    reader.run()
    if reader.is_silent:
        reader = _Reader(source.text, skip_navigation=False)
        reader.run()
    text = "".join(reader.pieces)
    at = np.frombuffer(reader.at, dtype=np.uint32) if text else np.zeros(0, np.uint32)
    starts = np.append(source.starts[at], source.starts[-1:])
    starts[0] = 0
    headings = [heading for heading in reader.headings if heading.position < len(text)]
    breaks = [found for found in reader.breaks if found.position < len(text)]
    return Readable(
        source, "html", text, starts, tuple(headings), _sorted(breaks, headings), words("".join(reader.title))
    )


class _Reader(HTMLParser):
    def __init__(self, text: str, *, skip_navigation: bool) -> None:
        super().__init__(convert_charrefs=False)
        self._text, self._skip_navigation = text, skip_navigation
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.pieces: list[str] = []
        self.at = array("I")
        self.headings: list[Heading] = []
        self.breaks: list[Break] = []
        self.title: list[str] = []
        self._skipped: list[str] = []  # the element that is left out, and those of its name within
        self._in_title = False
        self._pre = 0
        self._space: int | None = None  # where a space stood that is not written yet
        self._newlines = 2  # how many newlines the text ends with; 2 at its beginning
        self._heading: tuple[int, int, int] | None = None  # character, depth, piece

    def run(self) -> None:
        self.feed(self._text)
        self.close()
        self._end_heading()

    @property
    def is_silent(self) -> bool:
        """Whether the end was reached with something still left out."""
        return bool(self._skipped)

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
            self._flush_space()
            self._write(match[0], position + match.start() if verbatim else position, verbatim=verbatim)
            last = match.end()
        if last < len(text) and self._space is None:
            self._space = position + last if verbatim else position

    def _flush_space(self) -> None:
        if self._space is not None and not self._newlines:
            self._write(" ", self._space, verbatim=False)
        self._space = None

    def _break(self, level: int, position: int) -> None:
        self._space = None
        wanted = 1 if level > PARAGRAPH else 2
        if self._newlines < wanted:
            self._write("\n" * (wanted - self._newlines), position, verbatim=False)
        if self.at:
            self.breaks.append(Break(len(self.at), level))

    # --- what the parser finds ---

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        position = self._position()
        if self._skipped:
            if tag == self._skipped[0]:
                self._skipped.append(tag)
            return
        if self._is_left_out(tag, dict(attrs)):
            if tag not in _VOID:
                self._skipped.append(tag)
            return
        heading = _HEADING.fullmatch(tag)
        if tag == "title":
            self._in_title = True
        elif heading:
            self._end_heading()
            self._break(PARAGRAPH, position)
            self._heading = (len(self.at), int(heading[1]), len(self.pieces))
            self._write("#" * int(heading[1]) + " ", position, verbatim=False)
        elif tag in _PARAGRAPHS:
            self._break(PARAGRAPH, position)
            self._pre += tag == "pre"
        elif tag in _LINES:
            self._break(ITEM, position)
            if tag == "li":
                self._write("- ", position, verbatim=False)
                self._newlines = 2  # so that a paragraph in an item follows its dash
        elif tag in _CELLS and not self._newlines:
            self._space = None
            self._write(" | ", position, verbatim=False)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            if tag == self._skipped[0]:
                self._skipped.pop()
            return
        if tag == "title":
            self._in_title = False
        elif _HEADING.fullmatch(tag):
            self._end_heading()
            self._break(PARAGRAPH, self._position())
        elif tag in _PARAGRAPHS:
            self._pre = max(0, self._pre - (tag == "pre"))
            self._break(PARAGRAPH, self._position())
        elif tag in _LINES:
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
        if self._skipped:
            return
        if self._in_title:
            self.title.append(text)
        elif self._pre:
            self._flush_space()
            self._write(text.replace("\xa0", " "), position, verbatim=verbatim)
        else:
            self._words(text, position, verbatim=verbatim)

    def _end_heading(self) -> None:
        if self._heading is not None:
            position, depth, first = self._heading
            self._heading = None
            self.headings.append(Heading(position, depth, words("".join(self.pieces[first:]).lstrip("# "))))

    def _is_left_out(self, tag: str, attributes: dict[str, str | None]) -> bool:
        if tag in _SILENT:
            return True
        if _ANCHOR.search(attributes.get("class") or ""):
            return tag in {"a", "span"}
        return self._skip_navigation and (tag in _NAVIGATION or (attributes.get("role") or "") in _ROLES)
