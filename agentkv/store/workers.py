"""Threads for work on many segments at once.

Knows nothing of what the work is. zstd, SHA-256, numpy copies and file reads release the interpreter's lock,
so threads are enough. Does not guarantee an order; work that calls :meth:`Workers.each` itself may wait for
ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from agentkv.io.forks import OwnedLock

T = TypeVar("T")

_MAX_WORKERS = 8


class Workers:
    """A thread pool, started when it is first needed: one thread a CPU, at most 8."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = OwnedLock("store")

    def each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Do ``work`` for every item; an error stops what has not begun, and is raised after the rest."""
        if len(items) < 2:
            for item in items:
                work(item)
            return
        with self._lock:
            if self._pool is None:
                count = min(os.cpu_count() or 1, _MAX_WORKERS)
                self._pool = ThreadPoolExecutor(count, thread_name_prefix="agentkv-store")
            futures = [self._pool.submit(work, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also on Ctrl-C: no thread may go on writing when the caller cleans up
            for future in futures:
                future.cancel()
            wait(futures)
        for future in futures:
            if not future.cancelled():
                future.result()

    def close(self) -> None:
        """End the threads. A later :meth:`each` starts new ones. In a forked child there are none."""
        if not self._lock.owner.is_here:
            return
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
