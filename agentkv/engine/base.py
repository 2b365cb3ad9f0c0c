"""The ``Engine`` protocol: token ids in, logits and states out.

An engine owns one live context: a list of token ids and the KV state that they produced. Calls on it are
serialised by its lock; tokens are counted where they pass to the decode call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from agentkv.errors import UsageError
from agentkv.records import Fingerprint, StateLayout

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class State:
    """A captured context: its token ids, the layout of the blob, and the blob itself (uint8, 1-D).

    Rows that a sliding window already masks are zero. The blob holds no logits: after a restore at least one
    token has to be evaluated. ``is_trusted`` is False for bytes that this process did not compute or verify, and for
    states decoded on top of such: values that are not finite, or become so, must not stay in the cache for what comes
    next.
    """

    tokens: tuple[int, ...]
    layout: StateLayout
    blob: NDArray[np.uint8]
    is_trusted: bool = True


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. ``temperature`` 0 is greedy: the largest logit, the lowest id on a tie.

    ``top_k``: only the so many likeliest tokens, 0 for all. ``top_p``: the likeliest tokens that together have this
    probability, 0 to 1. ``min_p``: tokens with this share, 0 to 1, of the likeliest one's probability.

    Raises UsageError for a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise UsageError(f"temperature must be 0 to 100, not {self.temperature}")
        if not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise UsageError(f"top_p must be in (0, 1] and min_p in [0, 1], not {self.top_p} and {self.min_p}")
        if self.top_k < 0 or not 0 <= self.seed < 2**32:
            raise UsageError(f"top_k must be ≥ 0 and seed 0 to 2**32 - 1, not {self.top_k} and {self.seed}")


@dataclass(frozen=True)
class Piece:
    """One step of a generation.

    ``text`` holds whole characters only and may be empty; ``finish`` is None until the last piece.
    ``logprob`` is the token's natural-log probability before sampling settings and grammar; None if not asked for.
    """

    text: str
    token: int | None
    logprob: float | None = None
    finish: str | None = None


@dataclass
class Counters:
    """Running totals since the engine was opened, counted at the decode and state calls."""

    decoded: int = 0
    restored: int = 0


@dataclass(frozen=True)
class ModelInfo:
    """Of the loaded model. ``train_window`` is in tokens, ``sha256`` over the model's bytes.

    ``n_params``: how many weights it has, 0 where that is not known. ``spec``: its file, or the name that opens it.
    """

    name: str
    architecture: str
    sha256: str
    train_window: int
    n_vocab: int
    chat_template: str | None
    bos: int | None
    bos_text: str
    eos_text: str
    add_bos: bool
    n_params: int = 0
    spec: str = ""


@dataclass(frozen=True)
class Scored:
    """``log_probabilities``: natural logs, one a scored token. ``logits``: after the last token, shape (n_vocab,)."""

    log_probabilities: NDArray[np.float64]
    logits: Logits

    @classmethod
    def of(cls, rows: NDArray[np.float32], targets: Sequence[int]) -> Scored:
        """From logits of shape (len(targets) + 1, n_vocab): each row but the last predicts a target."""
        predicting = rows[:-1]
        top = predicting.max(axis=1, keepdims=True)
        total = np.log(np.exp(predicting - top).sum(axis=1, dtype=np.float64))
        hit = (predicting - top)[np.arange(len(targets)), np.asarray(targets, np.intp)].astype(np.float64)
        return cls(hit - total, rows[-1].copy())


class Cancellation:
    """A flag that another thread may set; it takes effect within one token, also in the middle of a prefill.

    ``flag`` is the flag as two bytes of native memory, so that native code can look at it without Python.
    """

    def __init__(self) -> None:
        self.flag = ctypes.create_string_buffer(2)

    def cancel(self) -> None:
        """Ask the running call to stop."""
        self.flag[0] = b"\x01"

    @property
    def requested(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self.flag[0] != b"\x00"


class Sampler(Protocol):
    """Chooses token ids; stateful over one generation."""

    def pick(self, logits: Logits) -> int:
        """The next token id, from ``logits`` of shape (n_vocab,); advances the grammar, if there is one."""
        ...

    def close(self) -> None:
        """Release native memory; may be called twice."""
        ...


class Engine(Protocol):
    """One model with one live context, which may be used from several threads.

    :attr:`lock` serialises calls; ``counters`` counts tokens at the decode and state calls.
    """

    info: ModelInfo
    window: int
    counters: Counters

    @property
    def alignment(self) -> int:
        """Tokens that the kernels take together: a prompt cut at a multiple of it gives the same bits as uncut.

        1 where no such number is known; then only the same cut gives the same bits.
        """
        ...

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Re-entrant lock that a caller holds over several calls that belong together (one turn)."""
        ...

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids in the live context."""
        ...

    def fingerprint(self) -> Fingerprint:
        """What makes states of this engine interchangeable."""
        ...

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Ids of ``text``, without BOS; control-token text becomes control tokens only if ``special``."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; empty for a control token."""
        ...

    def is_end(self, token: int) -> bool:
        """Whether the model ends its turn with this token."""
        ...

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token, one that no content may produce."""
        ...

    def clear(self) -> None:
        """Empty the live context."""
        ...

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        """Decode ``tokens`` (at least one) after the live context; logits after the last, shape (n_vocab,).

        Raises WindowOverflow before decoding, Cancelled with the context cleared, NativeRefusal.
        """
        ...

    def extend_each(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> NDArray[np.float32]:
        """As :meth:`extend`, but the logits after each token, shape (len(tokens), n_vocab): for few tokens."""
        ...

    def score(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Decode ``tokens`` (≥ 2); natural-log probability of each but the first, shape (len(tokens) - 1,)."""
        ...

    def score_after(self, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored]:
        """Decode the same ``tokens`` after each of ``states``, every one by itself.

        ``scored``: how many tokens after the first get a probability, at least 1 and fewer than ``len(tokens) - 1``.
        The live context is empty afterwards. Not guaranteed: the same bits as decoding them one by one.
        """
        ...

    def capture(self) -> State:
        """The state of the live context (≥ 1 token); the context can go on as if it had not been called."""
        ...

    def restore(self, state: State) -> None:
        """Replace the live context by ``state``. Raises InvalidState with the live context untouched.

        A context on top of an untrusted state is captured as untrusted until it is cleared or another state takes its
        place; nothing of it is left then.
        """
        ...

    def truncate(self, n_tokens: int) -> bool:
        """Cut the live context to its first ``n_tokens``; False (and nothing done) if this model cannot."""
        ...

    def sampler(self, sampling: Sampling, grammar: str | None = None) -> Sampler:
        """A sampler; ``grammar`` is GBNF text with the rule ``root``. Raises InvalidGrammar."""
        ...

    def close(self) -> None:
        """Release the model; every later call raises EngineClosed. May be called twice."""
        ...


def one_by_one(engine: Engine, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored]:
    """:meth:`Engine.score_after` in the live context, for engines and states that cannot do it at once."""
    check_scored(tokens, scored)
    scores = []
    with engine.lock:
        for state in states:
            engine.restore(state)
            probabilities = engine.score(tokens[: scored + 1])
            scores.append(Scored(probabilities, engine.extend(tokens[scored + 1 :])))
        engine.clear()
    return scores


def check_scored(tokens: Sequence[int], scored: int) -> None:
    """Raise UsageError unless so many tokens after the first can be scored, with one left for the logits."""
    if not 0 < scored < len(tokens) - 1:
        raise UsageError(f"of {len(tokens)} tokens, 1 to {len(tokens) - 2} can be scored, not {scored}")
