"""``agentkv skills validate``: what the format demands, and what a person should know besides. Needs no model.

Faults end with exit code 50; notes do not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv.cli import options
from agentkv.cli.output import count, finish, printable, say
from agentkv.cli.skills.common import Folders, fault_record, folders_of
from agentkv.errors import InvalidManual, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv.skills.manual import Manual

LONG_LINES = 500
"""More lines than the format recommends for one manual."""


def validate(folders: Folders, as_json: options.Json = False) -> None:
    """Check skills against the Agent Skills format, as its public validator does, and note what may surprise."""
    from agentkv.skills.manual import load_manuals

    found = load_manuals(folders_of(folders))
    notes = {manual.name: [*manual.notes, *_notes(manual)] for manual in found.loaded}
    record = {
        "found": len(found.loaded) + len(found.broken),
        "valid": [{"name": m.name, "path": m.path, "notes": notes[m.name]} for m in found.loaded],
        "broken": [fault_record(error) for error in found.broken],
    }
    finish(record, as_json, lambda: _show(found.loaded, notes, found.broken), found.broken)


def _notes(manual: Manual) -> list[str]:
    """Ours, beyond how the file was read."""
    from agentkv.skills.questions import load_routes
    from agentkv.skills.resources import missing_resources

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


def _show(manuals: Sequence[Manual], notes: dict[str, list[str]], broken: Sequence[InvalidManual]) -> None:
    for manual in manuals:
        say(f"{manual.name}: valid")
        for note in notes[manual.name]:
            say(f"    note: {printable(note)}", dim=True)
    total = len(manuals) + len(broken)
    say(f"\n{count(total, 'skill')}: {len(manuals)} valid, {len(broken)} broken")
