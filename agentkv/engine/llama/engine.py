"""``LlamaEngine``: llama.cpp through llama-cpp-python's low-level API.

Exactness rests on four things: flash attention pinned, a full-size windowed cache, every captured cell owned by two
sequences, and a state restored whole into cells 0, 1, 2… of an empty cache. Nothing reaches a native setter that
:mod:`agentkv.engine.layout` has not checked. If a native call fails all the same, or logits are not numbers, the
context is thrown away.

Not guaranteed: exactness of a model, which only the probe at deposit establishes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, Counters, Logits, Sampling, Scored, State, check_scored, one_by_one
from agentkv.engine.generate import check_ids, check_window
from agentkv.engine.llama.context import ABORTED, LlamaContext
from agentkv.engine.llama.model import LlamaModel, llama_fingerprint
from agentkv.engine.llama.native import last_log
from agentkv.engine.llama.sampling import LlamaSampler
from agentkv.engine.llama.scoring import SequenceScorer
from agentkv.engine.settings import EngineSettings
from agentkv.engine.values import first_non_number
from agentkv.errors import Cancelled, EngineClosed, InvalidState, NativeRefusal, UsageError
from agentkv.io.forks import OwnedLock, Shared
from agentkv.models import resolve
from agentkv.records import Fingerprint, StateLayout

_DEFAULT_WINDOW = 8192
_SCORE_CHUNK = 64
_SHORT = 8
"""A state of at most this part of the window is set without zeroing the window, at the price of a copy."""


class LlamaEngine(Shared):
    """One llama.cpp model with one live context; see :class:`agentkv.engine.base.Engine` for the methods' contract.

    ``path`` is the GGUF file, already checked; use :meth:`open` for a catalogue name. Raises ModelUnreadable, NoGpu.
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
        # times NaN is NaN, which some models turn into a wrong answer, so untrusted rows are zeroed too.
        self._has_recurrence = self._is_untrusted = False
        self._numbers: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()
        self._no_cancel = Cancellation()
        self._scorer: SequenceScorer | None = None
        self._model = LlamaModel(path, self.settings, name, sha256)
        self.info = self._model.info
        train = self.info.train_window
        self.window = self.settings.window or min(train, _DEFAULT_WINDOW)
        try:
            if self.window > train:
                raise UsageError(
                    f"a window of {self.window:,} is over the {train:,} tokens that the model was trained on"
                )
            self._context = LlamaContext(self._model, self.settings, self.window)
        except BaseException:
            self._model.close()
            raise
        self.layout: StateLayout = self._learn_layout()

    @classmethod
    def open(cls, spec: str | Path, settings: EngineSettings | None = None, **options: Any) -> LlamaEngine:
        """Open a catalogue name (pulled if it is not there), a ``.gguf`` path or ``hf:REPO/FILE``.

        ``options`` go to :func:`agentkv.models.resolve`. Raises the errors of ModelError.
        """
        model = resolve(spec, **options)
        return cls(model.path, settings, name=model.name, sha256=model.sha256)

    def _learn_layout(self) -> StateLayout:
        """The layout of this model's states, read off a state of one token that llama.cpp itself has written."""
        self.extend([self.info.bos if self.info.bos is not None else 0])
        blob = self._context.state()
        layout = blobs.parse(blob, 1, self._model.sliding_window)
        self._recurrent = blobs.recurrent_fields(blob, layout, 1)
        self._has_recurrence = any(section.kind != "attention" for section in layout.sections)
        self.clear()
        self.counters = Counters()
        return layout

    def close(self) -> None:
        """Free the native memory; may be called twice. In a forked child it is the parent's, and stays."""
        if not self._lock.owner.is_here:
            return
        with self._lock:
            if self._scorer is not None:
                self._scorer.close()
                self._scorer = None
            self._context.close()
            self._model.close()

    def __enter__(self) -> LlamaEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        self._lock.owner.require()
        if not self._context.native:
            raise EngineClosed

    def _rebuild(self) -> None:
        """Throw the context away and begin with an empty one."""
        self._tokens, self._restored, self._is_untrusted = [], 0, False
        try:
            self._context.rebuild()
        except BaseException:
            self.close()
            raise

    # --- what the model is ------------------------------------------------------------------------

    @property
    def alignment(self) -> int:
        """See :class:`agentkv.engine.base.Engine`.

        On a CPU without flash attention, matrix products take rows in groups of four and the rows left over by
        another kernel: measured with Q4_1 and Q4_K_M weights, see ``agentkv bench exactness``, and on tiny models of
        every kind of architecture, see ``python -m tests.benchmarks architectures``.
        """
        return 1 if self.settings.flash_attention or self.settings.gpu_layers else 4

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """See :class:`agentkv.engine.base.Engine`."""
        return self._lock

    @property
    def tokens(self) -> tuple[int, ...]:
        """See :class:`agentkv.engine.base.Engine`."""
        return tuple(self._tokens)

    def fingerprint(self) -> Fingerprint:
        """See :class:`agentkv.engine.base.Engine`."""
        v_trans = any(section.v_trans for section in self.layout.sections)
        return llama_fingerprint(self.info.sha256, self.settings, self._model.lora_ids, v_trans)

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """See :class:`agentkv.engine.base.Engine`."""
        self._require_open()
        return self._model.tokenize(text, special=special)

    def token_bytes(self, token: int) -> bytes:
        """See :class:`agentkv.engine.base.Engine`."""
        self._require_open()
        check_ids([token], self.info.n_vocab)
        return self._model.token_bytes(token)

    def is_end(self, token: int) -> bool:
        """See :class:`agentkv.engine.base.Engine`."""
        check_ids([token], self.info.n_vocab)
        return self._model.is_end(token)

    def is_control(self, token: int) -> bool:
        """See :class:`agentkv.engine.base.Engine`."""
        check_ids([token], self.info.n_vocab)
        return self._model.is_control(token)

    def sampler(self, sampling: Sampling, grammar: str | None = None) -> LlamaSampler:
        """See :class:`agentkv.engine.base.Engine`."""
        self._require_open()
        return LlamaSampler(self._model.vocab, sampling, grammar)

    # --- the live context -------------------------------------------------------------------------

    def clear(self) -> None:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._require_open()
            self._context.clear(zero=self._has_recurrence or self._is_untrusted)
            self._is_untrusted = False
            self._tokens, self._restored = [], 0

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._check_extension(tokens)
            for batch in _batches(tokens, self.settings.batch):
                self._decode(batch, cancellation, all_logits=False)
            last: Logits = self._logits()[0]
            return last

    def extend_each(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> NDArray[np.float32]:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._check_extension(tokens)
            rows = []
            for batch in _batches(tokens, self.settings.batch):
                self._decode(batch, cancellation, all_logits=True)
                rows.append(self._logits(len(batch)))
            return np.concatenate(rows)

    def score(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """See :class:`agentkv.engine.base.Engine`."""
        if len(tokens) < 2:
            raise UsageError("scoring takes at least two tokens: the first is the condition of the second")
        with self._lock:
            self._check_extension(tokens)
            parts = []
            size = min(_SCORE_CHUNK, self.settings.batch)
            for start in range(0, len(tokens), size):
                batch = tokens[start : start + size]
                self._decode(batch, None, all_logits=True)
                rows = self._logits(len(batch)).astype(np.float64)
                targets = np.asarray(tokens[start + 1 : start + len(batch) + 1], np.int64)
                rows = rows[: len(targets)]
                top = rows.max(axis=1)
                total = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
                parts.append(rows[np.arange(len(targets)), targets] - total)
            return np.concatenate(parts)

    def score_after(self, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored]:
        """See :class:`agentkv.engine.base.Engine`.

        In one decode where the architecture allows it, in a second context.
        """
        check_scored(tokens, scored)
        with self._lock:
            self._require_open()
            check_ids(tokens, self.info.n_vocab)
            for state in states:
                self._check_state(state)
            is_at_once = len(states) > 1 and all(state.is_trusted for state in states)
            if is_at_once and not self._model.adapters and self._scorer is None:
                with contextlib.suppress(MemoryError):
                    self._scorer = SequenceScorer(self._model, self._context.params())
            if is_at_once and self._scorer is not None and self._scorer.fits(states, len(tokens)):
                scores = self._scorer.score(states, tokens, scored)
                if scores is not None:
                    self.counters.restored += sum(len(state.tokens) for state in states)
                    self.counters.decoded += len(states) * len(tokens)
                    self.clear()
                    return scores
            return one_by_one(self, states, tokens, scored)

    def _check_extension(self, tokens: Sequence[int]) -> None:
        self._require_open()
        if not len(tokens):
            raise UsageError("at least one token has to be evaluated: a state holds no logits")
        check_ids(tokens, self.info.n_vocab)
        check_window(len(self._tokens), len(tokens), 0, self.window)

    def _decode(self, batch: Sequence[int], cancellation: Cancellation | None, *, all_logits: bool) -> None:
        """The one decode call: every token that is evaluated passes here and is counted here."""
        try:
            start = len(self._tokens)
            code = self._context.decode(batch, start, cancellation or self._no_cancel, all_logits=all_logits)
        except BaseException:
            self.clear()
            raise
        if code == ABORTED:
            self.clear()
            raise Cancelled("decoding")
        if code != 0:
            detail = f"code {code} ({last_log()})"
            self._rebuild()
            raise NativeRefusal("llama_decode", detail)
        self._tokens.extend(batch)
        self.counters.decoded += len(batch)

    def _logits(self, n_rows: int | None = None) -> NDArray[np.float32]:
        logits = self._context.logits(n_rows)
        if logits is None:
            self._rebuild()
            raise NativeRefusal("llama_get_logits", "no logits after decoding")
        if np.isnan(logits.max()):
            self._rebuild()  # the cache may hold such values too
            raise NativeRefusal("llama_decode", "the logits are not numbers; a restored state or the model is corrupt")
        return logits

    # --- states -----------------------------------------------------------------------------------

    def capture(self) -> State:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._require_open()
            if not self._tokens:
                raise UsageError("an empty context has no state")
            n_tokens = len(self._tokens)
            blob = self._context.state()
            layout = self._layout_of(blob)
            blobs.check(blob, layout, n_tokens)
            blobs.zero_masked_rows(blob, layout, n_tokens)
            if not self._is_untrusted:  # what was computed here is not checked again when it comes back
                self._numbers[id(blob)] = blob
            return State(tuple(self._tokens), layout, blob, is_trusted=not self._is_untrusted)

    def _layout_of(self, blob: NDArray[np.uint8]) -> StateLayout:
        """The engine's layout; an opaque section's size grows with the context, so it is taken from the blob."""
        if all(section.kind != "opaque" for section in self.layout.sections):
            return self.layout
        return blobs.parse(blob, len(self._tokens), 0)

    def restore(self, state: State) -> None:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._require_open()
            self._check_state(state)
            n_tokens = len(state.tokens)
            try:
                if self.sets_without_zeroing(state):
                    self.clear()
                    call, is_set = "llama_state_seq_set_data", self._context.set_sequence(state)
                else:
                    call, is_set = "llama_state_set_data", self._context.set_whole(state)
                top = self._context.top_position()
                self._is_untrusted = not state.is_trusted
            except BaseException:
                self._is_untrusted |= not state.is_trusted
                self.clear()
                raise
            if not is_set or top != n_tokens - 1:
                detail = f"{state.blob.nbytes:,} bytes of {n_tokens:,} tokens, last position {top} ({last_log()})"
                self._rebuild()
                raise NativeRefusal(call, detail)
            self._tokens, self._restored = list(state.tokens), n_tokens
            self.counters.restored += n_tokens

    def sets_without_zeroing(self, state: State) -> bool:
        """Whether :meth:`restore` leaves the rest of the cache as it is: for short states on a CPU."""
        is_short = len(state.tokens) * _SHORT <= self.window
        return is_short and not self.settings.gpu_layers and blobs.is_sequence(state.layout)

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
        """Refuse values that are not numbers, which no prefill leaves; a blob that stays in RAM is checked once."""
        if self._numbers.get(id(state.blob)) is state.blob:
            return
        offset = first_non_number(state.blob, state.layout, len(state.tokens))
        if offset is not None:
            raise InvalidState("it holds values that are not numbers", offset)
        self._numbers[id(state.blob)] = state.blob

    def truncate(self, n_tokens: int) -> bool:
        """See :class:`agentkv.engine.base.Engine`.

        A restored windowed state has zeroed rows: it can lose its last token only.
        """
        with self._lock:
            self._require_open()
            if not 0 < n_tokens <= len(self._tokens):
                raise UsageError(f"cannot cut a context of {len(self._tokens)} tokens to {n_tokens}")
            if any(section.kind != "attention" for section in self.layout.sections):
                return False
            window = max(section.window for section in self.layout.sections)
            if window and self._restored > window and n_tokens < self._restored - 1:
                return False
            if not self._context.cut(n_tokens):
                return False
            del self._tokens[n_tokens:]
            self._restored = min(self._restored, n_tokens) if not window else self._restored
            return True


def _batches(tokens: Sequence[int], batch: int) -> Iterator[Sequence[int]]:
    """Cuts of at most ``batch`` tokens, none of which leaves a single token over: one token alone goes through
    other kernels than a batch does, and the bits of a prompt would depend on its length modulo the batch."""
    start = 0
    while start < len(tokens):
        size = batch - 4 if len(tokens) - start == batch + 1 else batch
        yield tokens[start : start + size]
        start += size
