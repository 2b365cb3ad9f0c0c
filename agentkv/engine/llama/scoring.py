"""The same tokens after several states at once, each state by itself: how a router scores its candidates.

One decode of eight short sequences takes little more than half the time of eight decodes, since a matrix is read once
for all of them. It runs in a second, small context of the same model, so the live one keeps its state. Only sums of
another order tell the results from those of :func:`one_by_one`: they agree to about three digits, not to the last
bit, and nothing exact is built on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import llama_cpp
import numpy as np

from agentkv.engine import layout as blobs
from agentkv.engine.base import Scored, State
from agentkv.engine.llama.context import SequenceSetter
from agentkv.engine.llama.model import LlamaModel
from agentkv.engine.llama.native import interrupts_kept

CELLS = 1024
"""Of the second context: tokens of all sequences decoded together."""
SEQUENCES = 16
_TOKENS = 256
"""In one decode at most, so that the logits of all of them stay small."""


class SequenceScorer:
    """The second context. ``params`` are those of the first, of which window and number of sequences are changed.

    Raises MemoryError where llama.cpp makes no context.
    """

    def __init__(self, model: LlamaModel, params: Any) -> None:
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = CELLS, _TOKENS, _TOKENS, SEQUENCES
        self._n_vocab = model.info.n_vocab
        self._batch = llama_cpp.llama_batch_init(_TOKENS, 0, 1)
        self._context: Any = None
        try:
            with interrupts_kept():
                self._context = llama_cpp.llama_init_from_model(model.native, params)
            if not self._context:
                raise MemoryError
        except BaseException:
            self.close()
            raise
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._setter = SequenceSetter(self._context)

    def close(self) -> None:
        """Free the native memory; may be called twice."""
        if self._context:
            llama_cpp.llama_free(self._context)
        if self._batch is not None:
            llama_cpp.llama_batch_free(self._batch)
        self._context = self._batch = None

    def fits(self, states: Sequence[State], n_tokens: int) -> bool:
        """Whether each state, with ``n_tokens`` after it, fits into this context and can be set as one sequence."""
        room = CELLS - n_tokens
        return n_tokens <= _TOKENS and all(
            len(state.tokens) <= room and blobs.is_sequence(state.layout) for state in states
        )

    def score(self, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored] | None:
        """See :meth:`agentkv.engine.base.Engine.score_after`; None if llama.cpp refused."""
        scores: list[Scored] = []
        for group in _groups(states, len(tokens)):
            of_group = self._score_group(group, tokens, scored)
            if of_group is None:
                return None
            scores += of_group
        return scores

    def _score_group(self, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored] | None:
        llama_cpp.llama_memory_clear(self._memory, False)
        for sequence, state in enumerate(states):
            if not self._setter.set(state, sequence):
                return None
        batch, rows = self._batch, [*range(scored), len(tokens) - 1]
        batch.n_tokens = len(states) * len(tokens)
        for sequence, state in enumerate(states):
            for index, token in enumerate(tokens):
                at = sequence * len(tokens) + index
                batch.token[at], batch.pos[at] = token, len(state.tokens) + index
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.logits[at] = index in rows
        if llama_cpp.llama_decode(self._context, batch) != 0:
            return None
        shape = (len(states), len(rows), self._n_vocab)
        pointer = llama_cpp.llama_get_logits(self._context)
        logits = np.ctypeslib.as_array(pointer, shape=(int(np.prod(shape)),)).reshape(shape)
        if np.isnan(logits.max()):
            llama_cpp.llama_memory_clear(self._memory, True)
            return None
        return [Scored.of(each, tokens[1 : scored + 1]) for each in logits]


def _groups(states: Sequence[State], n_tokens: int) -> Iterator[Sequence[State]]:
    """Runs of states that fit into one decode."""
    start = cells = 0
    for index, state in enumerate(states):
        needed = len(state.tokens) + n_tokens
        n = index - start
        if n and (n == SEQUENCES or cells + needed > CELLS or (n + 1) * n_tokens > _TOKENS):
            yield states[start:index]
            start, cells = index, 0
        cells += needed
    yield states[start:]
