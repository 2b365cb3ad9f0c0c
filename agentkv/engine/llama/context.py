"""A native context of llama.cpp: its KV cache, its decode call, and its states as bytes.

Nothing is checked here: :mod:`agentkv.engine.llama.engine` does, before it calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, State
from agentkv.engine.llama.model import LlamaModel
from agentkv.engine.llama.native import clear_log, interrupts_kept, is_flag_set, last_log, pointer_to
from agentkv.engine.settings import KV_TYPES, EngineSettings
from agentkv.errors import ModelUnreadable, NativeRefusal

ABORTED = 2
"""What :meth:`LlamaContext.decode` returns when it was cancelled."""
_HEAD_BYTES = 8
"""A magic number and the sequence's id, here 0."""


class LlamaContext:
    """A context of ``window`` tokens. Raises ModelUnreadable if llama.cpp makes none.

    ``native``: llama.cpp's context, None once closed. ``memory``: its KV cache.
    """

    def __init__(self, model: LlamaModel, settings: EngineSettings, window: int) -> None:
        self._model, self._settings, self._window = model, settings, window
        self._batch: Any = llama_cpp.llama_batch_init(settings.batch, 0, 1)
        for i in range(settings.batch):
            self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, blobs.SEQUENCES[0]
        self.native: Any = None
        self._open()

    def params(self) -> Any:
        """llama.cpp's parameters of a context like this one."""
        settings, params = self._settings, llama_cpp.llama_context_default_params()
        params.n_ctx = self._window
        params.n_batch = params.n_ubatch = settings.batch
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.type_k = params.type_v = KV_TYPES[settings.kv_type]
        params.flash_attn_type = int(settings.flash_attention)
        params.rope_freq_base, params.rope_freq_scale = settings.rope_freq_base, settings.rope_freq_scale
        params.swa_full = params.kv_unified = True
        params.n_seq_max = len(blobs.SEQUENCES)
        params.no_perf = True
        return params

    def _open(self) -> None:
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        clear_log()
        with interrupts_kept():
            self.native = llama_cpp.llama_init_from_model(self._model.native, self.params())
        name = Path(self._model.info.name)
        if not self.native:
            raise ModelUnreadable(name, f"no context of {self._window:,} tokens ({last_log()})")
        if adapters := self._model.adapters:
            pointers = (llama_cpp.llama_adapter_lora_p_ctypes * len(adapters))(*[adapter for adapter, _ in adapters])
            scales = (ctypes.c_float * len(adapters))(*[scale for _, scale in adapters])
            llama_cpp.llama_set_adapters_lora(self.native, pointers, len(adapters), scales)
        self.memory = llama_cpp.llama_get_memory(self.native)
        if not self.memory:
            raise ModelUnreadable(name, "not a causal model: it has no KV cache to store")
        self._setter = SequenceSetter(self.native)

    def rebuild(self) -> None:
        """Throw the native context away and make another. Raises ModelUnreadable."""
        llama_cpp.llama_free(self.native)
        self.native = None
        self._open()

    def close(self) -> None:
        """Free the native memory; may be called twice."""
        if self.native:
            llama_cpp.llama_free(self.native)
        if self._batch is not None:
            llama_cpp.llama_batch_free(self._batch)
        self.native = self._batch = None

    def clear(self, *, zero: bool) -> None:
        """Empty the cache; ``zero``: its values too, else only the cell table."""
        llama_cpp.llama_memory_clear(self.memory, zero)

    def decode(self, tokens: Sequence[int], start: int, cancellation: Cancellation, *, all_logits: bool) -> int:
        """Decode at most one batch at positions ``start`` and up; 0, or the code of the failure."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, start + i, all_logits
        batch.logits[len(tokens) - 1] = True
        llama_cpp.llama_set_abort_callback(self.native, is_flag_set, ctypes.cast(cancellation.flag, ctypes.c_void_p))
        code: int = llama_cpp.llama_decode(self.native, batch)
        return code

    def logits(self, n_rows: int | None = None) -> NDArray[np.float32] | None:
        """A copy of the last ``n_rows`` rows, or of the last one; shape (rows, n_vocab). None if there are none."""
        pointer = (
            llama_cpp.llama_get_logits_ith(self.native, -1)
            if n_rows is None
            else llama_cpp.llama_get_logits(self.native)
        )
        if not pointer:
            return None
        shape = (n_rows or 1, self._model.info.n_vocab)
        rows: NDArray[np.float32] = np.ctypeslib.as_array(pointer, shape=(shape[0] * shape[1],)).reshape(shape)
        return rows.copy()

    def top_position(self) -> int:
        """The last position in the cache, -1 if it is empty."""
        return int(llama_cpp.llama_memory_seq_pos_max(self.memory, blobs.SEQUENCES[0]))

    def cut(self, n_tokens: int) -> bool:
        """Remove positions ``n_tokens`` and up; False if the cache cannot."""
        return bool(llama_cpp.llama_memory_seq_rm(self.memory, -1, n_tokens, -1))

    def state(self) -> NDArray[np.uint8]:
        """The whole context as bytes, each cell owned by both sequences. Raises NativeRefusal."""
        self._share_cells()
        size = llama_cpp.llama_state_get_size(self.native)
        blob = np.empty(size, np.uint8)
        written = llama_cpp.llama_state_get_data(self.native, pointer_to(blob), size)
        if written != size:
            raise NativeRefusal("llama_state_get_data", f"{written:,} of {size:,} bytes")
        return blob

    def set_whole(self, state: State) -> bool:
        """Set a checked state, which zeroes the rest of the window; False if llama.cpp refused."""
        read: int = llama_cpp.llama_state_set_data(self.native, pointer_to(state.blob), state.blob.nbytes)
        return read == state.blob.nbytes

    def set_sequence(self, state: State) -> bool:
        """The same into an empty cache, without zeroing it; its cells then belong to both sequences, as they did."""
        is_set = self._setter.set(state, blobs.SEQUENCES[0])
        self._share_cells()
        return is_set

    def _share_cells(self) -> None:
        source, copy = blobs.SEQUENCES
        llama_cpp.llama_memory_seq_cp(self.memory, source, copy, -1, -1)


class SequenceSetter:
    """Sets states as sequences of one context, which has to be empty when this is made.

    llama.cpp's setter of a whole context zeroes the window first, 13 to 17 ms for 8,192 tokens of a small model: most
    of what a short block's restore took. The setter of one sequence does not, but needs the cell table in another form,
    so the state is copied once. Into an empty cache both lay the same rows into the same cells.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        head = (ctypes.c_uint8 * 64)()
        llama_cpp.llama_state_seq_get_data(context, head, len(head), 0)
        self._head = bytes(head[:_HEAD_BYTES])

    def set(self, state: State, sequence: int) -> bool:
        """Set a checked state for which ``layout.is_sequence`` holds; False if llama.cpp refused."""
        blob = blobs.sequence_blob(state, self._head)
        read: int = llama_cpp.llama_state_seq_set_data(self._context, pointer_to(blob), blob.nbytes, sequence)
        return read == blob.nbytes
