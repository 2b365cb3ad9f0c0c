"""``LlamaEngine``: llama.cpp through llama-cpp-python's low-level API.

Exactness rests on four things done here and nowhere else: flash attention pinned, a full-size windowed cache, every
captured cell owned by two sequences, and a state restored whole into cells 0, 1, 2… of an empty cache. Nothing
reaches a native setter that :mod:`agentkv.engine.layout` has not checked. If a native call fails all the same, or
logits are not numbers, the context is thrown away.

Refuses to know: files other than the model's, names, skills. Not guaranteed: exactness of a model, which only the
probe at deposit establishes.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from agentkv.engine import layout as blobs
from agentkv.engine.base import (
    Cancellation,
    Counters,
    Logits,
    Sampling,
    Scored,
    State,
    check_scored,
    one_by_one,
)
from agentkv.engine.generate import check_ids, check_window
from agentkv.engine.llama.beside import Beside
from agentkv.engine.llama.described import described, piece_of
from agentkv.engine.llama.fingerprint import llama_fingerprint
from agentkv.engine.llama.native import clear_log, is_flag_set, last_log, pointer_to, start_backend
from agentkv.engine.llama.sequence import SequenceSetter
from agentkv.engine.sampling import LlamaSampler
from agentkv.engine.settings import KV_TYPES, EngineSettings, require_gpu
from agentkv.engine.values import first_non_number
from agentkv.errors import Cancelled, EngineClosed, InvalidState, ModelUnreadable, NativeRefusal, UsageError
from agentkv.io.forks import OwnedLock
from agentkv.io.hashing import file_sha256
from agentkv.io.shared import Shared
from agentkv.models import gguf_check, resolve
from agentkv.records import Fingerprint, StateLayout

_DEFAULT_WINDOW = 8192
_SCORE_CHUNK = 64
_SHORT = 8
"""A state of at most this part of the window is set without zeroing the window, at the price of a copy."""
_ABORTED = 2


class LlamaEngine(Shared):
    """One llama.cpp model with one live context; see :class:`agentkv.Engine` for the methods' contract.

    ``path`` is the GGUF file, already checked; use :meth:`open` for a catalogue name. Raises ModelUnreadable.
    """

    def __init__(
        self, path: Path, settings: EngineSettings | None = None, *, name: str | None = None, sha256: str | None = None
    ) -> None:
        self.settings = settings or EngineSettings()
        self.counters = Counters()
        self._lock = OwnedLock("model", reentrant=True)
        self._tokens: list[int] = []
        self._restored = 0
        # A recurrent cache begins at its old rows times zero, which may be minus zero: then one block would have two
        # states, so its data is zeroed. Attention gives old rows the weight zero, and they cost nothing; but zero
        # times NaN is NaN, which some models turn into a wrong answer, so rows of an unknown hand are zeroed too.
        self._has_recurrence = self._is_stained = False
        self._numbers: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()
        self._no_cancel = Cancellation()
        self._context: Any = None
        self._beside: Beside | None = None
        self._batch: Any = None
        self._lora: list[Any] = []
        self._model: Any = None
        start_backend()
        require_gpu(self.settings, bool(llama_cpp.llama_supports_gpu_offload()))
        self._load(path)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.info = described(self._model, path, name or path.stem, sha256 or file_sha256(path))
        train = self.info.train_window
        self.window = self.settings.window or min(train, _DEFAULT_WINDOW)
        if self.window > train:
            self.close()
            raise UsageError(f"a window of {self.window:,} is over the {train:,} tokens that the model was trained on")
        self._lora_ids = self._load_lora()
        self._batch = llama_cpp.llama_batch_init(self.settings.batch, 0, 1)
        for i in range(self.settings.batch):
            self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, blobs.SEQUENCES[0]
        self._open_context()
        self.layout: StateLayout = self._learn_layout()

    @classmethod
    def open(cls, spec: str | Path, settings: EngineSettings | None = None, **options: Any) -> LlamaEngine:
        """Open a catalogue name (pulled if it is not there), a ``.gguf`` path or ``hf:REPO/FILE``.

        ``options`` go to :func:`agentkv.models.resolve`. Raises the errors of ModelError.
        """
        model = resolve(spec, **options)
        return cls(model.path, settings, name=model.name, sha256=model.sha256)

    # --- opening and closing ----------------------------------------------------------------------

    def _load(self, path: Path) -> None:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = self.settings.gpu_layers
        clear_log()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise ModelUnreadable(path, last_log())
        if llama_cpp.llama_model_has_encoder(self._model) or llama_cpp.llama_model_is_diffusion(self._model):
            self.close()
            raise ModelUnreadable(path, "it does not read left to right, so it keeps no state to store")

    def _load_lora(self) -> list[str]:
        ids = []
        for file, scale in self.settings.lora:
            gguf_check(file)
            adapter = llama_cpp.llama_adapter_lora_init(self._model, str(file).encode())
            if not adapter:
                self.close()
                raise ModelUnreadable(file, f"not a LoRA adapter of this model ({last_log()})")
            self._lora.append((adapter, scale))
            ids.append(f"{file_sha256(file)}*{float(scale)!r}")
        return ids

    def _params(self) -> Any:
        settings, params = self.settings, llama_cpp.llama_context_default_params()
        params.n_ctx = self.window
        params.n_batch = params.n_ubatch = settings.batch
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.type_k = params.type_v = KV_TYPES[settings.kv_type]
        params.flash_attn_type = int(settings.flash_attention)
        params.rope_freq_base, params.rope_freq_scale = settings.rope_freq_base, settings.rope_freq_scale
        params.swa_full = params.kv_unified = True
        params.n_seq_max = len(blobs.SEQUENCES)
        params.no_perf = True
        return params

    def _open_context(self) -> None:
        clear_log()
        self._context = llama_cpp.llama_init_from_model(self._model, self._params())
        if not self._context:
            self.close()
            raise ModelUnreadable(Path(self.info.name), f"no context of {self.window:,} tokens ({last_log()})")
        if self._lora:
            adapters = (llama_cpp.llama_adapter_lora_p_ctypes * len(self._lora))(*[a for a, _ in self._lora])
            scales = (ctypes.c_float * len(self._lora))(*[scale for _, scale in self._lora])
            llama_cpp.llama_set_adapters_lora(self._context, adapters, len(self._lora), scales)
        self._memory = llama_cpp.llama_get_memory(self._context)
        if not self._memory:
            self.close()
            raise ModelUnreadable(Path(self.info.name), "it keeps no state to store")
        self._setter = SequenceSetter(self._context)
        self._tokens, self._restored, self._is_stained = [], 0, False

    def _rebuild(self) -> None:
        llama_cpp.llama_free(self._context)
        self._context = None
        self._open_context()

    def _learn_layout(self) -> StateLayout:
        """The layout of this model's states, read off a state of one token that llama.cpp itself has written."""
        token = self.info.bos if self.info.bos is not None else 0
        self.extend([token])
        window = llama_cpp.llama_model_n_swa(self._model)
        blob = self._native_state()
        found = blobs.parse(blob, 1, window)
        self._recurrent = blobs.recurrent_fields(blob, found, 1)
        self._has_recurrence = any(section.kind != "attention" for section in found.sections)
        self.clear()
        self.counters = Counters()
        return found

    def close(self) -> None:
        """Free the native memory; may be called twice. In a forked child it is the parent's, and stays."""
        if not self._lock.owner.is_here:
            return
        with self._lock:
            if self._beside is not None:
                self._beside.close()
                self._beside = None
            if self._context:
                llama_cpp.llama_free(self._context)
            if self._batch is not None:
                llama_cpp.llama_batch_free(self._batch)
            if self._model:
                llama_cpp.llama_model_free(self._model)
            self._context = self._model = self._batch = None

    def __enter__(self) -> LlamaEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Any:
        self._lock.owner.require()
        if not self._context:
            raise EngineClosed
        return self._context

    # --- what the model is ------------------------------------------------------------------------

    @property
    def alignment(self) -> int:
        """See :class:`agentkv.Engine`.

        On a CPU without flash attention, matrix products take rows in groups of four and the rows left over by
        another kernel: measured with Q4_1 and Q4_K_M weights, see ``agentkv bench exactness``, and on tiny models of
        every kind of architecture, see ``agentkv bench architectures``.
        """
        return 1 if self.settings.flash_attention or self.settings.gpu_layers else 4

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """See :class:`agentkv.Engine`."""
        return self._lock

    @property
    def tokens(self) -> tuple[int, ...]:
        """See :class:`agentkv.Engine`."""
        return tuple(self._tokens)

    def fingerprint(self) -> Fingerprint:
        """See :class:`agentkv.Engine`."""
        v_trans = any(section.v_trans for section in self.layout.sections)
        return llama_fingerprint(self.info.sha256, self.settings, self._lora_ids, v_trans)

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """See :class:`agentkv.Engine`."""
        self._open()
        data = text.encode("utf-8", "replace")
        capacity = len(data) + 16
        buffer = (llama_cpp.llama_token * capacity)()
        n = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, capacity, False, special)
        if n < 0:
            raise NativeRefusal("llama_tokenize", f"{-n} tokens for {len(data)} bytes")
        return list(buffer[:n])

    def token_bytes(self, token: int) -> bytes:
        """See :class:`agentkv.Engine`."""
        self._open()
        check_ids([token], self.info.n_vocab)
        return piece_of(self._vocab, token)

    def is_end(self, token: int) -> bool:
        """See :class:`agentkv.Engine`."""
        check_ids([token], self.info.n_vocab)
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    def is_control(self, token: int) -> bool:
        """See :class:`agentkv.Engine`."""
        check_ids([token], self.info.n_vocab)
        return bool(llama_cpp.llama_vocab_is_control(self._vocab, token))

    def sampler(self, sampling: Sampling, grammar: str | None = None) -> LlamaSampler:
        """See :class:`agentkv.Engine`."""
        self._open()
        return LlamaSampler(self._vocab, sampling, grammar)

    # --- the live context -------------------------------------------------------------------------

    def clear(self) -> None:
        """See :class:`agentkv.Engine`."""
        with self._lock:
            self._open()
            llama_cpp.llama_memory_clear(self._memory, self._has_recurrence or self._is_stained)
            self._is_stained = False
            self._tokens, self._restored = [], 0

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        """See :class:`agentkv.Engine`."""
        with self._lock:
            context = self._check_extension(tokens)
            for chunk in _chunks(tokens, self.settings.batch):
                self._decode(chunk, cancellation, all_logits=False)
            last: Logits = self._logits(llama_cpp.llama_get_logits_ith(context, -1), 1)[0]
            return last

    def score(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """See :class:`agentkv.Engine`."""
        if len(tokens) < 2:
            raise UsageError("scoring takes at least two tokens: the first is the condition of the second")
        with self._lock:
            context = self._check_extension(tokens)
            parts = []
            for start in range(0, len(tokens), min(_SCORE_CHUNK, self.settings.batch)):
                chunk = tokens[start : start + min(_SCORE_CHUNK, self.settings.batch)]
                self._decode(chunk, None, all_logits=True)
                rows = self._logits(llama_cpp.llama_get_logits(context), len(chunk)).astype(np.float64)
                targets = np.asarray(tokens[start + 1 : start + len(chunk) + 1], np.int64)
                rows = rows[: len(targets)]
                top = rows.max(axis=1)
                total = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
                parts.append(rows[np.arange(len(targets)), targets] - total)
            return np.concatenate(parts)

    def score_behind(self, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored]:
        """See :class:`agentkv.Engine`. In one decode where the architecture allows it, in a second context."""
        check_scored(tokens, scored)
        with self._lock:
            self._open()
            check_ids(tokens, self.info.n_vocab)
            for state in states:
                self._check_state(state)
            is_at_once = len(states) > 1 and all(state.is_trusted for state in states)
            if is_at_once and not self._lora and self._beside is None:
                with contextlib.suppress(MemoryError):
                    self._beside = Beside(self._model, self._params(), self.info.n_vocab)
            if is_at_once and self._beside is not None and self._beside.fits(states, len(tokens)):
                found = self._beside.read(states, tokens, scored)
                if found is not None:
                    self.counters.restored += sum(len(state.tokens) for state in states)
                    self.counters.decoded += len(states) * len(tokens)
                    self.clear()
                    return found
            return one_by_one(self, states, tokens, scored)

    def _check_extension(self, tokens: Sequence[int]) -> Any:
        context = self._open()
        if not len(tokens):
            raise UsageError("at least one token has to be evaluated: a state holds no logits")
        check_ids(tokens, self.info.n_vocab)
        check_window(len(self._tokens), len(tokens), 0, self.window)
        return context

    def _decode(self, chunk: Sequence[int], cancellation: Cancellation | None, *, all_logits: bool) -> None:
        """The one decode call: every token that is evaluated passes here and is counted here."""
        batch, start = self._batch, len(self._tokens)
        batch.n_tokens = len(chunk)
        for i, token in enumerate(chunk):
            batch.token[i], batch.pos[i], batch.logits[i] = token, start + i, all_logits
        batch.logits[len(chunk) - 1] = True
        flag = (cancellation or self._no_cancel).flag
        llama_cpp.llama_set_abort_callback(self._context, is_flag_set, ctypes.cast(flag, ctypes.c_void_p))
        try:
            code = llama_cpp.llama_decode(self._context, batch)
        except BaseException:
            self.clear()
            raise
        if code == _ABORTED:
            self.clear()
            raise Cancelled("decoding")
        if code != 0:
            detail = f"code {code} ({last_log()})"
            self._rebuild()
            raise NativeRefusal("llama_decode", detail)
        self._tokens.extend(chunk)
        self.counters.decoded += len(chunk)

    def _logits(self, pointer: Any, rows: int) -> NDArray[np.float32]:
        if not pointer:
            self._rebuild()
            raise NativeRefusal("llama_get_logits", "no logits after decoding")
        shape = (rows, self.info.n_vocab)
        logits: NDArray[np.float32] = np.ctypeslib.as_array(pointer, shape=(rows * self.info.n_vocab,)).reshape(shape)
        logits = logits.copy()
        if np.isnan(logits.max()):
            self._rebuild()  # the window may hold such values too
            raise NativeRefusal("llama_decode", "the logits are not numbers; a restored state or the model is damaged")
        return logits

    # --- states -----------------------------------------------------------------------------------

    def capture(self) -> State:
        """See :class:`agentkv.Engine`."""
        with self._lock:
            self._open()
            if not self._tokens:
                raise UsageError("an empty context has no state")
            n_tokens = len(self._tokens)
            blob = self._native_state()
            found = self._layout_for(blob)
            blobs.check(blob, found, n_tokens)
            blobs.zero_masked_rows(blob, found, n_tokens)
            if not self._is_stained:  # what was computed here is not looked at when it comes back
                self._numbers[id(blob)] = blob
            return State(tuple(self._tokens), found, blob, is_trusted=not self._is_stained)

    def _layout_for(self, blob: NDArray[np.uint8]) -> StateLayout:
        """The engine's layout; an opaque section's size grows with the context, so it is taken from the blob."""
        if all(section.kind != "opaque" for section in self.layout.sections):
            return self.layout
        return blobs.parse(blob, len(self._tokens), 0)

    def _native_state(self) -> NDArray[np.uint8]:
        source, copy = blobs.SEQUENCES
        llama_cpp.llama_memory_seq_cp(self._memory, source, copy, -1, -1)
        size = llama_cpp.llama_state_get_size(self._context)
        blob = np.empty(size, np.uint8)
        written = llama_cpp.llama_state_get_data(self._context, pointer_to(blob), size)
        if written != size:
            raise NativeRefusal("llama_state_get_data", f"{written:,} of {size:,} bytes")
        return blob

    def restore(self, state: State) -> None:
        """See :class:`agentkv.Engine`."""
        with self._lock:
            self._open()
            self._check_state(state)
            n_tokens = len(state.tokens)
            try:
                if self.sets_without_zeroing(state):
                    call, is_set = "llama_state_seq_set_data", self._set_sequence(state)
                else:
                    call, is_set = "llama_state_set_data", self._set_whole(state)
                top = llama_cpp.llama_memory_seq_pos_max(self._memory, blobs.SEQUENCES[0])
                self._is_stained = not state.is_trusted
            except BaseException:
                self._is_stained |= not state.is_trusted
                self.clear()
                raise
            if not is_set or top != n_tokens - 1:
                detail = f"{state.blob.nbytes:,} bytes of {n_tokens:,} tokens, last position {top} ({last_log()})"
                self._rebuild()
                raise NativeRefusal(call, detail)
            self._tokens, self._restored = list(state.tokens), n_tokens
            self.counters.restored += n_tokens

    def sets_without_zeroing(self, state: State) -> bool:
        """Whether :meth:`restore` leaves the rest of the window as it is: for short states on a CPU."""
        is_short = len(state.tokens) * _SHORT <= self.window
        return is_short and not self.settings.gpu_layers and blobs.is_sequence(state.layout)

    def _set_whole(self, state: State) -> bool:
        read: int = llama_cpp.llama_state_set_data(self._context, pointer_to(state.blob), state.blob.nbytes)
        return read == state.blob.nbytes

    def _set_sequence(self, state: State) -> bool:
        """Into an empty cache, without zeroing it; then its cells belong to both sequences, as they did."""
        self.clear()
        source, copy = blobs.SEQUENCES
        is_set = self._setter.set(state, source)
        llama_cpp.llama_memory_seq_cp(self._memory, source, copy, -1, -1)
        return is_set

    def _check_state(self, state: State) -> None:
        """Everything that can be known of a state in Python, before native code touches the live context."""
        n_tokens = len(state.tokens)
        if not n_tokens:
            raise InvalidState("it has no tokens")
        if not all(0 <= token < self.info.n_vocab for token in state.tokens):
            raise InvalidState("it holds token ids that this model does not have")
        check_window(n_tokens, 1, 0, self.window)
        mine, theirs = self.layout, state.layout
        if any(section.kind == "opaque" for section in mine.sections):
            if mine.architecture != theirs.architecture or len(mine.sections) != len(theirs.sections):
                raise InvalidState("it is of another architecture")
        elif mine != theirs:
            raise InvalidState("its layout is not that of this model and these settings")
        blobs.check(state.blob, theirs, n_tokens)
        if blobs.recurrent_fields(state.blob, theirs, n_tokens) != self._recurrent:
            raise InvalidState("its recurrent section is of another model")
        self._require_numbers(state)

    def _require_numbers(self, state: State) -> None:
        """Refuse values that are not numbers, which no prefill leaves; a blob that stays in RAM is looked at once."""
        if self._numbers.get(id(state.blob)) is state.blob:
            return
        offset = first_non_number(state.blob, state.layout, len(state.tokens))
        if offset is not None:
            raise InvalidState("it holds values that are not numbers", offset)
        self._numbers[id(state.blob)] = state.blob

    def truncate(self, n_tokens: int) -> bool:
        """See :class:`agentkv.Engine`. A restored windowed state has zeroed rows: it can lose its last token only."""
        with self._lock:
            self._open()
            if not 0 < n_tokens <= len(self._tokens):
                raise UsageError(f"cannot cut a context of {len(self._tokens)} tokens to {n_tokens}")
            if any(section.kind != "attention" for section in self.layout.sections):
                return False
            window = max(section.window for section in self.layout.sections)
            if window and self._restored > window and n_tokens < self._restored - 1:
                return False
            if not llama_cpp.llama_memory_seq_rm(self._memory, -1, n_tokens, -1):
                return False
            del self._tokens[n_tokens:]
            self._restored = min(self._restored, n_tokens) if not window else self._restored
            return True


def _chunks(tokens: Sequence[int], batch: int) -> Iterator[Sequence[int]]:
    """Cuts of at most ``batch`` tokens, none of which leaves a single token over: one token alone goes through
    other kernels than a batch does, and the bits of a prompt would depend on its length modulo the batch."""
    start = 0
    while start < len(tokens):
        size = batch - 4 if len(tokens) - start == batch + 1 else batch
        yield tokens[start : start + size]
        start += size
