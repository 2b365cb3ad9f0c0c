"""Around restoring a block: sizes compared before it, faults that are passed over, the result."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkv.engine.values import rows_bytes
from agentkv.errors import CorruptBlock, InvalidState, NativeRefusal, StoreError, StoreReadError
from agentkv.io.ram import available_memory
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore

_LARGE, _EXPANSION = 256 << 20, 1024
"""Bytes of a state from which on its size is compared with what is stored, and by how much it may be larger."""

CANNOT_RESTORE = (StoreError, InvalidState, NativeRefusal)
"""What restoring a block raises where its tokens have to be prefilled instead."""

MENDS = "`agentkv check` lists what is damaged; depositing the text again mends it."
"""The remedy that a notice of a block that was prefilled instead of restored names."""


@dataclass(frozen=True)
class Restored:
    """What :meth:`Blocks.restore_longest` did: the first ``parts`` of a prompt are in the context, by ``manifest``.

    ``passed_over``: why each longer chain that is stored could not be restored, by its number of parts. ``is_gone``:
    one was removed while it was looked at.
    """

    parts: int
    manifest: Manifest | None
    passed_over: dict[int, str] = field(default_factory=dict)
    is_gone: bool = False


def check_sizes(store: BlockStore, manifest: Manifest) -> None:
    """Compare the layout's size with the segments', and a large one with what is stored and what memory there is.

    Before anything is allocated. Raises CorruptBlock, MissingSegment; StoreReadError if only memory is lacking.
    """
    path, raw = store.files.manifests.path(manifest.block_id), sum(ref.n_bytes for ref in manifest.segments)
    n_bytes, reason = rows_bytes(manifest.layout, manifest.n_tokens), ""
    if n_bytes != raw:
        reason = f"its layout takes {n_bytes:,} bytes for {manifest.n_tokens:,} tokens, its segments hold {raw:,}"
    elif n_bytes > _LARGE:
        there, stored = available_memory(), store.sizes(manifest).stored
        if n_bytes > _LARGE + _EXPANSION * stored:
            reason = f"{stored:,} bytes of segments that would decode to {raw:,}: no model computes such"
        elif there is not None and n_bytes > there:
            raise StoreReadError(path, f"its state takes {n_bytes:,} bytes and {there:,} are free")
    if reason:
        raise CorruptBlock(f"manifest {manifest.block_id[:12]}", path, reason)
