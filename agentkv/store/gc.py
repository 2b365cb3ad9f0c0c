"""What no committed block needs: segments of failed or removed deposits, temporary files of crashed ones.

Deletes under the exclusive lock: a deposit holds it shared from its first segment to its manifest, so a segment
that a deposit is about to reference is never taken from under it. Deletes no segment while a manifest cannot be
read: what that one needs is not known. Where the system has no such locks only age protects.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from agentkv.errors import StoreError
from agentkv.io import fsio
from agentkv.store import format as formats
from agentkv.store import indexed
from agentkv.store.files import StoreFiles
from agentkv.store.format import Malformed

INTENT_SUFFIX = ".intent"
_INTENT = re.compile(r"\d{1,10}\.[0-9a-f]{12}\.intent")
_ROLL_BACK_WAIT_S = 5.0
_INTENT_BYTES = 8 << 20
UNLOCKED_AGE_S = 3600.0
"""How old a file must be to be taken for left over where the system has no locks."""


@dataclass(frozen=True)
class Collected:
    """What a collection removed, or would: files of each kind, and the ``bytes`` of all of them."""

    segments: int
    texts: int
    temporaries: int
    bytes: int


class Intent:
    """Says which segments or texts are about to come or go, for whoever opens the store after a crash.

    Not synced: after a power failure a collection does what it saves otherwise.
    """

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._path: Path | None = None
        self.digests: list[str] = []

    def declare(self, digests: Iterable[str]) -> None:
        """Write it down. Raises StoreFull, StoreReadError."""
        self.digests = sorted(digests)
        if self.digests:
            self._path = self._files.temporaries / f"{os.getpid()}.{secrets.token_hex(6)}{INTENT_SUFFIX}"
            fsio.write_briefly(self._path, formats.encode_intent(self.digests))

    def forget(self) -> None:
        """Remove it: the work is done, or undone."""
        if self._path is not None:
            fsio.remove_file(self._path)
            self._path = None

    def roll_back(self) -> None:
        """Remove what came and nothing needs; if others hold the lock all the time, the intent stays for later.

        Goes by what was declared, not by what is known to be written: a Ctrl-C may come between the two.
        """
        if self._files.lock.is_held:  # in the middle of more work of this thread
            return
        if any(self._files.segments.has(digest) or self._files.texts.path(digest).exists() for digest in self.digests):
            with self._files.lock.try_exclusive(_ROLL_BACK_WAIT_S) as alone:
                if not alone:
                    return
                remove_unneeded(self._files, self.digests)
        self.forget()


def remove_unneeded(files: StoreFiles, digests: Collection[str]) -> None:
    """Remove those of these segments and texts that no block and no name needs; the caller holds the exclusive lock."""
    unneeded = files.unneeded(digests)
    for digest in unneeded:
        files.segments.remove(digest)
    indexed.removed(files.index, unneeded)
    needed = _needed_texts(files)
    for digest in digests:
        if needed is not None and digest not in needed:
            files.texts.remove(digest)


def needless_ancestors(files: StoreFiles) -> set[str]:
    """Evicted blocks whose ids no block needs any more. Raises CorruptBlock, StoreReadError: it has to be known."""
    known = indexed.needless(files.index)
    if known is not None:
        return set(known[1])
    parents: dict[str, str | None] = {item.block_id: item.parent_id for item in files.ancestors.all()}
    if not parents:
        return set()
    blocks = {block_id: summary.parent_id for block_id, summary in files.summaries()}
    above = set[str]()
    for start in blocks.values():
        here = start
        while here is not None and here not in above:
            above.add(here)
            here = blocks[here] if here in blocks else parents.get(here)
    return parents.keys() - (above - blocks.keys())


def sweep_ancestors(files: StoreFiles, min_age_s: float = 0.0, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove the ids that no block needs; how many, and their bytes. The caller holds the exclusive lock."""
    count = freed = 0
    for block_id in needless_ancestors(files):
        if time.time() - files.ancestors.written_at(block_id) < min_age_s:
            continue
        size = files.ancestors.stored_bytes(block_id) or 0
        if dry_run or files.ancestors.remove(block_id):
            count, freed = count + 1, freed + size
    return count, freed


def is_leftover(path: Path) -> bool:
    """Whether a file is called as unfinished writes and intents of deposits are."""
    return fsio.is_temporary(path) or _INTENT.fullmatch(path.name) is not None


def recover(files: StoreFiles) -> None:
    """What the first one to open a store after a crash does: nothing half-written stays. Never waits, never raises."""
    with contextlib.suppress(StoreError):
        if not any(_temporaries(files)):
            return
        with files.lock.try_exclusive(wait_s=0) as alone:
            if alone:  # else somebody is depositing, and what is there may be theirs
                _clear_temporaries(files)


def collect(files: StoreFiles, min_age_s: float | None, *, dry_run: bool = False) -> Collected:
    """Remove what no block or name needs. ``min_age_s``: None for no age under the lock, an hour without locks."""
    with files.lock.exclusive() as alone:
        age = min_age_s if min_age_s is not None else 0.0 if alone else UNLOCKED_AGE_S
        segments, freed = files.segments.sweep(files.referenced(), age, dry_run=dry_run)
        known = None if dry_run else indexed.needless(files.index)
        indexed.removed(files.index, [digest for digest in (known or ([], []))[0] if not files.segments.has(digest)])
        texts, text_bytes = _sweep_texts(files, age, dry_run)
        temporaries, temporary_bytes = _sweep_temporaries(files, age, dry_run)
        temporary_bytes += sweep_ancestors(files, age, dry_run=dry_run)[1]
        temporary_bytes += files.images.sweep(set(files.manifests.digests()), age, dry_run=dry_run)
        if not dry_run:
            _drop_marks(files)
        return Collected(segments, texts, temporaries, freed + text_bytes + temporary_bytes)


def _temporaries(files: StoreFiles, min_age_s: float = 0.0) -> list[tuple[Path, int]]:
    """What writes and deposits have left in the folder for it; what is called otherwise is somebody else's."""
    fsio.refuse_links(files.root, files.temporaries / "x")
    return [found for found in fsio.files_in(files.temporaries, min_age_s) if is_leftover(found[0])]


def _clear_temporaries(files: StoreFiles) -> None:
    """With nobody else in the store: every temporary file, and the segments that a deposit cut short had placed."""
    intents = []
    for path, _ in _temporaries(files):
        if path.suffix == INTENT_SUFFIX:
            intents.append(path)
        else:
            fsio.remove_file(path)
    if intents:
        remove_unneeded(files, {digest for path in intents for digest in _intended(path)})
    for path in intents:
        fsio.remove_file(path)


def _intended(path: Path) -> list[str]:
    try:
        data = fsio.read_regular(path, _INTENT_BYTES)
        return [] if data is None else formats.decode_intent(data)
    except Malformed:  # cut short by the crash, before any segment was written
        return []


def _needed_texts(files: StoreFiles) -> set[str | None] | None:
    """The texts that names need; None if a name is corrupt: which text it needs is not known."""
    known = indexed.needed_texts(files.index)
    if known is not None:
        return known
    corrupt: list[StoreError] = []
    needed = {named.source_sha256 for named in files.names.all(corrupt.append)}
    return None if corrupt else needed


def _sweep_texts(files: StoreFiles, min_age_s: float, dry_run: bool) -> tuple[int, int]:
    needed = _needed_texts(files)
    if needed is None:
        return 0, 0
    count = freed = 0
    for digest in files.texts.digests():
        if digest in needed or time.time() - files.texts.written_at(digest) < min_age_s:
            continue
        size = files.texts.stored_bytes(digest) or 0
        if dry_run or files.texts.remove(digest):
            count, freed = count + 1, freed + size
    return count, freed


def _sweep_temporaries(files: StoreFiles, min_age_s: float, dry_run: bool) -> tuple[int, int]:
    found = _temporaries(files, min_age_s)
    # The marker's own, from before there was a folder for them or a lock: only age says that it is left over.
    marker = fsio.files_in(files.root, max(min_age_s, UNLOCKED_AGE_S))
    found += [item for item in marker if fsio.is_temporary(item[0])]
    if not dry_run:
        for path, _ in found:
            fsio.remove_file(path)
    return len(found), sum(n_bytes for _, n_bytes in found)


def _drop_marks(files: StoreFiles) -> None:
    """Pins, import records and refusals of blocks that are gone."""
    there = set(files.manifests.digests())
    for folder in (files.pins, files.imports, files.refused):
        for block_id in list(folder.digests()):
            if block_id not in there:
                folder.remove(block_id)
