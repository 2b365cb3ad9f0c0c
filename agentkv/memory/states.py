"""States of threads for this engine, where only another one has them: which, and their prefill.

A thread's log belongs to no engine; its states are blocks, found by ids. So without this a thread goes on by a prefill
of all that was said; with it, its next turn restores that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv.blocks.checkpoints import Division, NotKept
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import PROBE_STEPS, check_window
from agentkv.engine.prompt import Message
from agentkv.errors import CorruptThread, IncompatibleFingerprint, StoreError, UnknownSkill, UsageError
from agentkv.memory.fitting import Shown
from agentkv.memory.threads import Transcript, checkpoints, names, note_state
from agentkv.records import ThreadEntry
from agentkv.store.catalog import BlockStore

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory


@dataclass(frozen=True)
class ThreadState:
    """A thread whose newest state, the block ``old``, only another engine has. ``n_tokens``: of that block.

    ``division``: the parts in which this engine prefills it; None as long as it has not the thread's skill.
    """

    thread_id: str
    division: Division | None
    old: str
    n_tokens: int


def lacking_threads(memory: AgentMemory) -> list[ThreadState]:
    """The threads whose newest state in the store is of another engine only. Decodes nothing.

    The prompt is that of a thread without a system text and tools of its own, of which nothing is recorded.
    """
    found = []
    for name in names(memory.store):
        with contextlib.suppress(StoreError, CorruptThread, UnknownSkill):
            turns, old = _newest(memory.store, name)
            summary = memory.store.files.summary(old) if old else None
            if old is None or summary is None or summary.fingerprint_id == memory.blocks.fingerprint.id:
                continue
            division = _division(memory, turns)
            if division is None or (division.pieces and not _is_kept(memory, name, division)):
                found.append(ThreadState(name, division, old, summary.n_tokens))
    return found


def _newest(store: BlockStore, thread_id: str) -> tuple[list[ThreadEntry], str | None]:
    """The turns up to the newest that has a state in the store, and that state; none, if there is none.

    A state that was only noted (:func:`agentkv.memory.threads.note_state`) counts for the whole conversation.
    """
    every = list(Transcript(store, thread_id).turns)
    for n in range(len(every), 0, -1):
        state = every[n - 1].checkpoint
        if state and store.exists(state):
            return every[:n], state
    noted = [state for state in sorted(checkpoints(store, thread_id)) if store.exists(state)]
    return (every, noted[0]) if every and noted else ([], None)


def _division(memory: AgentMemory, turns: Sequence[ThreadEntry]) -> Division | None:
    last = turns[-1]
    messages = Shown(last.left_out, last.summary).messages(turns[:-1], Message("user", last.question or ""))
    with contextlib.suppress(IncompatibleFingerprint):
        return memory._divided(memory.prompt(messages, last.skill), messages)[0]
    return None


def deposit_thread(memory: AgentMemory, state: ThreadState, cancellation: Cancellation | None = None) -> None:
    """Prefill a conversation up to the answer of that state and keep it, so that the next turn restores it.

    Each part is read as its own turn would have read it. The thread's log gets a note of the block, so that it goes
    with the thread. Raises WindowOverflow, InexactBlock, Cancelled, OverBudget, StoreFull, ThreadChanged.
    """
    if state.division is None:
        raise UsageError(f"thread {state.thread_id!r} cannot go on before its skill is deposited for this engine")
    blocks, parts = memory.blocks, state.division.parts
    identity = blocks.ids_of(parts)[-1]
    check_window(0, sum(map(len, parts)), PROBE_STEPS, memory.engine.window)
    if blocks.valid(identity) is None:
        memory.self_test(cancellation)
        with blocks.exclusive():
            done = blocks.restore_longest(parts).parts
            for part in parts[done:]:
                blocks.read(part, cancellation)
            try:
                memory.checkpoints.keep(parts, memory.engine.capture(), cancellation)
            except NotKept as error:
                raise UsageError(f"the state of thread {state.thread_id!r} cannot be kept: {error}") from error
    if identity not in checkpoints(memory.store, state.thread_id):
        note_state(memory.store, state.thread_id, identity)


def _is_kept(memory: AgentMemory, thread_id: str, division: Division) -> bool:
    """Whether this engine has the state, and the thread's log names it."""
    identity = memory.blocks.ids_of(division.parts)[-1]
    return memory.blocks.valid(identity) is not None and identity in checkpoints(memory.store, thread_id)
