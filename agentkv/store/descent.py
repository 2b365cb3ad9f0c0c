"""What stands on a block: children, their children, and so on. Pure; knows parents by id and no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def with_descendants(parents: Mapping[str, str | None], block_ids: Iterable[str]) -> list[str]:
    """These blocks and all that come after them, children before their parents.

    Removed in this order, a removal that is cut short leaves no child without its parent. ``parents``: of each block
    its parent, or None.

    >>> with_descendants({"a": None, "b": "a", "c": "b", "d": None}, ["a"])
    ['c', 'b', 'a']
    """
    children: dict[str, list[str]] = {}
    for block_id, parent_id in parents.items():
        if parent_id is not None:
            children.setdefault(parent_id, []).append(block_id)
    found: dict[str, None] = {}
    pending = list(block_ids)
    while pending:
        block_id = pending.pop()
        found.pop(block_id, None)  # again, after the parent by which it was reached now
        found[block_id] = None
        pending += children.get(block_id, [])
    return list(reversed(found))
