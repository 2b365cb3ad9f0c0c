"""Composition: several windows in one context, by sequential prefill.

A state belongs to the tokens before it, so states of windows that were read apart cannot be put one behind the other:
the result is another computation than reading both (the benchmark shows by how much). A chain reads each part behind
the last, stores every step, and shares the steps that it has in common with chains stored before.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import PROBE_STEPS, check_window
from agentkv.errors import UsageError
from agentkv.records import Manifest


def chain(
    blocks: Blocks, parts: Sequence[Sequence[int]], *, cancellation: Cancellation | None = None
) -> list[Manifest]:
    """The blocks of ``parts``, each behind those before it, first to last; what is stored already costs a hash.

    ``parts``: token ids, none empty. Grafting the last block brings all of them back. Raises UsageError,
    WindowOverflow before anything is read, and what a deposit raises.
    """
    if not parts or not all(parts):
        raise UsageError("a chain has at least one part, and every part at least one token")
    check_window(sum(map(len, parts)), PROBE_STEPS, 0, blocks.engine.window)
    links: list[Manifest] = []
    with blocks.engine.lock, blocks.store.holding():
        for part in parts:
            parent = links[-1] if links else None
            links.append(blocks.deposit(part, parent=parent, cancellation=cancellation).manifest)
    return links
