"""Putting states that were prefilled apart one after the other. Wrong, and here only to show by how much.

Two ways. *As they stand*: the second state's rows, prefilled from position 0 on, are put after the first's. *In place*:
the second is prefilled alone at the positions it will have, so that its rotary keys are right, and only its sight of
what stands before it is missing; that is what engines that move and join cached pieces come to at best.

Nothing outside ``bench`` uses this. What agentkv does instead is :func:`agentkv.documents.chunks.chain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine, State

if TYPE_CHECKING:
    from agentkv.engine.llama.engine import LlamaEngine


def stitched(first: State, second: State) -> State:
    """One state of both states' rows and tokens. They are of one engine."""
    lengths = len(first.tokens), len(second.tokens)
    assembly = blobs.Assembly(first.layout, sum(lengths))
    for state, start in ((first, 0), (second, lengths[0])):
        length = len(state.tokens)
        for ref, rows in blobs.cut(state.blob, state.layout, length, [(0, length)]):
            assembly.place(ref.model_copy(update={"start": start, "stop": start + length}), rows)
    return State(first.tokens + second.tokens, first.layout, assembly.blob)


def read_alone(engine: Engine, tokens: Sequence[int]) -> State:
    """The state of ``tokens`` with nothing before them, from position 0 on."""
    engine.clear()
    engine.extend(tokens)
    return engine.capture()


def can_read_in_place(engine: Engine) -> bool:
    """Whether :func:`read_in_place` works: on llama.cpp, for states whose sections are all attention."""
    from agentkv.engine.llama.engine import LlamaEngine

    return isinstance(engine, LlamaEngine) and blobs.is_sequence(engine.layout)


def read_in_place(engine: LlamaEngine, tokens: Sequence[int], position: int) -> State:
    """The state of ``tokens`` with nothing before them, from ``position`` on, presented as if from 0 on."""
    engine.clear()
    engine._tokens = [0] * position
    try:
        engine.extend(tokens)
        blob = engine._context.state()
    finally:
        engine.clear()
    table = blobs._cell_table(len(tokens))
    for offset, item in blobs._walk(engine.layout, len(tokens)):
        if item == table:
            blob[offset : offset + len(table)] = bytearray(table)
    blobs.check(blob, engine.layout, len(tokens))
    return State(tuple(tokens), engine.layout, blob)
