"""``agentkv gc``: remove what nothing needs; with a budget also the blocks that were not used for longest.

``--dry-run`` says what the same command without it would do now, block by block and byte by byte. Where blocks would
be evicted, or the quarantine emptied, a terminal is asked first, and anybody else has to say ``--yes``.

``agentkv rm``: forget blocks for good, with their names, and free what only they needed. What is named goes at once;
asked for (or agreed to by ``--yes``) is what ``--recursive`` takes along, and a text that is not where it came from any
more, so that the store has the only copy. It refuses what would make others unusable (children, unless
``--recursive``) and pinned blocks, which have to be unpinned first. Not guaranteed: that nobody deposits a child
between the look and the removal; ``agentkv check`` would find it.

``agentkv pin`` and ``agentkv unpin``: blocks that eviction leaves alone, with their parents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import is_there
from agentkv.cli.inventory import called, find_all, iso, last_use, names_by_block, since, survey
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, confirm, count, number, say, show_rows, size
from agentkv.errors import StoreError, StoreReadError, UsageError

if TYPE_CHECKING:
    from agentkv.store.budget import Eviction
    from agentkv.store.catalog import BlockStore
    from agentkv.store.gc import Collected
    from agentkv.store.uses import Use


_UNITS = {"b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_SIZE = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,9})?)\s*([a-z]*)")
_MOST = 2**53


def gc(
    *,
    dry_run: options.DryRun = False,
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Get within this now: 500MB, 20GB, 20GiB.")] = None,
    set_budget: Annotated[
        str | None, typer.Option(metavar="SIZE|off", help="Keep the store within this from now on.")
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Also delete what `check --repair` has moved there.")
    ] = False,
    yes: options.Yes = False,
    as_json: bool,
    store: StoreOptions,
) -> Result:
    """Remove what nothing needs, and the least recently used blocks above the budget; pinned ones stay."""
    if budget is not None and set_budget is not None:
        raise UsageError("--budget is for now, --set-budget from now on; pass one of them")
    lasting = _lasting(set_budget)
    with store.open() as opened:
        limit = lasting if set_budget is not None else opened.budget if budget is None else parse_size(budget)
        if not dry_run:
            _ask_gc(opened, limit, quarantine, yes=yes, as_json=as_json)
            if set_budget is not None:
                opened.set_budget(lasting)
        failures: dict[str, StoreError] = {}
        record = _collect(opened, limit, dry_run, failures)
        record |= {"set_budget": set_budget is not None, "quarantine": _quarantine(opened, quarantine, dry_run)}
    return Result(record, lambda: _show_gc(record, quarantine), list(failures.values()))


def parse_size(text: str) -> int:
    """Bytes of ``500MB``, ``20GB`` (thousands), ``20GiB`` (1,024s) or ``7B``. Raises UsageError.

    A number without a unit is refused: whoever writes 10 may mean GB, and ten bytes would empty a store.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is not None and not found[2]:
        number = found[1]
        raise UsageError(f"{text!r} has no unit. Write {number}GB, {number}MB, or {number}B if you mean bytes.")
    if found is None or found[2] not in _UNITS or (found[2] == "b" and "." in found[1]):
        raise UsageError(f"{text!r} is not a size. Write it like 500MB, 20GB, 20GiB, or 12345B for bytes.")
    n_bytes = int(float(found[1]) * _UNITS[found[2]]) if "." in found[1] else int(found[1]) * _UNITS[found[2]]
    if n_bytes > _MOST:
        raise UsageError(f"{text!r} is more than {_MOST:,} bytes")
    return n_bytes


def _ask_gc(store: BlockStore, budget: int | None, quarantine: bool, *, yes: bool, as_json: bool) -> None:
    """Have it confirmed, if blocks would be evicted or the quarantine emptied. Raises NotConfirmed."""
    from agentkv.store.repair import quarantined

    uses = store.uses()
    victims = () if budget is None else store.evict(budget, dry_run=True).victims
    n_files, n_bytes = quarantined(store.files) if quarantine else (0, 0)
    parts = []
    if victims:
        freed, within = size(sum(victim.bytes for victim in victims)), size(budget or 0)
        named = sum(bool(victim.names) for victim in victims)
        parts += [f"{count(len(victims), 'block')}, {named:,} of them with a name ({freed}), to get within {within}"]
    parts += [f"{count(n_files, 'file')} of the quarantine ({size(n_bytes)})"] if n_files else []
    if parts:
        rows = [_victim(victim, uses) for victim in victims]
        confirm(" and ".join(parts), yes=yes, as_json=as_json, show=lambda: _show_victims(rows, dry=True))


def _lasting(set_budget: str | None) -> int | None:
    if set_budget is None or set_budget.strip().lower() == "off":
        return None
    n_bytes = parse_size(set_budget)
    if n_bytes == 0:
        raise UsageError("with a budget of 0 nothing could be stored. Write --set-budget off for no budget.")
    return n_bytes


def _collect(store: BlockStore, budget: int | None, dry_run: bool, failures: dict[str, StoreError]) -> dict[str, Any]:
    """Leftovers first, so that no block goes for their sake; then blocks; then the texts that only those had.

    Leftovers that cannot be removed are put into ``failures``, by message: blocks go all the same, and are listed.
    """
    from agentkv.store.budget import Eviction, stored_bytes

    uses = store.uses()
    left = _sweep(store, dry_run, failures)
    eviction = Eviction((), stored_bytes(store.files), 0, 0)
    texts, text_bytes = 0, 0
    if budget is not None:
        plan = store.evict(budget, dry_run=True)
        texts, text_bytes = _texts_of(store, {victim.block_id for victim in plan.victims})
        eviction = plan if dry_run or not plan.victims else store.evict(budget)
        if eviction.victims and not dry_run:
            _sweep(store, dry_run, failures)
    freed = left.bytes + text_bytes + sum(victim.bytes for victim in eviction.victims)
    return {
        "store": store.root,
        "dry_run": dry_run,
        "evicted": [_victim(victim, uses) for victim in eviction.victims],
        "leftovers": {"segments": left.segments, "texts": left.texts + texts, "temporaries": left.temporaries},
        "freed_bytes": freed,
        "stored_bytes": _left(store, eviction, budget),
        "budget_bytes": budget,
        "fits": budget is None or eviction.fits,
    }


def _sweep(store: BlockStore, dry_run: bool, failures: dict[str, StoreError]) -> Collected:
    from agentkv.store.gc import Collected

    try:
        return store.collect(dry_run=dry_run)
    except StoreReadError as error:
        failures[error.message] = error
        return Collected(0, 0, 0, 0)


def _left(store: BlockStore, eviction: Eviction, budget: int | None) -> int:

    if budget is not None:
        return eviction.left
    found = survey(store)
    return found.usage.stored + found.manifests


def _texts_of(store: BlockStore, gone: set[str]) -> tuple[int, int]:
    """Texts, and their bytes, that only names of these blocks need; none if some name cannot tell."""
    damaged: list[object] = []
    names = store.names(on_error=damaged.append)
    if damaged:
        return 0, 0
    kept = {named.source_sha256 for named in names if named.block_id not in gone}
    lost = {named.source_sha256 for named in names if named.block_id in gone} - kept - {None}
    sizes = [store.files.texts.stored_bytes(digest) for digest in lost if digest is not None]
    there = [n_bytes for n_bytes in sizes if n_bytes is not None]
    return len(there), sum(there)


def _victim(victim: Any, uses: Mapping[str, Use]) -> dict[str, Any]:

    return {
        "block_id": victim.block_id,
        "names": list(victim.names),
        "last_use": iso(last_use(uses.get(victim.block_id))),
        "deposited_or_used": iso(victim.last),
        "hits": victim.hits,
        "bytes": victim.bytes,
    }


def _quarantine(store: BlockStore, empty: bool, dry_run: bool) -> dict[str, Any]:
    from agentkv.store.repair import empty_quarantine, quarantined

    there, n_bytes = empty_quarantine(store.files) if empty and not dry_run else quarantined(store.files)
    return {"files": there, "bytes": n_bytes, "emptied": empty and not dry_run}


def _show_gc(record: dict[str, Any], quarantine: bool) -> None:
    dry = record["dry_run"]
    if record["evicted"]:
        _show_victims(record["evicted"], dry=dry)
    what = _what(record)
    say(f"{'would free' if dry else 'freed'} {size(record['freed_bytes'])}: {what}" if what else "nothing to remove")
    if record["quarantine"]["files"]:
        say(_quarantined(record["quarantine"], quarantine, dry))
    say(_state(record))
    if dry:
        say("nothing was changed; run it without --dry-run to do so", dim=True)


def _show_victims(victims: Sequence[dict[str, Any]], *, dry: bool) -> None:
    say("would be evicted, in this order:" if dry else "evicted, in this order:")
    show_rows(_VICTIM, victims)
    say()


_VICTIM = (
    Column("name", lambda victim: ", ".join(victim["names"]) or "(unnamed)", wraps=True),
    Column("block", lambda victim: victim["block_id"][:12]),
    Column("last use", lambda victim: since(victim["last_use"])),
    number("hits"),
    number("frees", lambda victim: size(victim["bytes"])),
)
_NAMED = (Column("block", lambda block: block["block_id"][:12]), Column("name", "name", wraps=True))


def _what(record: dict[str, Any]) -> str:
    left = record["leftovers"]
    parts = [count(len(record["evicted"]), "block")] if record["evicted"] else []
    parts += [f"{count(left['segments'], 'segment')} that no block needs"] if left["segments"] else []
    parts += [f"{count(left['texts'], 'text')} that no name needs"] if left["texts"] else []
    parts += [f"{count(left['temporaries'], 'unfinished file')}"] if left["temporaries"] else []
    return ", ".join(parts)


def _quarantined(found: dict[str, Any], asked: bool, dry: bool) -> str:
    what = f"{count(found['files'], 'file')} ({size(found['bytes'])}) that `check --repair` had moved there"
    if not asked:
        return f"quarantine: {what}; `agentkv gc --quarantine` deletes them"
    return f"{'would delete' if dry else 'deleted'} {what}"


def _state(record: dict[str, Any]) -> str:
    stored, budget, dry = record["stored_bytes"], record["budget_bytes"], record["dry_run"]
    if budget is None:
        text = f"{size(stored)} in use"
        if record["set_budget"]:
            return f"{text}, {'would have' if dry else 'and from now on'} no budget"
        return f"{text}; there is no budget (`agentkv gc --set-budget 20GB` sets one)"
    of = f"{size(stored)} of a budget of {size(budget)} {'would be' if dry else 'are'} in use"
    if not record["fits"]:
        return f"STILL OVER: {of}; the rest is pinned, or is what pinned blocks are stored on top of"
    return of


# --- rm -------------------------------------------------------------------------------------------


_SHOWN = 5


def rm(
    *,
    keys: Keys,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Also remove the blocks that are stored on top of them.")
    ] = False,
    yes: options.Yes = False,
    model: options.ModelFilter = None,
    as_json: bool,
    store: StoreOptions,
) -> Result:
    """Remove blocks with all their names, and say what that freed."""
    from agentkv.store.files import children_of, with_descendants

    with store.open() as opened:
        names = names_by_block(opened)
        asked = find_all(opened, keys, model)
        blocks = dict(opened.files.summaries())
        doomed = with_descendants(children_of({key: summary.parent_id for key, summary in blocks.items()}), asked)
        _refuse_children(doomed, asked, names, recursive)
        _refuse_pinned(opened, doomed, names)
        _ask_rm(opened, doomed, asked, names, yes=yes, as_json=as_json)
        removed = [block_id for block_id in doomed if opened.remove_block(block_id)]
        manifests = sum(blocks[block_id].file_bytes for block_id in removed if block_id in blocks)
        freed = manifests + opened.collect().bytes
        record: dict[str, Any] = {
            "store": opened.root,
            "removed": [{"block_id": block_id, "name": called(names, block_id)} for block_id in removed],
            "freed_bytes": freed,
        }
    return Result(record, lambda: _show_rm(record))


def _ask_rm(
    store: BlockStore, doomed: list[str], asked: list[str], names: Mapping[str, str], *, yes: bool, as_json: bool
) -> None:
    """Have it confirmed, if more goes than was named, or the only copy of a text. Raises NotConfirmed."""

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
        rows = [{"block_id": block_id, "name": called(names, block_id)} for block_id in doomed]
        confirm("; and ".join(parts), yes=yes, as_json=as_json, show=lambda: show_rows(_NAMED, rows))


def _refuse_children(doomed: list[str], asked: list[str], names: Mapping[str, str], recursive: bool) -> None:

    children = sorted(called(names, block_id) for block_id in doomed if block_id not in asked)
    if children and not recursive:
        rest = f" and {len(children) - _SHOWN} more" if len(children) > _SHOWN else ""
        raise UsageError(
            f"{count(len(children), 'block')} cannot be restored without what you name: {', '.join(children[:_SHOWN])}"
            f"{rest}. Nothing was removed. Pass --recursive to remove {'it' if len(children) == 1 else 'them'} too."
        )


def _refuse_pinned(store: BlockStore, doomed: list[str], names: Mapping[str, str]) -> None:

    pinned = store.pinned() & set(doomed)
    if pinned:
        kept = ", ".join(sorted(called(names, block_id) for block_id in pinned))
        ids = " ".join(sorted(block_id[:12] for block_id in pinned))
        raise UsageError(f"pinned: {kept}. Nothing was removed. Run `agentkv unpin {ids}` first.")


def _show_rm(record: dict[str, Any]) -> None:
    show_rows(_NAMED, record["removed"])
    say(f"\n{count(len(record['removed']), 'block')} removed, {size(record['freed_bytes'])} freed")


# --- pin, unpin -----------------------------------------------------------------------------------


Keys = Annotated[list[str], typer.Argument(metavar="NAME|BLOCK_ID...", help="Names, or the first 6 digits of ids.")]


def pin(*, keys: Keys, model: options.ModelFilter = None, store: StoreOptions) -> Result:
    """Keep blocks, and their parents, whatever the budget."""

    with store.open() as opened:
        done = [(block_id, opened.pin(block_id)) for block_id in find_all(opened, keys, model)]
        record = _record(opened, done, pinned=True)
    return Result(record, lambda: _show_pin(record, "pinned", "was pinned already"))


def unpin(*, keys: Keys, model: options.ModelFilter = None, store: StoreOptions) -> Result:
    """Let the budget have blocks again."""

    with store.open() as opened:
        done = [(block_id, opened.unpin(block_id)) for block_id in find_all(opened, keys, model)]
        record = _record(opened, done, pinned=False)
    return Result(record, lambda: _show_pin(record, "unpinned", "was not pinned"))


def _record(store: BlockStore, done: list[tuple[str, bool]], *, pinned: bool) -> dict[str, Any]:
    """What was done: each block as a person knows it, whether it is pinned now and whether that is new."""

    names = names_by_block(store)
    blocks = [
        {"block_id": block_id, "name": called(names, block_id), "pinned": pinned, "changed": changed}
        for block_id, changed in done
    ]
    return {"store": store.root, "blocks": blocks}


def _show_pin(record: dict[str, Any], new: str, old: str) -> None:
    for block in record["blocks"]:
        say(f"{new} {block['name']}" if block["changed"] else f"{block['name']} {old}")
