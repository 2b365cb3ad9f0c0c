"""``agentkv gc``: remove what nothing needs; with a budget also the blocks that were not used for longest.

``--dry-run`` says what the same command without it would do now, block by block and byte by byte. Where blocks would
be evicted, or the quarantine emptied, a terminal is asked first, and anybody else has to say ``--yes``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.confirm import confirm
from agentkv.cli.output import count, finish, say, size, table
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Get within this now: 500MB, 20GB, 20GiB.")] = None,
    set_budget: Annotated[
        str | None, typer.Option(metavar="SIZE|off", help="Keep the store within this from now on.")
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Also delete what `check --repair` has moved aside.")
    ] = False,
    yes: options.Yes = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Remove what nothing needs, and the least recently used blocks above the budget; pinned ones stay."""
    if budget is not None and set_budget is not None:
        raise UsageError("--budget is for now, --set-budget from now on; pass one of them")
    lasting = _lasting(set_budget)
    with options.open_store(store) as opened:
        wanted = lasting if set_budget is not None else opened.budget if budget is None else parse_size(budget)
        if not dry_run:
            _ask(opened, wanted, quarantine, yes=yes, as_json=as_json)
            if set_budget is not None:
                opened.set_budget(lasting)
        failures: dict[str, StoreError] = {}
        record = _collect(opened, wanted, dry_run, failures)
        record |= {"set_budget": set_budget is not None, "quarantine": _quarantine(opened, quarantine, dry_run)}
    finish(record, as_json, lambda: _show(record, quarantine), list(failures.values()))


def parse_size(text: str) -> int:
    """Bytes of ``500MB``, ``20GB`` (thousands), ``20GiB`` (1,024s) or ``7B``. Raises UsageError.

    A number without a unit is refused: whoever writes 10 may mean GB, and ten bytes would empty a store.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is not None and not found[2]:
        number = found[1]
        raise UsageError(f"{text!r} has no unit. Write {number}GB, {number}MB, or {number}B if you mean bytes.")
    if found is None or found[2] not in _UNITS or (found[2] == "b" and "." in found[1]):
        raise UsageError(f"{text!r} is no size. Write it like 500MB, 20GB, 20GiB, or 12345B for bytes.")
    n_bytes = int(float(found[1]) * _UNITS[found[2]]) if "." in found[1] else int(found[1]) * _UNITS[found[2]]
    if n_bytes > _MOST:
        raise UsageError(f"{text!r} is more than {_MOST:,} bytes")
    return n_bytes


def _ask(store: BlockStore, budget: int | None, quarantine: bool, *, yes: bool, as_json: bool) -> None:
    """Have it confirmed, if blocks would be evicted or the quarantine emptied. Raises NotConfirmed."""
    from agentkv.store.repair import quarantined

    uses = store.uses()
    victims = () if budget is None else store.evict(budget, dry_run=True).victims
    aside, n_bytes = quarantined(store.files) if quarantine else (0, 0)
    parts = []
    if victims:
        freed, within = size(sum(victim.bytes for victim in victims)), size(budget or 0)
        named = sum(bool(victim.names) for victim in victims)
        parts += [f"{count(len(victims), 'block')}, {named:,} of them with a name ({freed}), to get within {within}"]
    parts += [f"{count(aside, 'file')} of the quarantine ({size(n_bytes)})"] if aside else []
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
    from agentkv.cli.inventory import survey

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
    from agentkv.cli.inventory import iso, last_use

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


def _show(record: dict[str, Any], quarantine: bool) -> None:
    dry = record["dry_run"]
    if record["evicted"]:
        _show_victims(record["evicted"], dry=dry)
    what = _what(record)
    say(f"{'would free' if dry else 'freed'} {size(record['freed_bytes'])}: {what}" if what else "nothing to remove")
    aside = record["quarantine"]
    if aside["files"]:
        say(_aside(aside, quarantine, dry))
    say(_state(record))
    if dry:
        say("nothing was changed; run it without --dry-run to do so", dim=True)


def _show_victims(victims: Sequence[dict[str, Any]], *, dry: bool) -> None:
    say("would be evicted, in this order:" if dry else "evicted, in this order:")
    rows = [_row(victim) for victim in victims]
    table(("name", "block", "last use", "hits", "frees"), rows, right=("hits", "frees"), wraps=("name",))
    say()


def _row(victim: dict[str, Any]) -> tuple[str, ...]:
    from datetime import datetime

    from agentkv.cli.inventory import ago

    last = victim["last_use"]
    when = ago(datetime.fromisoformat(last).timestamp()) if last else "never"
    names = ", ".join(victim["names"]) or "(unnamed)"
    return names, victim["block_id"][:12], when, f"{victim['hits']:,}", size(victim["bytes"])


def _what(record: dict[str, Any]) -> str:
    left = record["leftovers"]
    parts = [count(len(record["evicted"]), "block")] if record["evicted"] else []
    parts += [f"{count(left['segments'], 'segment')} that no block needs"] if left["segments"] else []
    parts += [f"{count(left['texts'], 'text')} that no name needs"] if left["texts"] else []
    parts += [f"{count(left['temporaries'], 'unfinished file')}"] if left["temporaries"] else []
    return ", ".join(parts)


def _aside(aside: dict[str, Any], asked: bool, dry: bool) -> str:
    what = f"{count(aside['files'], 'file')} ({size(aside['bytes'])}) that `check --repair` had moved aside"
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
        return f"STILL OVER: {of}; the rest is pinned, or is what pinned blocks are read behind"
    return of
