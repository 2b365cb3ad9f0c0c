from __future__ import annotations

from dataclasses import replace

import pytest

from agentkv.engine.fake import ANSWER, BOS, END, START, FakeEngine
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import UnsupportedTemplate


def engine_with(template: str | None, **changes: object) -> FakeEngine:
    engine = FakeEngine()
    engine.info = replace(engine.info, chat_template=template, **changes)  # type: ignore[arg-type]
    return engine


def text(ids: tuple[int, ...]) -> str:
    names = {BOS: "<bos>", START: "<start>", END: "<end>", ANSWER: "<answer>"}
    return b"".join(bytes([i]) if i < 256 else names[i].encode() for i in ids).decode()


def test_parts_are_the_template_cut_at_the_content() -> None:
    prompt = PromptBuilder(FakeEngine()).build("You help.", "Manual", [Message("user", "Why?")])
    assert text(prompt.prefix).rstrip("\n") == "<bos><start>system\nYou help."
    assert text(prompt.manual).rstrip("\n") == "Manual"
    assert text(prompt.turn) == "<end><start>user\nWhy?<end><start>assistant\n<answer>"


def test_prefix_and_manual_are_padded_to_the_alignment() -> None:
    builder = PromptBuilder(FakeEngine())
    for n in range(1, 9):
        prompt = builder.build("p" * n, "m" * n, [Message("user", "?")])
        assert len(prompt.prefix) % 4 == len(prompt.manual) % 4 == 0
        assert text(prompt.manual).rstrip("\n") == "m" * n
    assert builder.build("p", "", [Message("user", "?")]).manual == ()


def test_a_conversation_keeps_its_turns() -> None:
    talk = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    turn = text(PromptBuilder(FakeEngine()).build("", "", talk).turn)
    assert turn == (
        "<end><start>user\na<end><start>assistant\n<answer>b<end><start>user\nc<end><start>assistant\n<answer>"
    )


def test_exactly_one_bos_where_the_model_wants_one() -> None:
    without = "<start>{{ messages[0].content }}|{{ messages[1].content }}"
    for template in (FakeEngine().info.chat_template, without):
        prompt = PromptBuilder(engine_with(template)).build("p", "m", [Message("user", "u")])
        assert prompt.tokens.count(BOS) == 1
        assert prompt.tokens[0] == BOS
    none = PromptBuilder(engine_with(without, add_bos=False)).build("p", "m", [Message("user", "u")])
    assert BOS not in none.tokens


def test_without_a_system_role_the_manual_opens_the_first_message() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "<start>{{ m.role }} {{ m.content | trim }}<end>{% endfor %}<answer>"
    )
    prompt = PromptBuilder(engine_with(template)).build("p", "m", [Message("user", "u")])
    assert text(prompt.tokens).replace("\n\n\n", "").startswith("<bos><start>user p")
    assert text(prompt.turn) == "\n\nu<end><answer>"


def test_a_base_model_gets_a_completion_template_and_its_stops() -> None:
    prompt = PromptBuilder(engine_with(None)).build("p", "m", [Message("user", "u")])
    assert text(prompt.turn) == "\n\nQuestion: u\nAnswer:"
    assert prompt.stops


@pytest.mark.parametrize(
    "template",
    [
        "{{ nothing.at.all }}",
        "{% for m in messages %}",
        "no content",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
    ],
)
def test_a_template_that_cannot_be_cut_is_a_typed_error(template: str) -> None:
    with pytest.raises(UnsupportedTemplate):
        PromptBuilder(engine_with(template)).build("p", "m", [Message("user", "u")])


@pytest.mark.parametrize("messages", [[], [Message("assistant", "a")], [Message("system", "s"), Message("user", "u")]])
def test_a_conversation_ends_with_the_user(messages: list[Message]) -> None:
    with pytest.raises(UnsupportedTemplate):
        PromptBuilder(FakeEngine()).build("p", "m", messages)
