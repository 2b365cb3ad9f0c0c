"""``agentkv route``: what the router makes of a question, without answering it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import count, duration, finish, say, table

if TYPE_CHECKING:
    from agentkv.records import Decision


def question(
    text: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    explain: Annotated[bool, typer.Option("--explain", help="Say of each candidate what it is for.")] = False,
    strict: options.Strict = False,
    model: options.Model = None,
    embedder: options.Embedder = None,
    router_model: options.RouterModel = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Show which block the router picks for a question, and every candidate's score."""
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    with options.open_memory(
        store, model, settings, embedder=embedder, router_model=router_model, strict=strict
    ) as memory:
        decision = memory.route(text)
        known = {entry.name: entry.description for entry in memory.names()} if explain else {}
    finish(decision.model_dump(mode="json"), as_json, lambda: show(decision, known))


def show(decision: Decision, known: Mapping[str, str]) -> None:
    """The candidates by score, then what became of the pick. ``known``: descriptions, where they are wanted."""
    rows = [
        (label, f"{score:+,.2f}", "← raw pick" if label == decision.raw_pick else "", known.get(label, ""))
        for label, score in decision.scores.items()
    ]
    if rows:
        columns = ("candidate", "score", "", "what it is for")
        width = 4 if known else 3
        table(columns[:width], [row[:width] for row in rows], right=("score",), wraps=(columns[width - 1],))
        say()
    say(f"raw pick  {decision.raw_pick}")
    say(f"pick      {decision.pick or 'no block'}")
    say(f"fallback  {decision.fallback or 'not needed'}")
    if decision.confidence is not None:
        say(f"confidence {decision.confidence:.2f}")
    for name, reason in decision.left_out.items():
        say(f"left out  {name}: {reason}")
    say(
        f"{decision.classifier}: {count(decision.tokens, 'token')} evaluated in {duration(decision.ms)}",
        dim=True,
    )
