"""Prompts as token ids, built from the model's own chat template.

The template is rendered once with slots in place of content and cut at them. The template's texts are tokenised with
special tokens on, content with them off, each by itself: a text that holds ``<|im_end|>`` cannot forge a turn, and the
seam between a block and the turn after it is a seam between texts. Text is never compared. An assistant's message is
the exception to "by itself": content, calls and the template's text between them are tokenised together (special
tokens off), because that is how the model wrote them.

The order is: agent prefix and tools, manual, turns. Tools belong to the prefix, so a manual can be grafted on top of
them. Where the template has no system role, all of it opens the first user message. ``template.py`` says how tools,
calls and results are written.

Ids are only appended: a conversation's pieces, one a message, are the first pieces of the same conversation with more
messages. Templates that write an earlier message otherwise once more follow it, and results of several calls that
share one turn, are cut only where this holds (``Prompt.pieces``).

Messages of one role in a row stay apart where the template takes them, and are joined by a blank line where it
insists on alternating turns. A system message after the first message stays where it is; where the template refuses
that, it becomes the user's.

Prefix and manual are filled up with newlines to a multiple of the engine's ``alignment``: a seam then falls between
the groups of rows that the kernels take together, and a prefill part by part gives the same bits as one of the whole
prompt.

Not guaranteed: that the ids equal those of the rendered prompt tokenised as one string. They may differ at a seam;
block ids + turn ids *is* the prompt, for a cold prefill and for a graft alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from agentkv.engine.base import Engine
from agentkv.engine.template import (
    GENERIC,
    CallForm,
    ChatTemplate,
    ToolCall,
    as_call,
    cut,
    generic_results,
    generic_teaching,
    own_form,
    own_teaching,
    slot,
)
from agentkv.errors import UnsupportedTemplate, UsageError

Role = Literal["system", "user", "assistant", "tool"]
Schema = Mapping[str, Any]
"""A tool as OpenAI writes it: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""

_COMPLETION_STOPS = ("\nQuestion:", "\n\n")


@dataclass(frozen=True)
class Message:
    """One message; ``content`` is plain text and never becomes control tokens.

    ``calls`` are an assistant's. A message of role ``tool`` is the result of one call, in the order of the calls.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """A turn's token ids in parts: ``prefix`` (before the manual), ``manual``, ``reference`` (or none), ``turn``.

    ``pieces`` is ``turn`` cut by message, with one more at the end: the opening of the answer. A message after
    which the conversation cannot be cut has an empty piece, and its ids are in a later one.
    """

    prefix: tuple[int, ...]
    manual: tuple[int, ...]
    turn: tuple[int, ...]
    stops: tuple[str, ...] = ()
    reference: tuple[int, ...] = ()
    pieces: tuple[tuple[int, ...], ...] = ()

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The parts that can be stored, in order."""
        return tuple(part for part in (self.prefix, self.manual, self.reference) if part)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The whole prompt."""
        return self.prefix + self.manual + self.reference + self.turn


class PromptBuilder:
    """Builds prompts for one engine. Raises UnsupportedTemplate where the template cannot be cut."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._template = ChatTemplate(engine.info)
        self.is_completion = self._template.is_completion

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings that the template needs: those of a base model, which has no end-of-turn token."""
        return _COMPLETION_STOPS if self.is_completion else ()

    @property
    def calls(self) -> CallForm:
        """How this model writes its calls."""
        return self._own_form or GENERIC

    @cached_property
    def _own_form(self) -> CallForm | None:
        return own_form(self._template)

    def build(self, prefix: str, manual: str, messages: Sequence[Message], *, tools: Sequence[Schema] = ()) -> Prompt:
        """The ids for a system text of ``prefix``, ``tools`` and ``manual``, and the conversation after it.

        ``messages`` begin with the user's or an assistant's and do not end with an assistant's. Where the template
        has no system role, the system text opens the first message. Raises UsageError for tools that are not JSON.
        """
        if not messages or messages[-1].role == "assistant" or messages[0].role in ("system", "tool"):
            raise UnsupportedTemplate(
                "a conversation begins with the user's or an assistant's message and ends with one to be answered"
            )
        schemas = _as_json(tools)
        before = prefix.rstrip("\n") if schemas else prefix
        rendering = self._rendered(messages)
        pieces = self._pieces(rendering)
        return Prompt(
            prefix=self._padded(
                self._with_bos(self._special(rendering.head)) + self._content(before) + self._teaching(schemas)
            ),
            manual=self._padded(self._content(manual)),
            turn=tuple(token for piece in pieces for token in piece),
            stops=self.stops,
            pieces=pieces,
        )

    def question(self, lead: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A user's message that begins with ``lead``: the ids up to there, and those from its end to the answer.

        What is asked goes between, tokenised by itself.
        """
        rendered = self._template.render([{"role": "user", "content": slot(0) + slot(1)}])
        head, between, tail = cut(rendered, 0, 2)
        before = self._with_bos(self._special(head)) + self._content(lead) + self._special(between)
        return tuple(before), tuple(self._special(tail))

    def document(self, text: str) -> tuple[int, ...]:
        """Ids of plain text at the start of a context, without any template."""
        return tuple(self._with_bos(self._content(text)))

    # --- the system text --------------------------------------------------------------------------

    def _teaching(self, schemas: Sequence[str]) -> list[int]:
        """What follows the agent's text: the tools, and a blank line, since a manual may come next."""
        if not schemas:
            return []
        texts = own_teaching(self._template, len(schemas)) if self._own_form else None
        if texts is None:
            return self._content(generic_teaching(schemas) + "\n\n")
        ids = self._special(texts[0])
        for schema, text in zip(schemas, texts[1:], strict=True):
            ids += self._content(schema) + self._special(text)
        return ids + self._content("\n\n")

    # --- the conversation -------------------------------------------------------------------------

    def _rendered(self, messages: Sequence[Message]) -> _Rendering:
        """The conversation as the template takes it: as it is, or written down to what the template knows."""
        forms: list[Callable[[_Items], _Items]] = [list, _system_as_user, _joined]
        items = [_Item((index,), message) for index, message in enumerate(messages)]
        items = items if self._own_form else _generic(items)
        for number, form in enumerate(forms):
            items = form(items)
            try:
                return _Rendering(self._template, items, len(messages))
            except UnsupportedTemplate:
                if number == len(forms) - 1:
                    raise
        raise AssertionError

    def _pieces(self, rendering: _Rendering) -> tuple[tuple[int, ...], ...]:
        pieces: list[tuple[int, ...]] = []
        for role, texts, contents in rendering.regions:
            ids = (
                self._answer(texts, contents, rendering.opening)
                if role == "assistant"
                else self._spoken(texts, contents)
            )
            pieces.append(tuple(ids))
        return (*pieces, tuple(self._special(rendering.opening)))

    def _spoken(self, texts: Sequence[str], contents: Sequence[str]) -> list[int]:
        ids = self._special(texts[0])
        for content, text in zip(contents, texts[1:], strict=True):
            ids += self._content(content) + self._special(text)
        return ids

    def _answer(self, texts: Sequence[str], contents: Sequence[str], opening: str) -> list[int]:
        """An assistant's message: its opening as it is when an answer is asked for, then what the model wrote."""
        head = texts[0]
        ids = self._special(opening) if head.startswith(opening) else []
        run = ""
        for text, content in zip([head.removeprefix(opening), *texts[1:]], [*contents, ""], strict=True):
            before, control, after = self._around_control(text)
            if control:
                ids += self._content(run + before) + self._special(control)
                run = after + content
            else:
                run += text + content
        return ids + self._content(run)

    def _around_control(self, text: str) -> tuple[str, str, str]:
        """A template's text in three: before its first control token, up to its last, after it."""
        ids = self._special(text)
        at = [index for index, token in enumerate(ids) if self._engine.is_control(token)]
        if not at:
            return text, "", ""
        before = self._plain(ids[: at[0]])
        after = self._plain(ids[at[-1] + 1 :])
        if before is None or after is None or not (text.startswith(before) and text.endswith(after)):
            return "", text, ""
        return before, text[len(before) : len(text) - len(after)], after

    def _plain(self, ids: Sequence[int]) -> str | None:
        """The text of ids without control tokens; None if it is not whole characters."""
        try:
            return b"".join(map(self._engine.token_bytes, ids)).decode()
        except UnicodeDecodeError:
            return None

    # --- ids --------------------------------------------------------------------------------------

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


def _as_json(tools: Sequence[Schema]) -> list[str]:
    try:
        return [json.dumps(tool, ensure_ascii=False) for tool in tools]
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a tool's schema is not JSON: {error}") from error


# --- a conversation as the template takes it ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Item:
    """One message as the template gets it, made of the messages ``of``."""

    of: tuple[int, ...]
    message: Message


_Items = list[_Item]


def _generic(items: _Items) -> _Items:
    """Calls and results as text, for a template without tools; results in a row share the user's turn."""
    out: _Items = []
    for is_result, group in groupby(items, lambda item: item.message.role == "tool"):
        members = list(group)
        if is_result:
            text = generic_results([item.message.content for item in members])
            out.append(_Item(tuple(i for item in members for i in item.of), Message("user", text)))
            continue
        for item in members:
            calls = GENERIC.text(item.message.calls)
            lead = GENERIC.lead if item.message.content and calls else ""
            out.append(replace(item, message=Message(item.message.role, item.message.content + lead + calls)))
    return out


def _system_as_user(items: _Items) -> _Items:
    return [
        replace(item, message=replace(item.message, role="user")) if item.message.role == "system" else item
        for item in items
    ]


def _joined(items: _Items) -> _Items:
    """Messages of one role in a row as one, with a blank line between; calls follow the joined text."""
    out: _Items = []
    for role, group in groupby(items, lambda item: item.message.role):
        members = list(group)
        if role == "tool":
            out += members
            continue
        text = "\n\n".join(item.message.content for item in members if item.message.content)
        calls = tuple(call for item in members for call in item.message.calls)
        out.append(_Item(tuple(i for item in members for i in item.of), Message(role, text, calls)))
    return out


class _Rendering:
    """A conversation rendered and cut.

    ``head`` is what stands before the system text; ``regions`` the rest, one a message: role, the template's texts,
    and the contents between them; ``opening`` is what opens the answer.
    """

    def __init__(self, template: ChatTemplate, items: _Items, n_messages: int) -> None:
        dialogue, contents, ends = _dialogue(template, items)
        whole = template.render(dialogue)
        self.head = cut(whole, 0, len(contents) + 1)[0]
        rest = whole.removeprefix(self.head).removeprefix(slot(0))
        at, opening = _boundaries(template, dialogue, whole, ends)
        self.opening = whole[opening:]
        start, first = len(whole) - len(rest), 1
        self.regions: list[tuple[str, list[str], list[str]]] = [("", [""], []) for _ in range(n_messages)]
        held: list[str] = []
        for item, end, stop in zip(items, ends, at, strict=True):
            held.append(item.message.role)
            if stop is None:
                continue
            texts = cut(whole[start:stop], first, end)
            kind = held[0] if len(held) == 1 else ""
            self.regions[item.of[-1]] = (kind, texts, contents[first - 1 : end - 1])
            start, first, held = stop, end, []


def _dialogue(template: ChatTemplate, items: _Items) -> tuple[list[dict[str, Any]], list[str], list[int]]:
    """Messages with slots, what fills slots 1 and up, and for each item the number of the slot after its last."""
    dialogue: list[dict[str, Any]] = [{"role": "system", "content": slot(0)}] if template.has_system else []
    contents: list[str] = []
    ends: list[int] = []
    for item in items:
        message = item.message
        entry: dict[str, Any] = {"role": message.role, "content": ""}
        if message.content or not message.calls or not dialogue:
            contents.append(message.content)
            entry["content"] = slot(len(contents)) if dialogue else f"{slot(0)}\n\n{slot(1)}"
        if message.calls:
            n = len(contents) + 1
            entry["tool_calls"] = [as_call(n + 2 * i, n + 2 * i + 1) for i in range(len(message.calls))]
            contents += [text for call in message.calls for text in (call.name, call.arguments)]
        dialogue.append(entry)
        ends.append(len(contents) + 1)
    return dialogue, contents, ends


def _boundaries(
    template: ChatTemplate, dialogue: list[dict[str, Any]], whole: str, ends: Sequence[int]
) -> tuple[list[int | None], int]:
    """Where each message ends in ``whole``, None where it cannot be cut, and where the opening of the answer begins.

    A message ends where the conversation up to it would. The length found for one seam holds for every seam of the
    same text between the same two roles, so a long conversation is not rendered once for each of its messages.
    """
    n_system = len(dialogue) - len(ends)
    lengths: dict[_Seam, int | None] = {}
    stops: list[int | None] = []
    for n_messages, end in enumerate(ends[:-1], n_system + 1):
        start, seam = _seam(dialogue, whole, n_messages, end)
        if seam not in lengths:
            stop = _length_of_beginning(template, dialogue[:n_messages], whole)
            lengths[seam] = None if stop is None else stop - start
        length = lengths[seam]
        stops.append(None if length is None else start + length)
    opening = _length_of_beginning(template, dialogue, whole)
    opening = len(whole) if opening is None else opening
    return [*stops, opening], opening


_Seam = tuple[str, str, str]
"""The template's text between two messages, and their roles."""


def _seam(dialogue: list[dict[str, Any]], whole: str, n_messages: int, end: int) -> tuple[int, _Seam]:
    """Where in ``whole`` the seam after the first ``n_messages`` begins, and the seam; ``end``: the slot after it."""
    last = slot(end - 1)
    start = whole.index(last) + len(last)
    text = whole[start : whole.index(slot(end))]
    return start, (text, dialogue[n_messages - 1]["role"], dialogue[n_messages]["role"])


def _length_of_beginning(template: ChatTemplate, dialogue: list[dict[str, Any]], whole: str) -> int | None:
    """The length of this conversation's text if ``whole`` begins with it."""
    try:
        text = template.render(dialogue, generate=False)
    except UnsupportedTemplate:
        return None
    return len(text) if whole.startswith(text) else None
