"""The second process of ``agentkv demo``: answers each skill's first question twice, one JSON line a
question.

Grafted first, from disk: this process has read no manual. Then once more with the manual read from its
text, with the same pick, on the same engine. The parent process shows and grades.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import print_json

if TYPE_CHECKING:
    from agentkv.skills.questions import Route


def questions(skills: Path) -> list[Route]:
    """The first labelled question of each skill at or below ``skills``, in the order of their folders."""
    from agentkv.cli.deposit import manuals_in
    from agentkv.skills.questions import load_routes

    items, _ = manuals_in([skills])
    found = [load_routes(item.path)[:1] for item in items]
    return [route for first in found for route in first]


def demo_ask(
    skills: Annotated[Path, typer.Option()],
    max_new: Annotated[int, typer.Option(min=1)],
    model: options.Model = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = True,
) -> None:
    """Answer the demo's questions, grafted and re-read; for `agentkv demo`."""
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    with options.open_memory(store, model, settings) as memory:
        for route in questions(skills):
            grafted = memory.ask(route.query, max_new=max_new)
            reread = memory.ask(route.query, skill=grafted.decision.pick, graft=False, max_new=max_new)
            line = {
                "question": route.query,
                "skill": route.skill,
                "accepted": list(route.answers),
                "grafted": grafted.model_dump(mode="json"),
                "reread": reread.model_dump(mode="json"),
            }
            print_json(line, indent=False)
