"""What agentkv does *not* do, for comparison: llama.cpp's plain per-sequence state, and moving a block.

Both exist only so that the exactness benchmark is known to be able to fail. Nothing outside ``bench`` uses them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

from agentkv.engine.base import Logits
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.io.hashing import sha256


class PlainContext:
    """A llama.cpp context with default cache settings and the per-sequence state calls, as others use it."""

    def __init__(self, engine: LlamaEngine, window: int) -> None:
        settings, params = engine.settings, llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = window, settings.batch, settings.batch
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.flash_attn_type = int(settings.flash_attention)
        params.swa_full, params.n_seq_max = False, 1
        self._engine, self._batch = engine, settings.batch
        self._context: Any = llama_cpp.llama_init_from_model(engine._model.native, params)
        self._position = 0

    def close(self) -> None:
        llama_cpp.llama_free(self._context)

    def extend(self, tokens: Sequence[int]) -> Logits:
        for start in range(0, len(tokens), self._batch):
            chunk = tokens[start : start + self._batch]
            batch = llama_cpp.llama_batch_init(len(chunk), 0, 1)
            batch.n_tokens = len(chunk)
            for i, token in enumerate(chunk):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self._position + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, i == len(chunk) - 1
            code = llama_cpp.llama_decode(self._context, batch)
            llama_cpp.llama_batch_free(batch)
            if code != 0:
                raise RuntimeError(f"llama_decode: {code}")
            self._position += len(chunk)
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, shape=(self._engine.info.n_vocab,)).copy()

    def save(self) -> Any:
        size = llama_cpp.llama_state_seq_get_size(self._context, 0)
        buffer = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self._context, buffer, size, 0)
        return buffer

    def load(self, buffer: Any, n_tokens: int) -> None:
        llama_cpp.llama_state_seq_set_data(self._context, buffer, len(buffer), 0)
        self._position = n_tokens

    def greedy(self, token: int, steps: int) -> list[str]:
        hashes = []
        for _ in range(steps):
            logits = self.extend([token])
            hashes.append(sha256(logits.data))
            token = int(logits.argmax())
        return hashes


def plain_hashes(engine: LlamaEngine, tokens: Sequence[int], token: int, steps: int) -> tuple[list[str], list[str]]:
    """SHA-256 of each step's logits: of an uninterrupted plain run, and after a plain per-sequence restore."""
    window = len(tokens) + steps + 8
    fresh = PlainContext(engine, window)
    fresh.extend(tokens)
    saved = fresh.save()
    reference = fresh.greedy(token, steps)
    fresh.close()
    restored = PlainContext(engine, window)
    restored.load(saved, len(tokens))
    again = restored.greedy(token, steps)
    restored.close()
    return reference, again


def clear_cache(engine: LlamaEngine) -> None:
    """What llama.cpp does first where a whole-context state is set: zero the cache for the whole window."""
    llama_cpp.llama_memory_clear(engine._context.memory, True)
    engine.clear()


def can_move(engine: LlamaEngine) -> bool:
    """Whether llama.cpp can shift positions of this model; for some (M-RoPE) it ends the process instead."""
    return bool(llama_cpp.llama_memory_can_shift(engine._context.memory))


def move(engine: LlamaEngine, distance: int) -> None:
    """Shift the live context's positions by ``distance``, as stitching engines do; rotary keys are re-rotated."""
    llama_cpp.llama_memory_seq_add(engine._context.memory, 0, 0, -1, distance)
    engine._tokens = [0] * distance + engine._tokens
