"""Samplers on llama.cpp's own sampler chain, and greedy without it.

Greedy is numpy's argmax (the lowest id on a tie), so that it never depends on a native sort. A grammar is asked
about the chosen token first and laid over the whole vocabulary only when it says no, since the latter is slow.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from agentkv.engine.base import Logits, Sampling
from agentkv.errors import InvalidGrammar

_CANDIDATE = np.dtype([("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])
_MAX_GRAMMAR, _MAX_RULES, _MAX_DEPTH = 1 << 18, 4096, 100
"""llama.cpp's grammar code is recursive and its stack is the process's: deeper groups never reach it."""


class _Candidates:
    """A llama_token_data_array over logits, or over a single token."""

    def __init__(self, logits: Logits, only: int | None = None) -> None:
        n = len(logits) if only is None else 1
        self.data: NDArray[Any] = np.zeros(n, _CANDIDATE)
        self.data["id"] = np.arange(n) if only is None else only
        self.data["logit"] = logits if only is None else logits[only]
        pointer = self.data.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
        self.array = llama_cpp.llama_token_data_array(data=pointer, size=n, selected=-1, sorted=False)

    def apply(self, sampler: int) -> None:
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(self.array))

    @property
    def selected(self) -> int:
        return int(self.array.data[self.array.selected].id)

    @property
    def best(self) -> int:
        return int(self.data["id"][int(self.data["logit"].argmax())])

    @property
    def possible(self) -> bool:
        return bool(np.isfinite(self.data["logit"]).any())


class LlamaSampler:
    """The :class:`~agentkv.engine.base.Sampler` of a llama.cpp vocabulary."""

    def __init__(self, vocab: int, sampling: Sampling, grammar: str | None) -> None:
        self._chain = None if sampling.temperature == 0 else _chain(sampling)
        try:
            self._grammar = None if grammar is None else _grammar(vocab, grammar)
        except InvalidGrammar:
            self.close()
            raise

    def pick(self, logits: Logits) -> int:
        """The next token id; the grammar, if there is one, allows it and is advanced by it."""
        token = self._choose(_Candidates(logits)) if self._chain else int(logits.argmax())
        if self._grammar is not None:
            if not self._allowed(logits, token):
                candidates = _Candidates(logits)
                candidates.apply(self._grammar)
                if not candidates.possible:
                    raise InvalidGrammar("it allows no token of this model's vocabulary here")
                token = self._choose(candidates)
            llama_cpp.llama_sampler_accept(self._grammar, token)
        if self._chain:
            llama_cpp.llama_sampler_accept(self._chain, token)
        return token

    def _allowed(self, logits: Logits, token: int) -> bool:
        candidate = _Candidates(logits, only=token)
        candidate.apply(self._grammar or 0)
        return candidate.possible

    def _choose(self, candidates: _Candidates) -> int:
        if self._chain is None:
            return candidates.best
        candidates.apply(self._chain)
        return candidates.selected

    def close(self) -> None:
        """Free the native samplers; may be called twice."""
        for name in ("_chain", "_grammar"):
            native = getattr(self, name, None)
            setattr(self, name, None)
            if native:
                llama_cpp.llama_sampler_free(native)


def _chain(sampling: Sampling) -> Any:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    if sampling.top_k:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_top_k(sampling.top_k))
    if sampling.top_p < 1:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1))
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_temp(sampling.temperature))
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_dist(sampling.seed))
    return chain


def _grammar(vocab: int, grammar: str) -> Any:
    encoded = grammar.encode()
    if not encoded or len(encoded) > _MAX_GRAMMAR or b"\0" in encoded:
        raise InvalidGrammar(f"{len(encoded):,} bytes; 1 to {_MAX_GRAMMAR:,} without NUL are accepted")
    if grammar.count("::=") > _MAX_RULES or _depth(grammar) > _MAX_DEPTH:
        raise InvalidGrammar(f"more than {_MAX_RULES:,} rules, or groups more than {_MAX_DEPTH} deep")
    native = llama_cpp.llama_sampler_init_grammar(vocab, encoded, b"root")
    if not native:
        raise InvalidGrammar("it does not parse as GBNF with a rule `root`")
    return native


_LITERALS = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*', re.S)


def _depth(grammar: str) -> int:
    """How deep groups are nested, outside literals, character classes and comments."""
    depth = deepest = 0
    for char in _LITERALS.sub("", grammar):
        depth += (char == "(") - (char == ")")
        deepest = max(deepest, depth)
    return deepest
