"""Objects in RAM, least recently used first out, bounded in bytes.

Knows neither what the objects are nor how large: the caller says, and must not change an object that it has
put. Does not guarantee that an object stays: every ``get`` may miss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentkv.io.forks import OwnedLock

T = TypeVar("T")


@dataclass(frozen=True)
class CacheStats:
    """Counts since the cache was made; ``entries`` and ``bytes`` are what it holds now."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    limit: int


class StateCache(Generic[T]):
    """A thread-safe LRU of immutable objects that holds at most ``limit`` bytes (0: holds nothing).

    >>> cache: StateCache[str] = StateCache(limit=10)
    >>> cache.put("a", "first", 6), cache.put("b", "second", 6)
    (True, True)
    >>> cache.get("a"), cache.get("b")
    (None, 'second')
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"limit is {limit}, must be 0 or more bytes")
        self.limit = limit
        self._lock = OwnedLock("store")
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable) -> T | None:
        """The object, now the most recently used; None if it is not here."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return found[0]

    def peek(self, key: Hashable) -> T | None:
        """The object if it is here; neither a use of it nor counted."""
        with self._lock:
            found = self._entries.get(key)
            return None if found is None else found[0]

    def put(self, key: Hashable, value: T, n_bytes: int) -> bool:
        """Keep ``value``, whose size is ``n_bytes``, dropping the least recently used until it fits.

        False if it is larger than the whole cache: then nothing is kept under ``key``, an older value
        neither.
        """
        with self._lock:
            self._remove(key)
            if n_bytes > self.limit:
                return False
            self._entries[key] = (value, n_bytes)
            self._bytes += n_bytes
            while self._bytes > self.limit:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped
                self._evictions += 1
            return True

    def drop(self, key: Hashable) -> bool:
        """Forget ``key``; whether it was here."""
        with self._lock:
            return self._remove(key)

    def clear(self) -> None:
        """Forget everything; the counts of hits and misses stay."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def stats(self) -> CacheStats:
        """Hits, misses, evictions and what is held now."""
        with self._lock:
            return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), self._bytes, self.limit)

    def _remove(self, key: Hashable) -> bool:
        found = self._entries.pop(key, None)
        if found is None:
            return False
        self._bytes -= found[1]
        return True
