"""``agentkv skills validate``: what the format demands, and what a person should know besides. Needs no model.

Faults end with exit code 50; notes do not change it, unless ``--strict`` makes faults of those that the format's public
validator refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, printable, say
from agentkv.cli.skills.common import Folders, fault_record, folders_of
from agentkv.errors import InvalidManual, UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv.skills.manual import Manual

LONG_LINES = 500
"""More lines than the format recommends for one manual."""


def validate(
    folders: Folders,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail for what loads and the format's public validator refuses.")
    ] = False,
    as_json: options.Json = False,
) -> None:
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
    finish(record, as_json, lambda: _show(valid, warned, broken, notes), broken)


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


def _show(
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
