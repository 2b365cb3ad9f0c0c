"""A small matcher of GBNF, by translation into parsing functions, so that grammars can be tested without a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Parse = Callable[[str, int], Iterator[int]]
_TOKEN = re.compile(r'\s*("(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|[\w-]+|\{\d+,\d*\}|[()|*+?])')


def matches(grammar: str, text: str) -> bool:
    """Whether ``text`` is a sentence of ``grammar``."""
    rules: dict[str, Parse] = {}
    for line in grammar.splitlines():
        name, body = line.split(" ::= ", 1)
        tokens = [match[1] for match in _TOKEN.finditer(body)]
        rules[name.strip()] = _alternatives(tokens, rules)
        assert not tokens, tokens
    return any(end == len(text) for end in rules["root"](text, 0))


def _alternatives(tokens: list[str], rules: dict[str, Parse]) -> Parse:
    options = [_sequence(tokens, rules)]
    while tokens and tokens[0] == "|":
        tokens.pop(0)
        options.append(_sequence(tokens, rules))
    return lambda text, at: (end for option in options for end in option(text, at))


def _sequence(tokens: list[str], rules: dict[str, Parse]) -> Parse:
    items: list[Parse] = []
    while tokens and tokens[0] not in ("|", ")"):
        item = _atom(tokens, rules)
        while tokens and (tokens[0] in ("*", "+", "?") or tokens[0].startswith("{")):
            item = _repeated(item, tokens.pop(0))
        items.append(item)

    def parse(text: str, at: int, index: int = 0) -> Iterator[int]:
        if index == len(items):
            yield at
            return
        for end in items[index](text, at):
            yield from parse(text, end, index + 1)

    return parse


def _repeated(item: Parse, how: str) -> Parse:
    low, high = {"*": (0, 10**6), "+": (1, 10**6), "?": (0, 1)}.get(how, (-1, -1))
    if low < 0:
        first, _, last = how[1:-1].partition(",")
        low, high = int(first), int(last or 10**6)

    def parse(text: str, at: int, done: int = 0) -> Iterator[int]:
        if done < high:
            for end in item(text, at):
                if end > at:
                    yield from parse(text, end, done + 1)
        if done >= low:
            yield at

    return parse


def _atom(tokens: list[str], rules: dict[str, Parse]) -> Parse:
    token = tokens.pop(0)
    if token == "(":
        inner = _alternatives(tokens, rules)
        assert tokens.pop(0) == ")"
        return inner
    if token.startswith('"'):
        literal = re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), token[1:-1])
        return lambda text, at: iter([at + len(literal)] if text.startswith(literal, at) else [])
    if token.startswith("["):
        pattern = re.compile(token)
        return lambda text, at: iter([at + 1] if pattern.match(text, at) else [])
    return lambda text, at: rules[token](text, at)
