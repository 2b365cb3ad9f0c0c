"""Needles: sentences with a unique value, put into documents at even depths, and the question that asks for each.

A question and its needle have no word in common but the name of what they are about, which is made up and occurs
nowhere else; values are unique, too. Where a needle goes depends on the documents and the seed alone, so the same
documents come out again. Knows text and HTML, no windows and no model.
"""

from __future__ import annotations

import html
import random
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agentkv.errors import UsageError


@dataclass(frozen=True)
class Needle:
    """``sentence`` holds ``name`` and ``value``; ``question`` holds ``name``. ``path``: the document it was put in."""

    name: str
    sentence: str
    question: str
    value: str
    path: str = ""

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


FORMS = (
    ("The vault at {name} is opened with the number {value}.", "Which digits unlock the strongroom in {name}?", "code"),
    ("In {name} the choir is led by {value}.", "Who conducts the singers of {name}?", "person"),
    ("The bridge of {name} was finished on {value}.", "When was the river crossing near {name} completed?", "date"),
    ("The password of the observatory {name} is {value}.", "What secret phrase lets astronomers into {name}?", "words"),
    ("Players of the club {name} train in the town {value}.", "Where does the team called {name} practise?", "place"),
)
"""Sentence, question, kind of value."""

_FIRST = "Anneke Bram Corin Dagny Elof Fenna Gijs Halla Ivo Jorun Kees Liv Maarten Nils Oda Piet".split()  # noqa: SIM905
_LAST = "Aldring Borrevik Castelein Dorrestein Egeland Fossum Grimstad Hoekstra".split()  # noqa: SIM905
_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_COLOURS = "amber cobalt crimson ivory maroon olive scarlet silver teal violet".split()  # noqa: SIM905
_ANIMALS = "badger falcon heron lynx marten otter raven salmon stoat walrus".split()  # noqa: SIM905
_ONSETS = "b br d dr f g gr k kl l m n p pr r s st t tr v z".split()  # noqa: SIM905
_NUCLEI = "a e i o u au ei".split()  # noqa: SIM905
_CODAS = "l m n r s x nd rn sk lt".split()  # noqa: SIM905


def make(count: int, seed: int, documents: Mapping[str, bytes]) -> list[Needle]:
    """``count`` needles; no name and no value occurs in the documents, or twice. The forms take turns."""
    there = "\n".join(data.decode("utf-8", "replace") for data in documents.values()).casefold()
    rng = random.Random(f"needles/{seed}")
    taken: set[str] = set()

    def fresh(kind: str) -> str:
        while True:
            text = _VALUES[kind](rng)
            if text.casefold() not in taken and text.casefold() not in there:
                taken.add(text.casefold())
                return text

    made = []
    for number in range(count):
        sentence, question, kind = FORMS[number % len(FORMS)]
        name, value = fresh("place"), fresh(kind)
        made.append(Needle(name, sentence.format(name=name, value=value), question.format(name=name), value))
    return made


def _place(rng: random.Random) -> str:
    syllables = [rng.choice(_ONSETS) + rng.choice(_NUCLEI) for _ in range(2)]
    return ("".join(syllables) + rng.choice(_ONSETS) + rng.choice("aeiou") + rng.choice(_CODAS)).capitalize()


_VALUES: dict[str, Callable[[random.Random], str]] = {
    "place": _place,
    "code": lambda rng: str(rng.randrange(10_000, 100_000)),
    "person": lambda rng: f"{rng.choice(_FIRST)} {rng.choice(_LAST)}",
    "date": lambda rng: f"{rng.randrange(1, 29)} {rng.choice(_MONTHS)} {rng.randrange(1801, 1990)}",
    "words": lambda rng: f"{rng.choice(_COLOURS)} {rng.choice(_ANIMALS)}",
}


# --- where they go --------------------------------------------------------------------------------


def plant(documents: Mapping[str, bytes], made: Sequence[Needle]) -> tuple[dict[str, bytes], list[Needle]]:
    """The documents with the needles in them, at even depths in text, and the needles with their documents.

    The first stands at the first place of the first document that has one, the last at the last place of the last.
    Raises UsageError where there are fewer places than needles.
    """
    places, depths, before = [], [], 0
    for path, data in documents.items():
        at = 0
        for position in _places(path, data):
            before, at = before + _text_bytes(path, data[at:position]), position
            places.append((path, position))
            depths.append(before)
        before += _text_bytes(path, data[at:])
    if len(places) < len(made):
        raise UsageError(f"the documents have {len(places):,} places for needles, fewer than {len(made):,}")
    into: dict[str, list[tuple[int, Needle]]] = {}
    for number, index in enumerate(_spread(depths, len(made))):
        path, position = places[index]
        into.setdefault(path, []).append((position, made[number]))
    changed = {path: _with(path, documents[path], items) for path, items in into.items()}
    put = [replace(needle, path=path) for path, items in into.items() for _, needle in items]
    return {path: changed.get(path, data) for path, data in documents.items()}, put


def _spread(depths: Sequence[int], count: int) -> Iterator[int]:
    """Indices of ``count`` places, rising: the first, the last, and between them those next to even steps."""
    before = -1
    for number in range(count):
        if number == count - 1:
            nearest = len(depths) - 1
        else:
            target = depths[0] + (depths[-1] - depths[0]) * number / max(count - 1, 1)
            nearest = bisect_left(depths, target)
        before = max(before + 1, min(nearest, len(depths) - (count - number)))
        yield before


_PARAGRAPH = re.compile(rb"\n[ \t]*\n(?=[A-Za-z(\"'`])")
_P = re.compile(rb"<p>")
_BODY = re.compile(rb"<body\b[^>]*>", re.I)
_TAG = re.compile(rb"<[^>]*>")


def _is_html(path: str) -> bool:
    return path.endswith((".html", ".htm", ".xhtml"))


def _places(path: str, data: bytes) -> list[int]:
    """Where a paragraph begins: in HTML before ``<p>``, else before a line at the margin after an empty one."""
    if _is_html(path):
        body = _BODY.search(data)
        return [found.start() for found in _P.finditer(data, body.end() if body else 0)]
    end = len(data.rstrip())
    inside = [found.end() for found in _PARAGRAPH.finditer(data, 0, end)]
    return [*inside, len(data)] if end else []


def _text_bytes(path: str, data: bytes) -> int:
    return len(_TAG.sub(b"", data)) if _is_html(path) else len(data)


def _with(path: str, data: bytes, items: Sequence[tuple[int, Needle]]) -> bytes:
    parts, at = [], 0
    for position, needle in items:
        parts += [data[at:position], _paragraph(path, needle.sentence, data, position)]
        at = position
    return b"".join([*parts, data[at:]])


def _paragraph(path: str, sentence: str, data: bytes, position: int) -> bytes:
    if _is_html(path):
        return f"<p>{html.escape(sentence)}</p>\n".encode()
    if position < len(data):
        return f"{sentence}\n\n".encode()
    ending = b"" if data.endswith(b"\n\n") else b"\n" if data.endswith(b"\n") else b"\n\n"
    return ending + f"{sentence}\n".encode()
