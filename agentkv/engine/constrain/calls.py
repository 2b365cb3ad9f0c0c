"""Calls read from an answer as it comes, in the form in which the model was taught to write them, or bare.

Text is passed on as it comes; a call only when it is complete, so that half a call is never taken for one. Whether a
tool of that name exists is not checked here, except for bare calls, which are looked for only where names are given.

**Bare calls** are calls that a model writes as JSON alone, in a fence or not, instead of in the form that it was
taught. A small model that is left to choose often does so, and with its braces doubled where its template shows them
so::

    ```json
    {"name": "get_weather", "arguments": {"location": "Paris"}}
    ```

A text is taken for one on a narrow rule: it is the answer's beginning (white space and a fence without label or
labelled ``json`` may come first), ``name`` is the first key and names a tool that may be called here, ``arguments`` is
the second and opens an object. Its braces may be doubled, and closed too often, as such models miscount. After text
no call is looked for: there a call is more often shown than made. After a bare call only another one is.

The rule is one automaton. The grammar is made from it, so that arguments, once opened, are bound to their schema; the
reader follows it to know how long a text may yet become a call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from agentkv.engine.template import CallForm, ToolCall

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class BrokenCall:
    """What begins as a call and is not one: cut short, or not in the form. ``name`` where it could be read."""

    text: str
    name: str | None


Part = str | ToolCall | BrokenCall


class CallReader:
    """Takes an answer's text in pieces of any length; gives text and complete calls, in order.

    ``bare``: names of tools whose calls are also read where the answer begins with one as bare JSON.

    >>> reader = CallReader(CallForm("<call>", "(", ")</call>"))
    >>> reader.feed('Let me look. <call>weather({"city": "Pa')
    ['Let me look. ']
    >>> reader.feed('ris"})</call>')
    [ToolCall(name='weather', arguments='{"city": "Paris"}')]
    """

    def __init__(self, form: CallForm, bare: Collection[str] = ()) -> None:
        self._form = form
        self._held = ""
        self._in_call = False
        self._bare = BareCalls(bare) if bare else None

    def feed(self, piece: str) -> list[Part]:
        """What is decided with this piece of the answer."""
        self._held += piece
        out: list[Part] = []
        while (part := self._next()) is not None:
            out.append(part)
        return out

    def finish(self) -> list[Part]:
        """What is left at the end of the answer."""
        held, self._held = self._held, ""
        bare = None
        if self._bare is not None:
            self._bare.finish()
            held, bare = held[self._bare.n_closing :], self._bare.name
        if not held:
            return []
        if bare is not None:
            return [BrokenCall(held, bare)]
        return [BrokenCall(held, self._name(held))] if self._in_call else [held]

    def _next(self) -> Part | None:
        if self._in_call:
            return self._call()
        mark = self._form.mark
        before, found, after = self._held.partition(mark)
        if self._bare is not None:
            complete = self._bare.read(self._held, len(before) + len(found))
            if complete is not None:
                call, n = complete
                self._held = self._held[n:]
                return call
            if self._bare.is_call or (self._bare.is_open and not found):
                return None
            n_closing = min(self._bare.n_closing, len(before))
            self._held, self._bare, before = self._held[n_closing:], None, before[n_closing:]
        if found:
            self._held, self._in_call = found + after, True
            return before or self._call()
        keep = next(n for n in range(len(mark) - 1, -1, -1) if self._held.endswith(mark[:n]))
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text or None

    def _call(self) -> ToolCall | None:
        """The call at the beginning of what is held, if it is complete."""
        form, held = self._form, self._held
        if form.close not in held or (name := self._name(held)) is None:
            return None
        start = len(form.open) + len(name) + len(form.middle)
        try:
            arguments, end = _DECODER.raw_decode(held, start)
        except (ValueError, RecursionError):
            return None
        text, rest = held[start:end], held[end:].lstrip(" ")
        if not isinstance(arguments, dict) or not rest.startswith(form.close):
            return None
        self._held, self._in_call = rest.removeprefix(form.close), False
        return ToolCall(name, text)

    def _name(self, held: str) -> str | None:
        name, found, _ = held.removeprefix(self._form.open).partition(self._form.middle)
        return name if found and held.startswith(self._form.open) else None


# --- bare calls: the automaton ------------------------------------------------------------------------

BLANKS, WHITE, FENCE = " \t\r", " \t\r\n", "```"


@dataclass(eq=False)
class Node:
    """A state of the automaton: what may come ``next`` of a bare call.

    ``name``: the tool, once it has been read. ``opens``: a ``{`` here opens the arguments. ``closed``: all that was
    read since the last call belongs to its end; ``ends``: it does if the answer ends here.
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
        """The state after ``text``, shared with other texts that begin the same."""
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
    """The state in which an answer begins, and the state after the brace that closes a call."""
    start, in_fence = Node(closed=True).spaced(), Node().spaced()
    brace, fence = _call(names), start.through(FENCE)
    for node in (start, in_fence):
        node.on("{", brace)
    _add_label(fence, in_fence)
    return start, _after_call(brace, start, fence)


def _call(names: Iterable[str]) -> Node:
    """The state after a call's first brace, from which its tool's name and its arguments' brace are reached."""
    first, second, blanks, key = Node(), Node(), Node().spaced(), Node()
    first.on("{", second)
    blanks.on('"', key)
    for node in (first, second):
        node.on(WHITE, blanks)
        node.on('"', key)
    value = key.through('name"').spaced().through(":").spaced().through('"')
    for name in filter(can_be_bare, names):
        node = value.through(name).on('"', Node(name=name)).spaced()
        for text in (",", '"arguments"', ":"):
            node = node.through(text, name).spaced()
        node.opens = True
    return first


def _add_label(fence: Node, in_fence: Node) -> None:
    """A fence's first line: nothing or ``json``, and blanks."""
    label, blank = fence.through("json"), Node()
    for node in (fence, label, blank):
        node.on(BLANKS, blank)
        node.on("\n", in_fence)


def _after_call(brace: Node, start: Node, fence: Node) -> Node:
    """More braces, the end of the fence, another call in a fence of its own or not."""
    braces, blanks, fence_end = Node(closed=True), Node(closed=True).spaced(), Node(ends=True)
    braces.on("}", braces)
    for node in (braces, blanks):
        node.on(WHITE, blanks)
        node.on("{", brace)
        node.through(FENCE[:-1]).on(FENCE[-1], fence_end)
    fence_end.on(WHITE, start)
    fence_end.on("j", fence.next["j"])
    return braces


class BareCalls:
    """Follows an answer from its beginning; asked with the text that is held, which grows until it is taken.

    ``is_open``: it may yet become a call. ``n_closing``: how many characters belong to the end of the call before.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._node, self._after_call = automaton(names)
        self._at, self._is_after_call = 0, False
        self._arguments: int | None = None
        self.is_open, self.n_closing = True, 0

    @property
    def name(self) -> str | None:
        """The tool that is named, once its name is read."""
        return self._node.name

    @property
    def is_call(self) -> bool:
        """Whether the arguments are opened: from there on it is a call, complete or broken."""
        return self._arguments is not None

    def read(self, held: str, end: int) -> tuple[ToolCall, int] | None:
        """The call that is complete, and how many characters it takes. Its opening is looked for up to ``end``."""
        while self.is_open and not self.is_call and self._at < end:
            self._step(held[self._at])
        return self._complete(held) if self.is_call else None

    def finish(self) -> None:
        """The answer has ended."""
        if self._is_after_call and self._node.ends:
            self.n_closing = self._at

    def _step(self, char: str) -> None:
        if char == "{" and self._node.opens:
            self._arguments = self._at
            return
        node = self._node.next.get(char)
        if node is None:
            self.is_open = False
            return
        self._node, self._at = node, self._at + 1
        if self._is_after_call and node.closed:
            self.n_closing = self._at

    def _complete(self, held: str) -> tuple[ToolCall, int] | None:
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
        self._node, self._at, self._is_after_call, self._arguments, self.n_closing = self._after_call, 0, True, None, 0
        return call, close + 1
