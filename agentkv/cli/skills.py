"""``agentkv skills list``: the skills of folders, and what of them is stored; every file of what is stored is read, so
that "stored" means that it can be used. Not guaranteed: that what is stored for one model is stored for yours; each
model has its own line.

``agentkv skills validate``: what the format demands, and what a person should know besides. Faults end with exit code
50; notes do not change it, unless ``--strict`` makes faults of those that the format's public validator refuses.

No model is loaded. The other ``skills`` commands take their options and their library from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import Expected, expected, is_of_model, model_digest, model_name, record_of, say_note
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, count, number, printable, say, show_rows
from agentkv.errors import AgentKVError, InvalidManual, StoreError, UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv.blocks.mismatch import Fields
    from agentkv.errors import AgentKVError
    from agentkv.memory.memory import AgentMemory
    from agentkv.records import NamedBlock
    from agentkv.skills.library import SkillLibrary
    from agentkv.skills.manual import Manual
    from agentkv.skills.report import Broken
    from agentkv.store.catalog import BlockStore


Folders = Annotated[
    list[Path], typer.Argument(metavar="FOLDER...", help="A skill's folder, or a folder of such folders.")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        show_default="what the window leaves",
        help="Split a manual of more tokens into routed parts, on its headings.",
    ),
]
References = Annotated[
    bool, typer.Option("--references", help="Store references/*.md too, each on top of its skill's manual.")
]


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """The folders meant; a SKILL.md stands for its own. Raises UsageError."""
    from agentkv.skills.discovery import FILE_NAMES

    found = [path.parent if path.name in FILE_NAMES and path.is_file() else path for path in paths]
    for path in found:
        if not path.is_dir():
            raise UsageError(f"{path} is not a directory")
    return [path.absolute() for path in found]


def open_library(
    memory: AgentMemory,
    paths: Sequence[Path],
    max_tokens: int | None = None,
    references: bool = False,
    allow_inexact: bool = False,
) -> SkillLibrary:
    """The library of a command."""
    from agentkv.skills.library import SkillLibrary

    return SkillLibrary(
        memory, folders_of(paths), max_tokens=max_tokens, references=references, allow_inexact=allow_inexact
    )


def fault_record(error: AgentKVError, broken: Broken | None = None) -> dict[str, Any]:
    """A fault for a script: where, which line, why, and what stays routed meanwhile."""
    return {
        "path": broken.path if broken else getattr(error, "path", None),
        "line": getattr(error, "line", None),
        "reason": getattr(error, "reason", error.message),
        "kept": list(broken.kept) if broken else [],
    }


# --- list -----------------------------------------------------------------------------------------


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


def list_(*, folders: Folders, model: options.ModelFilter = None, store: StoreOptions) -> Result:
    """List the skills of folders: new, stored, changed, gone, damaged or broken; with --model, for that model only."""
    from agentkv.skills.inventory import Inventory

    inventory = Inventory(folders_of(folders))
    inventory.read()
    manuals, broken = inventory.resolved({})
    for text in inventory.notices:
        warn(text)
    place = store.path
    meant: Expected | None = None
    failures: list[AgentKVError] = [*broken]
    note = ""
    entries = [_new(manual) for manual in manuals]
    if place.exists():
        with store.open() as opened:
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
        _show_list(entries, broken)
        if meant is not None:
            say_note(meant, note)

    return Result(record, show, failures)


def _fields(entry: Entry) -> Fields:
    return {name: (pair["there"], pair["here"]) for name, pair in (entry.differs or {}).items()}


def _fits(store: BlockStore, named: NamedBlock, digest: str | None) -> bool:

    if digest is None:
        return True
    try:
        manifest = store.manifest(named.block_id)
    except StoreError:
        return True  # its model is not known, and that it is corrupt should be shown
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


def _show_list(entries: Sequence[Entry], broken: Sequence[InvalidManual]) -> None:
    rows = [*entries, *(_broken(error) for error in broken)]
    if not rows:
        say("no skills there")
        return
    show_rows(_COLUMNS, sorted(rows, key=lambda entry: (entry.name, entry.state, entry.model or "")))
    states = [entry.state for entry in entries] + ["broken" for _ in broken]
    parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
    say(f"\n{count(len(rows), 'skill')}: {', '.join(parts)}")
    for entry in entries:
        if entry.parts:
            say(f"{entry.name} is stored in {count(len(entry.parts), 'part')}: {', '.join(entry.parts)}", dim=True)


def _broken(error: InvalidManual) -> Entry:
    return Entry(error.path.parent.name, "BROKEN", None, None, None, None, 0, str(error.path.parent))


_COLUMNS = (
    Column("name", "name", wraps=True),
    Column("state", "state"),
    Column("model", "model"),
    number("tokens"),
    number("own", "own_tokens"),
    number("blocks", lambda entry: entry.blocks or None),
    number("files", lambda entry: len(entry.manual.resources) or None if entry.manual else None),
    Column("license", lambda entry: entry.manual.license if entry.manual else None, wraps=True),
    Column("other engine by", lambda entry: ", ".join(entry.differs or ()), wraps=True, optional=True),
)


# --- validate -------------------------------------------------------------------------------------


LONG_LINES = 500
"""More lines than the format recommends for one manual."""


def validate(
    *,
    folders: Folders,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail for what loads and the format's public validator refuses.")
    ] = False,
) -> Result:
    """Check skills: what loads, what loads although it breaks the Agent Skills format, and what may surprise.

    With --strict a skill is valid if the format's public validator accepts it.
    """
    from agentkv.skills.manual import load_manuals

    found = load_manuals(folders_of(folders))
    notes = {manual.name: [*manual.notes, *_notes(manual)] for manual in found.loaded}
    valid = [manual for manual in found.loaded if not manual.violations]
    warned = [manual for manual in found.loaded if manual.violations]
    broken = [*found.broken]
    if strict:
        broken += [_refusal(manual) for manual in warned]
        warned = []
    record = {
        "found": len(found.loaded) + len(found.broken),
        "valid": [{"name": m.name, "path": m.path, "notes": notes[m.name]} for m in valid],
        "warned": [{"name": m.name, "path": m.path, "notes": notes[m.name]} for m in warned],
        "broken": [fault_record(error) for error in broken],
        "notices": found.notices,
    }
    for notice in found.notices:
        warn(notice)
    return Result(record, lambda: _show_validate(valid, warned, broken, notes), broken)


def _refusal(manual: Manual) -> InvalidManual:
    """What the format's validator refuses in a manual that loads, as a fault."""
    from agentkv.skills.discovery import manual_file

    first, *more = manual.violations
    reason = "; ".join([first.reason, *map(str, more)])
    return InvalidManual(manual_file(manual.path), reason, first.line)


def _notes(manual: Manual) -> list[str]:
    """Ours, beyond how the file was read."""
    from agentkv.skills.discovery import missing_resources
    from agentkv.skills.questions import load_routes

    notes = []
    lines = manual.text.count("\n") + 1
    if lines > LONG_LINES:
        notes.append(f"it has {lines:,} lines; the format recommends fewer than {LONG_LINES}, and references/ for more")
    missing = missing_resources(manual.text, manual.resources, manual.path)
    notes += [f"it names {path}, which is not there" for path in missing]
    try:
        routes = load_routes(manual.path)
        others = sorted({route.skill for route in routes if route.skill not in (manual.name, None)}, key=str)
        notes += [f"its routes.jsonl has questions for {other!r}" for other in others]
    except UsageError as error:
        notes.append(error.message)
    return notes


def _show_validate(
    valid: Sequence[Manual],
    warned: Sequence[Manual],
    broken: Sequence[InvalidManual],
    notes: dict[str, list[str]],
) -> None:
    for manual in sorted([*valid, *warned], key=lambda manual: manual.path):
        say(f"{manual.name}: {'valid' if manual in valid else 'loads, and breaks the format'}")
        for note in notes[manual.name]:
            say(f"    note: {printable(note)}", dim=True)
    total = count(len(valid) + len(warned) + len(broken), "skill")
    loads = f"{len(warned)} loaded with a warning, " if warned else ""
    say(f"\n{total}: {len(valid)} valid, {loads}{len(broken)} broken")
