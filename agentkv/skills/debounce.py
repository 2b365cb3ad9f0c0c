"""When to look at a place that keeps changing: after a quiet moment, but never later than a bound. Pure; no threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Debounce(Generic[Key]):
    """Each key is due ``quiet_s`` after it was touched last, or ``longest_s`` after it was touched first."""

    def __init__(self, quiet_s: float, longest_s: float, clock: Callable[[], float]) -> None:
        self._quiet, self._longest, self._clock = quiet_s, longest_s, clock
        self._touched: dict[Key, tuple[float, float]] = {}

    def touch(self, key: Key) -> None:
        """Something happened at ``key``."""
        now = self._clock()
        first, _ = self._touched.get(key, (now, now))
        self._touched[key] = (first, now)

    def take_due(self) -> list[Key]:
        """The keys that are due, which are forgotten by that."""
        now = self._clock()
        due = [key for key in self._touched if self._due(key) <= now]
        for key in due:
            del self._touched[key]
        return due

    def wait_s(self) -> float | None:
        """How long until the next key is due; None if none is waiting."""
        due: Iterable[float] = [self._due(key) for key in self._touched]
        return max(0.0, min(due) - self._clock()) if self._touched else None

    def __iter__(self) -> Iterator[Key]:
        """What is waiting."""
        return iter(list(self._touched))

    def __len__(self) -> int:
        return len(self._touched)

    def _due(self, key: Key) -> float:
        first, last = self._touched[key]
        return min(last + self._quiet, first + self._longest)
