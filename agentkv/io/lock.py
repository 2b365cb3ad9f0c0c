"""A store's lock: shared by deposits and readers, exclusive for removals, with a writer-preference gate.

Both are kernel locks on files; the kernel drops those of a dead process, so nothing stale can stay. Whoever wants the
exclusive lock closes the gate first, so that a stream of deposits cannot keep a collection waiting for ever. Not
guaranteed: anything where there are no such locks (Windows, some network mounts); there only a file's age protects it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agentkv.errors import StoreReadError, UsageError
from agentkv.io import fsio
from agentkv.io.forks import Owner

LOCK, GATE = "agentkv-store.lock", "agentkv-gate.lock"
WAIT_S = 60.0
_CLOSED_S, _OPEN_S = 1.0, 0.1
"""How long the gate stays closed at first for somebody who waits, and then open: a long deposit must not keep readers
out. It is closed for twice as long each time, so that many long deposits keep nobody waiting for ever either."""


class StoreLock:
    """The lock of one store. Re-entrant in a thread; a thread that holds it shared cannot make it exclusive."""

    def __init__(self, root: Path) -> None:
        self._lock, self._gate = root / LOCK, root / GATE
        self._held = threading.local()
        self.owner = Owner("store")

    @contextlib.contextmanager
    def shared(self, wait_s: float = WAIT_S) -> Iterator[None]:
        """Keep removals away. Raises StoreReadError if one is still running after ``wait_s``."""
        self.owner.require()
        if self.is_held:
            with self._counted():
                yield
            return
        with contextlib.ExitStack() as held:
            with fsio.file_lock(self._gate, exclusive=False, wait_s=wait_s) as passed:
                got = held.enter_context(fsio.file_lock(self._lock, exclusive=False, wait_s=wait_s))
            if passed is False or got is False:
                raise StoreReadError(self._lock, "another process is removing things; try again later")
            held.enter_context(self._counted())
            yield

    @contextlib.contextmanager
    def try_exclusive(self, wait_s: float = WAIT_S) -> Iterator[bool | None]:
        """Hold the lock exclusively: True if so, False if others held it for ``wait_s`` seconds, None without locks.

        Raises UsageError on a thread that holds the lock already.
        """
        self.owner.require()
        if self.is_held:
            raise UsageError("this thread is at work in the store; nothing can be removed from within that")
        with contextlib.ExitStack() as held:
            got = self._close_and_lock(held, time.monotonic() + wait_s)
            if got is not False:  # else this thread holds nothing, and what it reads meanwhile has to lock for itself
                held.enter_context(self._counted(exclusive=got is True))
            yield got

    def _close_and_lock(self, held: contextlib.ExitStack, until: float) -> bool | None:
        """Close the gate and wait for those who are in; open it now and then for those who wait outside."""
        closed_s = _CLOSED_S
        while True:
            with contextlib.ExitStack() as attempt:
                left = max(0.0, until - time.monotonic())
                closed = attempt.enter_context(fsio.file_lock(self._gate, exclusive=True, wait_s=left))
                if closed is False:
                    return False
                left = min(closed_s, max(0.0, until - time.monotonic()))
                got = attempt.enter_context(fsio.file_lock(self._lock, exclusive=True, wait_s=left))
                if got is not False:
                    held.push(attempt.pop_all())
                    return got
            if time.monotonic() >= until:
                return False
            closed_s *= 2
            time.sleep(_OPEN_S)

    @contextlib.contextmanager
    def exclusive(self, wait_s: float = WAIT_S) -> Iterator[bool]:
        """Like :meth:`try_exclusive`, but raises StoreReadError if others hold it; False only without locks."""
        with self.try_exclusive(wait_s) as got:
            if got is False:
                raise StoreReadError(self._lock, "other processes are at work in this store; try again later")
            yield got is True

    @property
    def is_held(self) -> bool:
        """Whether this thread holds the lock, shared or exclusive."""
        return bool(self._depth)

    @property
    def is_exclusive(self) -> bool:
        """Whether this thread holds the lock exclusively; False where there are no locks."""
        return getattr(self._held, "exclusive", False)

    @property
    def _depth(self) -> int:
        return getattr(self._held, "depth", 0)

    @contextlib.contextmanager
    def _counted(self, *, exclusive: bool | None = None) -> Iterator[None]:
        before = self._depth, self.is_exclusive
        self._held.depth, self._held.exclusive = before[0] + 1, before[1] if exclusive is None else exclusive
        try:
            yield
        finally:
            self._held.depth, self._held.exclusive = before
