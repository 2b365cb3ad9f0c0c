"""``agentkv route``: what the router makes of a question, without answering it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import count, duration, finish, say, table

if TYPE_CHECKING:
    from agentkv.records import Decision


def route(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    model: options.Model = options.DEFAULT_MODEL,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = "f16",
    flash_attention: options.FlashAttention = False,
    gpu_layers: options.GpuLayers = 0,
    as_json: options.Json = False,
) -> None:
    """Show which block the router picks for a question, and every candidate's score."""
    settings = options.engine_settings(window, threads, kv_type, flash_attention, gpu_layers)
    with options.open_memory(store, model, settings) as memory:
        decision = memory.route(question)
    finish(decision.model_dump(mode="json"), as_json, lambda: _show(decision))


def _show(decision: Decision) -> None:
    rows = [
        (label, f"{score:+,.2f}", "← raw pick" if label == decision.raw_pick else "")
        for label, score in decision.scores.items()
    ]
    if rows:
        table(("candidate", "score", ""), rows, right=("score",), wraps=("candidate",))
        say()
    say(f"raw pick  {decision.raw_pick}")
    say(f"pick      {decision.pick or 'no block'}")
    say(f"fallback  {decision.fallback or 'not needed'}")
    say(
        f"{decision.classifier}: {count(decision.tokens, 'token')} evaluated in {duration(decision.ms)}",
        dim=True,
    )
