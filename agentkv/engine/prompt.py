"""Prompts as token ids, built from the model's own chat template.

The template is rendered once with placeholders in place of content and cut at them. Template pieces are tokenised
with special tokens on, content with them off, each piece by itself: a text that holds ``<|im_end|>`` cannot forge a
turn, and the seam between a block and the turn behind it is a seam between pieces. Text is never compared.

Prefix and manual are filled up with newlines to a multiple of the engine's ``alignment``: a seam then falls between
the groups of rows that the kernels take together, and the parts read one after the other give the same bits as the
whole prompt read at once.

A template that asks for today's date is given a fixed one, so that a block's ids do not change over night.

Not guaranteed: that the ids equal those of the rendered prompt tokenised as one string. They may differ at a seam;
block ids + turn ids *is* the prompt, for the fresh reading and the graft alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkv.engine.base import Engine
from agentkv.errors import UnsupportedTemplate

Role = Literal["system", "user", "assistant"]

_COMPLETION = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}"
    "{{ '\n\nQuestion: ' + m.content }}{% else %}{{ '\nAnswer: ' + m.content }}{% endif %}{% endfor %}"
    "{{ '\nAnswer:' }}"
)
_COMPLETION_STOPS = ("\nQuestion:", "\n\n")
_OPEN, _CLOSE = "\ue000", "\ue001"


@dataclass(frozen=True)
class Message:
    """One message; ``content`` is plain text and never becomes control tokens."""

    role: Role
    content: str


@dataclass(frozen=True)
class Prompt:
    """A turn's ids in parts: ``prefix`` (before the manual), ``manual``, ``reference`` (or none), ``turn``."""

    prefix: tuple[int, ...]
    manual: tuple[int, ...]
    turn: tuple[int, ...]
    stops: tuple[str, ...] = ()
    reference: tuple[int, ...] = ()

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The parts that can be stored, in order."""
        return tuple(part for part in (self.prefix, self.manual, self.reference) if part)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The whole prompt."""
        return self.prefix + self.manual + self.reference + self.turn


def _placeholder(index: int) -> str:
    return f"{_OPEN}{index}{_CLOSE}"


class PromptBuilder:
    """Builds prompts for one engine. Raises UnsupportedTemplate where the template cannot be cut."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        info = engine.info
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
        environment.globals["raise_exception"] = self._raise
        environment.globals["strftime_now"] = lambda _format: "2026-01-01"
        self.is_completion = info.chat_template is None
        try:
            self._template = environment.from_string(info.chat_template or _COMPLETION)
        except TemplateError as error:
            raise UnsupportedTemplate(str(error)) from error
        self._texts = {"bos_token": info.bos_text, "eos_token": info.eos_text}
        self._system_role = self._renders([{"role": "system", "content": _placeholder(0)}, _user(1)], 2)

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings that the template needs: those of a base model, which has no end-of-turn token."""
        return _COMPLETION_STOPS if self.is_completion else ()

    def build(self, prefix: str, manual: str, messages: Sequence[Message]) -> Prompt:
        """The ids for a system text of ``prefix`` + ``manual``, and the conversation behind it.

        ``messages`` are user and assistant messages, the last one the user's. Where the template has no system
        role, prefix and manual open the first user message.
        """
        if not messages or messages[-1].role != "user" or any(m.role == "system" for m in messages):
            raise UnsupportedTemplate("a conversation is user and assistant messages, and ends with the user's")
        contents = [message.content for message in messages]
        if self._system_role:
            rendered = [{"role": "system", "content": _placeholder(0)}]
            rendered += [{"role": m.role, "content": _placeholder(i + 1)} for i, m in enumerate(messages)]
        else:
            rendered = [{"role": m.role, "content": _placeholder(i + 1)} for i, m in enumerate(messages)]
            rendered[0]["content"] = f"{_placeholder(0)}\n\n{_placeholder(1)}"
        head, *tails = self._cut(self._render(rendered), len(contents) + 1)
        turn = self._special(tails[0])
        for content, tail in zip(contents, tails[1:], strict=True):
            turn += self._content(content) + self._special(tail)
        return Prompt(
            prefix=self._padded(self._with_bos(self._special(head)) + self._content(prefix)),
            manual=self._padded(self._content(manual)),
            turn=tuple(turn),
            stops=self.stops,
        )

    def document(self, text: str) -> tuple[int, ...]:
        """Ids of plain text at the start of a context, without any template."""
        return tuple(self._with_bos(self._content(text)))

    def _padded(self, ids: list[int]) -> tuple[int, ...]:
        missing = -len(ids) % self._engine.alignment
        return tuple(ids + self._content("\n")[-1:] * missing)

    def _with_bos(self, ids: list[int]) -> list[int]:
        """Exactly one BOS where the model wants one."""
        info = self._engine.info
        if info.add_bos and info.bos is not None and ids[:1] != [info.bos]:
            return [info.bos, *ids]
        return ids

    def _special(self, text: str) -> list[int]:
        return self._engine.tokenize(text, special=True) if text else []

    def _content(self, text: str) -> list[int]:
        return self._engine.tokenize(text, special=False) if text else []

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, tools=None, **self._texts)
        except TemplateError as error:
            raise UnsupportedTemplate(str(error)) from error

    def _renders(self, messages: list[dict[str, str]], n_placeholders: int) -> bool:
        try:
            self._cut(self._render(messages), n_placeholders)
        except UnsupportedTemplate:
            return False
        return True

    @staticmethod
    def _cut(text: str, n_placeholders: int) -> list[str]:
        pieces = []
        for index in range(n_placeholders):
            piece, found, text = text.partition(_placeholder(index))
            if not found or _placeholder(index) in text:
                raise UnsupportedTemplate(f"content {index} does not appear exactly once, in order")
            pieces.append(piece)
        if _OPEN in text:
            raise UnsupportedTemplate("content appears more than once")
        return [*pieces, text]

    @staticmethod
    def _raise(message: str) -> str:
        raise TemplateError(message)


def _user(index: int) -> dict[str, str]:
    return {"role": "user", "content": _placeholder(index)}
