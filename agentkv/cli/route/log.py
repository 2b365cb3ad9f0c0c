"""``agentkv route log``: the decisions that this store has on record; with ``--replay`` they are made again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, one_line, say, table
from agentkv.cli.progress import steps_bar

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory
    from agentkv.router.log import LoggedDecision


def log(
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Only the last so many.")] = 20,
    replay: Annotated[
        bool, typer.Option("--replay", help="Decide again with the model, and compare picks and scores.")
    ] = False,
    model: options.Model = None,
    embedder: options.Embedder = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Show the router's decisions, newest last; with --replay make them again."""
    from agentkv.router.log import DecisionLog
    from agentkv.store.files import DECISIONS

    with options.open_store(store) as opened:
        entries = list(deque(DecisionLog(opened.root / DECISIONS).read(), last))
    rows: list[dict[str, Any]] = [entry.model_dump(mode="json") for entry in entries]
    if replay:
        model, settings = options.chosen(store, model, window, threads)
        with options.open_memory(store, model, settings, embedder=embedder) as memory:
            outcomes = (_again(memory, entry) for entry in entries)
            label = lambda i: entries[i].question or entries[i].question_sha256[:12]  # noqa: E731
            for row, outcome in zip(rows, steps_bar(outcomes, len(entries), "decision", label), strict=True):
                row["replay"] = outcome
    finish({"decisions": rows}, as_json, lambda: _show(rows))


def _again(memory: AgentMemory, entry: LoggedDecision) -> str:
    """``same``, or what differs: the library, the question that was not kept, the pick, or only the scores."""
    from agentkv.router.decision import decide
    from agentkv.router.log import library_sha256

    if entry.question is None:
        return "question not kept"
    candidates = memory.candidates()
    if library_sha256(candidates) != entry.library_sha256:
        return "another library now"
    with memory.blocks.exclusive():
        again = decide(memory.classifier, entry.question, candidates, memory.routing.fallback)
    if again.classifier != entry.decision.classifier:
        return f"another classifier now ({again.classifier})"
    if (again.raw_pick, again.pick) != (entry.decision.raw_pick, entry.decision.pick):
        return f"picks {again.raw_pick!r} now"
    return "same" if again.scores == entry.decision.scores else "same pick, other scores"


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no decision is on record yet. Run `agentkv ask` or `agentkv route`.")
        return
    cells = [
        (
            row["time"][:19].replace("T", " "),
            one_line(row["question"] or f"(not kept: {row['question_sha256'][:12]})", 48),
            row["decision"]["raw_pick"],
            row["decision"]["pick"] or "no block",
            row.get("replay", ""),
        )
        for row in rows
    ]
    columns = ("time (UTC)", "question", "raw pick", "pick", "made again")
    width = 5 if any(row.get("replay") for row in rows) else 4
    table(columns[:width], [cell[:width] for cell in cells], wraps=("question",))
    reasons = sum(row["decision"]["fallback"] is not None for row in rows)
    say(f"\n{count(len(rows), 'decision')}, {reasons or 'none'} by fallback")
