"""What a sync's deposits have made go, to keep to the store's budget. Knows the store's own list of that, and names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from agentkv.skills.report import SkillEvent
from agentkv.store.budget import Victim
from agentkv.store.catalog import BlockStore


class Evictions:
    """What has gone from ``store`` for deposits made through this object of it, since this was made.

    The store's list is read and left as it is; somebody else may clear it.
    """

    def __init__(self, store: BlockStore) -> None:
        self._store, self._seen = store, len(store.evicted)
        self._victims: list[Victim] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The names that went, in order; what had none (cards, prefixes, old versions) is left out."""
        return tuple(name for victim in self._victims for name in victim.names)

    def bytes_of(self, names: Collection[str]) -> int:
        """What the blocks of these names freed as they went."""
        return sum(victim.bytes for victim in self._victims if not set(names).isdisjoint(victim.names))

    def look(self, sources: Mapping[str, Path]) -> list[SkillEvent]:
        """One event for each name that went since the last look. ``sources``: the folders of known names."""
        there = self._store.evicted
        new = there[self._seen if self._seen <= len(there) else 0 :]
        self._seen = len(there)
        self._victims += new
        return [
            SkillEvent("evicted", name, sources.get(name), reason="to keep to the store's budget")
            for victim in new
            for name in victim.names
        ]
