"""The generation loop that all engines share: sampling, stop strings, whole characters, cancellation.

The path of a token: logits → sampler → token bytes → decoder that waits for whole characters → text held back while
it may be a stop string → :class:`Piece`.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from agentkv.engine.base import Cancellation, Engine, Logits, Piece, Sampling
from agentkv.errors import Cancelled, UsageError, WindowOverflow
from agentkv.io.hashing import sha256

MAX_NEW = 512
"""Most tokens of an answer by default: a page; shorter answers end by themselves."""
LEAST_NEW = 48
"""At least so many have to fit, or there is no room for an answer."""


def room(n_block: int, n_turn: int, max_new: int | None, window: int) -> int:
    """How many tokens an answer may have: ``max_new``, or without it MAX_NEW or as many as fit. Raises WindowOverflow.

    A default takes no room that the prompt needs: a prompt overflows only where not even LEAST_NEW fit.
    """
    if max_new is None:
        max_new = min(MAX_NEW, max(window - n_block - n_turn, LEAST_NEW))
    check_window(n_block, n_turn, max_new, window)
    return max_new


def check_window(n_block: int, n_turn: int, max_new: int, window: int) -> None:
    """Raise WindowOverflow with the four numbers unless everything fits."""
    if n_block + n_turn + max_new > window:
        raise WindowOverflow(n_block, n_turn, max_new, window)


def check_ids(tokens: Sequence[int], n_vocab: int) -> None:
    """Raise UsageError for an id outside the vocabulary: native code indexes its tables without looking."""
    if not all(0 <= token < n_vocab for token in tokens):
        raise UsageError(f"token ids must be 0 to {n_vocab - 1}")


def log_probability(logits: Logits, token: int) -> float:
    """Natural-log probability of ``token`` under ``logits``, in float64."""
    wide = logits.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))


class _StopStrings:
    """Holds text back for as long as it may be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise UsageError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Text that may be shown, and whether a stop string was completed."""
        self._held += text
        ends = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            shown, self._held = self._held[: min(ends)], ""
            return shown, True
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def flush(self) -> str:
        """What is still held back, at the end of a generation."""
        held, self._held = self._held, ""
        return held

    def _overlap(self, stop: str) -> int:
        return next((n for n in range(min(len(stop) - 1, len(self._held)), 0, -1) if self._held.endswith(stop[:n])), 0)


def generate(
    engine: Engine,
    logits: Logits,
    *,
    max_new: int,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    grammar: str | None = None,
    logprobs: bool = False,
    cancellation: Cancellation | None = None,
    observe: Callable[[Logits], object] | None = None,
) -> Iterator[Piece]:
    """Generate after the live context, whose last logits are ``logits``; at most ``max_new`` tokens.

    The last piece carries ``finish``: ``stop`` (the model ended its turn), ``length`` or ``stop_string``. Raises
    WindowOverflow before the first token, InvalidGrammar, Cancelled. ``observe`` sees the logits of every step.

    >>> from agentkv import FakeEngine, Message
    >>> from agentkv.engine.prompt import PromptBuilder
    >>> engine = FakeEngine(replies=lambda prompt: "forty-two")
    >>> prompt = PromptBuilder(engine).build("", "", [Message("user", "What is 6 x 7?")])
    >>> "".join(piece.text for piece in generate(engine, engine.extend(prompt.tokens), max_new=20))
    'forty-two'
    """
    if max_new < 1:
        raise UsageError(f"max_new must be at least 1, not {max_new}")
    check_window(len(engine.tokens), 0, max_new, engine.window)
    stops = _StopStrings(stop)
    sampler = engine.sampler(sampling or Sampling(), grammar)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        for step in range(max_new):
            if cancellation is not None and cancellation.requested:
                engine.clear()
                raise Cancelled("generation")
            if observe is not None:
                observe(logits)
            token = sampler.pick(logits)
            probability = log_probability(logits, token) if logprobs else None
            if engine.is_end(token):
                shown, stopped = stops.feed(decoder.decode(b"", True))
                yield Piece(shown if stopped else shown + stops.flush(), token, probability, "stop")
                return
            last = step == max_new - 1
            shown, stopped = stops.feed(decoder.decode(engine.token_bytes(token), last))
            if stopped:
                yield Piece(shown, token, probability, "stop_string")
                return
            if last:
                yield Piece(shown + stops.flush(), token, probability, "length")
                return
            yield Piece(shown, token, probability)
            logits = engine.extend([token], cancellation)
    finally:
        sampler.close()


# --- the exactness probe --------------------------------------------------------------------------
# A chain of greedy steps whose every logit byte goes into one SHA-256. One step proves nothing: on sliding-window
# models the first step usually agrees and the divergence begins 2 to 40 steps later. Two probes that agree have seen
# identical float32 logits at each step. A deposit's probe decodes most of its tokens in one batch, which costs little
# more than one step, and looks at every row: with the last row alone a divergence that 32 steps saw was missed.

PROBE_STEPS = 32
"""Tokens of a deposit's probe; so many have to fit after a block."""
PROBE_BATCH = 24
"""Of them decoded at once."""


def probe_hashes(
    engine: Engine, tokens: Sequence[int], batch: int, steps: int, cancellation: Cancellation | None = None
) -> list[str]:
    """SHA-256 of the float32 logits after each of ``steps`` tokens: ``batch`` at once, the others in greedy steps.

    The batch is of ``tokens``, those of the block itself, from their middle on and round. Raises UsageError for none.
    """
    if not tokens:
        raise UsageError("a block without tokens has no probe")
    middle = len(tokens) // 2
    rows = engine.extend_each([tokens[(middle + i) % len(tokens)] for i in range(batch)], cancellation)
    hashes = [sha256(row.data) for row in rows]
    return [*hashes, *greedy_hashes(engine, int(rows[-1].argmax()), steps - batch, cancellation)]


def greedy_hashes(engine: Engine, token: int, steps: int, cancellation: Cancellation | None = None) -> list[str]:
    """SHA-256 of the float32 logits after each of ``steps`` greedy steps, the first of which decodes ``token``."""
    hashes = []
    for _ in range(steps):
        logits = engine.extend([token], cancellation)
        hashes.append(sha256(logits.data))
        token = int(logits.argmax())
    return hashes


def chained(hashes: list[str]) -> str:
    """One SHA-256 over the steps' hashes, in order."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def first_difference(cold: list[str], graft: list[str]) -> int | None:
    """The first step (from 1) at which two probes differ, None if they agree."""
    return next((i + 1 for i, (a, b) in enumerate(zip(cold, graft, strict=True)) if a != b), None)
