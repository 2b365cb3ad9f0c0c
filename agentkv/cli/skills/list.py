"""``agentkv skills list``: the skills of folders, and what of them is stored. Loads no model.

Every file of what is stored is read once, so that "stored" means that it can be used.

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
from agentkv.errors import AgentKVError, InvalidManual, StoreError
from agentkv.notices import warn

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.cli.differing import Expected
    from agentkv.records import NamedBlock
    from agentkv.skills.manual import Manual
    from agentkv.store.catalog import BlockStore


@dataclass(frozen=True)
class Entry:
    """One skill for one model.

    ``state``: new, stored, changed, gone (stored, and its folder is no more), damaged (stored, and to be deposited
    again) or unreadable (the system refused); ``fault`` says why for the last two. ``tokens``: of its ``blocks``, each
    with the agent prefix, as ``agentkv list`` counts; ``own_tokens``: without what each follows; None where they cannot
    be read. ``parts``: the names of a manual's parts, where it was split. ``differs``: by which fields it is another
    engine's than `agentkv ask` opens.
    """

    name: str
    state: str
    model: str | None
    fingerprint_id: str | None
    tokens: int | None
    own_tokens: int | None
    blocks: int
    path: str
    parts: tuple[str, ...] = ()
    differs: dict[str, Any] | None = None
    fault: str | None = None
    manual: Manual | None = None

    def record(self) -> dict[str, Any]:
        """For a script."""
        manual = self.manual
        known = {key: value for key, value in vars(self).items() if key != "manual"}
        if manual is None:
            return known
        about = ("description", "license", "compatibility", "allowed_tools", "metadata", "resources", "routed", "notes")
        return known | {key: getattr(manual, key) for key in about}


def list_(
    folders: Folders,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """List the skills of folders: new, stored, changed, gone, damaged or broken; with --model, for that model only."""
    from agentkv.cli.differing import expected, say_note
    from agentkv.cli.inventory import model_digest
    from agentkv.skills.inventory import Inventory

    inventory = Inventory(folders_of(folders))
    inventory.read()
    manuals, broken = inventory.resolved({})
    for text in inventory.notices:
        warn(text)
    place = options.store_path(store)
    meant: Expected | None = None
    failures: list[AgentKVError] = [*broken]
    note = ""
    entries = [_new(manual) for manual in manuals]
    if place.exists():
        with options.open_store(store) as opened:
            digest = None if model is None else model_digest(model)
            names = list(opened.names("skill", on_error=failures.append))
            apart = {error.path.parent for error in broken}
            meant = expected(opened, model)
            entries = list(_entries(opened, manuals, names, inventory.roots, apart, failures, meant, digest))
            note = meant.note((entry.name, _fields(entry)) for entry in entries if entry.blocks or entry.differs)
    record = {
        "folders": inventory.roots,
        "store": place,
        "found": len(manuals) + len(broken),
        "skills": [entry.record() for entry in entries],
        "broken": [fault_record(error) for error in broken],
        "note": note or None,
    }

    def show() -> None:
        _show(entries, broken)
        if meant is not None:
            say_note(meant, note)

    finish(record, as_json, show, failures)


def _fields(entry: Entry) -> Fields:
    return {name: (pair["there"], pair["here"]) for name, pair in (entry.differs or {}).items()}


def _fits(store: BlockStore, named: NamedBlock, digest: str | None) -> bool:
    from agentkv.cli.inventory import is_of_model

    if digest is None:
        return True
    try:
        manifest = store.manifest(named.block_id)
    except StoreError:
        return True  # of which model it is cannot be told, and that it is damaged should be
    return manifest is None or is_of_model(manifest, digest)


def _entries(
    store: BlockStore,
    manuals: Sequence[Manual],
    names: Sequence[NamedBlock],
    roots: Sequence[Path],
    broken: set[Path],
    failures: list[AgentKVError],
    meant: Expected,
    digest: str | None,
) -> Iterator[Entry]:
    """Each skill once a model that it is stored for; then those whose folder is gone. Faults go to ``failures``.

    ``digest``: of that model only, None for all; what is stored for others alone is new, with what differs.
    """
    from agentkv.skills.pieces import owner

    groups: dict[tuple[str, str], list[NamedBlock]] = {}
    away: dict[str, NamedBlock] = {}
    for named in names:
        if _fits(store, named, digest):
            groups.setdefault((owner(named.name), named.fingerprint_id), []).append(named)
        else:
            away.setdefault(owner(named.name), named)
    for manual in manuals:
        mine = [group for (name, _), group in groups.items() if name == manual.name]
        for group in mine:
            state, fault = _state(manual, group, store, failures)
            yield _about(manual.name, state, group, meant, str(manual.path), manual, fault)
        if not mine:
            yield _new(manual, meant, away.get(manual.name))
    there = {manual.name for manual in manuals}
    for (name, _), group in groups.items():
        source = Path(group[0].source)
        if name not in there and source not in broken and any(source.is_relative_to(root) for root in roots):
            yield _about(name, "gone", group, meant, str(source))


def _new(manual: Manual, meant: Expected | None = None, away: NamedBlock | None = None) -> Entry:
    from agentkv.cli.differing import record_of

    differs = None if meant is None or away is None else record_of(meant.of_block(away.block_id))
    return Entry(manual.name, "new", None, None, None, None, 0, str(manual.path), differs=differs, manual=manual)


def _about(
    name: str,
    state: str,
    group: Sequence[NamedBlock],
    meant: Expected,
    path: str,
    manual: Manual | None = None,
    fault: str | None = None,
) -> Entry:
    from agentkv.cli.differing import record_of
    from agentkv.cli.inventory import model_name
    from agentkv.skills.stored import parts_of

    store = meant.store
    model: str | None = None
    tokens, own, known = 0, 0, True
    for named in group:
        try:
            manifest = store.manifest(named.block_id)
        except StoreError:
            manifest = None
        if manifest is None:
            known = False
            continue
        model = model_name(manifest.fingerprint, store)
        tokens, own = tokens + manifest.n_tokens, own + len(manifest.tokens)
    return Entry(
        name,
        state,
        model,
        fingerprint_id=group[0].fingerprint_id,
        tokens=tokens if known else None,
        own_tokens=own if known else None,
        blocks=len(group),
        path=path,
        parts=tuple(parts_of(name, [named.name for named in group])),
        differs=record_of(meant.of_block(group[0].block_id)),
        fault=fault,
        manual=manual,
    )


def _state(
    manual: Manual, group: Sequence[NamedBlock], store: BlockStore, failures: list[AgentKVError]
) -> tuple[str, str | None]:
    """What a look at the files of what is stored, and at the manual, shows; and why it cannot be used."""
    from agentkv.skills.stored import fault_of, is_current

    state, fault = "damaged", None
    try:
        fault = next((found for found in (fault_of(store, named) for named in group) if found is not None), None)
        if fault is None:
            return ("stored" if is_current(store, manual, group) else "changed"), None
    except StoreError as error:
        state, fault = "unreadable", error
    failures.append(fault)
    return state, fault.message


def _show(entries: Sequence[Entry], broken: Sequence[InvalidManual]) -> None:
    rows = [_cells(entry) for entry in entries] + [(error.path.parent.name, "BROKEN", *[""] * 7) for error in broken]
    if not rows:
        say("no skills there")
        return
    right = ("tokens", "own", "blocks", "files")
    columns = ("name", "state", "model", *right, "license", "other engine by")
    shown = columns if any(entry.differs for entry in entries) else columns[:-1]
    table(shown, [row[: len(shown)] for row in sorted(rows)], right=right, wraps=("name", "license", columns[-1]))
    states = [entry.state for entry in entries] + ["broken" for _ in broken]
    parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
    say(f"\n{count(len(rows), 'skill')}: {', '.join(parts)}")
    for entry in entries:
        if entry.parts:
            say(f"{entry.name} is stored in {count(len(entry.parts), 'part')}: {', '.join(entry.parts)}", dim=True)


def _cells(entry: Entry) -> tuple[str, ...]:
    tokens = ["" if number is None else f"{number:,}" for number in (entry.tokens, entry.own_tokens)]
    blocks = str(entry.blocks) if entry.blocks else ""
    manual = entry.manual
    files = str(len(manual.resources)) if manual and manual.resources else ""
    licence = (manual.license or "") if manual else ""
    return entry.name, entry.state, entry.model or "", *tokens, blocks, files, licence, ", ".join(entry.differs or ())
