"""``agentkv skills deposit``: bring the store in step with folders: deposit what is new or changed, retire the rest.
``agentkv skills watch``: the same from now on, until Ctrl-C.

One bad skill keeps no other out. With other options than last time a skill may be cut otherwise and prefilled again.
Tokens are counted as ``agentkv list`` counts: of whole blocks, the agent prefix included; what was evaluated for them,
cards and proofs included, is called prefilled. Where the store's budget does not hold all of the skills, the command
says which are gone and ends with exit code 48.

``--dry-run`` says what would be done and what it would take, measured, and leaves the store as it is; one that is not
there is not made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import Column, count, number, picked, print_json, say, show_rows, size, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, prefill_bar, status
from agentkv.cli.skills import Folders, MaxTokens, References, fault_record, open_library
from agentkv.errors import Interrupted, OverBudget

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory
    from agentkv.skills.forecast import Forecast
    from agentkv.skills.library import SkillLibrary
    from agentkv.skills.report import Plan, SkillEvent, SyncReport


DEPOSITS = ("added", "changed", "mended", "replaced")
"""Kinds of events that may stand for a deposit."""


def deposit(
    *,
    folders: Folders,
    max_tokens: MaxTokens = None,
    references: References = False,
    allow_inexact: options.AllowInexact = False,
    keep: Annotated[bool, typer.Option("--keep", help="Retire nothing, whatever is gone from the folders.")] = False,
    dry_run: options.DryRun = False,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Deposit the skills that are new or changed, and stop routing to those that are gone."""
    model, settings = engine.chosen(store)
    if dry_run:
        with (
            _store_or_none(store) as place,
            options.open_memory(place, model, settings, create=store != place) as memory,
        ):
            library = open_library(memory, folders, max_tokens, references, allow_inexact)
            plan, cost = _forecast(library, memory, retire=not keep)
            record = _plan_record(plan, cost, store.path, memory)
        return Result(record, lambda: _show_plan(plan, cost, record), [entry.error for entry in plan.broken])
    with options.open_memory(store, model, settings, create=True) as memory:
        library = open_library(memory, folders, max_tokens, references, allow_inexact)
        report = synced(library, retire=not keep)
        too_small = [_over_budget(report, memory.store.budget or 0)] if report.evicted else []
    failures = [entry.error for entry in report.broken]
    return Result(record_of(report), lambda: _show(report), [*too_small, *failures, *report.problems])


def synced(library: SkillLibrary, *, retire: bool) -> SyncReport:
    """Sync with a bar of what is being prefilled. Raises Interrupted; what is done by then stays."""
    plan = library.plan()
    library.announce(plan)
    return carried_out(library, plan if retire else dataclasses.replace(plan, removed=()))


def carried_out(library: SkillLibrary, plan: Plan) -> SyncReport:
    """Do what a plan says, with a bar of what is being prefilled. Raises Interrupted."""
    counters = library.memory.engine.counters
    with prefill_bar(plan.n_tokens, lambda: counters.decoded) as bar:
        try:
            with cancelled_by_ctrl_c() as cancellation:
                return library.carry_out(
                    plan, cancellation, on_work=lambda work: bar.begin(work.manual.name, work.n_tokens)
                )
        except KeyboardInterrupt:
            raise Interrupted from None


# --- what it would do -----------------------------------------------------------------------------


@contextlib.contextmanager
def _store_or_none(store: StoreOptions) -> Iterator[StoreOptions]:
    """The store if there is one, else a place for an empty one that is thrown away."""
    if store.path.exists():
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="agentkv-") as folder:
        yield StoreOptions(Path(folder) / "store")


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
        show_rows(_WORK, plan.work)
        say()
    counts = {kind: record[kind] for kind in (*DEPOSITS, "unchanged", "removed", "broken")}
    parts = [f"{len(names)} {what}" for what, names in counts.items() if names]
    say(f"{count(record['found'], 'skill')}: {', '.join(parts) or 'nothing there'}")
    if cost is not None:
        say(
            f"to prefill: {count(cost.n_blocks, 'block')}, {cost.n_tokens:,} tokens; about {size(cost.n_bytes)} on "
            f"disk and {cost.seconds:,.1f} s, by a block of {cost.measured:,} tokens measured, "
            "proofs and cards included"
        )
        if record["budget_bytes"] is not None and cost.n_bytes > record["budget_bytes"]:
            say(f"that is more than the store's budget of {size(record['budget_bytes'])}")
    say("nothing was changed (--dry-run)")


def _over_budget(report: SyncReport, budget: int) -> OverBudget:
    """That the budget does not hold what the folders hold; unlike a deposit that was refused, others are stored."""
    names = list(report.evicted)
    error = OverBudget(report.evicted_bytes, budget, 0).worded(
        f"the store's budget of {budget:,} bytes is too small for these skills: {count(len(names), 'skill')} went to "
        f"make room for others ({', '.join(names)}). Raise it with `agentkv gc --set-budget SIZE` and deposit again."
    )
    del error.kept
    vars(error).update(evicted=names)
    return error


def record_of(report: SyncReport) -> dict[str, Any]:
    """A report for a script; its counts add up to ``found``."""
    return {
        **picked(report, "found", *DEPOSITS, "unchanged", "evicted", "removed", "evicted_names"),
        "broken": [fault_record(entry.error, entry) for entry in report.broken],
        "problems": [fault_record(error) for error in report.problems],
        "retired_blocks": report.retired,
        "events": [vars(event) for event in report.events],
    }


def _show(report: SyncReport) -> None:
    if report.events:
        show_rows(_EVENT, report.events)
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


def _deposited(value: Callable[[SkillEvent], object]) -> Callable[[SkillEvent], object]:
    return lambda event: value(event) if event.kind in DEPOSITS else None


_EVENT = (
    Column("name", "name", wraps=True),
    Column("", lambda event: event.kind if event.was is None else f"{event.kind} (was {event.was})", wraps=True),
    number("blocks", lambda event: event.pieces or None),
    number("tokens", _deposited(lambda event: event.tokens)),
    number("prefilled", _deposited(lambda event: event.read)),
    number("seconds", _deposited(lambda event: f"{event.seconds:,.2f}")),
)
_WORK = (
    Column("name", lambda work: work.manual.name, wraps=True),
    Column("", "kind"),
    number("blocks", lambda work: len(work.pieces)),
    number("to prefill", lambda work: len(work.missing)),
    number("tokens", "n_tokens"),
)


# --- watch ----------------------------------------------------------------------------------------


_LOOK_S = 0.5


def watch(
    *,
    folders: Folders,
    max_tokens: MaxTokens = None,
    references: References = False,
    allow_inexact: options.AllowInexact = False,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> None:
    """Bring the store in step with skill folders, and keep it so while they change; Ctrl-C ends it.

    With --json it prints one JSON document a line, one an event.
    """
    with options.open_memory(store, *engine.chosen(store), create=True) as memory, _asked_to_end() as ended:
        library = open_library(memory, folders, max_tokens, references, allow_inexact)
        places = ", ".join(str(root) for root in library.inventory.roots)
        with library.watch(lambda event: _tell(event, as_json)) as watching:
            tell(f"watching {places}; Ctrl-C ends it", dim=True)
            while watching.is_alive and not ended.wait(_LOOK_S):
                pass
    tell("ended; what was stored stays", dim=True)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM, which for this command is the way to end and no error."""
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: ended.set()) for number in numbers]
    try:
        yield ended
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _tell(event: SkillEvent, as_json: bool) -> None:
    if as_json:
        print_json(vars(event), indent=False)
        return
    parts = [time.strftime("%H:%M:%S"), event.kind, event.name]
    if event.was is not None:
        parts.append(f"(was {event.was})")
    if event.pieces and event.kind in DEPOSITS:
        blocks = f", {event.pieces} blocks" if event.pieces > 1 else ""
        parts.append(f"({event.read:,} tokens prefilled in {event.seconds:,.1f} s, cards and proofs included{blocks})")
    if event.reason:
        parts.append(f"- {event.reason}")
    say("  ".join(parts[:3]) + (f"  {' '.join(parts[3:])}" if parts[3:] else ""))
