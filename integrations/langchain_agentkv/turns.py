"""One turn, run in one thread from its beginning to its end, and what it gives, as LangChain's chunks.

The engine's lock belongs to the thread that took it, and is re-entrant. A stream whose pieces were fetched by several
threads (LangChain's default ``_astream`` does that) would wait for itself, and two streams read alternately by one
thread would write into one another's context. So a stream is never run by the thread that reads it.

A call is one chunk, with its name, id and arguments and an index of its own. LangChain parses the arguments of chunks
leniently: the beginning of a JSON object counts as an object. A call that was cut is therefore given as the text that
was written, its mark or ``cut:`` before it, which is not the beginning of an object; so it becomes an
``invalid_tool_calls`` entry.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Container, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.runnables.config import run_in_executor
from langchain_core.utils.json import parse_partial_json

from agentkv import ROUTE, AgentMemory
from agentkv.engine.base import Cancellation
from agentkv.engine.constrain.calls import BrokenCall, CallReader, Part
from agentkv.engine.template import ToolCall
from agentkv.errors import Cancelled, WindowOverflow
from agentkv.io.hashing import tagged_digest
from agentkv.notices import warn
from agentkv.records import Decision, Timings, Turn
from langchain_agentkv import tools
from langchain_agentkv.errors import ContextOverflow
from langchain_agentkv.executor import in_executor
from langchain_agentkv.messages import CUT, PLACEHOLDER, Conversation, system_text
from langchain_agentkv.schemas import misfit
from langchain_agentkv.settings import CallSettings
from langchain_agentkv.tools import CallCheck

_NOTHING = "the model gave neither text nor a call; the answer's text in brackets is not its own: rephrase the question"
_BROKEN = "the model wrote a call that is not whole; it is in invalid_tool_calls, as written: ask again or rephrase it"

_LONGEST_RESULT = 500
"""Characters of a tool's result that stand in for an answer."""


@dataclass(frozen=True)
class Call:
    """A call in an answer: its ``number`` there, an ``id`` unique in the conversation, and the call itself."""

    number: int
    id: str
    call: ToolCall | BrokenCall


@dataclass(frozen=True)
class Placeholder:
    """The text of an answer that has neither text nor calls."""

    text: str


Item = str | Call | Placeholder | Turn


@dataclass(frozen=True)
class Request:
    """Everything that a turn needs. Its methods yield text and calls, and the turn's record as the last item."""

    memory: AgentMemory
    conversation: Conversation
    settings: CallSettings

    def run(self, cancellation: Cancellation) -> Generator[Item, None, None]:
        """Run in this thread, which has to read to the end or close the iterator.

        The decision is made here and not in :class:`AgentMemory`, so that its question is the conversation's. Raises
        ContextOverflow in place of WindowOverflow, and whatever else :meth:`agentkv.AgentMemory.stream` raises.
        """
        with self.memory.engine.lock:
            if cancellation.requested:
                raise Cancelled("waiting for the engine")
            try:
                yield from self._run(cancellation)
            except WindowOverflow as error:
                raise ContextOverflow.of(error) from error

    def _run(self, cancellation: Cancellation) -> Generator[Item, None, None]:
        memory, settings = self.memory, self.settings
        routed = memory.route(self.conversation.question) if settings.skill is ROUTE else None
        parts = _Parts(self._call_id, self._check())
        turn = yield from self._turn(routed, parts, (), cancellation)
        if parts.repeated and not parts.called:  # once more, and what was called again is not offered
            barred = frozenset(parts.repeated)
            parts.begin_again(self._check(barred))
            turn = _joined(turn, (yield from self._turn(routed, parts, barred, cancellation)))
        if tools.calls_wanted(settings) and parts.is_empty and turn.finish != "stop_string":
            parts.notes += (
                [] if parts.notes or turn.finish == "length" else [_NOTHING if parts.broken is None else _BROKEN]
            )
            yield Placeholder(self._no_answer(turn, parts))
        schema = tools.unchecked_schema(settings)
        if schema is not None and turn.finish == "stop" and not parts.called:
            parts.notes += filter(None, [misfit(schema, turn.text)])
        notes = [*self.conversation.notes, *parts.notes]
        for note in notes:
            warn(note)
        decision = turn.decision if self._decided(routed) else settings.decision or turn.decision
        notes = list(dict.fromkeys((*decision.notes, *notes, *turn.notes)))
        yield turn.model_copy(update={"decision": decision, "notes": tuple(notes)})

    def _decided(self, routed: Decision | None) -> Decision | None:
        """The router's decision for this turn's skill; None where the caller named the skill, or wants none."""
        made = routed or self.settings.decision
        return made if made is not None and (routed is not None or made.pick == self.settings.skill) else None

    def _check(self, barred: Container[str] = ()) -> CallCheck:
        return CallCheck.of(self.settings, self.memory.call_form, self.conversation.repeats, barred)

    def _turn(
        self, routed: Decision | None, parts: _Parts, barred: Container[str], cancellation: Cancellation
    ) -> Generator[Item, None, Turn]:
        """One answer of the model's, which may not call ``barred`` tools, parsed into ``parts``; returns its record."""
        memory, settings = self.memory, self.settings
        form = memory.call_form
        reader = CallReader(form, tools.bare_callable(settings)) if tools.calls_wanted(settings) else None
        pieces = memory.stream(
            self.conversation.messages,
            skill=settings.skill,
            decision=self._decided(routed),
            max_new=settings.max_new,
            sampling=settings.sampling,
            stop=settings.stop,
            grammar=tools.grammar(memory.engine, form, settings, barred),
            cancellation=cancellation,
            system=system_text(memory, self.conversation.system, tools.answer_teaching(settings)),
            tools=settings.tools,
            keep=self._keep,
            when_full="refuse",  # what is left out of a conversation is for LangChain's middleware to decide
        )
        for piece in pieces:
            if isinstance(piece, Turn):
                yield from parts.items(reader.finish() if reader else [])
                ms = piece.ms if routed is None else piece.ms.model_copy(update={"route": routed.ms})
                return piece.model_copy(update={"ms": ms})
            yield from parts.items(reader.feed(piece) if reader else [piece])
        raise AssertionError("a stream ends with its record")

    def _no_answer(self, turn: Turn, parts: _Parts) -> str:
        """Why an answer has neither text nor a call that can be made."""
        if parts.broken is not None:
            cut = f"was cut at {turn.tokens.generated} tokens" if turn.finish == "length" else "was not whole"
            call = f"the call of {parts.broken.name!r}" if parts.broken.name else "a call"
            return f"[no answer: {parts.fault or f'{call} {cut}'}]"
        result = self.conversation.repeats.result
        if result is None:
            return "[no answer as text]"
        shown = result if len(result) <= _LONGEST_RESULT else f"{result[:_LONGEST_RESULT]} …"
        return f"[no answer as text; the last result was: {shown}]"

    @property
    def _keep(self) -> bool:
        """Whether to keep the state: by default, where more calls with the same beginning can be expected."""
        if self.settings.keep is not None:
            return self.settings.keep
        return bool(self.conversation.system or self.settings.tools or self.conversation.goes_on)

    def _call_id(self, number: int) -> str:
        """Deterministic, so that two runs of one request can be compared."""
        messages = [
            [m.role, m.content, [[call.name, call.arguments] for call in m.calls]] for m in self.conversation.messages
        ]
        digest = tagged_digest("langchain-call/1", self.conversation.system, messages, number)
        return f"call_{digest[:24]}"

    def answer(self, cancellation: Cancellation) -> list[Item]:
        """Run in this thread; every item."""
        with closing(self.run(cancellation)) as items:
            return list(items)

    async def aanswer(self) -> list[Item]:
        """Run in the default executor; cancelling takes effect there within a token."""
        return await in_executor(self.answer)

    def stream(self) -> Generator[Item, None, None]:
        """Run in a thread of its own; closing the iterator takes effect there within a token."""
        cancellation = Cancellation()
        items: queue.SimpleQueue[Item | BaseException] = queue.SimpleQueue()

        def work() -> None:
            try:
                self._into(items.put, cancellation)
            except BaseException as error:  # noqa: BLE001 - raised again where the stream is read
                items.put(error)

        threading.Thread(target=work, name="agentkv-turn").start()
        try:
            while True:
                item = items.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if isinstance(item, Turn):
                    return
        finally:
            cancellation.cancel()

    async def astream(self) -> AsyncGenerator[Item, None]:
        """Run in the default executor; cancelling or closing takes effect there within a token."""
        cancellation = Cancellation()
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Item | None] = asyncio.Queue()

        def put(item: Item | None) -> None:
            loop.call_soon_threadsafe(items.put_nowait, item)

        def work() -> None:
            try:
                self._into(put, cancellation)
            finally:
                put(None)

        job = asyncio.ensure_future(run_in_executor(None, work))
        try:
            while (item := await items.get()) is not None:
                yield item
            await job
        finally:
            cancellation.cancel()
            job.cancel()

    def _into(self, put: Callable[[Item], None], cancellation: Cancellation) -> None:
        # Closed here and now, not when it is collected: the lock has to be given back by this thread.
        with closing(self.run(cancellation)) as items:
            for item in items:
                put(item)


class _Parts:
    """An answer's parts as items: calls numbered and checked, text without white space at both ends.

    White space is held back until more text follows it.
    """

    def __init__(self, call_id: Callable[[int], str], check: CallCheck) -> None:
        self._call_id, self._check, self._calls = call_id, check, 0
        self._started, self._held = False, ""
        self.called, self.repeated, self.notes = False, set[str](), list[str]()
        self.broken: BrokenCall | None = None
        self.fault = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is neither text nor a call that can be made."""
        return not (self._started or self.called)

    def begin_again(self, check: CallCheck) -> None:
        """What follows is another answer, under another check; its text is set apart."""
        self._held = "\n\n" if self._started else ""
        self._check = check

    def items(self, parts: Iterable[Part]) -> Generator[Item, None, None]:
        """What may be shown now."""
        for part in parts:
            if isinstance(part, str):
                if shown := self._shown(part):
                    yield shown
            elif (call := self._made(part)) is not None:
                yield call

    def _made(self, call: ToolCall | BrokenCall) -> Call | None:
        """The call as it is given out; None where it is left out."""
        verdict = self._check.of_call(call, self.called)
        if verdict.note and verdict.note not in self.notes:
            self.notes.append(verdict.note)
        if verdict.left_out:
            self.repeated |= {call.name} if verdict.is_repeat and call.name else set()
            return None
        number, self._calls = self._calls, self._calls + 1
        if isinstance(verdict.call, ToolCall):
            self.called = True
        else:
            self.broken, self.fault = verdict.call, verdict.fault
        return Call(number, self._call_id(number), verdict.call)

    def _shown(self, piece: str) -> str:
        text = self._held + piece
        if not self._started:
            text = text.lstrip()
        shown = text.rstrip()
        self._started, self._held = self._started or bool(shown), text[len(shown) :]
        return shown


def _joined(first: Turn, again: Turn) -> Turn:
    """The record of an answer that took two: prefill as in the second, generated tokens and times of both."""
    ms = {name: getattr(first.ms, name) + getattr(again.ms, name) for name in Timings.model_fields if name != "route"}
    generated = first.tokens.generated + again.tokens.generated
    tokens = again.tokens.model_copy(update={"generated": generated})
    notes = tuple(dict.fromkeys((*first.notes, *again.notes)))
    return again.model_copy(update={"tokens": tokens, "ms": Timings(route=first.ms.route, **ms), "notes": notes})


# --- LangChain's chunks ---------------------------------------------------------------------------


class Answer:
    """One answer in progress; makes a chunk of each item, in order."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._called = False

    def chunk(self, item: Item) -> AIMessageChunk:
        """The item as a chunk; the record is the last one."""
        if isinstance(item, str):
            return AIMessageChunk(content=item)
        if isinstance(item, Call):
            self._called = self._called or isinstance(item.call, ToolCall)
            return AIMessageChunk(content="", tool_call_chunks=[_call(item)])
        if isinstance(item, Placeholder):
            return AIMessageChunk(content=item.text, additional_kwargs={PLACEHOLDER: True})
        return AIMessageChunk(
            content="",
            usage_metadata=usage(item),
            response_metadata=response_metadata(item, self._model_name, called=self._called),
            chunk_position="last",
        )


def _call(call: Call) -> Any:
    made = call.call
    arguments = made.arguments if isinstance(made, ToolCall) else _never_an_object(made.text)
    return tool_call_chunk(name=made.name, args=arguments, id=call.id, index=call.number)


def _never_an_object(text: str) -> str:
    try:
        return CUT + text if parse_partial_json(text) is not None else text
    except ValueError:
        return text


def usage(turn: Turn) -> UsageMetadata:
    """Tokens of the turn as LangChain counts them: restored ones are ``cache_read``, newly stored ones
    ``cache_creation``.
    """
    tokens = turn.tokens
    n_input = tokens.restored + tokens.prefilled
    return UsageMetadata(
        input_tokens=n_input,
        output_tokens=tokens.generated,
        total_tokens=n_input + tokens.generated,
        input_token_details=InputTokenDetails(cache_read=tokens.restored, cache_creation=turn.deposited),
    )


def response_metadata(turn: Turn, model_name: str, *, called: bool) -> dict[str, Any]:
    """The rest of the record, as JSON-able values; ``finish_reason`` is ``stop``, ``length`` or ``tool_calls``."""
    kept = {"checkpoint", "deposited", "not_kept", "not_restored"}
    basic = {"decision", "block_id", "exactness", "tokens", "ms", "logits_sha256", "notes"}
    record = turn.model_dump(mode="json", include=basic | kept)
    finish = "length" if turn.finish == "length" else "tool_calls" if called else "stop"
    return {"model_name": model_name, "model_provider": "agentkv", "finish_reason": finish, "agentkv": record}
