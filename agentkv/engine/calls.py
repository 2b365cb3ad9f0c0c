"""Calls read from an answer, piece by piece, in the form in which the model was taught to write them.

Text is passed on as it comes; a call only when it is whole, so that half a call is never taken for one. Knows the
form and JSON; whether a tool of that name exists is for others to say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from agentkv.engine.grammar import mark
from agentkv.engine.tools import CallForm, ToolCall

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class BrokenCall:
    """What begins as a call and is none: cut short, or not in the form. ``name`` where it could be read."""

    text: str
    name: str | None


Part = str | ToolCall | BrokenCall


class CallReader:
    """Takes an answer's text in pieces of any length; gives text and whole calls, in order."""

    def __init__(self, form: CallForm) -> None:
        self._form, self._mark = form, mark(form)
        self._held = ""
        self._in_call = False

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
        if not held:
            return []
        return [BrokenCall(held, self._name(held))] if self._in_call else [held]

    def _next(self) -> Part | None:
        if self._in_call:
            return self._call()
        before, found, after = self._held.partition(self._mark)
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
