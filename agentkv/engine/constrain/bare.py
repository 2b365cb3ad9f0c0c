"""Bare calls: calls that a model writes as JSON alone, in a fence or not, instead of in the form that it was taught.

A small model that is left to choose often writes so, and with its braces doubled where its template shows them so::

    ```json
    {"name": "get_weather", "arguments": {"location": "Paris"}}
    ```

A text is taken for one on a narrow rule: it is the answer's beginning (white space and a fence without label or
labelled ``json`` may come first), ``name`` is the first key and names a tool that may be called here, ``arguments`` is
the second and opens an object. Its braces may be doubled, and closed too often, as such models miscount. Behind text
no call is looked for: there a call is more often shown than made. Behind a bare call only another one is.

The rule is one automaton. The grammar is made from it, so that arguments, once opened, are bound to their schema; the
reader follows it to know how long a text may yet become a call. Knows names and JSON, no token ids and no engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentkv.engine.tools import ToolCall

BLANKS, WHITE, FENCE = " \t\r", " \t\r\n", "```"

_DECODER = json.JSONDecoder(strict=False)


@dataclass(eq=False)
class Node:
    """A state of the automaton: what may come ``next`` of a bare call.

    ``name``: the tool, once it has been read. ``opens``: a ``{`` here opens the arguments. ``closed``: all that was
    read behind the last call belongs to its end; ``ends``: it does if the answer ends here.
    """

    next: dict[str, Node] = field(default_factory=dict)
    name: str | None = None
    opens: bool = False
    closed: bool = False
    ends: bool = False

    def on(self, chars: str, node: Node) -> Node:
        """Go to ``node`` on each of ``chars``."""
        self.next |= dict.fromkeys(chars, node)
        return node

    def through(self, text: str, name: str | None = None) -> Node:
        """The state behind ``text``, shared with other texts that begin the same."""
        node = self
        for char in text:
            node = node.next.get(char) or node.on(char, Node(name=name))
        return node

    def spaced(self) -> Node:
        """The same, with any white space."""
        self.on(WHITE, self)
        return self


def can_be_bare(name: str) -> bool:
    """Whether JSON writes the name as it is."""
    return json.dumps(name, ensure_ascii=False) == f'"{name}"'


def automaton(names: Iterable[str]) -> tuple[Node, Node]:
    """Where an answer begins, and where the text behind the brace that closes a call does."""
    start, inside, braces = Node(closed=True).spaced(), Node().spaced(), Node().spaced()
    first, second = Node(), Node()
    for node in (start, inside):
        node.on("{", first)
    first.on("{", second)
    for node in (first, second):
        node.on(WHITE, braces)
    key = braces.on('"', Node())
    for node in (first, second):
        node.on('"', key)
    value = key.through('name"').spaced().through(":").spaced().through('"')
    for name in filter(can_be_bare, names):
        read = value.through(name).on('"', Node(name=name)).spaced()
        last = read.through(",", name).spaced().through('"arguments"', name).spaced().through(":", name).spaced()
        last.opens = True
    opening = start.through(FENCE)
    _labelled(opening, inside)
    behind, after, closing = Node(closed=True), Node(closed=True).spaced(), Node(ends=True)
    behind.on("}", behind)
    for node in (behind, after):
        node.on(WHITE, after)
        node.on("{", first)
        node.on("`", Node()).on("`", Node()).on("`", closing)
    closing.on(WHITE, start)
    closing.on("j", opening.next["j"])
    return start, behind


def _labelled(opening: Node, inside: Node) -> None:
    """A fence's first line: nothing or ``json``, and blanks."""
    label, blank = opening.through("json"), Node()
    for node in (opening, label, blank):
        node.on(BLANKS, blank)
        node.on("\n", inside)


class BareCalls:
    """Follows an answer from its beginning; asked with the text that is held, which grows until it is taken.

    ``open``: it may yet become a call. ``name``: that of the tool, once it is read. ``begun``: its arguments are
    opened. ``eaten``: how many characters belong to the end of the call before.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._node, self._behind = automaton(names)
        self._at, self._is_behind = 0, False
        self._arguments: int | None = None
        self.open, self.eaten = True, 0

    @property
    def name(self) -> str | None:
        """The tool that is named."""
        return self._node.name

    @property
    def begun(self) -> bool:
        """Whether the arguments are opened: from there on it is a call, whole or broken."""
        return self._arguments is not None

    def read(self, held: str, end: int) -> tuple[ToolCall, int] | None:
        """The call that is whole, and how many characters it takes. Its opening is looked for up to ``end``."""
        while self.open and not self.begun and self._at < end:
            self._step(held[self._at])
        return self._whole(held) if self.begun else None

    def finish(self) -> None:
        """The answer has ended."""
        if self._is_behind and self._node.ends:
            self.eaten = self._at

    def _step(self, char: str) -> None:
        if char == "{" and self._node.opens:
            self._arguments = self._at
            return
        node = self._node.next.get(char)
        if node is None:
            self.open = False
            return
        self._node, self._at = node, self._at + 1
        if self._is_behind and node.closed:
            self.eaten = self._at

    def _whole(self, held: str) -> tuple[ToolCall, int] | None:
        assert self._arguments is not None
        assert self.name is not None
        if "}" not in held:
            return None
        try:
            _, end = _DECODER.raw_decode(held, self._arguments)
        except (ValueError, RecursionError):
            return None
        close = end + len(held[end:]) - len(held[end:].lstrip(WHITE))
        if not held.startswith("}", close):
            return None
        call = ToolCall(self.name, held[self._arguments : end])
        self._node, self._at, self._is_behind, self._arguments, self.eaten = self._behind, 0, True, None, 0
        return call, close + 1
