"""Whose blocks are in a store: those that came in packs signed by a key, and what stands behind them.

Knows import records and parents; refuses to know whom anybody trusts. Not covered: blocks whose import record is
damaged (they count as untrusted), and what answers were given from a block.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agentkv.errors import StoreError
from agentkv.store.catalog import BlockStore


def signers(store: BlockStore) -> dict[str, str]:
    """The key that signed the pack of each imported block, by block id. A damaged record is passed over and told."""
    found = {}
    for record in store.files.imports.all(store.tell_once):
        if record.signed_by is not None:
            found[record.block_id] = record.signed_by
    return found


def blocks_of(store: BlockStore, keys: Collection[str]) -> list[str]:
    """The ids of blocks that came signed by one of ``keys``, and of all that was read behind them, children first.

    What stands behind a forged state holds it too, whoever deposited it. Raises CorruptBlock, StoreReadError.
    """
    parents = {block_id: summary.parent_id for block_id, summary in store.files.summaries()}
    parents |= {item.block_id: item.parent_id for item in store.files.ancestors.all() if item.block_id not in parents}
    signed = {block_id for block_id, key in signers(store).items() if key in keys}
    found = {block_id: _above(block_id, parents) for block_id in store.block_ids() if block_id in parents}
    own = [block_id for block_id, above in found.items() if not signed.isdisjoint((block_id, *above))]
    return sorted(own, key=lambda block_id: (-len(found[block_id]), block_id))


def _above(block_id: str, parents: Mapping[str, str | None]) -> list[str]:
    above: list[str] = []
    here = parents.get(block_id)
    while here is not None and here not in above:
        above.append(here)
        here = parents.get(here)
    return above


def names_of(store: BlockStore, block_ids: Collection[str]) -> list[str]:
    """The names that point at these blocks, sorted, each once."""
    found: set[str] = set()
    skipped: list[StoreError] = []
    for named in store.names(on_error=skipped.append):
        if named.block_id in block_ids:
            found.add(named.name)
    return sorted(found)
