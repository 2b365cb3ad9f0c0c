"""``agentkv chat``: a conversation in the terminal that the next process goes on with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.ask import about, collect, show, tell_cut
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, print_json, tell
from agentkv.errors import ThreadChanged, UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv.memory.options import TurnOptions, WhenFull
    from agentkv.memory.threads import Thread
    from agentkv.records import Turn


def chat(
    thread: Annotated[str, typer.Option(metavar="NAME", help="The conversation; it is begun if it is not there.")] = (
        "chat"
    ),
    skill: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="as before", help="Answer behind this block from now on.")
    ] = None,
    no_skill: Annotated[bool, typer.Option("--no-skill", help="Answer behind no block from now on.")] = False,
    max_new: options.MaxNew = None,
    when_full: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="When the window is full: refuse, keep-last (show the model the last turns only) or summarise.",
        ),
    ] = "keep-last",
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
    """Talk, a line a question, until the end of the input (Ctrl-D); every turn is kept."""
    if skill is not None and no_skill:
        raise UsageError("--skill and --no-skill exclude each other")
    policy = _policy(when_full)
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    turns: list[Turn] = []
    with options.open_memory(
        store, model, settings, create=True, embedder=embedder, router_model=router_model, strict=strict
    ) as memory:
        talk = memory.thread(thread, when_full=policy)
        if talk.turns and not as_json:
            tell(f"{thread}: {count(len(talk.turns), 'turn')} so far", dim=True)
        choice: TurnOptions = {"skill": skill} if no_skill or skill is not None else {}  # else as before
        for question in _questions(prompted=not as_json):
            with cancelled_by_ctrl_c() as cancellation:
                turn_options: TurnOptions = {"max_new": max_new, "cancellation": cancellation, **choice}
                try:
                    turns.append(_answered(talk, question, turn_options, as_json))
                    choice = {}
                except ThreadChanged as changed:
                    talk = memory.thread(thread, when_full=policy)
                    turns.append(_after(changed, talk) or _answered(talk, question, turn_options, as_json))
            if not as_json:
                tell_cut(turns[-1])
                tell(about(turns[-1]), dim=True)
                if turns[-1].not_kept is not None:
                    tell(f"the next turn reads the conversation anew: {turns[-1].not_kept}")
    if as_json:
        print_json({"thread": thread, "turns": [turn.model_dump(mode="json") for turn in turns]})


def _policy(when_full: str) -> WhenFull:
    from agentkv.memory.options import POLICIES

    for policy in POLICIES:
        if policy == when_full:
            return policy
    raise UsageError(f"--when-full {when_full}: it takes {', '.join(POLICIES)}")


def _answered(talk: Thread, question: str, turn_options: TurnOptions, as_json: bool) -> Turn:
    pieces = talk.stream(question, **turn_options)
    return collect(pieces) if as_json else show(pieces)


def _after(changed: ThreadChanged, talk: Thread) -> Turn | None:
    """Say that the conversation, opened again as ``talk``, has gone on elsewhere; the answer that is not kept in it."""
    there = f"the conversation has gone on elsewhere and has {count(len(talk.turns), 'turn')} now"
    if changed.turn is None:
        warn(f"{there}; the question is put behind them.")
        return None
    note = f"{there}; this answer was given without the newest and is not kept. Ask again to have it kept."
    warn(note)
    return changed.turn.model_copy(update={"notes": (*changed.turn.notes, note)})


def _questions(*, prompted: bool) -> Iterator[str]:
    """Lines of stdin that are not blank, with a prompt if a person types them."""
    is_typed = prompted and sys.stdin.isatty()
    while True:
        if is_typed:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()
