"""Splits a manual that is too long on its own headings; the parts put together are the text, to the last character.

**The rule.** A text that fits is one part. Otherwise it is cut before its headings, the highest level first; a section
that does not fit by itself is cut at its own lower headings, then at paragraphs (a fenced code block is never cut
between them), then at lines, then at characters. From the first on, as many neighbours as fit make one part.
Headings are those of CommonMark: ``#`` to ``######``, and lines underlined with ``=`` or ``-``; none inside a fence.
What fits is the caller's question, asked of the very texts that are given back.

**Routed parts, not a chain.** A turn grafts one block, and a chain's last block holds all of the others' states: a
manual that exceeds the window exceeds it as a chain too. So each part becomes a block of its own after the agent
prefix, called ``skill/part``, and the router picks among the parts by the skill's description and the part's
headings. Within the window a chain would only spare some reading after an edit near a manual's end, and an answer
from a whole manual is better than one from a part of it; so nothing is split that need not be.

Not guaranteed: that a part can be understood without the others; its headings are on its card, not in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentkv.errors import UsageError

Fits = Callable[[str], bool]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_ATX = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
_NO_PARAGRAPH = re.compile(r"^(?:\s*$| {4}|\t| {0,3}(?:[#>|+*-]|\d+[.)]))")
_MAX_TITLES, _MAX_TITLE = 12, 80


@dataclass(frozen=True)
class Heading:
    """``at``: where it begins in the text."""

    at: int
    level: int
    title: str


@dataclass(frozen=True)
class _Line:
    at: int
    text: str
    fenced: bool
    """Inside a fence or one of its two ends."""
    inner: bool
    """In a fence, and not the line that opens it: no cut before it."""


def split(text: str, fits: Fits) -> list[str]:
    """The parts of ``text``, in order, each of which fits. Raises UsageError if not one character does."""
    offsets = [0]
    for piece in _split(text, 0, fits):
        offsets.append(offsets[-1] + len(piece))
    parts, at = [], 0
    while at < len(offsets) - 1:
        end = max(at + 1, _furthest(text, offsets, at, fits))
        parts.append(text[offsets[at] : offsets[end]])
        at = end
    return parts


def headings(text: str) -> list[Heading]:
    """The headings of a text, in order."""
    lines = list(_lines(text))
    found: list[Heading] = []
    for i, line in enumerate(lines):
        if line.fenced:
            continue
        atx = _ATX.match(line.text)
        if atx:
            found.append(Heading(line.at, len(atx[1]), atx[2] or ""))
            continue
        underline = _UNDERLINE.match(line.text)
        if underline and _is_title(lines, i - 1):
            found.append(Heading(lines[i - 1].at, 1 if underline[1][0] == "=" else 2, lines[i - 1].text.strip()))
    return found


def titles(text: str, parts: Sequence[str]) -> list[tuple[str, ...]]:
    """For each part its headings: those it lies in, then its own; without any, its first words."""
    all_headings, found, start = headings(text), [], 0
    for part in parts:
        end = start + len(part)
        above: list[Heading] = []
        for heading in all_headings:
            if heading.at > start:
                break
            above = [*(h for h in above if h.level < heading.level), heading]
        own = [heading for heading in all_headings if start < heading.at < end]
        named = [" ".join(heading.title.split())[:_MAX_TITLE] for heading in [*above, *own] if heading.title.strip()]
        found.append(tuple(named[:_MAX_TITLES]) or (_first_words(part),))
        start = end
    return found


def summary(text: str) -> str:
    """What a text is about, for its card: its headings, or its first words."""
    return "; ".join(titles(text, [text])[0])


def _first_words(text: str) -> str:
    return " ".join(text.split()[:12])[:_MAX_TITLE]


# --- cutting --------------------------------------------------------------------------------------


def _split(text: str, level: int, fits: Fits) -> Iterator[str]:
    if fits(text):
        yield text
        return
    offsets = _CUTTERS[level](text)
    while len(offsets) <= 2 and level < len(_CUTTERS) - 1:
        level += 1
        offsets = _CUTTERS[level](text)
    at = 0
    while at < len(offsets) - 1:
        end = _furthest(text, offsets, at, fits)
        if end > at:
            yield text[offsets[at] : offsets[end]]
        elif level == len(_CUTTERS) - 1:
            raise UsageError("the budget does not hold one character besides the manual's name; allow more tokens")
        else:
            end = at + 1
            yield from _split(text[offsets[at] : offsets[end]], level + 1, fits)
        at = end


def _furthest(text: str, offsets: Sequence[int], at: int, fits: Fits) -> int:
    """The last index whose offset ends a run from ``at`` that fits; ``at`` itself if none does."""
    good, step = at, 1
    while good + step < len(offsets) and fits(text[offsets[at] : offsets[good + step]]):
        good, step = good + step, step * 2
    bad = min(good + step, len(offsets))
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(text[offsets[at] : offsets[middle]]):
            good = middle
        else:
            bad = middle
    return good


def _at_headings(level: int) -> Callable[[str], Sequence[int]]:
    return lambda text: _offsets(text, (heading.at for heading in headings(text) if heading.level <= level))


def _at_paragraphs(text: str) -> Sequence[int]:
    cuts, before = [], ""
    for line in _lines(text):
        if not before.strip() and line.text.strip() and not line.inner:
            cuts.append(line.at)
        before = "x" if line.inner else line.text
    return _offsets(text, cuts)


def _at_lines(text: str) -> Sequence[int]:
    return _offsets(text, (match.start() for match in _LINE.finditer(text)))


def _at_characters(text: str) -> Sequence[int]:
    return range(len(text) + 1)


def _offsets(text: str, cuts: Iterator[int] | Sequence[int]) -> Sequence[int]:
    return sorted({0, len(text), *cuts})


_CUTTERS: tuple[Callable[[str], Sequence[int]], ...] = (
    *(_at_headings(level) for level in range(1, 7)),
    _at_paragraphs,
    _at_lines,
    _at_characters,
)


# --- lines ----------------------------------------------------------------------------------------


def _lines(text: str) -> Iterator[_Line]:
    fence = ""
    for match in _LINE.finditer(text):
        line = match[0].rstrip("\n")
        mark = _FENCE.match(line)
        if fence:
            yield _Line(match.start(), line, True, True)
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            yield _Line(match.start(), line, True, False)
        else:
            yield _Line(match.start(), line, False, False)


def _is_title(lines: Sequence[_Line], at: int) -> bool:
    """Whether a line can be underlined: a paragraph of one line."""
    if at < 0 or lines[at].fenced or _NO_PARAGRAPH.match(lines[at].text):
        return False
    return at == 0 or not lines[at - 1].text.strip() or lines[at - 1].fenced or bool(_ATX.match(lines[at - 1].text))
