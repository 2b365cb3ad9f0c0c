"""How a program's parameters are quoted from its task's text, and the grammar that quotes them from another.

:class:`Mentions` are the numbers, words, quoted spans and lists of a text. A *shape* is a text with runs of digits,
capitals and small letters each written as one sign: ``2024-03-05`` is ``9-9-9``, ``14:30`` is ``9:9``, ``Anna`` is
``Aa``. A *list* is two or more mentions of one shape with nothing between them but commas, semicolons and "then"; the
item after an "and" or "or" is its last.

A parameter whose value is mentioned in its own task's text is *quoted*: in another task's text it can only be a mention
of the same kind (a number, a word of that shape, what is in quotation marks, a list). The grammar offers the mentions
of that kind and nothing else, each for one parameter only where there are enough of them; the model chooses which is
which. A parameter that is not quoted, or has no mention, is bound by its type.

Not guaranteed: that the right value can be chosen. A parameter that is a whole number in its own task is one in every
other, and a value that the text does not spell out (a sum, "half of it", a word written otherwise) is not a mention.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from agentkv.engine.constrain.schema import literal

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
    """The part ``start`` to ``end`` of a text; ``number``: its value if it is a number."""

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
        """The tokens between white space, without the punctuation around them."""
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
        """What is in double quotation marks or backticks."""
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

    def of_shape(self, signs: str, n_words: int) -> list[Mention]:
        """The spans of the shape ``signs``."""
        return [span for span in self.spans(n_words) if shape(span.text) == signs]

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


# --- parameters -----------------------------------------------------------------------------------

Kind = Literal["number", "words", "quoted", "list of numbers", "list of words", "typed"]
_MAX_STATES = 2000
_MAX_WORDS = 8
_TYPES = {
    "int": '"-"? ("0" | [1-9] [0-9]{0,17})',
    "float": 'int ("." [0-9]{1,12})?',
    "str": r'"\"" ([^"\\\x00-\x1F] | "\\" ["\\/bfnrt])* "\""',
    "bool": '"true" | "false"',
    "null": '"null"',
    "list": '"[" (any (", " any)*)? "]"',
    "dict": '"{" (str ": " any (", " str ": " any)*)? "}"',
    "any": "float | str | bool | null | list | dict",
}


@dataclass(frozen=True)
class Slot:
    """One parameter. ``type``: of its value, or of a quoted list's items; ``shape`` and ``words``: of a quoted text."""

    name: str
    kind: Kind
    type: str
    shape: str = ""
    words: int = 1
    where: tuple[Mention, ...] = ()


def slots_of(prompt: str, parameters: Mapping[str, Any]) -> list[Slot]:
    """How each parameter is quoted from ``prompt``; no mention is used for two of them.

    In the order of the text, since a model fills them in that order more easily; those not quoted come last.
    """
    mentions = Mentions(prompt)
    used: list[Mention] = []
    found: dict[str, Slot] = {}
    # Lists first: an item of one may be elsewhere in the text too.
    for name in sorted(parameters, key=lambda key: not isinstance(parameters[key], list)):
        slot = _slot(name, parameters[name], mentions, used)
        used += slot.where
        found[name] = slot
    return sorted((found[name] for name in parameters), key=_place)


def _place(slot: Slot) -> tuple[bool, int]:
    return not slot.where, slot.where[0].start if slot.where else 0


def _slot(name: str, value: Any, mentions: Mentions, used: Sequence[Mention]) -> Slot:
    kind = _type(value)
    if kind in ("int", "float"):
        for mention in first_unused(mentions.numbers, used):
            if mention.number == Fraction(str(value)):
                return Slot(name, "number", kind, where=(mention,))
    elif kind == "str" and value.strip():
        for mention in first_unused(mentions.quoted, used):
            if mention.text == value:
                return Slot(name, "quoted", kind, where=(mention,))
        n_words = len(value.split())
        for mention in first_unused(mentions.spans(n_words) if n_words <= _MAX_WORDS else [], used):
            if mention.text == value:
                return Slot(name, "words", kind, shape(value), n_words, (mention,))
    elif kind == "list" and len(value) > 1:
        return _list_slot(name, value, mentions, used)
    return Slot(name, "typed", kind)


def _list_slot(name: str, value: list[Any], mentions: Mentions, used: Sequence[Mention]) -> Slot:
    if all(_type(item) in ("int", "float") for item in value):
        for run in mentions.lists(list(first_unused(mentions.numbers, used))):
            if [item.number for item in run] == [Fraction(str(item)) for item in value]:
                return Slot(name, "list of numbers", _joint_type(value), where=tuple(run))
    elif all(type(item) is str for item in value) and len({shape(item) for item in value}) == 1:
        one_shape = shape(value[0])
        items = list(first_unused(mentions.of_shape(one_shape, 1), used))
        for run in mentions.lists(items):
            if [item.text for item in run] == value:
                return Slot(name, "list of words", "str", one_shape, where=tuple(run))
    return Slot(name, "typed", "list")


def _type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _joint_type(value: Sequence[Any]) -> str:
    return "int" if all(type(item) is int for item in value) else "float"


# --- what a new text offers ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Offer:
    """A value that the text mentions: its JSON text and its mentions."""

    json: str
    where: tuple[Mention, ...]


def offers(slot: Slot, text: Mentions) -> list[Offer]:
    """The values that ``text`` mentions for a slot, in its order; none where it is bound by type."""
    if slot.kind == "number":
        whole = slot.type == "int"
        return [Offer(m.number_json, (m,)) for m in text.numbers if m.is_integer or not whole]
    if slot.kind == "quoted":
        return [_text_offer(m) for m in text.quoted]
    if slot.kind == "words":
        return [_text_offer(m) for m in text.of_shape(slot.shape, slot.words)]
    if slot.kind == "list of numbers":
        whole = slot.type == "int"
        runs = text.lists([m for m in text.numbers if m.is_integer or not whole])
        return [Offer(f"[{', '.join(m.number_json for m in run)}]", tuple(run)) for run in runs]
    if slot.kind == "list of words":
        runs = text.lists(text.of_shape(slot.shape, 1))
        return [Offer(json.dumps([m.text for m in run], ensure_ascii=False), tuple(run)) for run in runs]
    return []


def _text_offer(mention: Mention) -> Offer:
    return Offer(json.dumps(mention.text, ensure_ascii=False), (mention,))


def can_be_filled(slots: Sequence[Slot], text: Mentions) -> bool:
    """Whether ``text`` mentions a value for each quoted parameter, no mention being used twice."""
    quoted = [slot for slot in slots if slot.kind != "typed"]
    given = _apart(quoted, [offers(slot, text) for slot in quoted])
    return all(given) and _Matching(given).possible(0, frozenset())


class _Matching:
    """Whether the slots from an index on can be filled with mentions that are not used yet."""

    def __init__(self, offered: Sequence[Sequence[Offer]]) -> None:
        self._offered = offered
        self._known: dict[tuple[int, frozenset[Mention]], bool] = {}

    def possible(self, index: int, used: frozenset[Mention]) -> bool:
        """Slots without offers need no mention. True once there are more than ``_MAX_STATES`` states."""
        if index == len(self._offered):
            return True
        found = self._known.get((index, used))
        if found is None:
            if len(self._known) > _MAX_STATES:
                return True
            free = [offer for offer in self._offered[index] if not used.intersection(offer.where)]
            nothing = not self._offered[index] and self.possible(index + 1, used)
            found = nothing or any(self.possible(index + 1, used.union(offer.where)) for offer in free)
            self._known[index, used] = found
        return found


# --- the grammar --------------------------------------------------------------------------------------


def grammar(slots: Sequence[Slot], text: str, *, quote: bool = True) -> str:
    """GBNF for the parameters as one JSON object, in the order of ``slots``, as ``json.dumps`` writes it."""
    mentions = Mentions(text)
    offered = _apart(slots, [offers(slot, mentions) if quote else [] for slot in slots])
    for once in (True, False):
        writer = _Writer(slots, offered, once)
        if writer.write():
            break
    return _gbnf(writer.rules)


def _apart(slots: Sequence[Slot], offered: Sequence[Sequence[Offer]]) -> list[Sequence[Offer]]:
    """The offers, without a list's items in those of other parameters, as long as these have others."""
    items = {
        mention
        for slot, given in zip(slots, offered, strict=True)
        if slot.kind.startswith("list")
        for offer in given
        for mention in offer.where
    }
    found: list[Sequence[Offer]] = []
    for slot, given in zip(slots, offered, strict=True):
        left = [offer for offer in given if not items.intersection(offer.where)]
        found.append(given if slot.kind.startswith("list") or not left else left)
    return found


@dataclass
class _Writer:
    """Rule ``p-n``: the rest of the object after some parameters, given the mentions that they have used."""

    slots: Sequence[Slot]
    offered: Sequence[Sequence[Offer]]
    once: bool
    rules: dict[str, str] = field(default_factory=dict)
    _names: dict[tuple[int, frozenset[Mention]], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._matching = _Matching(self.offered)

    def write(self) -> bool:
        """False if there would be too many rules."""
        first = self._rule(0, frozenset())
        if first is None:
            return False
        self.rules["root"] = f'"{{" {first}'
        return True

    def _rule(self, index: int, used: frozenset[Mention]) -> str | None:
        if index == len(self.slots):
            return '"}"'
        if not self.once:
            used = frozenset()
        name = self._names.get((index, used))
        if name is None:
            if len(self._names) >= _MAX_STATES:
                return None
            name = self._names[index, used] = f"p-{len(self._names)}"
            options = list(self._options(index, used))
            if any(option is None for option in options):
                return None
            key = (", " if index else "") + json.dumps(self.slots[index].name, ensure_ascii=False) + ": "
            self.rules[name] = f"{literal(key)} ({' | '.join(filter(None, options))})"
        return name

    def _options(self, index: int, used: frozenset[Mention]) -> Iterator[str | None]:
        given = self.offered[index]
        if not given:
            slot = self.slots[index]
            rule = f'"[" ({slot.type} (", " {slot.type})*)? "]"' if slot.kind.startswith("list") else slot.type
            yield self._then(rule, index, used)
            return
        free = [
            offer
            for offer in given
            if not used.intersection(offer.where) and self._matching.possible(index + 1, used.union(offer.where))
        ] or list(given)
        for text, offer in {offer.json: offer for offer in reversed(free)}.items():
            yield self._then(literal(text), index, used.union(offer.where))

    def _then(self, value: str, index: int, used: frozenset[Mention]) -> str | None:
        rest = self._rule(index + 1, used)
        return None if rest is None else f"{value} {rest}"


def typed_grammar(value: Any) -> str:
    """GBNF for a value of the same type as ``value``, lists and objects of anything."""
    return _gbnf({"root": _type(value)})


def any_grammar() -> str:
    """GBNF for a value of any type."""
    return _gbnf({"root": "any"})


def _gbnf(rules: Mapping[str, str]) -> str:
    """These rules and those of the types."""
    return "\n".join(f"{name} ::= {rule}" for name, rule in {**rules, **_TYPES}.items())


# --- the same text with other values -----------------------------------------------------------------


def substituted(prompt: str, slots: Sequence[Slot], text: str) -> dict[str, Any] | None:
    """The quoted parameters by position: the n-th mention of a kind in ``prompt`` is the n-th of it in ``text``.

    No model is used. None where the two texts do not mention equally much, or a parameter is not quoted.
    """
    before, after = Mentions(prompt), Mentions(text)
    found: dict[str, Any] = {}
    for slot in slots:
        old, new = offers(slot, before), offers(slot, after)
        places = [index for index, offer in enumerate(old) if offer.where == slot.where]
        if len(old) != len(new) or not places:
            return None
        found[slot.name] = json.loads(new[places[0]].json)
    return found


def render(parameters: Mapping[str, Any], slots: Sequence[Slot]) -> str:
    """The parameters as the grammar writes them."""
    return json.dumps({slot.name: parameters[slot.name] for slot in slots}, ensure_ascii=False)
