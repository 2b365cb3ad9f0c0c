"""``agentkv skills watch``: keep the store in step with folders until Ctrl-C, one line an event.

With ``--json`` each event is a JSON document on a line of its own.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentkv.cli import options
from agentkv.cli.output import print_json, say, tell
from agentkv.cli.skills.common import AllowInexact, Folders, JsonLines, MaxTokens, References, open_library
from agentkv.cli.skills.deposit import DEPOSITS, event_record

if TYPE_CHECKING:
    from agentkv.skills.report import SkillEvent

_LOOK_S = 0.5


def watch(
    folders: Folders,
    max_tokens: MaxTokens = None,
    references: References = False,
    allow_inexact: AllowInexact = False,
    model: options.Model = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: JsonLines = False,
) -> None:
    """Bring the store in step with skill folders, and keep it so while they change; Ctrl-C ends it."""
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    with options.open_memory(store, model, settings, create=True) as memory, _asked_to_end() as ended:
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
        print_json(event_record(event), indent=False)
        return
    parts = [time.strftime("%H:%M:%S"), event.kind, event.name]
    if event.was is not None:
        parts.append(f"(was {event.was})")
    if event.pieces and event.kind in DEPOSITS:
        blocks = f", {event.pieces} blocks" if event.pieces > 1 else ""
        parts.append(f"({event.read:,} tokens read in {event.seconds:,.1f} s, cards and proofs included{blocks})")
    if event.reason:
        parts.append(f"- {event.reason}")
    say("  ".join(parts[:3]) + (f"  {' '.join(parts[3:])}" if parts[3:] else ""))
