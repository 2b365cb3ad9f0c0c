"""Calls read from an answer, piece by piece, in the form in which the model was taught to write them.

Text is passed on as it comes; a call only when it is whole, so that half a call is never taken for one. Knows the
form and JSON; whether a tool of that name exists is for others to say, except for bare calls (``bare.py``), which are
looked for only where names are given.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from agentkv.engine.constrain.bare import BareCalls
from agentkv.engine.constrain.grammar import mark
from agentkv.engine.tools import CallForm, ToolCall

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class BrokenCall:
    """What begins as a call and is none: cut short, or not in the form. ``name`` where it could be read."""

    text: str
    name: str | None


Part = str | ToolCall | BrokenCall


class CallReader:
    """Takes an answer's text in pieces of any length; gives text and whole calls, in order.

    ``bare``: names of tools whose calls are also read where the answer begins with one as bare JSON.
    """

    def __init__(self, form: CallForm, bare: Collection[str] = ()) -> None:
        self._form, self._mark = form, mark(form)
        self._held = ""
        self._in_call = False
        self._bare = BareCalls(bare) if bare else None

    def feed(self, piece: str) -> list[Part]:
        """What can be said now."""
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
            held, bare = held[self._bare.eaten :], self._bare.name
        if not held:
            return []
        if bare is not None:
            return [BrokenCall(held, bare)]
        return [BrokenCall(held, self._name(held))] if self._in_call else [held]

    def _next(self) -> Part | None:
        if self._in_call:
            return self._call()
        before, found, after = self._held.partition(self._mark)
        if self._bare is not None:
            whole = self._bare.read(self._held, len(before) + len(found))
            if whole is not None:
                call, n = whole
                self._held = self._held[n:]
                return call
            if self._bare.begun or (self._bare.open and not found):
                return None
            eaten = min(self._bare.eaten, len(before))
            self._held, self._bare, before = self._held[eaten:], None, before[eaten:]
        if found:
            self._held, self._in_call = found + after, True
            return before or self._call()
        keep = next(n for n in range(len(self._mark) - 1, -1, -1) if self._held.endswith(self._mark[:n]))
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text or None

    def _call(self) -> ToolCall | None:
        """The call at the beginning of what is held, if it is whole."""
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
