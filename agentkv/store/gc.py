"""What no committed block needs: segments of failed or removed deposits, temporary files of crashed ones.

Knows manifests and segments only. Deletes under an exclusive lock that every deposit holds shared, so a
segment that a deposit is about to reference is never taken from under it, and deletes nothing at all while a
manifest cannot be read: what that one needs is not known. Where the system has no such locks only age
protects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkv import fsio
from agentkv.errors import StoreReadError
from agentkv.records import Manifest, NamedBlock
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import SegmentStore

_ROLL_BACK_WAIT_S = 5.0
_COLLECT_WAIT_S = 60.0


@dataclass(frozen=True)
class Collected:
    """What a collection removed: ``segments`` files, and ``bytes`` of them and of temporary files."""

    segments: int
    bytes: int


def referenced(manifests: RecordFiles[Manifest]) -> set[str]:
    """Digests of every segment that a committed block names. Raises CorruptBlock, StoreReadError."""
    digests: set[str] = set()
    for block_id in manifests.digests():
        manifest = manifests.read(block_id)
        if manifest is not None:
            digests.update(ref.sha256 for ref in manifest.segments)
    return digests


def roll_back(lock: Path, manifests: RecordFiles[Manifest], segments: SegmentStore, created: Sequence[str]) -> None:
    """Remove the segments that a failed deposit created, but for those that another block uses by now."""
    if not created:
        return
    with fsio.file_lock(lock, exclusive=True, wait_s=_ROLL_BACK_WAIT_S) as held:
        if held:  # else they stay until the next collection
            for digest in set(created) - referenced(manifests):
                segments.remove(digest)


def collect(
    root: Path,
    lock: Path,
    manifests: RecordFiles[Manifest],
    names: RecordFiles[NamedBlock],
    segments: SegmentStore,
    min_age_s: float,
) -> Collected:
    """Remove unreferenced segments and temporary files that are at least ``min_age_s`` old."""
    with fsio.file_lock(lock, exclusive=True, wait_s=_COLLECT_WAIT_S) as held:
        if held is False:
            raise StoreReadError(lock, "another process is depositing; try again later")
        count, freed = segments.sweep(referenced(manifests), min_age_s)
        freed += manifests.sweep_temporaries(min_age_s) + names.sweep_temporaries(min_age_s)
        for path, n_bytes in fsio.files_below(root, min_age_s):
            if path.parent == root and path.suffix == fsio.TEMP_SUFFIX and fsio.remove_file(path):
                freed += n_bytes
        return Collected(count, freed)
