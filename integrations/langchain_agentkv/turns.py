"""One turn, run in one thread from its beginning to its end: text as it comes, calls when they are whole, the record.

The engine's lock belongs to the thread that took it, and is re-entrant. A stream whose pieces were fetched by several
threads (LangChain's default ``_astream`` does that) would wait for itself, and two streams read alternately by one
thread would write into one another's context. So whoever reads a stream here is never the one who runs it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass

from langchain_core.runnables.config import run_in_executor

from agentkv import AgentMemory
from agentkv.engine.base import Cancellation
from agentkv.engine.calls import BrokenCall, CallReader, Part
from agentkv.engine.tools import ToolCall
from agentkv.errors import Cancelled
from agentkv.hashing import tagged_digest
from agentkv.memory import Pick
from agentkv.records import Turn
from langchain_agentkv import tools
from langchain_agentkv.executor import in_executor
from langchain_agentkv.messages import Conversation
from langchain_agentkv.settings import CallSettings


@dataclass(frozen=True)
class Call:
    """A call in an answer: its ``number`` there, an ``id`` that no other call of the conversation has, the call."""

    number: int
    id: str
    said: ToolCall | BrokenCall


Item = str | Call | Turn


@dataclass(frozen=True)
class Request:
    """Everything that a turn needs. Its methods give text and calls in pieces, and the record as the last item."""

    memory: AgentMemory
    conversation: Conversation
    settings: CallSettings

    def run(self, cancellation: Cancellation) -> Generator[Item, None, None]:
        """Run in this thread, which has to read to the end or close the iterator.

        The decision is made here and not in :class:`AgentMemory`, so that its question is the conversation's.
        """
        memory, wanted = self.memory, self.settings
        form = memory.call_form
        reader = CallReader(form, tools.bare_callable(wanted)) if tools.calls_wanted(wanted) else None
        parts = _Parts(self._call_id)
        with memory.engine.lock:
            if cancellation.requested:
                raise Cancelled("waiting for the engine")
            grammar = tools.grammar(memory.engine, form, wanted)
            routed = memory.route(self.conversation.question) if isinstance(wanted.skill, Pick) else None
            pieces = memory.stream(
                self.conversation.messages,
                skill=wanted.skill if routed is None else routed.pick,
                max_new=wanted.max_new,
                sampling=wanted.sampling,
                stop=wanted.stop,
                grammar=grammar,
                cancellation=cancellation,
                system=self._system,
                tools=wanted.tools,
                keep=self._keep,
            )
            for piece in pieces:
                if isinstance(piece, Turn):
                    yield from parts.items(reader.finish() if reader else [])
                    ms = piece.ms if routed is None else piece.ms.model_copy(update={"route": routed.ms})
                    decision = routed or wanted.decision or piece.decision
                    yield piece.model_copy(update={"decision": decision, "ms": ms})
                else:
                    yield from parts.items(reader.feed(piece) if reader else [piece])

    @property
    def _system(self) -> str:
        """What follows the memory's prefix: the agent's text, and the schema of the answer."""
        prefix, said = self.memory.prefix, self.conversation.system
        texts = ["" if said == prefix.strip() else said, tools.answer_teaching(self.settings)]
        texts = [text for text in texts if text]
        before = "" if not texts or not prefix or prefix.endswith("\n") else "\n\n"
        return before + "".join(f"{text}\n\n" for text in texts)

    @property
    def _keep(self) -> bool:
        """Whether to keep the state: if not told, where more calls with the same beginning can be expected."""
        if self.settings.keep is not None:
            return self.settings.keep
        return bool(self.conversation.system or self.settings.tools or self.conversation.goes_on)

    def _call_id(self, number: int) -> str:
        """The same for the same request, so that two runs of it can be compared."""
        said = [
            [m.role, m.content, [[call.name, call.arguments] for call in m.calls]] for m in self.conversation.messages
        ]
        digest = tagged_digest("langchain-call/1", self.conversation.system, said, number)
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
    """An answer's parts as items: calls numbered, text without the white space around the whole.

    White space is held back until more text follows it.
    """

    def __init__(self, call_id: Callable[[int], str]) -> None:
        self._call_id, self._calls = call_id, 0
        self._begun, self._held = False, ""

    def items(self, parts: Iterable[Part]) -> Generator[Item, None, None]:
        """What may be shown now."""
        for part in parts:
            if not isinstance(part, str):
                yield Call(self._calls, self._call_id(self._calls), part)
                self._calls += 1
            elif shown := self._shown(part):
                yield shown

    def _shown(self, piece: str) -> str:
        text = self._held + piece
        if not self._begun:
            text = text.lstrip()
        shown = text.rstrip()
        self._begun, self._held = self._begun or bool(shown), text[len(shown) :]
        return shown
