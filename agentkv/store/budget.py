"""Which blocks go when a store is over its budget: the least recently used first, children before parents.

Knows sizes, uses, pins and parents. A block counts with its manifest and with those segments that no other block
needs; its parents stay as long as it does, because it cannot be read without them. Never goes: a pinned block, a
parent of one, and what a deposit under way has just added. With a block go the names that point at it.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from agentkv.errors import StoreError
from agentkv.store import gc
from agentkv.store.files import StoreFiles
from agentkv.store.format import Summary, name_key
from agentkv.store.uses import Use, Uses


@dataclass(frozen=True)
class Victim:
    """A block that goes. ``last``: its last use, or its deposit, in seconds since 1970; ``bytes``: what that frees."""

    block_id: str
    names: tuple[str, ...]
    last: float
    hits: int
    bytes: int


@dataclass(frozen=True)
class Eviction:
    """What goes, in order, to get from ``stored`` bytes within ``budget``. ``kept``: bytes that cannot go."""

    victims: tuple[Victim, ...]
    stored: int
    budget: int
    kept: int

    @property
    def left(self) -> int:
        """Bytes that stay."""
        return self.stored - sum(victim.bytes for victim in self.victims)

    @property
    def fits(self) -> bool:
        """Whether that is enough."""
        return self.left <= self.budget


def stored_bytes(files: StoreFiles) -> int:
    """Bytes of all segments and manifests: what a budget bounds."""
    return sum(n_bytes for folder in (files.manifests.sizes(), files.segments.all()) for _, n_bytes in folder)


def plan(files: StoreFiles, uses: Uses, budget: int, protected: Collection[str] = ()) -> Eviction:
    """What would go. Raises CorruptBlock, StoreReadError: a store that cannot be read whole is not evicted from."""
    return _Plan(files, uses, protected).until(budget)


def evict(files: StoreFiles, uses: Uses, eviction: Eviction) -> None:
    """Carry a plan out; the caller holds the lock alone since it was made. A crash leaves whole blocks only."""
    gone = [victim.block_id for victim in eviction.victims]
    take_away(files, gone)
    uses.forget(gone)


def take_away(files: StoreFiles, block_ids: Sequence[str]) -> None:
    """Remove blocks, in this order, with the segments that no other needs; the caller holds the lock alone."""
    intent = gc.Intent(files)
    if files.lock.is_alone:  # else a deposit may be about to use a segment, and only their age protects them
        with contextlib.suppress(StoreError):  # a full disk must not keep anybody from making room
            intent.declare({digest for block_id in block_ids for digest in _segments_of(files, block_id)})
    try:
        for block_id in block_ids:
            remove(files, block_id)
        if files.lock.is_alone:
            needed = files.referenced()
            for digest in [digest for digest, _ in files.segments.all() if digest not in needed]:
                files.segments.remove(digest)
    except BaseException:
        with contextlib.suppress(StoreError):  # what is half gone goes now, or the intent stays for the next to come
            gc.remove_unneeded(files, intent.digests)
            intent.forget()
        raise
    intent.forget()


def _segments_of(files: StoreFiles, block_id: str) -> Collection[str]:
    summary = files.summary(block_id)
    return summary.segments if summary else ()


def remove(files: StoreFiles, block_id: str) -> bool:
    """Take a block's names, marks and manifest away, in this order; False if there was no manifest."""
    for named in files.names.all(on_error=lambda _: None):
        if named.block_id == block_id:
            files.names.remove(name_key(named.kind, named.name, named.fingerprint_id))
    files.pins.remove(block_id)
    files.imports.remove(block_id)
    return files.manifests.remove(block_id)


class _Plan:
    def __init__(self, files: StoreFiles, uses: Uses, protected: Collection[str]) -> None:
        self._blocks: dict[str, Summary] = dict(files.summaries())
        self._sizes = dict(files.segments.all())
        self._users = Counter(digest for block in self._blocks.values() for digest in block.segments)
        self._children = Counter(block.parent_id for block in self._blocks.values() if block.parent_id)
        self._names: dict[str, list[str]] = {}
        for named in files.names.all(on_error=lambda _: None):
            self._names.setdefault(named.block_id, []).append(named.name)
        noted = uses.all()
        self._uses = {block_id: noted.get(block_id, Use(0, 0.0)) for block_id in self._blocks}
        self._deposited = {block_id: files.manifests.written_at(block_id) for block_id in self._blocks}
        self._kept = self._with_parents([*protected, *files.pins.digests()])

    def until(self, budget: int) -> Eviction:
        # What no block needs does not count: it goes before any block does.
        stored = self._bytes_of(self._blocks)
        kept = self._bytes_of(self._kept)
        left, victims = stored, []
        heap = [(self._last(block_id), block_id) for block_id in self._blocks if self._may_go(block_id)]
        heapq.heapify(heap)
        while left > budget and heap:
            last, block_id = heapq.heappop(heap)
            block = self._blocks[block_id]
            freed = block.file_bytes
            for digest in block.segments:
                self._users[digest] -= 1
                if not self._users[digest]:
                    freed += self._sizes.get(digest, 0)
            left -= freed
            names = tuple(sorted(self._names.get(block_id, [])))
            victims.append(Victim(block_id, names, last, self._uses[block_id].hits, freed))
            parent = block.parent_id
            if parent in self._blocks:
                self._children[parent] -= 1
                if self._may_go(parent):
                    heapq.heappush(heap, (self._last(parent), parent))
        return Eviction(tuple(victims), stored, budget, kept)

    def _may_go(self, block_id: str) -> bool:
        return not self._children[block_id] and block_id not in self._kept

    def _last(self, block_id: str) -> float:
        return max(self._uses[block_id].last, self._deposited[block_id])

    def _with_parents(self, block_ids: Collection[str]) -> set[str]:
        found: set[str] = set()
        for start in block_ids:
            here: str | None = start
            while here is not None and here in self._blocks and here not in found:
                found.add(here)
                here = self._blocks[here].parent_id
        return found

    def _bytes_of(self, block_ids: Collection[str]) -> int:
        segments = {digest for block_id in block_ids for digest in self._blocks[block_id].segments}
        manifests = sum(self._blocks[block_id].file_bytes for block_id in block_ids)
        return manifests + sum(self._sizes.get(digest, 0) for digest in segments)
