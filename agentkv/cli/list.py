"""``agentkv list``: the named blocks of a store. Loads no model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agentkv.cli import options
from agentkv.cli.output import count, finish, say, size, table
from agentkv.errors import AgentKVError, StoreError, UnknownBlock

if TYPE_CHECKING:
    from agentkv.records import NamedBlock
    from agentkv.store.catalog import BlockStore


@dataclass(frozen=True)
class Entry:
    """One name. What only a sound block tells is None where there is none; ``fault`` says why.

    ``selected``: whether it is of the model that was asked for, None if none was. Bytes are those on disk.
    """

    name: str
    kind: str
    model: str | None
    fingerprint_id: str
    block_id: str
    tokens: int | None
    own_bytes: int | None
    shared_bytes: int | None
    exactness: str | None
    selected: bool | None
    description: str
    source: str
    fault: str | None


def list_(
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """List what is stored, for every model; with --model, mark what that model can use."""
    from agentkv.cli.inventory import model_digest, usage

    with options.open_store(store) as opened:
        digest = None if model is None else model_digest(model)
        failures: list[AgentKVError] = []
        names = [n for n in opened.names(on_error=failures.append) if n.kind in ("skill", "text")]
        entries = [_entry(opened, named, digest, failures) for named in names]
        manifests, others = _manifests(opened, {entry.block_id for entry in entries})
        total = usage(opened, manifests) if not failures else None
        record: dict[str, Any] = {
            "store": opened.root,
            "blocks": [asdict(entry) for entry in entries],
            "other_blocks": others,
            "stored_bytes": total.stored if total else None,
            "raw_bytes": total.states if total else None,
        }
    finish(record, as_json, lambda: _show(record, entries, model), failures)


def _entry(store: BlockStore, named: NamedBlock, digest: str | None, failures: list[AgentKVError]) -> Entry:
    from agentkv.cli.inventory import is_of_model, model_name

    facts: dict[str, Any] = dict.fromkeys(
        ("model", "tokens", "own_bytes", "shared_bytes", "exactness", "selected", "fault")
    )
    try:
        manifest = store.manifest(named.block_id)
        if manifest is None:
            raise UnknownBlock(named.block_id, f"It is what {named.name!r} points to; deposit it again.")
        facts |= {"model": model_name(manifest.fingerprint), "tokens": manifest.n_tokens}
        facts |= {"exactness": manifest.exactness.value}
        facts["selected"] = None if digest is None else is_of_model(manifest, digest)
        sizes = store.sizes(manifest)
        facts |= {"own_bytes": sizes.own_stored, "shared_bytes": sizes.shared_stored}
    except StoreError as error:
        failures.append(error)
        facts["fault"] = error.message
    return Entry(
        name=named.name,
        kind=named.kind,
        fingerprint_id=named.fingerprint_id,
        block_id=named.block_id,
        description=named.description,
        source=named.source,
        **facts,
    )


def _manifests(store: BlockStore, named: set[str]) -> tuple[list[Any], int]:
    """All sound manifests, and how many blocks no name in the list points at."""
    found, others = [], 0
    for block_id in store.block_ids():
        others += block_id not in named
        try:
            found.append(store.manifest(block_id))
        except StoreError:
            continue
    return [manifest for manifest in found if manifest is not None], others


def _show(record: dict[str, Any], entries: list[Entry], model: str | None) -> None:
    if not entries:
        say(f"nothing is stored in {record['store']} yet. Run `agentkv deposit PATH`, or `agentkv demo`.")
        return
    numbers = ("tokens", "own", "shared")
    columns = ("name", "kind", "model", "made by", *numbers, "proof")
    table(columns, [_cells(entry) for entry in entries], right=numbers, wraps=("model",))
    others = f" and {record['other_blocks']:,} unnamed ones" if record["other_blocks"] else ""
    total = "" if record["stored_bytes"] is None else f": {size(record['stored_bytes'])} on disk"
    say(f"\n{count(len(entries), 'block')}{others} in {record['store']}{total}")
    if record["other_blocks"]:
        say("unnamed: agent prefixes, router cards, and what a name pointed to before", dim=True)
    if model is not None:
        say(f"* made with {model}", dim=True)


def _cells(entry: Entry) -> tuple[str, ...]:
    model = f"{entry.model or '?'}{'*' if entry.selected else ''}"
    if entry.fault is not None:
        return entry.name, entry.kind, model, entry.fingerprint_id[:8], "", "", "", "DAMAGED"
    return (
        entry.name,
        entry.kind,
        model,
        entry.fingerprint_id[:8],
        f"{entry.tokens:,}",
        size(entry.own_bytes or 0),
        size(entry.shared_bytes or 0),
        entry.exactness or "",
    )
