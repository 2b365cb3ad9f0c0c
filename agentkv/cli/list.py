"""``agentkv list``: the named blocks of a store. Loads no model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import console, count, finish, say, size, table
from agentkv.errors import AgentKVError, StoreError, UnknownBlock

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.cli.inventory import Facts
    from agentkv.records import NamedBlock
    from agentkv.store.uses import Use

_WIDE = 112
_OTHER = "other engine by"


@dataclass(frozen=True)
class Entry:
    """One name. What only a sound block tells is None where there is none; ``fault`` says why.

    ``selected``: whether the engine of the model that was asked for can use it, None if none was, or that is unknown.
    ``differs``: by which fields it is another engine's than `agentkv ask` opens, with both values. Bytes are those on
    disk. ``last_use``: ISO 8601, UTC. ``imported``: whether it came with a pack; ``signed_by``: the key that had signed
    that.
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
    differs: dict[str, Any] | None
    hits: int
    last_use: str | None
    pinned: bool
    imported: bool
    description: str
    source: str
    fault: str | None
    signed_by: str | None = None


def list_(
    model: options.ModelFilter = None,
    signer: Annotated[
        str | None,
        typer.Option("--signer", metavar="NAME|KEY", help="Only what came in packs signed by that key."),
    ] = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """List what is stored, for every engine, what another one has made, and when it was last used.

    With --model, mark what that model can use, with the settings of the environment and of the store.
    """
    from agentkv.cli.differing import expected, say_note
    from agentkv.cli.inventory import ago, last_use, survey
    from agentkv.packs.signers import signers

    with options.open_store(store) as opened:
        meant = expected(opened, model)
        model = None if meant.fingerprint is None else model
        failures: list[AgentKVError] = []
        names = [n for n in opened.names(on_error=failures.append) if n.kind in ("skill", "text")]
        signed = signers(opened)
        if signer is not None:
            keys = signer_keys(signer)
            names = [named for named in names if signed.get(named.block_id) in keys]
        found, uses = survey(opened), opened.uses()
        marks = opened.pinned(), set(opened.files.imports.digests())
        fields = {key: meant.fields(facts.fingerprint) for key, facts in found.blocks.items()}
        entries = [
            _entry(named, found.blocks.get(named.block_id), model, fields, uses, marks, failures) for named in names
        ]
        entries = [replace(entry, signed_by=signed.get(entry.block_id)) for entry in entries]
        note = meant.note((entry.name, fields.get(entry.block_id, {})) for entry in entries)
        sound = not failures and all(facts.fault is None for facts in found.blocks.values())
        record: dict[str, Any] = {
            "store": opened.root,
            "blocks": [asdict(entry) for entry in entries],
            "other_blocks": len(_others(found.blocks, entries, None if signer is None else (signed, keys))),
            "stored_bytes": found.usage.stored if sound else None,
            "raw_bytes": found.usage.states if sound else None,
            "note": note or None,
        }
    when = {entry.block_id: ago(last_use(uses.get(entry.block_id))) for entry in entries}

    def show() -> None:
        _show(record, entries, when, model)
        say_note(meant, note)

    finish(record, as_json, show, failures)


def signer_keys(signer: str) -> set[str]:
    """The keys that ``signer`` means: those trusted under that name, or that key, trusted or not. Raises UsageError."""
    from agentkv.packs import Trust
    from agentkv.signing.keys import parse_public_key

    if signer.startswith("ed25519:"):
        return {parse_public_key(signer)}
    return {entry.key for entry in Trust().of(signer)}


def _others(
    blocks: Collection[str], entries: list[Entry], only: tuple[Mapping[str, str], Collection[str]] | None
) -> set[str]:
    """Blocks without a name; ``only``: those signed by certain keys."""
    others = set(blocks) - {entry.block_id for entry in entries}
    return others if only is None else {block_id for block_id in others if only[0].get(block_id) in only[1]}


def _entry(
    named: NamedBlock,
    facts: Facts | None,
    model: str | None,
    fields: Mapping[str, Fields],
    uses: Mapping[str, Use],
    marks: tuple[Collection[str], Collection[str]],
    failures: list[AgentKVError],
) -> Entry:
    from agentkv.cli.differing import record_of
    from agentkv.cli.inventory import iso, last_use

    differs = fields.get(named.block_id, {})
    fault: StoreError | None
    if facts is None:
        fault = UnknownBlock(named.block_id, f"It is what {named.name!r} points to; deposit it again.")
    else:
        fault = facts.fault
    if fault is not None:
        failures.append(fault)
    use = uses.get(named.block_id)
    return Entry(
        name=named.name,
        kind=named.kind,
        model=facts.model if facts else None,
        fingerprint_id=named.fingerprint_id,
        block_id=named.block_id,
        tokens=facts.tokens if facts else None,
        own_bytes=facts.own_bytes if facts else None,
        shared_bytes=facts.shared_bytes if facts else None,
        exactness=facts.exactness if facts else None,
        selected=None if model is None or facts is None or facts.fingerprint is None else not differs,
        differs=record_of(differs),
        hits=use.hits if use else 0,
        last_use=iso(last_use(use)),
        pinned=named.block_id in marks[0],
        imported=named.block_id in marks[1],
        description=named.description,
        source=named.source,
        fault=fault.message if fault else None,
    )


def _show(record: dict[str, Any], entries: list[Entry], when: Mapping[str, str], model: str | None) -> None:
    if not entries and record["other_blocks"]:
        say(f"no name is left in {record['store']}: {_unnamed(record)}")
        return
    if not entries:
        say(f"nothing is stored in {record['store']} yet. Run `agentkv deposit PATH`, or `agentkv demo`.")
        return
    wide = console().width >= _WIDE
    columns = ["name", "kind", "model", "made by", "tokens", "own", "shared", "hits", "last use", "proof", _OTHER]
    left_out = set() if wide else {"made by", "shared", "kind"}
    left_out |= set() if any(entry.differs for entry in entries) else {_OTHER}
    shown = [column for column in columns if column not in left_out]
    rows = [dict(zip(columns, _cells(entry, when[entry.block_id]), strict=True)) for entry in entries]
    right = ("tokens", "own", "shared", "hits")
    table(shown, [[row[column] for column in shown] for row in rows], right=right, wraps=("name", "model", _OTHER))
    unnamed = record["other_blocks"]
    others = f" and {unnamed:,} unnamed {'one' if unnamed == 1 else 'ones'}" if unnamed else ""
    total = "" if record["stored_bytes"] is None else f": {size(record['stored_bytes'])} on disk"
    say(f"\n{count(len(entries), 'block')}{others} in {record['store']}{total}")
    if record["other_blocks"]:
        say("unnamed: agent prefixes, router cards, windows of documents, and what a name pointed to before", dim=True)
    if model is not None:
        say(f"* can be used with {model}, opened as set", dim=True)


def _unnamed(record: dict[str, Any]) -> str:
    """How many blocks have no name, where no block has one, and how to be rid of them."""
    on_disk = "" if record["stored_bytes"] is None else f", {size(record['stored_bytes'])} on disk"
    return (
        f"{count(record['other_blocks'], 'unnamed block')}{on_disk} (agent prefixes, router cards, windows of "
        "documents, and what a name pointed to before; the next deposit uses what it can of them)"
    )


def _cells(entry: Entry, when: str) -> tuple[str, ...]:
    name = f"{entry.name} (pinned)" if entry.pinned else entry.name
    model = f"{entry.model or '?'}{'*' if entry.selected else ''}"
    head = name, entry.kind, model, entry.fingerprint_id[:8]
    other = ", ".join(entry.differs or ())
    if entry.fault is not None:
        return *head, "", "", "", "", "", "DAMAGED", other
    sizes = f"{entry.tokens:,}", size(entry.own_bytes or 0), size(entry.shared_bytes or 0)
    return *head, *sizes, f"{entry.hits:,}", when, entry.exactness or "", other
