"""Who may change a store now: one lock that deposits and readers share and removals hold alone.

Knows two lock files and the kernel's locks on them; the kernel drops those of a dead process, so nothing stale can
stay. The second file is a gate: whoever wants the store alone closes it first, so that a stream of deposits cannot
keep a collection waiting for ever. Not guaranteed: anything where there are no such locks (Windows, some network
mounts); there only the age of a file protects it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from agentkv import fsio
from agentkv.errors import StoreReadError

LOCK, GATE = "agentkv-store.lock", "agentkv-gate.lock"
WAIT_S = 60.0


class StoreLock:
    """The lock of one store. Re-entrant in a thread; a thread that shares it cannot ask for it alone."""

    def __init__(self, root: Path) -> None:
        self._lock, self._gate = root / LOCK, root / GATE
        self._held = threading.local()

    @contextlib.contextmanager
    def shared(self, wait_s: float = WAIT_S) -> Iterator[None]:
        """Keep removals away. Raises StoreReadError if one is still running after ``wait_s``."""
        if self._depth:
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
        """Be alone in the store: True if so, False if others were there for ``wait_s``, None without locks."""
        if self._depth:
            raise RuntimeError("this thread holds the store's lock already")
        with (
            fsio.file_lock(self._gate, exclusive=True, wait_s=wait_s) as closed,
            fsio.file_lock(self._lock, exclusive=True, wait_s=wait_s if closed is not False else 0) as got,
            self._counted(),
        ):
            yield False if closed is False else got

    @contextlib.contextmanager
    def alone(self, wait_s: float = WAIT_S) -> Iterator[bool]:
        """Like :meth:`exclusive`, but raises StoreReadError if others are there; False only without locks."""
        with self.exclusive(wait_s) as got:
            if got is False:
                raise StoreReadError(self._lock, "other processes are at work in this store; try again later")
            yield got is True

    @property
    def _depth(self) -> int:
        return getattr(self._held, "depth", 0)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._held.depth = self._depth + 1
        try:
            yield
        finally:
            self._held.depth -= 1
