from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.engine.constrain.calls import BrokenCall, CallReader, Part
from agentkv.engine.template import GENERIC, CallForm, ToolCall

ADD, MUL = ToolCall("add", '{"a": "x}\\n</tool_call> é"}'), ToolCall("mul", "{}")
LINED = CallForm('\n[CALL] {"fn": "', '", "args": ', "}", "", "")
BARE = CallForm('{"name": "', '", "parameters": ', "}")


def read(text: str, size: int, form: CallForm = GENERIC, bare: Collection[str] = ()) -> list[Part]:
    """What is read from ``text`` in pieces of ``size`` characters, text joined."""
    reader = CallReader(form, bare)
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


# --- calls as bare JSON ---------------------------------------------------------------------------

NAMES = ("add", "add_all", "mul", 'odd " name')
BARE_ADD = ToolCall("add", '{"a": "x}\\n``` é", "b": {"c": [1]}}')
WRAPPED = [
    "%s",
    " \n%s\n",
    "```json\n%s\n```",
    "```\n%s```",
    "```json \n\n  %s",
]
CALLS = [
    '{"name": "add", "arguments": ARGUMENTS}',
    '{{"name": "add", "arguments": ARGUMENTS}}',
    '{{"name": "add", "arguments": ARGUMENTS}',
    '{{"name": "add", "arguments": ARGUMENTS}}}',
    '{\n  "name" : "add",\n  "arguments":ARGUMENTS\n}',
]


def bare(text: str, size: int, form: CallForm = GENERIC) -> list[Part]:
    return read(text, size, form, NAMES)


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("call", CALLS)
def test_an_answer_that_begins_with_a_bare_call_calls(call: str, wrapped: str, size: int) -> None:
    text = wrapped % call.replace("ARGUMENTS", BARE_ADD.arguments)
    assert bare(text, size) == [BARE_ADD]
    assert bare(text, size, LINED) == [BARE_ADD]
    assert read(text, size) == [text]
    assert bare("So: " + text, size) == ["So: " + text]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_after_a_bare_call_come_others_or_text(size: int) -> None:
    add, mul = (f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in (BARE_ADD, MUL))
    for between in ("", "\n", "\n```\n```json\n", "\n```\n\n"):
        assert bare(f"```json\n{add}{between}{mul}\n```", size) == [BARE_ADD, MUL]
    assert bare(f"```json\n{add}\n```\nNow wait.", size) == [BARE_ADD, "Now wait."]
    assert bare(f"{add} and {mul}", size) == [BARE_ADD, f"and {mul}"]
    assert bare(f"{add}\n```jsonl\n", size) == [BARE_ADD, "```jsonl\n"]
    assert bare(f"{add}\n{{'x'}}", size) == [BARE_ADD, "{'x'}"]
    assert bare(add + "\n" + GENERIC.text([MUL]), size) == [BARE_ADD, MUL]
    assert bare(f"{add}\n{mul[:-2]}", size) == [BARE_ADD, BrokenCall(mul[:-2], "mul")]
    assert bare(GENERIC.text([MUL]) + add, size) == [MUL, add]


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "sub", "arguments": {}}',
        '```json\n{"name": "ad", "arguments": {}}\n```',
        '{"name": "add_", "arguments": {}}',
        '{"name": "odd \\" name", "arguments": {}}',
        '{"name": "add"}',
        '{"name": "add", "description": "Add.", "arguments": {}}',
        '{"name": "add", "arguments": "{}"}',
        '{"name": "add", "arguments": [1]}',
        '{"arguments": {}, "name": "add"}',
        '{"type": "function", "name": "add", "arguments": {}}',
        '{{{"name": "add", "arguments": {}}}}',
        '[{"name": "add", "arguments": {}}]',
        '```python\n{"name": "add", "arguments": {}}\n```',
        '```json{"name": "add", "arguments": {}}\n```',
        '``` json\n{"name": "add", "arguments": {}}\n```',
        "```json\n[1, 2]\n```",
        '{"name": "ad',
        "```json\n{",
        "``",
        " \n",
    ],
)
def test_what_is_not_a_bare_call_of_these_tools_stays_text(text: str, size: int) -> None:
    assert bare(text, size) == [text]
    assert bare(text + GENERIC.text([MUL]), size)[-1:] == [MUL]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_half_a_bare_call_is_broken_from_where_its_name_is_known(size: int) -> None:
    text = '```json\n{"name": "add", "arguments": {"a": {"b": 1}}}'
    known = text.index("add") + len('add"')
    for end in range(1, len(text)):
        expected: Part = BrokenCall(text[:end], "add") if end >= known else text[:end]
        assert bare(text[:end], size) == [expected]
    assert bare(text, size) == [ToolCall("add", '{"a": {"b": 1}}')]
    for wrong in ('{"name": "add", "arguments": {a: 1}}', '{"name": "add", "arguments": {}, "id": 1}'):
        assert bare(wrong, size) == [BrokenCall(wrong, "add")]


def test_text_is_held_back_only_while_it_may_be_a_bare_call() -> None:
    reader = CallReader(GENERIC, NAMES)
    assert reader.feed("```js") == []
    assert reader.feed("on\n{") == []
    assert reader.feed('"name": "ad') == []
    assert reader.feed("x") == ['```json\n{"name": "adx']
    assert reader.feed('{"name": "add", "arguments": {}}') == ['{"name": "add", "arguments": {}}']
    assert CallReader(GENERIC, NAMES).feed("Hello") == ["Hello"]
    assert CallReader(GENERIC, NAMES).feed("```python") == ["```python"]


def test_a_form_of_bare_json_goes_first() -> None:
    assert bare(BARE.text([ADD]), 1, BARE) == [ADD]
    assert bare('{ "name": "mul", "arguments": {}}', 1, BARE) == [MUL]
    assert bare('{"name": "mul", "arguments": {}}', 3, BARE) == [BrokenCall('{"name": "mul", "arguments": {}}', None)]


FRAGMENTS = [
    *("```", "json", "\n", " ", "{", "}", '"name"', ":", '"add"', '"mul"', ",", '"arguments"', "{}", '{"a": 1}'),
    *(
        "<tool_call>",
        "</tool_call>",
        '{"name": "mul", "arguments": ',
        '{{"name": "add", "arguments": {"a": 1}}',
        "text",
    ),
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.integers(1, 9))
def test_no_piece_size_changes_what_is_read_and_without_calls_nothing_is_lost(text: str, size: int) -> None:
    parts = bare(text, size)
    assert parts == bare(text, 10_000)
    if not any(isinstance(part, ToolCall) for part in parts):
        texts = [
            part.text if isinstance(part, BrokenCall) else part for part in parts if not isinstance(part, ToolCall)
        ]
        assert "".join(texts) == text
    for part in parts:
        assert part in text if isinstance(part, str) else part.name is None or part.name in text
