"""``agentkv rm``: forget blocks for good, with their names, and free what only they needed.

What is named goes at once; asked for (or told by ``--yes``) is what ``--recursive`` takes along, and a text that is not
where it came from any more, so that the store has the only copy. It refuses what would leave others unreadable
(children, unless ``--recursive``) and what somebody wanted kept: a pinned block has to be unpinned first, there is no
flag to override that. Not guaranteed: that nobody deposits a child in the moment between the look and the removal;
``agentkv check`` would find it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.confirm import confirm
from agentkv.cli.output import count, finish, say, size, table
from agentkv.cli.pin import Keys
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.store.catalog import BlockStore

_SHOWN = 5


def rm(
    keys: Keys,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Remove what is chained behind the blocks, too.")
    ] = False,
    yes: options.Yes = False,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Remove blocks with all their names, and say what that freed."""
    from agentkv.cli.inventory import called, find_all, names_by_block
    from agentkv.store.descent import with_descendants

    with options.open_store(store) as opened:
        names = names_by_block(opened)
        asked = find_all(opened, keys, model)
        blocks = dict(opened.files.summaries())
        doomed = with_descendants({block_id: summary.parent_id for block_id, summary in blocks.items()}, asked)
        _refuse_children(doomed, asked, names, recursive)
        _refuse_pinned(opened, doomed, names)
        _ask(opened, doomed, asked, names, yes=yes, as_json=as_json)
        removed = [block_id for block_id in doomed if opened.remove_block(block_id)]
        manifests = sum(blocks[block_id].file_bytes for block_id in removed if block_id in blocks)
        freed = manifests + opened.collect().bytes
        record: dict[str, Any] = {
            "store": opened.root,
            "removed": [{"block_id": block_id, "name": called(names, block_id)} for block_id in removed],
            "freed_bytes": freed,
        }
    finish(record, as_json, lambda: _show(record))


def _ask(
    store: BlockStore, doomed: list[str], asked: list[str], names: Mapping[str, str], *, yes: bool, as_json: bool
) -> None:
    """Have it confirmed, if more goes than was named, or the only copy of a text. Raises NotConfirmed."""
    from agentkv.cli.again import is_there
    from agentkv.cli.inventory import called

    found = store.names(on_error=lambda _: None)
    kept = {named.source_sha256 for named in found if named.block_id not in doomed}
    only = [n for n in found if n.block_id in doomed and n.source_sha256 not in kept and not is_there(n)]
    more = [block_id for block_id in doomed if block_id not in asked]
    parts = []
    if more:
        parts += [
            f"{count(len(more), 'block')} more than you name: {', '.join(called(names, b) for b in more[:_SHOWN])}"
        ]
    if only:
        texts = "the only copy of a text" if len(only) == 1 else f"the only copies of {len(only):,} texts"
        parts += [f"{texts} (not where it came from any more): {', '.join(n.name for n in only[:_SHOWN])}"]
    if parts:
        rows = [(block_id[:12], called(names, block_id)) for block_id in doomed]
        confirm(
            "; and ".join(parts), yes=yes, as_json=as_json, show=lambda: table(("block", "name"), rows, wraps=("name",))
        )


def _refuse_children(doomed: list[str], asked: list[str], names: Mapping[str, str], recursive: bool) -> None:
    from agentkv.cli.inventory import called

    children = sorted(called(names, block_id) for block_id in doomed if block_id not in asked)
    if children and not recursive:
        rest = f" and {len(children) - _SHOWN} more" if len(children) > _SHOWN else ""
        raise UsageError(
            f"{count(len(children), 'block')} could not be read without what you name: {', '.join(children[:_SHOWN])}"
            f"{rest}. Nothing was removed. Pass --recursive to remove {'it' if len(children) == 1 else 'them'} too."
        )


def _refuse_pinned(store: BlockStore, doomed: list[str], names: Mapping[str, str]) -> None:
    from agentkv.cli.inventory import called

    pinned = store.pinned() & set(doomed)
    if pinned:
        kept = ", ".join(sorted(called(names, block_id) for block_id in pinned))
        ids = " ".join(sorted(block_id[:12] for block_id in pinned))
        raise UsageError(f"pinned: {kept}. Nothing was removed. Run `agentkv unpin {ids}` first.")


def _show(record: dict[str, Any]) -> None:
    rows = [(block["block_id"][:12], block["name"]) for block in record["removed"]]
    table(("block", "name"), rows, wraps=("name",))
    say(f"\n{count(len(rows), 'block')} removed, {size(record['freed_bytes'])} freed")
