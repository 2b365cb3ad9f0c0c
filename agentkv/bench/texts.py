"""Real text, the states that a model makes of it, and synthetic states."""

from __future__ import annotations

import contextlib
import inspect
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.bench.results import say
from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine, State
from agentkv.engine.opening import open_engine
from agentkv.errors import UsageError
from agentkv.records import Planes, Section, StateLayout
from agentkv.store.catalog import BlockStore

LAYERS, CHANNELS = 30, 192
"""Of the synthetic state: smollm2-135m's."""


def skills_folder() -> Path:
    """The skills that come along: the checkout's, or those in the wheel."""
    import agentkv

    package = Path(agentkv.__file__).parent
    checkout = package.parent / "skills"
    return checkout if any(checkout.glob("*/SKILL.md")) else package / "_manuals"


def manual_texts() -> list[str]:
    """The bodies of the skills that come along: the real text of the benchmarks."""
    from agentkv.skills.manual import load_manuals

    return [manual.text for manual in load_manuals([skills_folder()]).loaded]


@contextlib.contextmanager
def opened(model: str | Engine, settings: dict[str, Any]) -> Iterator[Engine]:
    """An engine for the time of a benchmark, ``fake`` too; one that was given stays open."""
    if not isinstance(model, str):
        yield model
        return
    from agentkv.engine.settings import EngineSettings

    with contextlib.closing(open_engine(model, EngineSettings(**settings))) as engine:
        yield engine


def shuffled(texts: Sequence[str], seed: int) -> Iterator[str]:
    """The texts' paragraphs in an order that ``seed`` gives, over and over, each time in another one."""
    paragraphs = [part.strip() for text in texts for part in text.split("\n\n") if part.strip()]
    if not paragraphs:
        raise UsageError("there is no text to prefill")
    rng = random.Random(seed)

    def endless() -> Iterator[str]:
        while True:
            rng.shuffle(paragraphs)
            yield from paragraphs

    return endless()


def running_text(engine: Engine, texts: Sequence[str], n_tokens: int, seed: int) -> list[int]:
    """``n_tokens`` ids of ``texts``' paragraphs in an order that ``seed`` gives, repeated if they are too few."""
    paragraphs, ids = shuffled(texts, seed), list[int]()
    while len(ids) < n_tokens:
        ids += engine.tokenize(next(paragraphs) + "\n\n", special=False)
    return ids[:n_tokens]


def beginning(engine: Engine, texts: Sequence[str], n_tokens: int, seed: int) -> list[int]:
    """Like :func:`running_text`, as the beginning of a context: after BOS where the model wants one."""
    head = [engine.info.bos] if engine.info.add_bos and engine.info.bos is not None else []
    return [*head, *running_text(engine, texts, n_tokens - len(head), seed)]


def states(engine: Engine, texts: Sequence[str], lengths: Sequence[int]) -> Iterator[State]:
    """The state after each length of one text, shortest first; prefilled once."""
    ids = beginning(engine, texts, max(lengths), seed=0)
    engine.clear()
    done = 0
    for n in sorted(lengths):
        start = time.perf_counter()
        engine.extend(ids[done:n])
        say(f"prefilled {n:,} tokens, the last {n - done:,} in {time.perf_counter() - start:.1f} s")
        done = n
        yield engine.capture()


def default_setting() -> str:
    """The label of what a store uses by default: ``planes 1``."""
    defaults = {name: item.default for name, item in inspect.signature(BlockStore).parameters.items()}
    return "raw" if defaults["codec"] == "raw" else f"{defaults['codec']} {defaults['level']}"


def synthetic_state(n_tokens: int, seed: int) -> State:
    """Half floats, normal within a channel, whose scales differ by channel; shape and size of smollm2-135m's."""
    rng = np.random.default_rng(seed)
    keys = tuple(Planes(ggml_type=1, token_major=True, row_bytes=2 * CHANNELS) for _ in range(LAYERS))
    value = Planes(ggml_type=1, token_major=False, row_bytes=2 * CHANNELS, channels=CHANNELS)
    section = Section(kind="attention", v_trans=True, keys=keys, values=(value,) * LAYERS)
    layout = StateLayout(architecture="synthetic", sections=(section,))
    assembly = blobs.Assembly(layout, n_tokens)
    scales = np.exp(rng.normal(0.0, 1.0, (2 * LAYERS, 1, CHANNELS))).astype(np.float32)
    for start, stop in blobs.cuts(0, n_tokens):
        rows = rng.standard_normal((2 * LAYERS, stop - start, CHANNELS), np.float32) * scales
        half = rows.astype("<f2")
        piece = np.concatenate([half[:LAYERS].reshape(-1), half[LAYERS:].swapaxes(1, 2).reshape(-1)]).view(np.uint8)
        assembly.place(blobs.reference(0, start, stop, piece, 2), piece)
    return State(tuple(i % 250 for i in range(n_tokens)), layout, assembly.blob)
