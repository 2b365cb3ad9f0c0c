"""What no committed block needs: segments of failed or removed deposits, temporary files of crashed ones.

Deletes under the store's lock, alone: a deposit holds it shared from its first segment to its manifest, so a segment
that a deposit is about to reference is never taken from under it. Deletes no segment while a manifest cannot be
read: what that one needs is not known. Where the system has no such locks only age protects.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkv import fsio
from agentkv.errors import StoreError
from agentkv.store import format as formats
from agentkv.store.files import StoreFiles
from agentkv.store.format import Malformed

INTENT_SUFFIX = ".intent"
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


def roll_back(files: StoreFiles, created: Sequence[str]) -> bool:
    """Remove the segments that a failed deposit created, but for those that another block uses by now.

    False if others were in the store all the time: then they stay for the next collection.
    """
    if not created:
        return True
    with files.lock.exclusive(_ROLL_BACK_WAIT_S) as alone:
        if alone:
            for digest in set(created) - files.referenced():
                files.segments.remove(digest)
        return bool(alone)


def recover(files: StoreFiles) -> None:
    """What the first one to open a store after a crash does: nothing half-written stays. Never waits, never raises."""
    with contextlib.suppress(StoreError):
        if not any(_temporaries(files)):
            return
        with files.lock.exclusive(wait_s=0) as alone:
            if alone:  # else somebody is depositing, and what is there may be theirs
                _clear_temporaries(files)


def collect(files: StoreFiles, min_age_s: float | None, *, dry_run: bool = False) -> Collected:
    """Remove what no block or name needs. ``min_age_s``: None for no age under the lock, an hour without locks."""
    with files.lock.alone() as alone:
        age = min_age_s if min_age_s is not None else 0.0 if alone else UNLOCKED_AGE_S
        segments, freed = files.segments.sweep(files.referenced(), age, dry_run=dry_run)
        texts, text_bytes = _sweep_texts(files, age, dry_run)
        temporaries, temporary_bytes = _sweep_temporaries(files, age, dry_run)
        if not dry_run:
            _drop_marks(files)
        return Collected(segments, texts, temporaries, freed + text_bytes + temporary_bytes)


def _temporaries(files: StoreFiles, min_age_s: float = 0.0) -> list[tuple[Path, int]]:
    fsio.refuse_links(files.root, files.temporaries / "x")
    return list(fsio.files_in(files.temporaries, min_age_s))


def _clear_temporaries(files: StoreFiles) -> None:
    """With nobody else in the store: every temporary file, and the segments that a deposit cut short had placed."""
    intents = []
    for path, _ in _temporaries(files):
        if path.suffix == INTENT_SUFFIX:
            intents.append(path)
        else:
            fsio.remove_file(path)
    if intents:
        placed = {digest for path in intents for digest in _intended(path)}
        for digest in placed - files.referenced():
            files.segments.remove(digest)
    for path in intents:
        fsio.remove_file(path)


def _intended(path: Path) -> list[str]:
    try:
        data = fsio.read_regular(path, _INTENT_BYTES)
        return [] if data is None else formats.decode_intent(data)
    except Malformed:  # cut short by the crash, before any segment was written
        return []


def _sweep_texts(files: StoreFiles, min_age_s: float, dry_run: bool) -> tuple[int, int]:
    damaged: list[StoreError] = []
    wanted = {named.source_sha256 for named in files.names.all(damaged.append)}
    if damaged:  # which text such a name needs is not known
        return 0, 0
    count = freed = 0
    for digest in files.texts.digests():
        if digest in wanted or time.time() - files.texts.written_at(digest) < min_age_s:
            continue
        size = files.texts.stored_bytes(digest) or 0
        if dry_run or files.texts.remove(digest):
            count, freed = count + 1, freed + size
    return count, freed


def _sweep_temporaries(files: StoreFiles, min_age_s: float, dry_run: bool) -> tuple[int, int]:
    found = _temporaries(files, min_age_s)
    # The marker's own, from before there was a folder for them or a lock: only age says that it is left over.
    marker = fsio.files_in(files.root, max(min_age_s, UNLOCKED_AGE_S))
    found += [item for item in marker if item[0].suffix == fsio.TEMP_SUFFIX]
    if not dry_run:
        for path, _ in found:
            fsio.remove_file(path)
    return len(found), sum(n_bytes for _, n_bytes in found)


def _drop_marks(files: StoreFiles) -> None:
    """Pins and import records of blocks that are gone."""
    there = set(files.manifests.digests())
    for folder in (files.pins, files.imports):
        for block_id in list(folder.digests()):
            if block_id not in there:
                folder.remove(block_id)
