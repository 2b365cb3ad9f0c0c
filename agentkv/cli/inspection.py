"""``agentkv list``: the named blocks of a store. ``agentkv show``: one block in full, from its manifest.

No model is loaded, no state read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import expected, model_name, record_of, say_note
from agentkv.cli.inventory import ago, find, iso, last_use, since, survey
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, console, count, facts, number, one_line, say, show_rows, size
from agentkv.errors import AgentKVError, CorruptBlock, StoreError, UnknownBlock

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.cli.inventory import Facts
    from agentkv.records import Manifest, NamedBlock
    from agentkv.store.catalog import BlockStore
    from agentkv.store.uses import Use


_WIDE = 112


@dataclass(frozen=True)
class Entry:
    """One name. What only a valid block shows is None where it is corrupt; ``fault`` says why.

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
    *,
    model: options.ModelFilter = None,
    signer: Annotated[
        str | None,
        typer.Option("--signer", metavar="NAME|KEY", help="Only what came in packs signed by that key."),
    ] = None,
    store: StoreOptions,
) -> Result:
    """List what is stored, for every engine, what another one has made, and when it was last used.

    With --model, mark what that model can use, with the settings of the environment and of the store.
    """
    from agentkv.packs.importing import signers

    with store.open() as opened:
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
        valid = not failures and all(facts.fault is None for facts in found.blocks.values())
        record: dict[str, Any] = {
            "store": opened.root,
            "blocks": [asdict(entry) for entry in entries],
            "other_blocks": len(_others(found.blocks, entries, None if signer is None else (signed, keys))),
            "stored_bytes": found.usage.stored if valid else None,
            "raw_bytes": found.usage.states if valid else None,
            "note": note or None,
        }
    when = {entry.block_id: ago(last_use(uses.get(entry.block_id))) for entry in entries}

    def show() -> None:
        _show(record, entries, when, model)
        say_note(meant, note)

    return Result(record, show, failures)


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
    known: Facts | None,
    model: str | None,
    fields: Mapping[str, Fields],
    uses: Mapping[str, Use],
    marks: tuple[Collection[str], Collection[str]],
    failures: list[AgentKVError],
) -> Entry:

    differs = fields.get(named.block_id, {})
    fault: StoreError | None
    if known is None:
        fault = UnknownBlock(named.block_id, f"It is what {named.name!r} points to; deposit it again.")
    else:
        fault = known.fault
    if fault is not None:
        failures.append(fault)
    use = uses.get(named.block_id)
    return Entry(
        name=named.name,
        kind=named.kind,
        model=known.model if known else None,
        fingerprint_id=named.fingerprint_id,
        block_id=named.block_id,
        tokens=known.tokens if known else None,
        own_bytes=known.own_bytes if known else None,
        shared_bytes=known.shared_bytes if known else None,
        exactness=known.exactness if known else None,
        selected=None if model is None or known is None or known.fingerprint is None else not differs,
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
    show_rows(_columns(when, wide=console().width >= _WIDE), entries)
    unnamed = record["other_blocks"]
    others = f" and {unnamed:,} unnamed {'one' if unnamed == 1 else 'ones'}" if unnamed else ""
    total = "" if record["stored_bytes"] is None else f": {size(record['stored_bytes'])} on disk"
    say(f"\n{count(len(entries), 'block')}{others} in {record['store']}{total}")
    if record["other_blocks"]:
        say("unnamed: agent prefixes, router cards, chunks of documents, and what a name pointed to before", dim=True)
    if model is not None:
        say(f"* can be used with {model}, opened as set", dim=True)


def _unnamed(record: dict[str, Any]) -> str:
    """How many blocks have no name, where no block has one, and how to be rid of them."""
    on_disk = "" if record["stored_bytes"] is None else f", {size(record['stored_bytes'])} on disk"
    return (
        f"{count(record['other_blocks'], 'unnamed block')}{on_disk} (agent prefixes, router cards, chunks of "
        "documents, and what a name pointed to before; the next deposit uses what it can of them)"
    )


def _columns(when: Mapping[str, str], *, wide: bool) -> list[Column]:
    """The columns of the list. ``when``: last uses, by block id; ``wide``: whether the terminal has room for all."""

    def known(value: Callable[[Entry], object]) -> Callable[[Entry], object]:
        return lambda entry: None if entry.fault is not None else value(entry)

    columns = [
        Column("name", lambda entry: f"{entry.name} (pinned)" if entry.pinned else entry.name, wraps=True),
        Column("kind", "kind"),
        Column("model", lambda entry: f"{entry.model or '?'}{'*' if entry.selected else ''}", wraps=True),
        Column("made by", lambda entry: entry.fingerprint_id[:8]),
        number("tokens", known(lambda entry: entry.tokens)),
        number("own", known(lambda entry: size(entry.own_bytes or 0))),
        number("shared", known(lambda entry: size(entry.shared_bytes or 0))),
        number("hits", known(lambda entry: entry.hits)),
        Column("last use", known(lambda entry: when[entry.block_id])),
        Column("proof", lambda entry: "CORRUPT" if entry.fault is not None else entry.exactness),
        Column("other engine by", lambda entry: ", ".join(entry.differs or ()), wraps=True, optional=True),
    ]
    return columns if wide else [column for column in columns if column.title not in ("made by", "shared", "kind")]


# --- show -----------------------------------------------------------------------------------------


_SOURCE_LINES, _SOURCE_BYTES = 6, 4096
_TOKENS_A_LINE = 12
_OF_A_NAME = {"kind", "name", "description", "source", "source_sha256", "license"}
_DECISIONS = {
    "trusted": "signed by a key that was trusted",
    "unknown-key": "signed by a key that was not trusted; the import allowed it",
    "unsigned": "not signed; the import allowed it",
}


def show(
    *,
    key: Annotated[str, typer.Argument(metavar="NAME|BLOCK_ID", help="A name, or the first 6 digits of an id.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="Print the block's own token ids too.")] = False,
    model: options.ModelFilter = None,
    store: StoreOptions,
) -> Result:
    """Show a block: its chain, segments, sizes, uses, proof, fingerprint and where it came from."""
    from agentkv.errors import UnknownBlock

    with store.open() as opened:
        block_id = find(opened, key, model)
        manifest = opened.manifest(block_id)
        if manifest is None:
            raise UnknownBlock(block_id, "Its name is left, the block is gone; deposit the text again.")
        meant = expected(opened, model)
        fields = meant.fields(manifest.fingerprint)
        record = describe(opened, manifest) | {"differs": record_of(fields)}
        words = meant.in_words(fields)
    if tokens:
        record["own_tokens"] = list(manifest.tokens)
    return Result(record, lambda: _print(record, words))


def describe(store: BlockStore, manifest: Manifest) -> dict[str, Any]:
    """Everything that is known of a block without its state."""

    imported, use = store.imported(manifest.block_id), store.uses().get(manifest.block_id)
    names = [n for n in store.names(on_error=lambda _: None) if n.block_id == manifest.block_id]
    sizes = store.sizes(manifest)
    return {
        "block_id": manifest.block_id,
        "names": [n.model_dump(mode="json", include=_OF_A_NAME) for n in names],
        "chain": _chain(store, manifest),
        "tokens": manifest.n_tokens,
        "hits": use.hits if use else 0,
        "last_use": iso(last_use(use)),
        "pinned": manifest.block_id in store.pinned(),
        "imported": imported.model_dump(mode="json", exclude={"format", "block_id"}) if imported else None,
        "adopted_from": manifest.adopted_from.model_dump(mode="json") if manifest.adopted_from else None,
        "exactness": manifest.exactness.value,
        "probe": manifest.probe.model_dump(mode="json") if manifest.probe else None,
        "state_sha256": manifest.state_sha256,
        "raw_bytes": sizes.raw,
        "own_bytes": sizes.own_stored,
        "shared_bytes": sizes.shared_stored,
        "segments": [ref.model_dump(mode="json") for ref in manifest.segments],
        "model": model_name(manifest.fingerprint, store),
        "fingerprint_id": manifest.fingerprint.id,
        "fingerprint": manifest.fingerprint.model_dump(mode="json"),
        "source_begins": next((lines for n in names if (lines := _text_begins(store, n))), []),
    }


def _chain(store: BlockStore, manifest: Manifest) -> list[dict[str, Any]]:
    """The block's parents, root first, and itself; a parent that is gone has no token count."""
    links: list[dict[str, Any]] = []
    here: Manifest | None = manifest
    while here is not None:
        links.insert(0, {"block_id": here.block_id, "own_tokens": len(here.tokens)})
        parent_id, here = here.parent_id, store.manifest(here.parent_id) if here.parent_id else None
        if parent_id and here is None:
            links.insert(0, {"block_id": parent_id, "own_tokens": None})
    return links


def _text_begins(store: BlockStore, named: NamedBlock) -> list[str]:
    """The first lines of the text that was deposited; of the file that it came from where the store lacks it."""
    text = None
    with contextlib.suppress(CorruptBlock):
        text = store.text(named.source_sha256) if named.source_sha256 else None
    return _first_lines(named.source) if text is None else text.splitlines()[:_SOURCE_LINES]


def _first_lines(source: str) -> list[str]:
    if not source:
        return []
    path = Path(source)
    try:
        path = path / "SKILL.md" if path.is_dir() else path
        if not path.is_file():
            return []
        with path.open("rb") as file:
            text = file.read(_SOURCE_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[:_SOURCE_LINES]


def _print(record: dict[str, Any], other: str) -> None:
    rows: list[tuple[str, str]] = []
    fields = record["fingerprint"]["content"] | record["fingerprint"]["numerics"]
    for named in record["names"]:
        rows += [("name", f"{named['name']} ({named['kind']})"), ("for", named["description"])]
        rows += [("license", one_line(named["license"], 200)), ("source", named["source"])]
    if not record["names"]:
        rows += [("name", "none: an agent prefix, a router card, or a block that lost its name")]
    rows += [
        ("block", record["block_id"]),
        ("chain", " → ".join(_link(link) for link in record["chain"])),
        ("used", _uses(record)),
        ("imported", _import(record["imported"])),
        ("exactness", _exactness(record)),
        ("state", f"{size(record['raw_bytes'])} in memory, SHA-256 {record['state_sha256'][:16]}…"),
        (
            "on disk",
            f"{size(record['own_bytes'])} of its own, {size(record['shared_bytes'])} shared with its parent",
        ),
        ("segments", _segments(record["segments"])),
        ("model", record["model"]),
        ("fingerprint", record["fingerprint_id"]),
        ("other engine", f"than `agentkv ask` opens here: {other}" if other else ""),
        ("", "; ".join(f"{key} {_field(value)}" for key, value in fields.items())),
    ]
    facts(row for row in rows if row[1])
    if record["source_begins"]:
        say("\nthe text begins:")
        for line in record["source_begins"]:
            say(f"  {one_line(line, console().width - 2)}", dim=True)
    if "own_tokens" in record:
        ids = record["own_tokens"]
        say(f"\n{count(len(ids), 'token')} of its own:")
        for start in range(0, len(ids), _TOKENS_A_LINE):
            say(" ".join(str(token) for token in ids[start : start + _TOKENS_A_LINE]))


def _link(link: dict[str, Any]) -> str:
    own = "gone" if link["own_tokens"] is None else count(link["own_tokens"], "token")
    return f"{link['block_id'][:12]} ({own})"


def _uses(record: dict[str, Any]) -> str:

    hits, last = record["hits"], record["last_use"]
    text = f"{count(hits, 'time')}, the last {since(last)}" if last else "never"
    return f"{text}; pinned: it is never evicted" if record["pinned"] else text


def _import(imported: dict[str, Any] | None) -> str:
    if imported is None:
        return ""
    by = f" ({imported['signed_by'][:24]}…)" if imported["signed_by"] else ""
    return f"from pack {imported['pack_sha256'][:16]}…, {_DECISIONS[imported['decision']]}{by}"


def _exactness(record: dict[str, Any]) -> str:
    probe = record["probe"]
    adopted = ", computed by another build with the same bits" if record["adopted_from"] else ""
    if probe is None:
        return f"{record['exactness']}{adopted}, without a proof"
    steps = f"{probe['steps']} steps from token {probe['token']}"
    return f"{record['exactness']}{adopted}; proof: {steps}, {probe['sha256'][:16]}…"


def _segments(segments: list[dict[str, Any]]) -> str:
    sections = sorted({ref["section"] for ref in segments})
    cuts = [f"{ref['start']}–{ref['stop']}" for ref in segments if ref["section"] == sections[0]]
    of = f" in {count(len(sections), 'cache')}" if len(sections) > 1 else ""
    shown = cuts if len(cuts) <= 8 else [*cuts[:4], "…", *cuts[-2:]]
    return f"{len(segments)}{of}, cut at tokens {', '.join(shown)}"


def _field(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    return "none" if value is None else str(value)
