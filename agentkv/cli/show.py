"""``agentkv show``: one block in full, from its manifest. Loads no model and reads no state."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import console, count, finish, one_line, say, size, table
from agentkv.errors import CorruptBlock

if TYPE_CHECKING:
    from agentkv.records import Manifest, NamedBlock
    from agentkv.store.catalog import BlockStore

_SOURCE_LINES, _SOURCE_BYTES = 6, 4096
_TOKENS_A_LINE = 12
_OF_A_NAME = {"kind", "name", "description", "source", "source_sha256", "license"}
_DECISIONS = {
    "trusted": "signed by a key that was trusted",
    "unknown-key": "signed by a key that was not trusted; the import allowed it",
    "unsigned": "not signed; the import allowed it",
}


def show(
    key: Annotated[str, typer.Argument(metavar="NAME|BLOCK_ID", help="A name, or the first 6 digits of an id.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="Print the block's own token ids too.")] = False,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Show a block: its chain, segments, sizes, uses, proof, fingerprint and where it came from."""
    from agentkv.cli.differing import expected, record_of
    from agentkv.cli.inventory import find
    from agentkv.errors import UnknownBlock

    with options.open_store(store) as opened:
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
    finish(record, as_json, lambda: _print(record, words))


def describe(store: BlockStore, manifest: Manifest) -> dict[str, Any]:
    """Everything that is known of a block without its state."""
    from agentkv.cli.inventory import iso, last_use, model_name

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
    _pairs([row for row in rows if row[1]])
    if record["source_begins"]:
        say("\nthe text begins:")
        for line in record["source_begins"]:
            say(f"  {one_line(line, console().width - 2)}", dim=True)
    if "own_tokens" in record:
        ids = record["own_tokens"]
        say(f"\n{count(len(ids), 'token')} of its own:")
        for start in range(0, len(ids), _TOKENS_A_LINE):
            say(" ".join(str(token) for token in ids[start : start + _TOKENS_A_LINE]))


def _pairs(rows: list[tuple[str, str]]) -> None:
    table(("", " "), rows, wraps=(" ",), header=False)


def _link(link: dict[str, Any]) -> str:
    own = "gone" if link["own_tokens"] is None else count(link["own_tokens"], "token")
    return f"{link['block_id'][:12]} ({own})"


def _uses(record: dict[str, Any]) -> str:
    from agentkv.cli.inventory import ago

    hits, last = record["hits"], record["last_use"]
    text = f"{count(hits, 'time')}, the last {ago(datetime.fromisoformat(last).timestamp())}" if last else "never"
    return f"{text}; pinned: it is never evicted" if record["pinned"] else text


def _import(imported: dict[str, Any] | None) -> str:
    if imported is None:
        return ""
    by = f" ({imported['signed_by'][:24]}…)" if imported["signed_by"] else ""
    return f"from pack {imported['pack_sha256'][:16]}…, {_DECISIONS[imported['decision']]}{by}"


def _exactness(record: dict[str, Any]) -> str:
    probe = record["probe"]
    if probe is None:
        return f"{record['exactness']}, without a proof"
    steps = f"{probe['steps']} steps from token {probe['token']}"
    return f"{record['exactness']}; proof: {steps}, {probe['sha256'][:16]}…"


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
