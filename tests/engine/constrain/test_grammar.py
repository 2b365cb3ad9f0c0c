"""Grammars, under a real vocabulary: what they let through and what not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from agentkv.engine.base import Engine, Sampling
from agentkv.engine.constrain.grammar import AnswerForm, grammar_for, json_grammar, no_calls
from agentkv.engine.fake import FakeEngine
from agentkv.engine.template import GENERIC, ToolCall
from agentkv.errors import InvalidGrammar
from tests.flywheel.gbnf import matches

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["a"],
}
TOOLS = {"add": ADD, "noargs": {"type": "object", "properties": {}}}


def call(name: str, arguments: str) -> str:
    return GENERIC.text([ToolCall(name, arguments)])


def accepts(engine: Engine, grammar: str | None, text: str) -> bool:
    """Whether a model that wants to write exactly this text may, and may stop there."""
    assert grammar is not None
    sampler = engine.sampler(Sampling(), grammar)
    end = next(token for token in range(engine.info.n_vocab) if engine.is_end(token))
    try:
        for token in [*engine.tokenize(text, special=False), end]:
            logits = np.full(engine.info.n_vocab, -1e9, np.float32)
            logits[token] = 1
            if sampler.pick(logits) != token:
                return False
        return True
    except InvalidGrammar:
        return False
    finally:
        sampler.close()


@pytest.mark.model
def test_a_model_may_answer_or_call_or_both(smollm2: Engine) -> None:
    grammar = grammar_for(smollm2, GENERIC, AnswerForm(TOOLS))
    for text in (
        "Hello there",
        "a <b> <tool_ x",
        "<tool",
        "Let me.\n" + call("add", '{"a": 1}'),
        call("add", '{"a": 1, "note": "é\\n<tool_call>"}') + "\n" + call("noargs", "{}"),
        "<" + call("noargs", "{}"),
    ):
        assert accepts(smollm2, grammar, text), text
    for text in (
        call("sub", '{"a": 1}'),
        call("add", '{"b": 1}'),
        call("add", '{"a": "x"}'),
        "<tool_call>",
        "text <tool_call> more",
        call("add", '{"a": 1}') + " more",
        call("add", '{"a": 1}')[:-3],
    ):
        assert not accepts(smollm2, grammar, text), text


BARE_OR_TEXT = [
    '{"name": "add", "arguments": {"a": 1}}',
    '```json\n{"name": "add", "arguments": {"a": 1}}\n```',
    '\n```\n{ "name" : "noargs",\n "arguments": {}\n}',
    '{{"name": "add", "arguments": {"a": 1}}}}\n```\n',
    '```json\n{"name": "add", "arguments": {"a": 1}}\n{"name": "noargs", "arguments": {}}\n```',
    '{"name": "noargs", "arguments": {}}\n```json\n{"name": "add", "arguments": {"a": 1}}',
    '{"name": "noargs", "arguments": ',
    '{"name": "sub", "arguments": {"x": [}}',
    '{"name": "noargs"} is how.',
    "```json\n{} ``` and\n" + call("noargs", "{}"),
    'So: {"name": "add", "arguments": {"b": 1}}',
    "```json" + call("add", '{"a": 1}'),
]
NEITHER = [
    '{"name": "add", "arguments": {"b": 1}}',
    '```json\n{"name": "add", "arguments": {"a": "x"}}\n```',
    '{{"name": "add", "arguments": {{"a": 1}}}}',
    '{"name": "add", "arguments": {"a": 1}',
    '{"name": "add", "arguments": {"a": 1}} is how.',
    '{"name": "noargs", "arguments": {}}\n{"name": "sub", "arguments": {}}',
    '{"name": "noargs", "arguments": {}}{"name": "add", "arguments": {"b": 1}}',
]


def test_the_arguments_of_a_bare_call_are_bound_and_other_text_is_free() -> None:
    grammar = grammar_for(FakeEngine(keeps_grammar=True), GENERIC, AnswerForm(TOOLS))
    assert grammar is not None
    assert [text for text in BARE_OR_TEXT if not matches(grammar, text)] == []
    assert [text for text in NEITHER if matches(grammar, text)] == []
    single = grammar_for(FakeEngine(keeps_grammar=True), GENERIC, AnswerForm({**TOOLS, 'odd"': ADD}, many=False))
    assert single is not None
    assert [matches(single, text) for text in BARE_OR_TEXT[:6]] == [True] * 4 + [False] * 2
    assert matches(single, '{"name": "odd\\"", "arguments": 1} is text')


@pytest.mark.model
def test_a_model_is_held_to_a_bare_call_likewise(smollm2: Engine) -> None:
    grammar = grammar_for(smollm2, GENERIC, AnswerForm(TOOLS))
    assert [text for text in BARE_OR_TEXT if not accepts(smollm2, grammar, text)] == []
    assert [text for text in NEITHER if accepts(smollm2, grammar, text)] == []


def test_an_answer_is_never_empty_whether_it_may_call_or_not() -> None:
    free = grammar_for(FakeEngine(keeps_grammar=True), GENERIC, AnswerForm(TOOLS))
    assert free is not None
    for grammar in (free, no_calls(GENERIC)):
        assert not matches(grammar, "")
        assert [text for text in ("a", "\n <", "<tool", "\n\nIt is 3.") if not matches(grammar, text)] == []
    assert not matches(no_calls(GENERIC), " \n")
    assert not matches(no_calls(GENERIC), "\n" + call("noargs", "{}"))


def test_a_nullable_argument_may_be_null() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "nullable": True}}, "required": ["x"]}
    grammar = grammar_for(FakeEngine(keeps_grammar=True), GENERIC, AnswerForm({}, schema=schema))
    assert grammar is not None
    assert [matches(grammar, text) for text in ('{"x": null}', '{"x": "a"}', '{"x": 1}')] == [True, True, False]


@pytest.mark.model
def test_a_model_may_be_made_to_call_once_or_not_at_all(smollm2: Engine) -> None:
    must = grammar_for(smollm2, GENERIC, AnswerForm(TOOLS, must_call=True, many=False))
    assert accepts(smollm2, must, call("noargs", "{}"))
    assert not accepts(smollm2, must, "Hello")
    assert not accepts(smollm2, must, call("noargs", "{}") + "\n" + call("noargs", "{}"))
    never = no_calls(GENERIC)
    assert accepts(smollm2, never, "xy <tool_cal <tool_calling")
    assert not accepts(smollm2, never, "a " + call("noargs", "{}"))
    assert not accepts(smollm2, never, "")
    either = grammar_for(smollm2, GENERIC, AnswerForm(TOOLS, schema=ADD))
    assert accepts(smollm2, either, '{"a": 1}')
    assert accepts(smollm2, either, call("noargs", "{}"))
    assert not accepts(smollm2, either, "Hello")
    assert grammar_for(smollm2, GENERIC, AnswerForm({})) is None


def one(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"], **more}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


NODE = {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}, "required": ["n"]}


@pytest.mark.model
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (one({"title": "X"}), '{"x": [1, "a"]}', '{"y": 1}'),
        (one({"enum": ['a"b', "é\\"]}), '{"x": "a\\"b"}', '{"x": "c"}'),
        ({"type": "object", "properties": {"é": {"const": "é\\"}}, "required": ["é"]}, '{"é": "é\\\\"}', '{"e": "é"}'),
        (one({"type": "string", "pattern": "^[A-Z]{3}-x$"}), '{"x": "ABC-x"}', '{"x": "abc"}'),
        (one({"type": "string", "pattern": "^(a|b)+$"}), '{"x": "ab"}', '{"x": "c"}'),
        (one({"type": "string", "pattern": "^(?=a)\\d+$"}), '{"x": "123"}', '{"x": 1}'),
        (one({"type": "string", "minLength": 1, "maxLength": 3}), '{"x": "ABC"}', '{"x": "ABCD"}'),
        (one({"type": "string", "maxLength": 10_000}), '{"x": "ABC"}', '{"x": 1}'),
        (one({"type": "string", "format": "uuid"}), '{"x": "123e4567-e89b-12d3-a456-426614174000"}', '{"x": "1"}'),
        (one({"type": ["string", "null"]}), '{"x": null}', '{"x": 1}'),
        (one({"type": "array", "items": {"type": "integer"}, "minItems": 1}), '{"x": [1, 2]}', '{"x": []}'),
        (
            one({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}),
            '{"x": [1, "a"]}',
            '{"x": [1]}',
        ),
        (one({"type": "object", "additionalProperties": {"type": "integer"}}), '{"x": {"k": 1}}', '{"x": {"k": "v"}}'),
        (one({"type": "object", "additionalProperties": True}), '{"x": {"k": [1]}}', '{"x": 1}'),
        (one({"$ref": "#/$defs/N"}, **{"$defs": {"N": NODE}}), '{"x": {"n": {"n": null}}}', '{"x": {"n": 1}}'),
        (one({"allOf": [{"$ref": "#/$defs/E"}]}, **{"$defs": {"E": {"enum": [1, 2]}}}), '{"x": 2}', '{"x": 3}'),
        (one({"allOf": [{"type": "string"}, {"maxLength": 2}]}), '{"x": "ab"}', '{"x": "abc"}'),
        (one({"$ref": "#/$defs/Lost"}), '{"anything": 1}', "1"),
        (one({"$ref": "https://example.org/x"}), '{"anything": 1}', "1"),
        (nested(300), '{"anything": 1}', "1"),
        ({}, '[1, {"a": null}]', "no"),
        ({"type": "nonsense"}, "1.5e3", "no"),
    ],
)
def test_schemas_are_kept_to_and_none_is_refused(smollm2: Engine, schema: Any, good: str, bad: str) -> None:
    alone = grammar_for(smollm2, GENERIC, AnswerForm({}, schema=schema))
    assert accepts(smollm2, alone, good)
    assert not accepts(smollm2, alone, bad)
    twice = grammar_for(smollm2, GENERIC, AnswerForm({"one": ADD, "two": schema}))
    assert accepts(smollm2, twice, call("two", good))


def test_an_engine_without_grammars_says_so() -> None:
    with pytest.raises(InvalidGrammar, match="no grammars"):
        grammar_for(FakeEngine(), GENERIC, AnswerForm(TOOLS))


def test_a_schema_given_as_text_binds_an_answer_as_structured_output_does() -> None:
    engine = FakeEngine(keeps_grammar=True)
    grammar = json_grammar(engine, json.dumps(ADD))
    assert grammar == grammar_for(engine, GENERIC, AnswerForm({}, schema=ADD))
    assert [matches(grammar, text) for text in ('{"a": 1}', '{"a": "x"}', "one")] == [True, False, False]


@pytest.mark.parametrize("text", ["", "no", "[]", "1", "[" * 100_000])
def test_what_is_not_a_json_schema_is_a_typed_error(text: str) -> None:
    with pytest.raises(InvalidGrammar, match="the JSON schema is not"):
        json_grammar(FakeEngine(keeps_grammar=True), text)
