"""Which blocks go when a store is over its budget: the least recently used first, children before parents; before all
others those whose fingerprint was migrated to another one (the store's setting ``superseded``).

A block counts with its manifest and with those segments that no other block needs. It holds its parents' segments too,
so that they could go before it without freeing much; they stay as long as it does. One kind is excepted: a block
without a name that has a parent itself and holds state that no other block holds (an older checkpoint of a
conversation, on a model with a sliding window or a recurrent state) goes when its turn comes, and leaves its ids to its
children. A pinned block, a parent of one, and what a deposit under way has just added never go. With a block go the
names that point at it. What cannot be read or removed is reported and passed over for the next candidate; it counts as
kept, as do unfinished files and the quarantine.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.errors import StoreError, StoreFull
from agentkv.io import fsio
from agentkv.store import gc, indexed, indexplan
from agentkv.store.files import OnError, StoreFiles
from agentkv.store.findings import tree_bytes
from agentkv.store.format import Summary, encode_ancestor, encode_name, name_key
from agentkv.store.indexplan import Asked
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.uses import Use, Uses


@dataclass(frozen=True)
class Victim:
    """A block that goes. ``last``: its last use, or its deposit, in seconds since 1970; ``bytes``: what that frees.

    Where its ids have to stay, ``bytes`` is less by what they take up.
    """

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
    """What a budget bounds: bytes of segments, manifests, ids of evicted parents, unfinished files, the quarantine."""
    known = indexed.stored_bytes(files.index)
    if known is not None:
        return known + _unfreeable_bytes(files)
    folders = (files.manifests.sizes(), files.ancestors.sizes(), files.segments.all())
    return sum(n_bytes for folder in folders for _, n_bytes in folder) + _unfreeable_bytes(files)


def _unfreeable_bytes(files: StoreFiles) -> int:
    """Bytes that no eviction frees: unfinished files and the quarantine."""
    return tree_bytes(files.temporaries) + tree_bytes(files.quarantine)


def plan(
    files: StoreFiles,
    uses: Uses,
    budget: int,
    protected: Collection[str] = (),
    *,
    swept: bool = False,
    on_error: OnError | None = None,
) -> Eviction:
    """What would go. ``swept``: what no block needs was to be removed before, so that what is left of it counts.

    A block that cannot be read counts and stays. Raises CorruptBlock, StoreReadError without ``on_error``.
    """
    asked = Asked(
        budget=budget,
        protected=protected,
        pinned=list(files.pins.digests()),
        superseded=_superseded(files, on_error),
        others=_unfreeable_bytes(files),
        swept=swept,
        ids_bytes=lambda block_id: _ids_bytes(files, block_id),
    )
    planned = indexplan.plan(files.index, uses, asked)
    if planned is None:
        return _Plan(files, uses, protected, swept, on_error).until(budget)
    gone, stored, kept = planned
    victims = tuple(Victim(one.block_id, one.names, one.last, one.hits, one.bytes) for one in gone)
    return Eviction(victims, stored, budget, kept)


def evict(files: StoreFiles, uses: Uses, eviction: Eviction, on_error: OnError | None = None) -> set[str]:
    """Carry out a plan that was made under the same exclusive lock; the ids of blocks that could not be removed.

    A crash leaves whole blocks only.
    """
    stuck = take_away(files, [victim.block_id for victim in eviction.victims], on_error)
    uses.forget(victim.block_id for victim in eviction.victims if victim.block_id not in stuck)
    return stuck


def sweep_unneeded(files: StoreFiles, on_error: OnError | None) -> None:
    """Remove the segments and ids that no block needs, as far as that is known and they can be removed.

    Without the exclusive lock only their age would show that, and nothing is done.
    """
    if not files.lock.is_exclusive:
        return
    needless = indexed.needless(files.index)
    if needless is not None:
        _sweep(files, *needless, on_error)
        return
    unread: list[StoreError] = []
    summaries = files.summaries(None if on_error is None else unread.append)
    needed = {digest for _, summary in summaries for digest in summary.segments}
    if unread:
        return
    with _passed_over(on_error):
        gc.sweep_ancestors(files)
    for digest in [digest for digest, _ in files.segments.all() if digest not in needed]:
        with _passed_over(on_error):
            files.segments.remove(digest)


def _sweep(files: StoreFiles, segments: Sequence[str], ids: Sequence[str], on_error: OnError | None) -> None:
    """Remove these segments, and these ids of evicted blocks."""
    for block_id in ids:
        with _passed_over(on_error):
            files.ancestors.remove(block_id)
    gone = []
    for digest in segments:
        with _passed_over(on_error):
            files.segments.remove(digest)
            gone.append(digest)
    indexed.removed(files.index, gone)


@contextlib.contextmanager
def _passed_over(on_error: OnError | None) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        if on_error is None:
            raise
        on_error(error)


def take_away(files: StoreFiles, block_ids: Sequence[str], on_error: OnError | None = None) -> set[str]:
    """Remove blocks, in this order, with what no other needs; the caller holds the exclusive lock.

    The ids of those that have children stay. What cannot be removed raises, or is passed to ``on_error`` and left: the
    result is the ids of such blocks, which are whole and named as before.
    """
    intent = gc.Intent(files)
    try:
        # 1. what will be unneeded, for whoever opens the store after a crash
        if files.lock.is_exclusive:  # else a deposit may be about to use a segment, and only their age protects them
            with contextlib.suppress(StoreError):  # a full disk must not keep anybody from making room
                intent.declare({digest for block_id in block_ids for digest in _segments_of(files, block_id)})
        # 2. manifests with names and marks
        stuck = _remove_all(files, block_ids, on_error)
        # 3. segments, and ids of blocks that were only parents of these
        sweep_unneeded(files, on_error)
        if on_error is not None and files.lock.is_exclusive:
            _remove_segments(files, intent.digests, on_error)
    except BaseException:
        with contextlib.suppress(StoreError):  # what is half gone goes now, or the intent stays for the next to come
            gc.remove_unneeded(files, intent.digests)
            intent.forget()
        raise
    intent.forget()
    return stuck


def _remove_all(files: StoreFiles, block_ids: Sequence[str], on_error: OnError | None) -> set[str]:
    """Remove manifests with names and marks; the ids of blocks that could not be removed."""
    has_children, removed = _children(files, on_error)
    stuck = set[str]()
    for block_id in block_ids:
        stuck.add(block_id)
        with _passed_over(on_error):
            if has_children(block_id) and not _keep_ids(files, block_id):
                continue
            _remove_or_leave(files, block_id)
            stuck.discard(block_id)
            removed(block_id)
    return stuck


def _children(files: StoreFiles, on_error: OnError | None) -> tuple[Callable[[str], bool], Callable[[str], None]]:
    """Whether a block has children, and what to call when one was removed."""
    if indexed.stored_bytes(files.index) is not None:
        return lambda block_id: bool(files.children(block_id)), lambda _: None
    parents = files.parents(on_error)
    children = Counter(parent for parent in parents.values() if parent)

    def removed(block_id: str) -> None:
        if not children[block_id] and (parent := parents.get(block_id)) is not None:
            children[parent] -= 1

    return lambda block_id: bool(children[block_id]), removed


def _remove_or_leave(files: StoreFiles, block_id: str) -> None:
    """Remove a block, or raise with its names and marks as they were."""
    names = files.names_of(block_id)
    marks: list[tuple[RecordFiles[Any], bytes]] = []
    for folder in (files.pins, files.imports):
        data = fsio.read_regular(folder.path(block_id), files.limits.name_bytes)
        if data is not None:
            marks.append((folder, data))
    try:
        remove(files, block_id)
    except StoreError:
        with contextlib.suppress(StoreError):
            for named in names:
                key = name_key(named.kind, named.name, named.fingerprint_id)
                files.names.write(key, encode_name(named, files.limits))
            for folder, data in marks:
                folder.write(block_id, data)
        raise


def _remove_segments(files: StoreFiles, digests: Collection[str], on_error: OnError) -> None:
    """Remove those of these segments that no block needs that can be read."""
    digests = [digest for digest in digests if files.segments.has(digest)]
    unneeded = indexed.unneeded_of(files.index, sorted(digests)) if digests else []
    if unneeded is None:
        needed = {digest for _, summary in files.summaries(lambda _: None) for digest in summary.segments}
        unneeded = sorted(set(digests) - needed)
    for digest in unneeded:
        with _passed_over(on_error):
            files.segments.remove(digest)


def _keep_ids(files: StoreFiles, block_id: str) -> bool:
    """Write down the ids of a block that is about to go; False if there is no room even for that, and it stays."""
    ancestor = files.ancestor_of(block_id)
    try:
        if ancestor is not None:
            files.ancestors.write(block_id, encode_ancestor(ancestor))
    except StoreFull:
        return False
    return True


def _segments_of(files: StoreFiles, block_id: str) -> Collection[str]:
    summary = files.summary(block_id)
    return summary.segments if summary else ()


def remove(files: StoreFiles, block_id: str) -> bool:
    """Remove a block's names, marks, image and manifest, in this order; False if there was no manifest."""
    for named in files.names_of(block_id):
        files.names.remove(name_key(named.kind, named.name, named.fingerprint_id))
    files.pins.remove(block_id)
    files.imports.remove(block_id)
    files.refused.remove(block_id)
    files.images.remove(block_id)
    return files.manifests.remove(block_id)


def _superseded(files: StoreFiles, on_error: OnError | None) -> frozenset[str]:
    """The fingerprints that were migrated to another one."""
    with _passed_over(on_error or (lambda _: None)):
        return frozenset(files.read_settings().superseded)
    return frozenset()


def _ids_bytes(files: StoreFiles, block_id: str) -> int:
    with contextlib.suppress(StoreError):
        ancestor = files.ancestor_of(block_id)
        return len(encode_ancestor(ancestor)) if ancestor else 0
    return 0


def _of_superseded(files: StoreFiles, blocks: Mapping[str, Summary], on_error: OnError | None) -> set[str]:
    """Those blocks whose fingerprint was migrated to another one; none where the settings cannot be read."""
    superseded = _superseded(files, on_error)
    return {block_id for block_id, summary in blocks.items() if summary.fingerprint_id in superseded}


class _Plan:
    def __init__(
        self, files: StoreFiles, uses: Uses, protected: Collection[str], swept: bool, on_error: OnError | None
    ) -> None:
        self._files = files
        self._blocks: dict[str, Summary] = dict(files.summaries(on_error))
        self._sizes = dict(files.segments.all())
        self._ancestors = dict(files.ancestors.sizes())
        self._parents = files.parents(on_error)
        self._users = Counter(digest for block in self._blocks.values() for digest in block.segments)
        self._names: dict[str, list[str]] = {}
        for named in files.names.all(on_error=lambda _: None):
            self._names.setdefault(named.block_id, []).append(named.name)
        noted = uses.all()
        self._others = self._bytes_of_others(swept)
        self._uses = {block_id: noted.get(block_id, Use(0, 0.0)) for block_id in self._blocks}
        self._deposited = {block_id: files.manifests.written_at(block_id) for block_id in self._blocks}
        self._first = _of_superseded(files, self._blocks, on_error)
        self._pinned = self._with_parents(files.pins.digests()) | set(protected)
        self._kept = self._with_parents([*protected, *files.pins.digests()]) & self._blocks.keys()
        self._gone: set[str] = set()
        self._heap: list[tuple[bool, float, str]] = []
        self._children = Counter(parent for parent in self._parents.values() if parent)
        for block_id in list(self._ancestors):
            if block_id in self._blocks:
                del self._ancestors[block_id]
            elif not self._children[block_id]:
                del self._ancestors[block_id]
                self._release(block_id)

    def until(self, budget: int) -> Eviction:
        """What goes until no more than ``budget`` bytes are left, or nothing more may go."""
        # What no block needs does not count unless it could not be removed: it goes before any block does.
        fixed = sum(self._ancestors.values()) + self._others
        left = stored = self._bytes_of(self._blocks) + fixed
        kept = self._bytes_of(self._kept) + fixed
        victims = []
        while left > budget and (victim := self._take_next()) is not None:
            left -= victim.bytes
            victims.append(victim)
        return Eviction(tuple(victims), stored, budget, kept)

    def _take_next(self) -> Victim | None:
        """Take the least recently used block of those that may go out of the plan; None if none may."""
        while True:
            if not self._heap:  # at first, and when a segment that two blocks shared may have become that of one
                self._heap = self._candidates()
            if not self._heap:
                return None
            _, last, block_id = heapq.heappop(self._heap)
            if block_id not in self._gone:
                break
        parent = self._blocks[block_id].parent_id
        freed = self._take(block_id)
        while parent in self._gone:  # of which only the ids were left
            parent = self._blocks[parent].parent_id
        if parent in self._blocks and self._may_go(parent):
            heapq.heappush(self._heap, self._rank(parent))
        names = tuple(sorted(self._names.get(block_id, [])))
        return Victim(block_id, names, last, self._uses[block_id].hits, freed)

    def _bytes_of_others(self, swept: bool) -> int:
        """What stays whatever goes: unfinished files, the quarantine, blocks that cannot be read."""
        unread = {block_id: size for block_id, size in self._files.manifests.sizes() if block_id not in self._blocks}
        total = _unfreeable_bytes(self._files) + sum(unread.values())
        if unread or swept:
            total += sum(size for digest, size in self._sizes.items() if digest not in self._users)
        return total

    def _candidates(self) -> list[tuple[bool, float, str]]:
        heap = [self._rank(block_id) for block_id in self._blocks if self._may_go(block_id)]
        heapq.heapify(heap)
        return heap

    def _rank(self, block_id: str) -> tuple[bool, float, str]:
        """What goes first: blocks of a superseded fingerprint, then the least recently used."""
        return block_id not in self._first, self._last(block_id), block_id

    def _take(self, block_id: str) -> int:
        """Take a block out of the plan; the bytes that this frees."""
        self._gone.add(block_id)
        freed = self._blocks[block_id].file_bytes
        for digest in self._blocks[block_id].segments:
            self._users[digest] -= 1
            if not self._users[digest]:
                freed += self._sizes.get(digest, 0)
        if self._children[block_id]:
            self._ancestors[block_id] = _ids_bytes(self._files, block_id)
            return freed - self._ancestors[block_id]
        return freed + self._release(block_id)

    def _release(self, block_id: str) -> int:
        """One child less for its parent, whose ids go with the last one, and so on up; the bytes that this frees."""
        freed, here = 0, block_id
        while (parent := self._parents.pop(here, None)) is not None:
            self._children[parent] -= 1
            if parent not in self._ancestors or self._children[parent]:
                break
            freed += self._ancestors.pop(parent)
            here = parent
        return freed

    def _may_go(self, block_id: str) -> bool:
        if block_id in self._gone or block_id in self._pinned:
            return False
        return not self._children[block_id] or self._is_superseded(block_id)

    def _is_superseded(self, block_id: str) -> bool:
        """Whether it is an older checkpoint that holds state of its own."""
        block = self._blocks[block_id]
        if block.parent_id is None or block_id in self._names:
            return False
        return any(self._users[digest] == 1 and self._sizes.get(digest) for digest in block.segments)

    def _last(self, block_id: str) -> float:
        return max(self._uses[block_id].last, self._deposited[block_id])

    def _with_parents(self, block_ids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for start in block_ids:
            here: str | None = start
            while here is not None and here in self._parents and here not in found:
                found.add(here)
                here = self._parents[here]
        return found

    def _bytes_of(self, block_ids: Collection[str]) -> int:
        segments = {digest for block_id in block_ids for digest in self._blocks[block_id].segments}
        manifests = sum(self._blocks[block_id].file_bytes for block_id in block_ids)
        return manifests + sum(self._sizes.get(digest, 0) for digest in segments)
