"""Who may change a store now: one lock that deposits and readers share and removals hold alone.

Knows two lock files and the kernel's locks on them; the kernel drops those of a dead process, so nothing stale can
stay. The second file is a gate: whoever wants the store alone closes it first, so that a stream of deposits cannot
keep a collection waiting for ever. Not guaranteed: anything where there are no such locks (Windows, some network
mounts); there only the age of a file protects it.
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
    """The lock of one store. Re-entrant in a thread; a thread that shares it cannot ask for it alone."""

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
    def exclusive(self, wait_s: float = WAIT_S) -> Iterator[bool | None]:
        """Be alone in the store: True if so, False if others were there for ``wait_s``, None without locks.

        Raises UsageError on a thread that holds the lock already.
        """
        self.owner.require()
        if self.is_held:
            raise UsageError("this thread is at work in the store; nothing can be removed from within that")
        with contextlib.ExitStack() as held:
            got = self._close_and_lock(held, time.monotonic() + wait_s)
            if got is not False:  # else this thread holds nothing, and what it reads meanwhile has to lock for itself
                held.enter_context(self._counted(alone=got is True))
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
    def alone(self, wait_s: float = WAIT_S) -> Iterator[bool]:
        """Like :meth:`exclusive`, but raises StoreReadError if others are there; False only without locks."""
        with self.exclusive(wait_s) as got:
            if got is False:
                raise StoreReadError(self._lock, "other processes are at work in this store; try again later")
            yield got is True

    @property
    def is_held(self) -> bool:
        """Whether this thread has the lock, shared or alone."""
        return bool(self._depth)

    @property
    def is_alone(self) -> bool:
        """Whether this thread is alone in the store; False where there are no locks."""
        return getattr(self._held, "alone", False)

    @property
    def _depth(self) -> int:
        return getattr(self._held, "depth", 0)

    @contextlib.contextmanager
    def _counted(self, *, alone: bool | None = None) -> Iterator[None]:
        before = self._depth, self.is_alone
        self._held.depth, self._held.alone = before[0] + 1, before[1] if alone is None else alone
        try:
            yield
        finally:
            self._held.depth, self._held.alone = before
