"""What goes into a pack: the names that were asked for, their blocks, and the parents of those.

Knows a store; refuses to know files. Does not guarantee that the segments are there: writing them finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkv.errors import UnknownBlock, UsageError
from agentkv.packs.format import folded, name_order
from agentkv.records import Manifest, NamedBlock, SegmentRef
from agentkv.store.catalog import BlockStore


@dataclass(frozen=True)
class Selection:
    """Blocks by depth, then by id; names as a pack has them; one reference for each segment, by digest."""

    block_ids: tuple[str, ...]
    names: tuple[NamedBlock, ...]
    segments: dict[str, SegmentRef]


def select(store: BlockStore, names: Sequence[NamedBlock], block_ids: Sequence[str] = ()) -> Selection:
    """The closure of ``names`` and ``block_ids`` over parents. Raises UsageError, UnknownBlock, CorruptBlock."""
    depth: dict[str, int] = {}
    for block_id in [*(named.block_id for named in names), *block_ids]:
        _add_chain(store, block_id, depth)
    if not depth:
        raise UsageError("there is nothing to pack: the store has no such names. Run `agentkv list`.")
    order = sorted(depth, key=lambda block_id: (depth[block_id], block_id))
    refs: dict[str, SegmentRef] = {}
    for block_id in order:
        for ref in _manifest(store, block_id).segments:
            refs.setdefault(ref.sha256, ref)
    return Selection(tuple(order), _packed(names), dict(sorted(refs.items())))


def _manifest(store: BlockStore, block_id: str) -> Manifest:
    manifest = store.manifest(block_id)
    if manifest is None:
        raise UnknownBlock(block_id, "A name points to it, or it is a block's parent; deposit the text again.")
    return manifest


def _add_chain(store: BlockStore, block_id: str, depth: dict[str, int]) -> None:
    """Enter a block and its parents; ``depth`` counts the links above a block."""
    chain = [block_id]
    while chain[-1] not in depth and (parent := _manifest(store, chain[-1]).parent_id) is not None:
        chain.append(parent)
    for parent, link in zip([None, *reversed(chain)], reversed(chain), strict=False):
        depth.setdefault(link, 0 if parent is None else depth[parent] + 1)


def _packed(names: Sequence[NamedBlock]) -> tuple[NamedBlock, ...]:
    """The names without their places, sorted. Raises UsageError for two that a person would take for one."""
    found: dict[tuple[str, str], NamedBlock] = {}
    for named in names:
        first = found.setdefault((folded(named.name), named.fingerprint_id), named)
        if (first.kind, first.name) != (named.kind, named.name):
            raise UsageError(
                f"the names {first.name!r} ({first.kind}) and {named.name!r} ({named.kind}) are too much alike for "
                "one pack. Name the ones that you want."
            )
    return tuple(sorted((named.model_copy(update={"source": ""}) for named in found.values()), key=name_order))
