"""Blocks whose token ids, read back as text by their own model, hold words; and what stands on a block."""

from __future__ import annotations

from collections.abc import Iterable

from agentkv.engine.base import Engine
from agentkv.forget.words import Words
from agentkv.records import Ancestor
from agentkv.store import files
from agentkv.store.catalog import BlockStore


def holding(store: BlockStore, engine: Engine, words: Words) -> tuple[set[str], int]:
    """The blocks, and ids that are left of blocks, of ``engine``'s model that hold words; how many are of other models.

    Words that begin in a parent and end in a block are found in the block. Raises CorruptBlock, StoreReadError.
    """
    known = {item.block_id: item for item in store.files.ancestors.all()}
    mine, others = engine.fingerprint(), 0
    for block_id in store.block_ids():
        manifest = store.manifest(block_id)
        if manifest is None:
            continue
        if manifest.fingerprint.content.get("model_sha256") != mine.content.get("model_sha256"):
            others += 1
            continue
        known[block_id] = store.files.ancestor_of(block_id) or known[block_id]
    tails: dict[str, bytes] = {}
    found = set()
    for item in _parents_first(known):
        before = tails.get(item.parent_id or "", b"")
        text = before + b"".join(engine.token_bytes(token) for token in item.tokens if token < engine.info.n_vocab)
        tails[item.block_id] = text[-4 * words.longest :] if words.longest else b""
        if words.are_in_bytes(text):
            found.add(item.block_id)
    return found, others


def with_descendants(store: BlockStore, block_ids: Iterable[str]) -> list[str]:
    """Blocks and all that stand on them, children before their parents: so they can be removed in this order."""
    return files.with_descendants(files.children_of(store.files.parents()), sorted(block_ids))


def _parents_first(known: dict[str, Ancestor]) -> list[Ancestor]:
    return sorted(known.values(), key=lambda item: item.n_tokens)
