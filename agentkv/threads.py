"""Threads: conversations that outlive the process, with their messages in the store beside their states.

A thread is a log of turns, and its state a chain of checkpoints that is found by ids: nothing ties the two, so a
checkpoint that was evicted or damaged is read again, and two threads that began alike share what they have in common.
Going back adds to the log and takes nothing away. Knows a memory's ``ask`` and ``stream``; refuses to know how a state
is found. Not guaranteed: that a turn whose answer was given is in the log, if the process ends before ``ask`` returns.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from agentkv.engine.prompt import Message
from agentkv.errors import CorruptThread, ThreadChanged, UnknownThread, UsageError
from agentkv.records import ThreadEntry, Turn
from agentkv.router.routing import Pick, Within
from agentkv.store.catalog import BlockStore
from agentkv.store.threadlog import ThreadLog, thread_names

if TYPE_CHECKING:
    from agentkv.memory import AgentMemory


class Same(Enum):
    """A value of ``skill`` in a thread."""

    SKILL = "same"
    """The skill of the turn before; in the first turn, whatever the router picks."""


class Transcript:
    """What was said in a thread, as it was when this object was opened. No model is needed to look at it or go back.

    ``entry``: go on from that entry of the log, where the newest is damaged, say. Raises CorruptThread.
    """

    def __init__(self, store: BlockStore, thread_id: str, entry: int | None = None) -> None:
        self._store = store
        self._log = ThreadLog(store.files, thread_id)
        numbers = self._log.numbers()
        self._seen = numbers[-1] if numbers else 0
        self._head = self._seen if entry is None else entry
        self._turns = self._log.way_to(self._head)

    def _opened(self, thread_id: str) -> Self:
        """Another thread of the same store."""
        return type(self)(self._store, thread_id)

    @property
    def thread_id(self) -> str:
        """The thread's name."""
        return self._log.thread_id

    @property
    def turns(self) -> tuple[ThreadEntry, ...]:
        """The turns of this conversation, from the first on, without what was rewound."""
        return tuple(self._turns)

    @property
    def messages(self) -> list[Message]:
        """The same as messages."""
        said: list[Message] = []
        for turn in self._turns:
            said += [Message("user", turn.question or ""), Message("assistant", turn.answer or "")]
        return said

    @property
    def history(self) -> list[ThreadEntry]:
        """Every entry that was ever written, what was rewound too. Raises CorruptThread."""
        return [self._log.read(seq) for seq in self._log.numbers()]

    def fork(self, thread_id: str, *, at: int | None = None) -> Self:
        """A new thread that begins with the first ``at`` turns of this one (None: all); this one stays as it is.

        Nothing is evaluated: the two share their checkpoints. Raises UsageError if there is such a thread already.
        """
        kept = self._turns[: self._turn_number(at)]
        other = ThreadLog(self._store.files, thread_id)
        if other.numbers():
            raise UsageError(f"there is a thread {thread_id!r} already; choose another name")
        before = 0
        if not kept:
            other.append(_entry(thread_id, 0))
        for turn in kept:
            said = {"thread_id": thread_id, "seq": before + 1, "after": before}
            before = other.append(turn.model_copy(update=said)).seq
        return self._opened(thread_id)

    def rewind(self, to: int) -> None:
        """Go back to behind turn ``to`` (0: the beginning). What came after it stays in the log, see :meth:`resume`.

        Raises ThreadChanged, UsageError.
        """
        to = self._turn_number(to)
        self._move(self._turns[to - 1].seq if to else 0)

    def resume(self, seq: int) -> None:
        """Go to an entry of :attr:`history`, rewound or not, and go on from there. Raises CorruptThread."""
        self._move(seq)

    def _move(self, seq: int) -> None:
        self._require_newest()
        turns = self._log.way_to(seq)
        entry = self._log.append(_entry(self.thread_id, seq))
        self._seen = self._head = entry.seq
        self._turns = turns

    def _require_newest(self) -> None:
        numbers = self._log.numbers()
        if (numbers[-1] if numbers else 0) != self._seen:
            raise ThreadChanged(self.thread_id)

    def _turn_number(self, at: int | None) -> int:
        at = len(self._turns) if at is None else at
        if not 0 <= at <= len(self._turns):
            raise UsageError(f"thread {self.thread_id!r} has {len(self._turns)} turns; {at} is none of them")
        return at


class Thread(Transcript):
    """One conversation of a memory; made by :meth:`agentkv.AgentMemory.thread`, which also begins a new one.

    >>> from agentkv import AgentMemory, FakeEngine
    >>> import tempfile
    >>> engine = FakeEngine(replies=lambda prompt: "Ann" if "Ann" in prompt else "I do not know")
    >>> memory = AgentMemory(tempfile.mkdtemp(), engine)
    >>> thread = memory.thread("visitor 7")
    >>> _ = thread.ask("I am Ann.", skill=None)
    >>> again = AgentMemory(memory.store.root, engine).thread("visitor 7")
    >>> turn = again.ask("Who am I?")
    >>> turn.text, turn.tokens.restored > turn.tokens.prefilled, len(again.turns)
    ('Ann', True, 2)
    """

    def __init__(self, memory: AgentMemory, thread_id: str, entry: int | None = None) -> None:
        super().__init__(memory.store, thread_id, entry)
        self._memory = memory

    def _opened(self, thread_id: str) -> Self:
        return type(self)(self._memory, thread_id)

    def ask(self, text: str, *, skill: str | Pick | Within | Same | None = Same.SKILL, **how: Any) -> Turn:
        """Answer behind everything said before, and keep both; ``how`` as for :meth:`agentkv.AgentMemory.ask`.

        With another ``skill`` than before the conversation is read once more behind that manual, and kept there too.
        Raises ThreadChanged before anything is evaluated, whatever ``ask`` raises, and StoreFull if the turn cannot be
        written down; then the thread is as it was.
        """
        *_, turn = self.stream(text, skill=skill, **how)
        assert isinstance(turn, Turn)
        return turn

    def stream(
        self, text: str, *, skill: str | Pick | Within | Same | None = Same.SKILL, **how: Any
    ) -> Iterator[str | Turn]:
        """Like :meth:`ask`, as pieces of whole characters while they come; the last item is the record.

        A stream that is not read to its end leaves the thread as it was.
        """
        self._require_newest()
        _entry(self.thread_id, self._head)  # a name that cannot be kept costs no answer, nor does such a text
        if text.encode(errors="replace").decode() != text:
            raise UsageError("the question holds text that is no valid Unicode")
        wanted = self._skill(skill)
        messages = [*self.messages, Message("user", text)]
        settings = {"keep": True, "conversation": self.thread_id, **how}
        for item in self._memory.stream(messages, skill=wanted, **settings):
            if isinstance(item, Turn):
                self._append(text, item)
            yield item

    def _skill(self, skill: str | Pick | Within | Same | None) -> str | Pick | Within | None:
        if not isinstance(skill, Same):
            return skill
        return self._turns[-1].skill if self._turns else Pick.ROUTE

    def _append(self, question: str, turn: Turn) -> None:
        said = {"question": question, "answer": turn.text, "skill": turn.decision.pick}
        entry = _entry(self.thread_id, self._head, **said, finish=turn.finish, checkpoint=turn.checkpoint)
        entry = self._log.append(entry)
        self._seen = self._head = entry.seq
        self._turns.append(entry)


def _entry(thread_id: str, after: int, **said: Any) -> ThreadEntry:
    """An entry behind ``after``; its number is found when it is written."""
    nothing = dict.fromkeys(("question", "answer", "skill", "finish", "checkpoint"))
    try:
        return ThreadEntry.model_validate({**nothing, **said, "thread_id": thread_id, "seq": after + 1, "after": after})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{first['loc'][0]} of a turn in thread {thread_id[:40]!r}: {first['msg']}") from error


def names(store: BlockStore) -> list[str]:
    """The threads of a store, sorted."""
    return thread_names(store.files)


def require(store: BlockStore, thread_id: str) -> None:
    """Raise UnknownThread, with the nearest names, if the store has no such thread."""
    if not ThreadLog(store.files, thread_id).numbers():
        raise UnknownThread(thread_id, difflib.get_close_matches(thread_id, names(store), n=3, cutoff=0.5))


def remove(store: BlockStore, thread_id: str) -> int:
    """Delete a thread and the states that no other thread has in its log; how many blocks went. Raises UnknownThread.

    Of a state that another block stands behind, the ids stay with that block: they are the beginning of its own text.
    """
    require(store, thread_id)
    own = _checkpoints(store, thread_id)
    others = set[str]().union(*(_checkpoints(store, name) for name in names(store) if name != thread_id))
    ThreadLog(store.files, thread_id).remove()
    gone = [block_id for block_id in sorted(own - others) if store.exists(block_id)]
    store.take_away(gone)
    return len(gone)


def _checkpoints(store: BlockStore, thread_id: str) -> set[str]:
    """The states that a thread's log names; of a damaged entry it is not known."""
    log, found = ThreadLog(store.files, thread_id), set[str]()
    for seq in log.numbers():
        with contextlib.suppress(CorruptThread):
            found.add(log.read(seq).checkpoint or "")
    return found - {""}
