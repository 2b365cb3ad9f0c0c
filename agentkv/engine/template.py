"""The model's own chat template, rendered with slots in place of content and cut at them; and how it writes tools.

Every text that is not the template's own (content, tool names, arguments, tool schemas) is a numbered slot. A rendered
conversation is therefore a row of template texts and slots, and what fills a slot can never be taken for template.

A model's template is asked for its own form of a call, by rendering one and looking at the text around its name and
its arguments. Where a template has no tools, or shows them in a way that cannot be cut (calls with ids, schemas taken
apart, tools in a user's message), the generic form is used instead, that of Hermes and Qwen: ``<tool_call>`` around
a JSON object, results in ``<tool_response>`` in the user's turn, and the system text says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkv.engine.base import ModelInfo
from agentkv.errors import UnsupportedTemplate

Dialogue = Sequence[Mapping[str, Any]]
"""Messages as templates take them."""

COMPLETION = (
    "{% for m in messages %}{% if m.role == 'system' and loop.first %}{{ m.content }}{% elif m.role == 'assistant' %}"
    "{{ '\nAnswer: ' + m.content }}{% else %}{{ '\n\nQuestion: ' + m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\nAnswer:' }}{% endif %}"
)
"""What a base model gets, which has no template."""
_OPEN, _CLOSE = "\ue000", "\ue001"
_SLOT = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class Slot(str):
    """Stands for one text that is not the template's; ``tojson`` leaves it as it is."""

    __slots__ = ()


def slot(index: int) -> Slot:
    """Slot number ``index``."""
    return Slot(f"{_OPEN}{index}{_CLOSE}")


def cut(text: str, first: int, end: int) -> list[str]:
    """The texts around slots ``first`` to ``end - 1``: ``end - first + 1`` of them.

    Raises UnsupportedTemplate unless each slot appears exactly once, in order.
    """
    pieces = _SLOT.split(text)
    if pieces[1::2] != [str(index) for index in range(first, end)] or _OPEN in "".join(pieces[::2]):
        raise UnsupportedTemplate("content does not appear exactly once, in order")
    return pieces[::2]


def _tojson(value: Any, *_: Any, **__: Any) -> str:
    return value if isinstance(value, Slot) else json.dumps(value, ensure_ascii=False)


def _raise(message: str) -> str:
    raise TemplateError(message)


class ChatTemplate:
    """One model's template. Raises UnsupportedTemplate where it does not compile.

    A template that asks for today's date is given a fixed one, so that a block's ids do not change over night.
    """

    def __init__(self, info: ModelInfo) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda _format: "2026-01-01"
        environment.filters["tojson"] = _tojson
        self.is_completion = info.chat_template is None
        try:
            self._template = environment.from_string(info.chat_template or COMPLETION)
        except TemplateError as error:
            raise UnsupportedTemplate(str(error)) from error
        self._texts = {"bos_token": info.bos_text, "eos_token": info.eos_text}
        self.has_system = self.takes([{"role": "system", "content": slot(0)}, {"role": "user", "content": slot(1)}], 2)

    def render(self, messages: Dialogue, tools: Sequence[Slot] = (), *, generate: bool = True) -> str:
        """The text of a conversation, followed by the opening of the next answer if ``generate``."""
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=generate, tools=list(tools) or None, **self._texts
            )
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise UnsupportedTemplate(str(error)) from error

    def takes(self, messages: Dialogue, n_slots: int) -> bool:
        """Whether the template renders these messages, with each of their slots once and in order."""
        try:
            cut(self.render(messages), 0, n_slots)
        except UnsupportedTemplate:
            return False
        return True


# --- tools ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolCall:
    """A call: the tool's ``name`` and its ``arguments``, as the text of one JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True)
class CallForm:
    """How calls are written: ``open`` name ``middle`` arguments ``close``.

    ``between`` stands between two calls, ``lead`` between the answer's text and its first call.
    """

    open: str
    middle: str
    close: str
    between: str = "\n"
    lead: str = "\n"

    @property
    def mark(self) -> str:
        """What tells a call from text: the beginning of a call, up to its JSON."""
        return self.open.split("{")[0].rstrip() or self.open

    def text(self, calls: Sequence[ToolCall]) -> str:
        """The calls as the model writes them."""
        written = (f"{self.open}{call.name}{self.middle}{call.arguments}{self.close}" for call in calls)
        return self.between.join(written)


GENERIC = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
_RESPONSE = "<tool_response>\n{}\n</tool_response>"
_TEACHING = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
    'XML tags:\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)


def generic_teaching(schemas: Sequence[str]) -> str:
    """What follows the system text where the template teaches no tools; ``schemas`` are JSON texts."""
    return _TEACHING.format("\n".join(schemas))


def generic_results(contents: Sequence[str]) -> str:
    """The user's turn that holds results, in the order of the calls."""
    return "\n".join(_RESPONSE.format(content) for content in contents)


def own_form(template: ChatTemplate) -> CallForm | None:
    """The form of the template's own, or None: then the generic one is used, for teaching, calls and results."""
    try:
        return _derived(template) if own_teaching(template, 2) else None
    except UnsupportedTemplate:
        return None


def own_teaching(template: ChatTemplate, n_tools: int) -> list[str] | None:
    """The texts around ``n_tools`` schemas that the template writes after the system text; None if it does not.

    They are found by rendering with tools and without. What is rendered with tools has to begin and to end as the
    other does: then the tools stand at the end of the system text, and a manual can follow them.
    """
    if not template.has_system or n_tools < 1:
        return None
    messages = [{"role": "system", "content": slot(0)}, {"role": "user", "content": slot(n_tools + 1)}]
    try:
        taught = template.render(messages, [slot(1 + index) for index in range(n_tools)])
        texts = cut(taught, 0, n_tools + 2)
        head, tail, _ = cut(template.render([messages[0], {"role": "user", "content": slot(1)}]), 0, 2)
    except UnsupportedTemplate:
        return None
    if texts[0] != head or not texts[-2].endswith(tail):
        return None
    return [*texts[1:-2], texts[-2].removesuffix(tail)]


def _derived(template: ChatTemplate) -> CallForm | None:
    opening, end = _around_answer(template)
    start, middle, last = _calls(template, 1, "")
    lead_in, led_middle, led_last = _calls(template, 1, slot(1))[1:]
    _, _, bridge, _, _ = _calls(template, 2, "")
    if not (start.startswith(opening) and last.endswith(end) and (led_middle, led_last) == (middle, last)):
        return None
    form_open, close = start.removeprefix(opening), last.removesuffix(end) if end else last
    if not form_open or not middle or not lead_in.endswith(form_open):
        return None
    if not (bridge.startswith(close) and bridge.endswith(form_open)):
        return None
    if len(bridge) < len(close) + len(form_open) or not _takes_results(template):
        return None
    between = bridge[len(close) : len(bridge) - len(form_open)]
    return CallForm(form_open, middle, close, between, lead_in.removesuffix(form_open))


def _around_answer(template: ChatTemplate) -> tuple[str, str]:
    """What opens an answer, and what ends a plain one."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": slot(0)}]
    before = template.render(asked, generate=False)
    after = template.render([*asked, {"role": "assistant", "content": slot(1)}], generate=False)
    with_opening = template.render(asked)
    if not (with_opening.startswith(before) and after.startswith(with_opening)):
        raise UnsupportedTemplate("an answer does not begin as its opening does")
    return with_opening.removeprefix(before), cut(after, 0, 2)[-1]


def _calls(template: ChatTemplate, n_calls: int, content: str) -> list[str]:
    """The texts around content (if any), names and arguments of an answer that calls, from the answer's beginning."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": slot(0)}]
    first = 2 if content else 1
    calls = [as_call(first + 2 * i, first + 2 * i + 1) for i in range(n_calls)]
    answer = {"role": "assistant", "content": content, "tool_calls": calls}
    before = template.render(asked, generate=False)
    after = template.render([*asked, answer], generate=False)
    if not after.startswith(before):
        raise UnsupportedTemplate("an answer changes what stands before it")
    return cut(after.removeprefix(before), 1, first + 2 * n_calls)


def as_call(name: int, arguments: int) -> dict[str, Any]:
    """A call with slots, as templates take it."""
    return {"type": "function", "function": {"name": slot(name), "arguments": slot(arguments)}}


def _takes_results(template: ChatTemplate) -> bool:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": slot(0)},
        {"role": "assistant", "content": "", "tool_calls": [as_call(1, 2), as_call(3, 4)]},
        {"role": "tool", "content": slot(5)},
        {"role": "tool", "content": slot(6)},
    ]
    return template.takes(messages, 7)
