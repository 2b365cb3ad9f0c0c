"""What a task's text mentions: numbers, words by their shape, quoted spans, and lists of them.

A *shape* is a text with runs of digits, capitals and small letters each taken as one sign: ``2024-03-05`` is
``9-9-9``, ``14:30`` is ``9:9``, ``Anna`` is ``Aa``. A *list* is two or more mentions of one shape with nothing
between them but commas, semicolons and "then"; the item behind an "and" or "or" is its last. Knows text only; refuses
to know what a mention means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

_TOKEN = re.compile(r"\S+")
_AROUND = "\"'`“”()[]{},;:!?"
_EDGE = _AROUND + "„«»‘’<>."
_POSSESSIVE = re.compile(r"['’]s$")
_NUMBER = re.compile(
    r"(?:[^\W\d_]+(?=\+))?[^\w.+\-−]{0,2}([-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?:-?[^\W\d_]+|[%‰°€$£¥/].*)?"
)
_QUOTED = re.compile(r'"([^"\n]+)"|“([^”\n]+)”|«([^»\n]+)»|`([^`\n]+)`')
_BETWEEN = re.compile(r"[\s,;]*(?:(?:and|or|then)\s+)?")
_WORDS = {
    **{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20},
}  # not "one", which is more often a pronoun


@dataclass(frozen=True)
class Mention:
    """A stretch ``start`` to ``end`` of a text; ``number`` is its value where it is one."""

    text: str
    start: int
    end: int
    number: Fraction | None = None

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number."""
        return self.number is not None and self.number.denominator == 1

    @property
    def number_json(self) -> str:
        """Its number as JSON text, as exact as the text gives it."""
        assert self.number is not None
        if self.number.denominator == 1:
            return str(self.number.numerator)
        return json.dumps(float(self.number))


def shape(text: str) -> str:
    """The shape of a text; see the module's docstring."""
    signs = "".join("9" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else c for c in text)
    return re.sub(r"([9Aa])\1+", r"\1", signs)


@dataclass(frozen=True)
class Mentions:
    """All that ``text`` mentions."""

    text: str

    @cached_property
    def words(self) -> list[Mention]:
        """What stands between white space, without the punctuation around it."""
        return [mention for found in _TOKEN.finditer(self.text) if (mention := _stripped(found)) is not None]

    @cached_property
    def numbers(self) -> list[Mention]:
        """Numbers in digits, with their currency or unit, and the words two to twenty."""
        found = []
        for token in _TOKEN.finditer(self.text):
            number = _number_of(token[0])
            if number is not None:
                word = _stripped(token)
                start, end = (word.start, word.end) if word else token.span()
                found.append(Mention(self.text[start:end], start, end, number))
        return found

    @cached_property
    def quoted(self) -> list[Mention]:
        """What stands in double quotation marks or backticks."""
        found = []
        for match in _QUOTED.finditer(self.text):
            group = next(index for index in range(1, 5) if match[index] is not None)
            found.append(Mention(match[group], match.start(group), match.end(group)))
        return found

    def spans(self, n_words: int) -> list[Mention]:
        """Every ``n_words`` words in a row."""
        words = self.words
        rows = [(words[at], words[at + n_words - 1]) for at in range(len(words) - n_words + 1)]
        return [Mention(self.text[a.start : b.end], a.start, b.end) for a, b in rows]

    def of_shape(self, wanted: str, n_words: int) -> list[Mention]:
        """The spans of that shape."""
        return [span for span in self.spans(n_words) if shape(span.text) == wanted]

    def lists(self, items: Sequence[Mention]) -> list[list[Mention]]:
        """The longest lists of ``items`` (in the order of the text), of two or more each."""
        runs: list[list[Mention]] = []
        closed = True
        for item in items:
            between = "" if closed else self._between(runs[-1][-1], item)
            if not closed and _BETWEEN.fullmatch(between):
                runs[-1].append(item)
                closed = between.rstrip(" ,;")[-3:].strip() in ("and", "or")
            else:
                runs.append([item])
                closed = False
        return [run for run in runs if len(run) > 1]

    def _between(self, first: Mention, second: Mention) -> str:
        return re.sub(r"[\"'`“”)(%$€£]", "", self.text[first.end : second.start])


def _stripped(token: re.Match[str]) -> Mention | None:
    start, end = token.span()
    text = token[0]
    while text and text[0] in _EDGE:
        text, start = text[1:], start + 1
    while text and text[-1] in _EDGE:
        text, end = text[:-1], end - 1
    shorter = _POSSESSIVE.sub("", text)
    return Mention(shorter, start, end - (len(text) - len(shorter))) if shorter else None


def _number_of(token: str) -> Fraction | None:
    text = token.lstrip(_AROUND).rstrip(_AROUND + ".")
    match = _NUMBER.fullmatch(text)
    if match is not None:
        return Fraction(match[1].replace(",", "").replace("−", "-").removeprefix("+"))
    known = _WORDS.get(text.casefold())
    return None if known is None else Fraction(known)


def replaced(text: str, changes: Sequence[tuple[Mention, str]]) -> str:
    """``text`` with each mention replaced by other text."""
    for mention, new in sorted(changes, key=lambda change: -change[0].start):
        text = text[: mention.start] + new + text[mention.end :]
    return text


def first_unused(mentions: Sequence[Mention], used: Sequence[Mention]) -> Iterator[Mention]:
    """Those of ``mentions`` that overlap none of ``used``."""
    for mention in mentions:
        if all(mention.end <= other.start or other.end <= mention.start for other in used):
            yield mention
