"""One turn, run in one thread from its beginning to its end.

The engine's lock belongs to the thread that took it, and is re-entrant. A stream whose pieces were fetched by several
threads (LangChain's default ``_astream`` does that) would wait for itself, and two streams read alternately by one
thread would write into one another's context. So whoever reads a stream here is never the one who runs it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from langchain_core.runnables.config import run_in_executor

from agentkv import AgentMemory
from agentkv.engine.base import Cancellation
from agentkv.errors import Cancelled
from agentkv.memory import Pick
from agentkv.records import Turn
from langchain_agentkv.messages import Conversation
from langchain_agentkv.settings import TurnSettings

Item = str | Turn


@dataclass(frozen=True)
class Request:
    """Everything that a turn needs. Its methods give the text in pieces, and the record as the last item."""

    memory: AgentMemory
    conversation: Conversation
    settings: TurnSettings

    def run(self, cancellation: Cancellation) -> Generator[Item, None, None]:
        """Run in this thread, which has to read to the end or close the iterator. The pieces sum to the record's text.

        The decision is made here and not in :class:`AgentMemory`, which would route the system text too.
        """
        memory, wanted, trimmed = self.memory, self.settings, _Trimmed()
        with memory.engine.lock:
            if cancellation.requested:
                raise Cancelled("waiting for the engine")
            decision = memory.route(self.conversation.question) if isinstance(wanted.skill, Pick) else None
            pieces = memory.stream(
                self.conversation.messages,
                skill=wanted.skill if decision is None else decision.pick,
                max_new=wanted.max_new,
                sampling=wanted.sampling,
                stop=wanted.stop,
                cancellation=cancellation,
            )
            for piece in pieces:
                if isinstance(piece, Turn):
                    ms = piece.ms if decision is None else piece.ms.model_copy(update={"route": decision.ms})
                    yield piece.model_copy(update={"decision": decision or piece.decision, "ms": ms})
                elif shown := trimmed.feed(piece):
                    yield shown

    def answer(self, cancellation: Cancellation) -> Turn:
        """Run in this thread; the record alone."""
        with closing(self.run(cancellation)) as items:
            *_, turn = items
        assert isinstance(turn, Turn)
        return turn

    async def aanswer(self) -> Turn:
        """Run in the default executor; cancelling takes effect there within a token."""
        cancellation = Cancellation()
        try:
            return await run_in_executor(None, self.answer, cancellation)
        finally:
            cancellation.cancel()

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


class _Trimmed:
    """Text as it comes, without the white space around the whole: held back until more text follows it."""

    def __init__(self) -> None:
        self._begun, self._held = False, ""

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        text = self._held + piece
        if not self._begun:
            text = text.lstrip()
        shown = text.rstrip()
        self._begun, self._held = self._begun or bool(shown), text[len(shown) :]
        return shown
