"""Threads: conversations that outlive the process, with their messages in the store beside their states.

A thread is a log of turns, and its state a chain of checkpoints that is found by ids: nothing ties the two, so a
checkpoint that was evicted or is corrupt is prefilled again, and two threads that began alike share what they have in
common. Going back adds to the log and takes nothing away. Not guaranteed: that a turn whose answer was given is in the
log, if the process ends before ``ask`` returns.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Any, Self, Unpack

from pydantic import ValidationError

from agentkv.engine.prompt import Message
from agentkv.errors import CorruptThread, StoreError, ThreadChanged, UnknownThread, UsageError, WindowOverflow
from agentkv.io.forks import Shared
from agentkv.memory.fitting import Memory, Shown, Trimming, left_out_note, spoken
from agentkv.memory.options import POLICIES, TurnOptions, TurnSettings, WhenFull
from agentkv.memory.threadlog import EMPTY, ThreadLog, thread_names
from agentkv.notices import warn
from agentkv.records import ThreadEntry, Turn
from agentkv.router.routing import ROUTE, Pick
from agentkv.store.catalog import BlockStore


class Transcript:
    """The messages of a thread, as they were when this object was opened. No model is needed to look at them or go
    back.

    ``entry``: go on from that entry of the log, where the newest is corrupt, say. Raises CorruptThread.
    """

    def __init__(self, store: BlockStore, thread_id: str, entry: int | None = None) -> None:
        self._store = store
        self._log = ThreadLog(store.files, thread_id)
        self._newest = self._log.head()
        self._head = self._newest[0] if entry is None else entry
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
        return spoken(self._turns)

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
        copies = [turn.model_copy(update={"thread_id": thread_id, "after": n}) for n, turn in enumerate(kept)]
        head = EMPTY
        for copy in copies or [_entry(thread_id, 0)]:
            try:
                _, head = other.append(copy, head)
            except ThreadChanged as error:
                raise UsageError(f"there is a thread {thread_id!r} already; choose another name") from error
        return self._opened(thread_id)

    def rewind(self, to: int) -> None:
        """Go back to just after turn ``to`` (0: the beginning). What came after it stays in the log, see
        :meth:`resume`.

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
        self._append(_entry(self.thread_id, seq))
        self._turns = turns

    def _append(self, entry: ThreadEntry) -> ThreadEntry:
        entry, self._newest = self._log.append(entry, self._newest)
        self._head = entry.seq
        return entry

    def _require_newest(self) -> None:
        if self._log.head() != self._newest:
            raise ThreadChanged(self.thread_id)

    def _turn_number(self, at: int | None) -> int:
        at = len(self._turns) if at is None else at
        if not 0 <= at <= len(self._turns):
            raise UsageError(f"thread {self.thread_id!r} has {len(self._turns)} turns; {at} is out of range")
        return at


class Thread(Shared, Transcript):
    """One conversation of a memory; made by :meth:`agentkv.AgentMemory.thread`, which also begins a new one.

    ``entry``: the number of the log entry to go on from, from 1; None for the newest.

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

    def __init__(
        self, memory: Memory, thread_id: str, entry: int | None = None, when_full: WhenFull = "refuse"
    ) -> None:
        if when_full not in POLICIES:
            raise UsageError(f"when_full is {when_full!r}; it takes {', '.join(POLICIES)}")
        super().__init__(memory.store, thread_id, entry)
        self._memory, self._when_full = memory, when_full

    def _opened(self, thread_id: str) -> Self:
        return type(self)(self._memory, thread_id, when_full=self._when_full)

    def ask(self, text: str, **options: Unpack[TurnOptions]) -> Turn:
        """Answer after everything said before, and keep both; the options are those of :class:`~agentkv.TurnOptions`.

        With another ``skill`` than before the conversation is prefilled once more on top of that manual, and kept there
        too. Raises ThreadChanged and, for a store that cannot be written, StoreReadError before anything is evaluated,
        and whatever :meth:`agentkv.AgentMemory.ask` raises. If another has gone on with the thread meanwhile, or the
        turn cannot be written down, the ThreadChanged, StoreFull or StoreReadError has the answer in hand, as ``turn``.
        The thread is as it was then.
        """
        *_, turn = self.stream(text, **options)
        assert isinstance(turn, Turn)
        return turn

    def stream(self, text: str, **options: Unpack[TurnOptions]) -> Iterator[str | Turn]:
        """Like :meth:`ask`, as pieces of whole characters while they come; the last item is the record.

        A stream that is not read to its end leaves the thread as it was.
        """
        # 1. Refuse what could not be written down: it costs no answer.
        self._require_newest()
        _entry(self.thread_id, self._head)
        if text.encode(errors="replace").decode() != text:
            raise UsageError("the question holds text that is not valid Unicode")
        self._log.require_writable()
        # 2. Answer, after less of the conversation where it does not fit; that is known before anything is decoded.
        question, when_full = Message("user", text), TurnSettings(**options).when_full
        if "when_full" not in options:
            when_full = self._when_full
        if not {"skill", "within", "decision"} & set(options):
            options["skill"] = self._skill()
        turn_options: TurnOptions = {"keep": True, "conversation": self.thread_id, **options, "when_full": "refuse"}
        shown, why, has_begun = self._shown(when_full), None, False
        while True:
            try:
                for item in self._memory.stream(shown.messages(self._turns, question), **turn_options):
                    has_begun = True
                    yield self._kept(text, item, shown, why) if isinstance(item, Turn) else item
                return
            except WindowOverflow as overflow:
                if has_begun or when_full == "refuse":
                    raise
                trimming = Trimming(self._memory, self._turns, question, overflow, turn_options)
                if when_full == "summarise":
                    shown, why = trimming.summarise(shown)
                else:
                    shown = trimming.keep_last(shown)

    def _shown(self, when_full: WhenFull) -> Shown:
        """What the turn before was shown; with ``refuse`` always everything."""
        if when_full == "refuse" or not self._turns:
            return Shown()
        return Shown(self._turns[-1].left_out, self._turns[-1].summary)

    def _skill(self) -> str | Pick | None:
        """The skill of the turn before; ROUTE in the first, and after a turn without skills that are stored now."""
        return ROUTE if not self._turns or self._turns[-1].lacking else self._turns[-1].skill

    def _kept(self, question: str, turn: Turn, shown: Shown, why: str | None) -> Turn:
        """Write a turn down; its record, with what was left out. Raises ThreadChanged and others with the turn."""
        if shown.left_out:
            note = left_out_note(self.thread_id, shown, self._memory.engine.window, why)
            turn = turn.model_copy(update={"notes": (*turn.notes, note)})
            warn(note)
        pick = turn.decision.pick
        lacking = pick is None and bool(turn.decision.left_out)
        entry = _entry(
            self.thread_id,
            self._head,
            question=question,
            answer=turn.text,
            skill=pick,
            lacking=lacking,
            **vars(shown),
            finish=turn.finish,
            checkpoint=turn.checkpoint,
        )
        try:
            self._turns.append(self._append(entry))
        except ThreadChanged as error:
            raise ThreadChanged(self.thread_id, turn) from error
        except StoreError as error:
            error.turn = turn
            raise
        return turn


def _entry(thread_id: str, after: int, **fields: Any) -> ThreadEntry:
    """An entry that follows ``after``; its number is found when it is written."""
    nothing = dict.fromkeys(("question", "answer", "skill", "finish", "checkpoint"))
    try:
        return ThreadEntry.model_validate(
            {**nothing, **fields, "thread_id": thread_id, "seq": after + 1, "after": after}
        )
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


def note_state(store: BlockStore, thread_id: str, block_id: str) -> None:
    """Write down that a thread's last turn has a state in another block too, so that it goes with the thread.

    The entry is a move to where the thread is: nothing of the conversation changes. Raises ThreadChanged.
    """
    log = ThreadLog(store.files, thread_id)
    head = log.head()
    log.append(_entry(thread_id, head[0], checkpoint=block_id), head)


def remove(store: BlockStore, thread_id: str) -> int:
    """Delete a thread and the states that no other thread has in its log; how many blocks went. Raises UnknownThread.

    Of a state that another block follows, the token ids stay with that block: they are the beginning of its own text.
    """
    require(store, thread_id)
    own = checkpoints(store, thread_id)
    others = set[str]().union(*(checkpoints(store, name) for name in names(store) if name != thread_id))
    ThreadLog(store.files, thread_id).remove()
    gone = [block_id for block_id in sorted(own - others) if store.exists(block_id)]
    store.take_away(gone)
    return len(gone)


def checkpoints(store: BlockStore, thread_id: str) -> set[str]:
    """The states that a thread's log names; of a corrupt entry it is not known."""
    log, found = ThreadLog(store.files, thread_id), set[str]()
    for seq in log.numbers():
        with contextlib.suppress(CorruptThread):
            found.add(log.read(seq).checkpoint or "")
    return found - {""}
