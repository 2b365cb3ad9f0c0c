"""What of an HTML page is not read: what it does not show, what leads to other pages, and where such a thing ends.

Left out: scripts, styles, templates and what takes a browser to be text; what is ``hidden``, not displayed, invisible
or ``aria-hidden``; a dialog that is not open; navigation by its element, its role, or the class that DocBook, Javadoc,
Doxygen and Texinfo give it. Read: closed ``<details>``, and what is hidden "until found", since both are there to be
found. ``<noscript>`` is left out: it mostly asks for scripts. Not seen: what a style sheet or a class of it hides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
"""Elements whose end may be left unwritten, and what then ends them."""
_ENDS = _BLOCKS | _ROWS | {"body", "html"}
_HOLDING = frozenset({"ul", "ol", "dl", "table"})
"""Within these a tag belongs to them, and ends nothing around them."""


def is_never_read(tag: str, attributes: Attributes) -> bool:
    """Whether an element is not text of the page."""
    return tag in _SILENT or (tag == "dialog" and "open" not in attributes)


def is_left_out(tag: str, attributes: Attributes) -> bool:
    """Whether an element is hidden, or leads to other pages; not to be believed of one that is never closed."""
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
    """Whether an element of such a page is its ``Next: …, Previous: …, Up: …``; other pages head theirs so too."""
    return tag in {"div", "table"} and (attributes.get("class") or "").split() in (["header"], ["node"], ["footer"])


class LeftOut:
    """An element that is left out, at ``position``, from its start to its end, written or not."""

    def __init__(self, tag: str, position: int) -> None:
        self.tag, self.position = tag, position
        self._open: list[str] = []

    @property
    def may_stay_open(self) -> bool:
        """Whether the page may end within it: its end need not be written, or nothing of it is ever read."""
        return self.tag in _CLOSED_BY or self.tag in ALWAYS_SILENT

    def start(self, tag: str) -> bool:
        """Whether a start tag ends the element, and so is read itself."""
        if tag in _CLOSED_BY.get(self.tag, ()) and _HOLDING.isdisjoint(self._open):
            return True
        if tag not in VOID and len(self._open) < 1000:
            self._open.append(tag)
        return False

    def end(self, tag: str) -> tuple[bool, bool]:
        """Whether an end tag ends the element, and whether the end tag itself is still to be read."""
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index] == tag:
                del self._open[index:]
                return False, False
        if tag == self.tag:
            return True, False
        is_unwritten = self.tag in _CLOSED_BY and tag in _ENDS
        return is_unwritten, is_unwritten
