"""Blocks of another build that is seen to give the same bits: taken over without prefill, which their record says.

A new release of llama.cpp, or other CPU features, changes the numerics half of a fingerprint; often not one bit of what
is computed. So a few blocks of the other build are prefilled again, the shortest, the longest and one between: if each
state has the recorded SHA-256, and the recorded probe repeats, all of that build's blocks are given ids of this one.
Their segments are shared, so that costs a manifest each. An adopted block is ``exact_by_config``: what was compared is
the build, not this block. Never adopted: blocks from packs, inexact ones, any of another content (model, KV type …).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate

from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import check_window
from agentkv.errors import Cancelled, StoreError, WindowOverflow
from agentkv.io.hashing import sha256
from agentkv.records import Ancestor, Exactness, Fingerprint, Manifest

Parts = list[tuple[int, ...]]


@dataclass(frozen=True)
class Adoption:
    """What became of one other build's blocks. ``why_not``: empty, or what differed; ``compared``: tokens prefilled."""

    fingerprint: Fingerprint
    blocks: int
    compared: int
    why_not: str = ""


def adoptable(blocks: Blocks) -> dict[str, list[tuple[Manifest, Parts]]]:
    """Blocks and their parts by fingerprint id: those of other builds, equal in content, that this one has not.

    Left out are builds that were migrated from before: what was needed of theirs is there. Reads no state.
    """
    here, found = blocks.fingerprint, dict[str, list[tuple[Manifest, Parts]]]()
    passed_over = {here.id, *blocks.store.superseded}
    for block_id, summary in blocks.store.files.summaries(lambda _: None):
        if summary.fingerprint_id not in passed_over and summary.content == here.content:
            for manifest, parts in _usable(blocks, block_id):
                if blocks.valid(blocks.ids_of(parts)[-1]) is None:
                    found.setdefault(summary.fingerprint_id, []).append((manifest, parts))
    return found


def adopt(
    blocks: Blocks,
    *,
    holding: Callable[[], AbstractContextManager[None]],
    cancellation: Cancellation | None = None,
) -> list[Adoption]:
    """Compare each such build with this one, and adopt its blocks where the bits are the same. May be cut short.

    ``holding``: entered for each block that is written, to keep others from eviction. Raises Cancelled, OverBudget,
    StoreFull.
    """
    done = []
    for usable in adoptable(blocks).values():
        usable.sort(key=lambda one: one[0].n_tokens)  # parents come before their children
        samples = {index: usable[index] for index in (0, len(usable) // 2, len(usable) - 1)}
        compared, why_not = 0, ""
        for manifest, parts in samples.values():
            compared, why_not = compared + manifest.n_tokens, _difference(blocks, manifest, parts, cancellation)
            if why_not:
                break
        if not why_not:
            for manifest, parts in usable:
                if cancellation is not None and cancellation.requested:
                    raise Cancelled("adopting blocks")
                with blocks.engine.lock, holding():
                    _take_over(blocks, manifest, parts)
        done.append(Adoption(usable[0][0].fingerprint, 0 if why_not else len(usable), compared, why_not))
    return done


def _usable(blocks: Blocks, block_id: str) -> Iterator[tuple[Manifest, Parts]]:
    """The block and its parts, if it is valid, exact and was computed here; else nothing."""
    with contextlib.suppress(StoreError):
        manifest = blocks.valid(block_id)
        if manifest is None or manifest.exactness is Exactness.INEXACT or blocks.store.imported(block_id) is not None:
            return
        yield manifest, blocks.parts_of(manifest)


def _difference(blocks: Blocks, manifest: Manifest, parts: Parts, cancellation: Cancellation | None) -> str:
    """In what this build's own prefill of a block differs from the stored state; empty for nothing."""
    steps = manifest.probe.steps if manifest.probe else 1
    try:
        check_window(manifest.n_tokens, steps, 0, blocks.engine.window)
    except WindowOverflow as error:
        return error.message
    with blocks.exclusive():
        blocks.read_parts(parts, cancellation)
        if sha256(blocks.engine.capture().blob.data) != manifest.state_sha256:
            return f"the state of {manifest.n_tokens:,} tokens comes out in other bits"
        alike = blocks.goes_on_alike(manifest, cancellation)
        return "" if alike else f"the logits after {manifest.n_tokens:,} tokens differ"


def _take_over(blocks: Blocks, manifest: Manifest, parts: Parts) -> None:
    ids, ends = blocks.ids_of(parts), list(accumulate(map(len, parts)))
    parents = [None, *ids[:-1]]
    ancestors = [
        Ancestor(
            block_id=identity,
            parent_id=parent,
            fingerprint_id=blocks.fingerprint.id,
            tokens=part,
            n_tokens=end,
        )
        for identity, parent, part, end in zip(ids, parents, parts, ends, strict=True)
    ]
    new = manifest.model_copy(
        update={
            "block_id": ids[-1],
            "parent_id": parents[-1],
            "fingerprint": blocks.fingerprint,
            "exactness": Exactness.EXACT_BY_CONFIG,
            "adopted_from": manifest.adopted_from or manifest.fingerprint,
        }
    )
    blocks.replace(new, {}, ancestors=ancestors[:-1])
