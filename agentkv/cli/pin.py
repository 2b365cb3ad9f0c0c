"""``agentkv pin`` and ``agentkv unpin``: blocks that eviction leaves alone, with all that they are read behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say

if TYPE_CHECKING:
    from agentkv.store.catalog import BlockStore

Keys = Annotated[list[str], typer.Argument(metavar="NAME|BLOCK_ID...", help="Names, or the first 6 digits of ids.")]


def pin(
    keys: Keys,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Keep blocks, and their parents, whatever the budget."""
    from agentkv.cli.inventory import find_all

    with options.open_store(store) as opened:
        done = [(block_id, opened.pin(block_id)) for block_id in find_all(opened, keys, model)]
        record = _record(opened, done, pinned=True)
    finish(record, as_json, lambda: _show(record, "pinned", "was pinned already"))


def unpin(
    keys: Keys,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Let the budget have blocks again."""
    from agentkv.cli.inventory import find_all

    with options.open_store(store) as opened:
        done = [(block_id, opened.unpin(block_id)) for block_id in find_all(opened, keys, model)]
        record = _record(opened, done, pinned=False)
    finish(record, as_json, lambda: _show(record, "unpinned", "was not pinned"))


def _record(store: BlockStore, done: list[tuple[str, bool]], *, pinned: bool) -> dict[str, Any]:
    """What was done: each block as a person knows it, whether it is pinned now and whether that is new."""
    from agentkv.cli.inventory import called, names_by_block

    names = names_by_block(store)
    blocks = [
        {"block_id": block_id, "name": called(names, block_id), "pinned": pinned, "changed": changed}
        for block_id, changed in done
    ]
    return {"store": store.root, "blocks": blocks}


def _show(record: dict[str, Any], new: str, old: str) -> None:
    for block in record["blocks"]:
        say(f"{new} {block['name']}" if block["changed"] else f"{block['name']} {old}")
