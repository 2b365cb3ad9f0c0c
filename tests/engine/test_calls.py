from __future__ import annotations

import pytest

from agentkv.engine.calls import BrokenCall, CallReader, Part
from agentkv.engine.tools import GENERIC, CallForm, ToolCall

ADD, MUL = ToolCall("add", '{"a": "x}\\n</tool_call> é"}'), ToolCall("mul", "{}")
LINED = CallForm('\n[CALL] {"fn": "', '", "args": ', "}", "", "")
BARE = CallForm('{"name": "', '", "parameters": ', "}")


def read(text: str, size: int, form: CallForm = GENERIC) -> list[Part]:
    """What is read from ``text`` in pieces of ``size`` characters, text joined."""
    reader = CallReader(form)
    parts: list[Part] = []
    for start in range(0, len(text), size):
        parts += reader.feed(text[start : start + size])
    joined: list[Part] = []
    for part in parts + reader.finish():
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("form", [GENERIC, BARE, LINED])
def test_text_and_calls_in_pieces_of_any_size(size: int, form: CallForm) -> None:
    assert read("", size, form) == []
    assert read("a < b <tool", size, form) == ["a < b <tool"]
    assert read(form.text([ADD]), size, form) == [ADD]
    between = [form.between] if form.between else []
    assert read("So:\n" + form.text([ADD, MUL]), size, form) == ["So:\n", ADD, *between, MUL]
    assert read(form.text([MUL]) + " and text", size, form) == [MUL, " and text"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_half_a_call_is_broken_and_keeps_what_was_before(size: int) -> None:
    text = GENERIC.text([MUL, ADD])
    whole = len(GENERIC.text([MUL])) + 1
    for end in range(whole + len("<tool_call>"), len(text)):
        *before, last = read(text[:end], size)
        assert before == [MUL, "\n"]
        assert isinstance(last, BrokenCall)
        assert last.text == text[whole:end]
        assert last.name == ("add" if GENERIC.middle in last.text else None)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "a", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "a", "arguments": {"x": }}\n</tool_call>',
        '<tool_call>\n{"name": "a"}\n</tool_call>',
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>',
    ],
)
def test_what_is_not_in_the_form_is_broken(text: str) -> None:
    assert [part.text for part in read(text, 4) if isinstance(part, BrokenCall)] == [text]


def test_text_comes_at_once_but_for_what_may_be_a_mark() -> None:
    reader = CallReader(GENERIC)
    assert reader.feed("Hello <") == ["Hello "]
    assert reader.feed("b> <tool_call") == ["<b> "]
    assert reader.feed("s>") == ["<tool_calls>"]
