"""``agentkv skills deposit``: bring the store in step with folders: read what is new or changed, retire what is gone.

One bad skill keeps no other out. With other options than last time a skill may be cut otherwise, and is read anew.

Tokens are counted as ``agentkv list`` counts: of whole blocks, the agent prefix included; what was evaluated for them,
cards and proofs included, is called read. Where the store's budget does not hold all of the skills, the command says
which are gone and ends with exit code 48.

``--dry-run`` says what would be done and what it would take, measured, and leaves the store as it is; one that is not
there is not made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, finish, say, size, table, tell
from agentkv.cli.progress import reading_bar, status
from agentkv.cli.skills.common import AllowInexact, Folders, MaxTokens, References, fault_record, open_library
from agentkv.errors import Interrupted, OverBudget

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory
    from agentkv.skills.forecast import Forecast
    from agentkv.skills.library import SkillLibrary
    from agentkv.skills.report import Plan, SkillEvent, SyncReport

DEPOSITS = ("added", "changed", "mended", "replaced")
"""Kinds of events that may stand for a deposit."""


def deposit(
    folders: Folders,
    max_tokens: MaxTokens = None,
    references: References = False,
    allow_inexact: AllowInexact = False,
    keep: Annotated[bool, typer.Option("--keep", help="Retire nothing, whatever is gone from the folders.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do and take, and do nothing.")] = False,
    model: options.Model = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Read the skills that are new or changed, and stop routing to those that are gone."""
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    if dry_run:
        with (
            _store_or_none(store) as place,
            options.open_memory(place, model, settings, create=store != place) as memory,
        ):
            library = open_library(memory, folders, max_tokens, references, allow_inexact)
            plan, cost = _forecast(library, memory, retire=not keep)
            record = _plan_record(plan, cost, options.store_path(store), memory)
        finish(record, as_json, lambda: _show_plan(plan, cost, record), [entry.error for entry in plan.broken])
        return
    with options.open_memory(store, model, settings, create=True) as memory:
        library = open_library(memory, folders, max_tokens, references, allow_inexact)
        report = synced(library, retire=not keep)
        too_small = [_over_budget(report, memory.store.budget or 0)] if report.evicted else []
    failures = [entry.error for entry in report.broken]
    finish(record_of(report), as_json, lambda: _show(report), [*too_small, *failures, *report.problems])


def synced(library: SkillLibrary, *, retire: bool) -> SyncReport:
    """Sync with a bar of what is being read. Raises Interrupted; what is done by then stays."""
    plan = library.plan()
    library.announce(plan)
    return carried_out(library, plan if retire else dataclasses.replace(plan, removed=()))


def carried_out(library: SkillLibrary, plan: Plan) -> SyncReport:
    """Do what a plan says, with a bar of what is being read. Raises Interrupted."""
    counters = library.memory.engine.counters
    with reading_bar(plan.n_tokens, lambda: counters.decoded) as bar:
        try:
            with cancelled_by_ctrl_c() as cancellation:
                return library.carry_out(
                    plan, cancellation, on_work=lambda work: bar.begin(work.manual.name, work.n_tokens)
                )
        except KeyboardInterrupt:
            raise Interrupted from None


# --- what it would do -----------------------------------------------------------------------------


@contextlib.contextmanager
def _store_or_none(store: Path | None) -> Iterator[Path | None]:
    """The store if there is one, else a place for an empty one that is thrown away."""
    if options.store_path(store).exists():
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="agentkv-") as folder:
        yield Path(folder) / "store"


def _forecast(library: SkillLibrary, memory: AgentMemory, *, retire: bool) -> tuple[Plan, Forecast | None]:
    """The plan of a sync, and what it takes by a measurement in a store that is thrown away."""
    from agentkv.memory.memory import AgentMemory
    from agentkv.skills.forecast import forecast
    from agentkv.store.catalog import BlockStore

    plan = library.plan()
    library.announce(plan)
    plan = plan if retire else dataclasses.replace(plan, removed=())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="agentkv-") as folder,
            BlockStore(folder) as thrown_away,
            status("measuring one block"),
            AgentMemory(thrown_away, memory.engine, prefix=memory.prefix) as scratch,
        ):
            return plan, forecast(plan, scratch)
    except KeyboardInterrupt:
        raise Interrupted from None


def _plan_record(plan: Plan, cost: Forecast | None, store: Path, memory: AgentMemory) -> dict[str, Any]:
    kinds = {kind: [work.manual.name for work in plan.work if work.kind == kind] for kind in DEPOSITS}
    budget = memory.store.budget
    return {
        "dry_run": True,
        "store": store,
        "found": len(plan.work) + len(plan.unchanged) + len(plan.broken),
        **kinds,
        "unchanged": [manual.name for manual, _ in plan.unchanged],
        "removed": sorted({named.name for named in plan.removed}),
        "broken": [fault_record(entry.error, entry) for entry in plan.broken],
        "blocks": sum(len(work.missing) for work in plan.work),
        "tokens": plan.n_tokens,
        "estimate": None if cost is None else vars(cost),
        "budget_bytes": budget,
    }


def _show_plan(plan: Plan, cost: Forecast | None, record: dict[str, Any]) -> None:
    if plan.work:
        right = ("blocks", "to read", "tokens")
        cells = [
            (work.manual.name, work.kind, str(len(work.pieces)), str(len(work.missing)), f"{work.n_tokens:,}")
            for work in plan.work
        ]
        table(("name", "", *right), cells, right=right, wraps=("name",))
        say()
    counts = {kind: record[kind] for kind in (*DEPOSITS, "unchanged", "removed", "broken")}
    parts = [f"{len(names)} {what}" for what, names in counts.items() if names]
    say(f"{count(record['found'], 'skill')}: {', '.join(parts) or 'nothing there'}")
    if cost is not None:
        say(
            f"to read: {count(cost.n_blocks, 'block')}, {cost.n_tokens:,} tokens; about {size(cost.n_bytes)} on disk "
            f"and {cost.seconds:,.1f} s, by a block of {cost.measured:,} tokens measured, proofs and cards included"
        )
        if record["budget_bytes"] is not None and cost.n_bytes > record["budget_bytes"]:
            say(f"that is more than the store's budget of {size(record['budget_bytes'])}")
    say("nothing was changed (--dry-run)")


def _over_budget(report: SyncReport, budget: int) -> OverBudget:
    """That the budget does not hold what the folders hold; unlike a deposit that was refused, others are stored."""
    error = OverBudget(report.evicted_bytes, budget, 0)
    names = list(report.evicted)
    error.message = (
        f"the store's budget of {budget:,} bytes is too small for these skills: {count(len(names), 'skill')} went to "
        f"make room for others ({', '.join(names)}). Raise it with `agentkv gc --set-budget SIZE` and deposit again."
    )
    error.args = (error.message,)
    del error.kept
    vars(error).update(evicted=names)
    return error


def record_of(report: SyncReport) -> dict[str, Any]:
    """A report for a script; its counts add up to ``found``."""
    return {
        "found": report.found,
        "added": report.added,
        "changed": report.changed,
        "mended": report.mended,
        "replaced": report.replaced,
        "unchanged": report.unchanged,
        "evicted": report.evicted,
        "removed": report.removed,
        "broken": [fault_record(entry.error, entry) for entry in report.broken],
        "problems": [fault_record(error) for error in report.problems],
        "retired_blocks": report.retired,
        "evicted_names": report.evicted_names,
        "events": [event_record(event) for event in report.events],
    }


def event_record(event: SkillEvent) -> dict[str, Any]:
    """One event for a script."""
    return dict(vars(event))


def _show(report: SyncReport) -> None:
    if report.events:
        right = ("blocks", "tokens", "read", "seconds")
        table(("name", "", *right), _rows(report.events), right=right, wraps=("name", ""))
        say()
    for entry in report.broken:
        if entry.kept:
            tell(f"{entry.folder.name}: its earlier version stays ({', '.join(entry.kept)})")
    counts = {kind: getattr(report, kind) for kind in (*DEPOSITS, "unchanged", "evicted", "broken")}
    parts = [f"{len(names)} {what}" for what, names in counts.items() if names]
    removed = f"; {len(report.removed)} removed" if report.removed else ""
    say(f"{count(report.found, 'skill')}: {', '.join(parts) or 'nothing there'}{removed}")
    if report.evicted_names:
        went = count(len(report.evicted_names), "name")
        say(f"{went} went to keep to the store's budget: {', '.join(report.evicted_names)}")


def _rows(events: Sequence[SkillEvent]) -> list[tuple[str, ...]]:
    return [_cells(event) for event in events]


def _cells(event: SkillEvent) -> tuple[str, ...]:
    what = event.kind if event.was is None else f"{event.kind} (was {event.was})"
    if event.kind not in DEPOSITS:
        return event.name, what, str(event.pieces or ""), "", "", ""
    numbers = f"{event.tokens:,}", f"{event.read:,}", f"{event.seconds:,.2f}"
    return event.name, what, str(event.pieces), *numbers
