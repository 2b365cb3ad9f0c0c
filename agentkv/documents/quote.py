"""Quotes: the sentences of a window as the only things that the model may say, and the check that a quote is there.

The choice is bound by a tree of token ids, one path a sentence: at each fork the model's likeliest child is taken, and
where there is but one way on, nothing is asked. So a quote is a sentence of the window by construction, on any engine
and without GBNF, and most of it costs one prefill instead of a step a token.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentkv.engine.base import Cancellation, Engine, Logits
from agentkv.text import words

NOT_STATED = "not stated"
"""What the model says where the window does not hold the answer."""

MAX_QUOTE, MIN_QUOTE = 400, 3
"""Characters of a sentence that can be quoted; longer ones are offered in parts."""

_END = re.compile(
    r"(?<=[.!?…])[)\]\"'”’]*\s+(?=[\"'“‘(\[]?[A-Z0-9`*_\u00c0-\uffff-])|(?<=[。！？｡।॥۔؟።၊။។։])"
    r"|\n[ \t\r]*\n|\n(?=[ \t]*[-*+•|#>])|\n(?=[^\n|]* \| )"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|Dr|Mr|Ms|Mrs|St|No|Fig|Sec|approx)\.|\b[A-Z]\.)[)\]\"'”’]*\s+$"
)
_CODE_LINE = re.compile(r"\n")
_WORD = re.compile(r"\s+")
_VERDICTS = ("yes", "no")
_SUFFIX, _STEM = re.compile(r"(?:ings?|e[dr]s?|es|s|ly)$"), 5


@dataclass(frozen=True)
class Sentence:
    """Characters ``start`` to ``stop`` of a text, and the same with white space collapsed."""

    start: int
    stop: int
    text: str


def sentences(text: str, *, code: bool = False) -> list[Sentence]:
    """The pieces of a text that can be quoted, in order; in source code its lines."""
    found = []
    for start, stop in parts(text, code):
        whole = text[start:stop]
        first = start + len(whole) - len(whole.lstrip())
        last = stop - (len(whole) - len(whole.rstrip()))
        for begin, end in _short(text, first, last):
            flat = normalised(text[begin:end])
            if len(flat) >= MIN_QUOTE:
                found.append(Sentence(begin, end, flat))
    return found


def parts(text: str, code: bool) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text, or the lines of code, begin and end; they tile it."""
    start = 0
    for match in (_CODE_LINE if code else _END).finditer(text):
        if not code and _ABBREVIATION.search(text[max(start, match.start() - 12) : match.end()]):
            continue
        if match.end() > start:
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _short(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while stop - start > MAX_QUOTE:
        cuts = [match.end() for match in _WORD.finditer(text, start, start + MAX_QUOTE)]
        cut = next((cut for cut in reversed(cuts) if cut > start + MAX_QUOTE // 2), start + MAX_QUOTE)
        yield start, cut
        start = cut
    if stop > start:
        yield start, stop


def normalised(text: str) -> str:
    """White space collapsed to single blanks, none at the ends: what two quotes are compared by."""
    return " ".join(text.split())


# --- the choice -----------------------------------------------------------------------------------


@dataclass
class _Node:
    children: dict[int, _Node] = field(default_factory=dict)
    bonus: float = 0.0
    only: int = -1
    """The one text behind it; -1 where there are several."""


@dataclass(frozen=True)
class Choice:
    """Which of the texts was chosen; ``probability`` among what was allowed at each fork, multiplied.

    ``asked``: forks, at each of which the model was asked once.
    """

    index: int
    probability: float
    asked: int


def choose(
    engine: Engine,
    logits: Logits,
    texts: Sequence[str],
    bonus: Sequence[float] | None = None,
    cancellation: Cancellation | None = None,
) -> Choice:
    """Let the model go on with exactly one of ``texts``, token by token, greedily.

    ``texts``: at least one, different, none the beginning of another. ``bonus``: nats for each; at a fork the largest
    behind a child is added to its logit. ``logits`` are those of the live context; on return the context ends with as
    much of the chosen text as it took to tell it from the others.
    """
    node, pending, probability, asked = _tree(engine, texts, bonus or [0.0] * len(texts)), list[int](), 1.0, 0
    while node.only < 0:
        if len(node.children) == 1:
            ((token, node),) = node.children.items()
        else:
            if pending:
                logits, pending = engine.extend(pending, cancellation), []
            asked += 1
            tokens = list(node.children)
            wide = logits[tokens].astype(np.float64) + [node.children[token].bonus for token in tokens]
            best = int(wide.argmax())
            probability *= float(1 / np.exp(wide - wide[best]).sum())
            token, node = tokens[best], node.children[tokens[best]]
        pending.append(token)
    return Choice(node.only, probability, asked)


def _tree(engine: Engine, texts: Sequence[str], bonus: Sequence[float]) -> _Node:
    root = _Node(only=0 if len(texts) == 1 else -1)
    for index, text in enumerate(texts):
        node = root
        for token in engine.tokenize(text, special=False):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Node(bonus=bonus[index], only=index)
            elif child.only != index:
                child.only = -1
            child.bonus = max(child.bonus, bonus[index])
            node = child
    return root


def shares_of(wanted: Sequence[str], texts: Sequence[str]) -> list[float]:
    """How much of ``wanted`` each text holds, 0 to 1: words weighted by how few of the texts hold them.

    Words are the same without the commonest English endings. A word that no text holds tells none from another, so it
    has no weight: of a question in other words than the text, the name that both share counts whole.
    """
    stems = [stemmed(word) for word in wanted]
    held = [{stemmed(word) for word in words(text)} for text in texts]
    holding = [sum(stem in known for known in held) for stem in stems]
    weights = [math.log((len(texts) + 1) / (1 + count)) if count else 0.0 for count in holding]
    total = sum(weights) or 1.0
    return [sum(w for stem, w in zip(stems, weights, strict=True) if stem in known) / total for known in held]


def is_grounded(said: Sequence[str], asked: Sequence[str], text: str) -> bool:
    """Whether more than half of the words that an answer adds to its question stand in a text; true if it adds none."""
    known = {stemmed(word) for word in (*asked, *_VERDICTS)}
    new = [stem for stem in map(stemmed, said) if stem not in known]
    held = {stemmed(word) for word in words(text)}
    return not new or sum(stem in held for stem in new) > len(new) / 2


def stemmed(word: str) -> str:
    """A word in small letters without the commonest English endings."""
    return word if len(word) < _STEM else _SUFFIX.sub("", word)
