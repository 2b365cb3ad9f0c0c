"""``agentkv skills deposit``: bring the store in step with folders: read what is new or changed, retire what is gone.

One bad skill keeps no other out. With other options than last time a skill may be cut otherwise, and is read anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, finish, say, table, tell
from agentkv.cli.progress import reading_bar
from agentkv.cli.skills.common import AllowInexact, Folders, MaxTokens, References, fault_record, open_library
from agentkv.errors import Interrupted

if TYPE_CHECKING:
    from agentkv.skills.library import SkillLibrary
    from agentkv.skills.report import SkillEvent, SyncReport


def deposit(
    folders: Folders,
    max_tokens: MaxTokens = None,
    references: References = False,
    allow_inexact: AllowInexact = False,
    keep: Annotated[bool, typer.Option("--keep", help="Retire nothing, whatever is gone from the folders.")] = False,
    model: options.Model = options.DEFAULT_MODEL,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = "f16",
    flash_attention: options.FlashAttention = False,
    gpu_layers: options.GpuLayers = 0,
    as_json: options.Json = False,
) -> None:
    """Read the skills that are new or changed, and stop routing to those that are gone."""
    settings = options.engine_settings(window, threads, kv_type, flash_attention, gpu_layers)
    with options.open_memory(store, model, settings, create=True) as memory:
        library = open_library(memory, folders, max_tokens, references, allow_inexact)
        report = synced(library, retire=not keep)
    failures = [entry.error for entry in report.broken]
    finish(record_of(report), as_json, lambda: _show(report), [*failures, *report.problems])


def synced(library: SkillLibrary, *, retire: bool) -> SyncReport:
    """Sync with a bar of what is being read. Raises Interrupted; what is done by then stays."""
    import dataclasses

    plan = library.plan()
    plan = plan if retire else dataclasses.replace(plan, removed=())
    counters = library.memory.engine.counters
    with reading_bar(plan.n_tokens, lambda: counters.decoded) as bar:
        try:
            with cancelled_by_ctrl_c() as cancellation:
                return library.carry_out(
                    plan, cancellation, on_work=lambda work: bar.begin(work.manual.name, work.n_tokens)
                )
        except KeyboardInterrupt:
            raise Interrupted from None


def record_of(report: SyncReport) -> dict[str, Any]:
    """A report for a script; its counts add up to ``found``."""
    return {
        "found": report.found,
        "added": report.added,
        "changed": report.changed,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "broken": [fault_record(entry.error, entry) for entry in report.broken],
        "problems": [fault_record(error) for error in report.problems],
        "retired_blocks": report.retired,
        "events": [event_record(event) for event in report.events],
    }


def event_record(event: SkillEvent) -> dict[str, Any]:
    """One event for a script."""
    return dict(vars(event))


def _show(report: SyncReport) -> None:
    if report.events:
        table(("name", "", "blocks", "tokens", "seconds"), _rows(report.events), right=("blocks", "tokens", "seconds"))
        say()
    for entry in report.broken:
        if entry.kept:
            tell(f"{entry.folder.name}: its earlier version stays ({', '.join(entry.kept)})")
    counts = [(report.added, "added"), (report.changed, "changed"), (report.unchanged, "unchanged")]
    parts = [f"{len(names)} {what}" for names, what in [*counts, (report.broken, "broken")] if names]
    removed = f"; {len(report.removed)} removed" if report.removed else ""
    say(f"{count(report.found, 'skill')}: {', '.join(parts) or 'nothing there'}{removed}")


def _rows(events: Sequence[SkillEvent]) -> list[tuple[str, ...]]:
    return [(e.name, e.kind, str(e.pieces), f"{e.tokens:,}", f"{e.seconds:,.2f}") for e in events]
