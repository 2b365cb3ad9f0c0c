"""``agentkv skills list``: the skills of folders, and what of them is stored. Loads no model.

Not guaranteed: that what is stored for one model is stored for yours; each model has its own line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.cli import options
from agentkv.cli.output import count, finish, say, table
from agentkv.cli.skills.common import Folders, fault_record, folders_of
from agentkv.errors import InvalidManual, StoreError

if TYPE_CHECKING:
    from agentkv.records import NamedBlock
    from agentkv.skills.manual import Manual
    from agentkv.store.catalog import BlockStore


@dataclass(frozen=True)
class Entry:
    """One skill for one model. ``state``: new, stored, changed, or gone (stored, and its folder is no more).

    ``tokens``: of its ``blocks``, the agent prefix not counted; None where they cannot be read.
    """

    name: str
    state: str
    model: str | None
    fingerprint_id: str | None
    tokens: int | None
    blocks: int
    path: str
    manual: Manual | None = None

    def record(self) -> dict[str, Any]:
        """For a script."""
        manual = self.manual
        known = {key: value for key, value in vars(self).items() if key != "manual"}
        if manual is None:
            return known
        about = ("description", "license", "compatibility", "allowed_tools", "metadata", "resources", "notes")
        return known | {key: getattr(manual, key) for key in about}


def list_(
    folders: Folders,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """List the skills of folders: new, stored, changed, gone or broken; with --model, for that model only."""
    from agentkv.cli.inventory import model_digest
    from agentkv.skills.inventory import Inventory

    inventory = Inventory(folders_of(folders))
    inventory.read()
    manuals, broken = inventory.resolved({})
    place = options.store_path(store)
    names: list[NamedBlock] = []
    entries = [_entry(manual, [], None) for manual in manuals]
    if place.exists():
        with options.open_store(store) as opened:
            digest = None if model is None else model_digest(model)
            names = [named for named in opened.names("skill", on_error=lambda _: None) if _fits(opened, named, digest)]
            entries = list(_entries(opened, manuals, names, inventory.roots, {error.path.parent for error in broken}))
    record = {
        "folders": inventory.roots,
        "store": place,
        "found": len(manuals) + len(broken),
        "skills": [entry.record() for entry in entries],
        "broken": [fault_record(error) for error in broken],
    }
    finish(record, as_json, lambda: _show(entries, broken), broken)


def _fits(store: BlockStore, named: NamedBlock, digest: str | None) -> bool:
    from agentkv.cli.inventory import is_of_model

    if digest is None:
        return True
    try:
        manifest = store.manifest(named.block_id)
    except StoreError:
        return False
    return manifest is not None and is_of_model(manifest, digest)


def _entries(
    store: BlockStore,
    manuals: Sequence[Manual],
    names: Sequence[NamedBlock],
    roots: Sequence[Path],
    broken: set[Path],
) -> Iterator[Entry]:
    """Each skill once a model that it is stored for; then those whose folder is gone."""
    from agentkv.skills.pieces import owner

    groups: dict[tuple[str, str], list[NamedBlock]] = {}
    for named in names:
        groups.setdefault((owner(named.name), named.fingerprint_id), []).append(named)
    for manual in manuals:
        mine = [group for (name, _), group in groups.items() if name == manual.name]
        for group in mine or [[]]:
            yield _entry(manual, group, store)
    there = {manual.name for manual in manuals}
    for (name, _), group in groups.items():
        source = Path(group[0].source)
        if name not in there and source not in broken and any(source.is_relative_to(root) for root in roots):
            yield _about(name, "gone", group, store, str(source))


def _entry(manual: Manual, group: Sequence[NamedBlock], store: BlockStore | None) -> Entry:
    if not group or store is None:
        return Entry(manual.name, "new", None, None, None, 0, str(manual.path), manual)
    state = "stored" if _is_current(manual, group, store) else "changed"
    return _about(manual.name, state, group, store, str(manual.path), manual)


def _about(
    name: str, state: str, group: Sequence[NamedBlock], store: BlockStore, path: str, manual: Manual | None = None
) -> Entry:
    from agentkv.cli.inventory import model_name

    model: str | None = None
    tokens: int | None = 0
    for named in group:
        try:
            manifest = store.manifest(named.block_id)
        except StoreError:
            manifest = None
        if manifest is None or tokens is None:
            tokens = None
        else:
            model, tokens = model_name(manifest.fingerprint), tokens + len(manifest.tokens)
    return Entry(name, state, model, group[0].fingerprint_id, tokens, len(group), path, manual)


def _is_current(manual: Manual, group: Sequence[NamedBlock], store: BlockStore) -> bool:
    """Whether the stored texts are the manual's: one, or parts that make it up. References are not looked at."""
    from agentkv.hashing import sha256

    whole = [named for named in group if named.name == manual.name]
    if whole:
        same_text = whole[0].source_sha256 == sha256(manual.block_text.encode())
        return same_text and whole[0].description == manual.description
    texts = []
    for named in group:
        if not named.description:
            continue
        try:
            text = store.text(named.source_sha256) if named.source_sha256 else None
        except StoreError:
            text = None
        if text is None or not named.description.endswith(manual.description):
            return False
        texts.append(text.removeprefix(f"# Manual: {named.name}\n\n").removesuffix("\n"))
    return sum(map(len, texts)) == len(manual.text) and all(text in manual.text for text in texts)


def _show(entries: Sequence[Entry], broken: Sequence[InvalidManual]) -> None:
    rows = [_cells(entry) for entry in entries] + [(error.path.parent.name, "BROKEN", *[""] * 5) for error in broken]
    if not rows:
        say("no skills there")
        return
    right = ("tokens", "blocks", "files")
    table(("name", "state", "model", *right, "license"), sorted(rows), right=right, wraps=("name", "license"))
    states = [entry.state for entry in entries] + ["broken" for _ in broken]
    parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
    say(f"\n{count(len(rows), 'skill')}: {', '.join(parts)}")


def _cells(entry: Entry) -> tuple[str, ...]:
    tokens = "" if entry.tokens is None else f"{entry.tokens:,}"
    blocks = str(entry.blocks) if entry.blocks else ""
    manual = entry.manual
    files = str(len(manual.resources)) if manual and manual.resources else ""
    licence = (manual.license or "") if manual else ""
    return entry.name, entry.state, entry.model or "", tokens, blocks, files, licence
