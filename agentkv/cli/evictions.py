"""What a command's deposits have made go for the store's budget: told on the screen and in JSON.

It is a failure if something that the command itself has stored is gone at its end: a success would be untrue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agentkv.cli.output import say
from agentkv.errors import OverBudget

if TYPE_CHECKING:
    from agentkv.store.catalog import BlockStore


def evicted(store: BlockStore) -> list[dict[str, Any]]:
    """The named blocks that went since the store was opened."""
    return [{"block_id": victim.block_id, "names": list(victim.names)} for victim in store.evicted if victim.names]


def gone(store: BlockStore, names: Iterable[str]) -> list[OverBudget]:
    """One error for each of ``names``, stored by this command, that is no longer there."""
    there = {entry.name for entry in store.names(on_error=lambda _: None)}
    sizes = {name: victim.bytes for victim in store.evicted for name in victim.names}
    return [OverBudget(sizes.get(name, 0), store.budget or 0, 0, name) for name in names if name not in there]


def tell(record: Sequence[dict[str, Any]]) -> None:
    """The line on the screen, if anything went."""
    names = sorted({name for item in record for name in item["names"]})
    if names:
        say(f"evicted to stay within the budget: {', '.join(names)}")
