"""The model's own chat template, rendered with slots in place of content and cut at them.

Every text that is not the template's own (content, tool names, arguments, tool schemas) is a numbered slot. A rendered
conversation is therefore a row of template texts and slots, and what fills a slot can never be read as template.

Knows Jinja and the message form that templates expect. Knows nothing of token ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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
    """The slot of that number."""
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
        """The text of a conversation, with the opening of the next answer behind it if ``generate``."""
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
