"""``FakeEngine``: bytes as tokens, deterministic, no model. Shipped, so that users test as this package does.

It keeps a real state in the real layout (a full and a windowed attention section) and computes its logits from
the *bytes* of that state, so a restore that brings back other bytes changes what it says. With ``replies`` it
answers in sentences: ``replies(prompt_text) -> text`` is asked once a turn, with everything before the answer.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv._version import __version__
from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, Counters, Logits, ModelInfo, Sampling, Scored, State, one_by_one
from agentkv.engine.generate import check_ids, check_window, log_probability
from agentkv.engine.settings import EngineSettings, require_gpu
from agentkv.errors import Cancelled, EngineClosed, InvalidGrammar, InvalidState, UsageError
from agentkv.io.forks import OwnedLock, Shared
from agentkv.records import USUAL, Fingerprint, Planes, Section, StateLayout

BOS, START, END, ANSWER = 256, 257, 258, 259
N_VOCAB = 260
_SPECIALS = {"<bos>": BOS, "<start>": START, "<end>": END, "<answer>": ANSWER}
_SLIDING = 64
_CHANNELS = 8
_TEMPLATE = (
    "<bos>{% for m in messages %}<start>{{ m.role }}\n{% if m.role == 'assistant' %}<answer>{% endif %}{{ m.content }}"
    "<end>{% endfor %}{% if add_generation_prompt %}<start>assistant\n<answer>{% endif %}"
)


def _section(window: int) -> Section:
    keys = Planes(ggml_type=1, token_major=True, row_bytes=32)
    values = Planes(ggml_type=1, token_major=False, row_bytes=2 * _CHANNELS, channels=_CHANNELS)
    return Section(kind="attention", v_trans=True, window=window, keys=(keys,), values=(values,))


LAYOUT = StateLayout(architecture="fake", sections=(_section(0), _section(_SLIDING)))


FAKE = "fake"
"""The name by which this engine is opened, where a model's is asked for; ``fake:WORD`` is one of other weights."""


def fake_sha256(weights: str = "") -> str:
    """What stands for the model's digest."""
    return hashlib.sha256(b"fake" + weights.encode()).hexdigest()


def fake_fingerprint(model_sha256: str, settings: EngineSettings) -> Fingerprint:
    """The fingerprint of a fake under these settings. Defaults are left out, as before there were settings."""
    pinned = settings.flash_attention or settings.gpu_layers
    content = {"kv_type": settings.kv_type, "flash_attention": settings.flash_attention}
    numerics = {"gpu_layers": settings.gpu_layers, "threads": settings.threads if pinned else None}
    return Fingerprint(
        content={"engine": FAKE, "model_sha256": model_sha256, **_unusual(content)},
        numerics={"agentkv": __version__, **_unusual(numerics)},
    )


def _unusual(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != USUAL.get(name)}


@functools.lru_cache(maxsize=8)
def quote(prompt: str) -> str:
    """An answer: the longest of the lines that share most words with the question."""
    head, _, question = prompt.rpartition("user\n")
    asked = _words(question.removesuffix("assistant\n"))
    shared = {line.strip(): len(asked & _words(line)) for line in head.splitlines()}
    best = max(shared, key=lambda line: (shared[line], len(line)), default="")
    return best if shared.get(best) else "I do not know."


def _words(text: str) -> set[str]:
    return {word for word in (part.strip(".,:;?!|()'\"").casefold() for part in text.split()) if len(word) > 2}


class FakeEngine(Shared):
    """Bytes as tokens and no model; the methods' contract is that of :class:`agentkv.engine.base.Engine`.

    ``weights`` stands for the model's bytes: two engines with other weights have other fingerprints and logits.
    ``diverge_after``: test aid, logits differ that many tokens after a restore, as on an inexact architecture.
    ``keeps_grammar``: take any grammar and leave it to ``replies`` to fit it; by default a grammar is refused.
    ``window``: tokens in the context. ``settings``: they change the fingerprint, and nothing else; ``has_gpu``: whether
    layers on a GPU are taken.

    >>> engine = FakeEngine(replies=lambda prompt: "forty-two")
    >>> engine.info.name
    'fake'
    """

    def __init__(
        self,
        *,
        window: int = 4096,
        weights: str = "",
        replies: Callable[[str], str] | None = None,
        diverge_after: int | None = None,
        keeps_grammar: bool = False,
        settings: EngineSettings | None = None,
        has_gpu: bool = False,
    ) -> None:
        self.settings = settings or EngineSettings()
        require_gpu(self.settings, has_gpu)
        self.window, self.counters, self._keeps_grammar = window, Counters(), keeps_grammar
        self._weights, self._replies, self._diverge_after = weights, replies, diverge_after
        self._lock = OwnedLock("model", reentrant=True)
        self._closed = False
        self._tokens: list[int] = []
        self._keys = [np.zeros((window, 32), np.uint8) for _ in LAYOUT.sections]
        self._values = [np.zeros((_CHANNELS, window * 2), np.uint8) for _ in LAYOUT.sections]
        self._since_restore: int | None = None
        self._is_untrusted = False
        self.info = ModelInfo(
            name=f"{FAKE}:{weights}" if weights else FAKE,
            architecture="fake",
            sha256=fake_sha256(weights),
            train_window=window,
            n_vocab=N_VOCAB,
            chat_template=_TEMPLATE,
            bos=BOS,
            bos_text="<bos>",
            eos_text="<end>",
            add_bos=True,
            spec=f"{FAKE}:{weights}" if weights else FAKE,
        )

    @property
    def alignment(self) -> int:
        """See :class:`agentkv.engine.base.Engine`; 4, so that padding is exercised."""
        return 4

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
        return fake_fingerprint(self.info.sha256, self.settings)

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """See :class:`agentkv.engine.base.Engine`."""
        if not special:
            return list(text.encode("utf-8", "replace"))
        for name, token in _SPECIALS.items():
            head, found, tail = text.partition(name)
            if found:
                return [*self.tokenize(head, special=True), token, *self.tokenize(tail, special=True)]
        return list(text.encode("utf-8", "replace"))

    def token_bytes(self, token: int) -> bytes:
        """See :class:`agentkv.engine.base.Engine`."""
        check_ids([token], N_VOCAB)
        return bytes([token]) if token < 256 else b""

    def is_end(self, token: int) -> bool:
        """See :class:`agentkv.engine.base.Engine`."""
        check_ids([token], N_VOCAB)
        return token == END

    def is_control(self, token: int) -> bool:
        """See :class:`agentkv.engine.base.Engine`."""
        check_ids([token], N_VOCAB)
        return token >= 256

    def clear(self) -> None:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._open()
            self._tokens, self._since_restore, self._is_untrusted = [], None, False

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._check_extension(tokens)
            for token in tokens:
                if cancellation is not None and cancellation.requested:
                    self.clear()
                    raise Cancelled("decoding")
                self._append(token)
            return self._logits()

    def extend_each(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> NDArray[np.float32]:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._check_extension(tokens)
            return np.stack([self.extend([token], cancellation) for token in tokens])

    def score(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """See :class:`agentkv.engine.base.Engine`."""
        if len(tokens) < 2:
            raise UsageError("scoring takes at least two tokens: the first is the condition of the second")
        with self._lock:
            self._check_extension(tokens)
            out = []
            for token, target in zip(tokens, [*tokens[1:], None], strict=True):
                self._append(token)
                if target is not None:
                    out.append(log_probability(self._logits(), target))
            return np.asarray(out)

    def score_after(self, states: Sequence[State], tokens: Sequence[int], scored: int) -> list[Scored]:
        """See :class:`agentkv.engine.base.Engine`."""
        return one_by_one(self, states, tokens, scored)

    def _open(self) -> None:
        self._lock.owner.require()
        if self._closed:
            raise EngineClosed

    def _check_extension(self, tokens: Sequence[int]) -> None:
        self._open()
        if not len(tokens):
            raise UsageError("at least one token has to be evaluated: a state holds no logits")
        check_ids(tokens, N_VOCAB)
        check_window(len(self._tokens), len(tokens), 0, self.window)

    def _append(self, token: int) -> None:
        """Write one token's rows; each row follows from the row before it, as in a causal model."""
        at = len(self._tokens)
        before = self._keys[0][at - 1].tobytes() if at else self._weights.encode()
        for index in range(len(LAYOUT.sections)):
            row = hashlib.sha256(b"%d|%d|%b" % (index, token, before)).digest()
            self._keys[index][at] = np.frombuffer(row, np.uint8)
            value = np.frombuffer(hashlib.sha256(b"v" + row).digest()[: 2 * _CHANNELS], np.uint8)
            self._values[index][:, 2 * at : 2 * at + 2] = value.reshape(_CHANNELS, 2)
        self._tokens.append(token)
        self.counters.decoded += 1
        if self._since_restore is not None:
            self._since_restore += 1

    def _logits(self) -> Logits:
        """Logits from every byte of the state that attention can see."""
        n, seed = len(self._tokens), hashlib.sha256()
        for index, section in enumerate(LAYOUT.sections):
            first = max(0, n - section.window) if section.window else 0
            seed.update(np.bitwise_xor.reduce(self._keys[index][first:n], axis=0).tobytes())
            seed.update(self._keys[index][n - 1].tobytes())
            seed.update(self._values[index][:, 2 * first : 2 * n].tobytes())
        if self._diverge_after is not None and (self._since_restore or 0) > self._diverge_after:
            seed.update(b"diverged")
        raw = np.frombuffer(hashlib.shake_256(seed.digest()).digest(4 * N_VOCAB), "<u4")
        logits = (raw.astype(np.float64) / 2**32).astype(np.float32)
        scripted = self._scripted()
        if scripted is not None:
            logits[scripted] += 8
        return logits

    def _scripted(self) -> int | None:
        if self._replies is None or ANSWER not in self._tokens:
            return None
        at = len(self._tokens) - 1 - self._tokens[::-1].index(ANSWER)
        prompt = bytes(token for token in self._tokens[:at] if token < 256).decode("utf-8", "replace")
        answer, n_written = self._replies(prompt).encode(), len(self._tokens) - at - 1
        return answer[n_written] if n_written < len(answer) else END

    def capture(self) -> State:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._open()
            n = len(self._tokens)
            if not n:
                raise UsageError("an empty context has no state")
            assembly = blobs.Assembly(LAYOUT, n)
            for index in range(len(LAYOUT.sections)):
                rows = [self._keys[index][:n].reshape(-1), self._values[index][:, : 2 * n].reshape(-1)]
                assembly.place(blobs.reference(index, 0, n, np.concatenate(rows), 2), np.concatenate(rows))
            blobs.zero_masked_rows(assembly.blob, LAYOUT, n)
            return State(self.tokens, LAYOUT, assembly.blob, is_trusted=not self._is_untrusted)

    def restore(self, state: State) -> None:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._open()
            n = len(state.tokens)
            if not n:
                raise InvalidState("it has no tokens")
            check_window(n, 1, 0, self.window)
            if state.layout != LAYOUT:
                raise InvalidState("its layout is not that of this model and these settings")
            blobs.check(state.blob, LAYOUT, n)
            for ref, raw in blobs.cut(state.blob, LAYOUT, n, [(0, n)]):
                self._keys[ref.section][:n] = raw[: 32 * n].reshape(n, 32)
                self._values[ref.section][:, : 2 * n] = raw[32 * n :].reshape(_CHANNELS, -1)
            self._tokens, self._since_restore = list(state.tokens), 0
            self._is_untrusted = not state.is_trusted
            self.counters.restored += n

    def truncate(self, n_tokens: int) -> bool:
        """See :class:`agentkv.engine.base.Engine`."""
        with self._lock:
            self._open()
            if not 0 < n_tokens <= len(self._tokens):
                raise UsageError(f"cannot cut a context of {len(self._tokens)} tokens to {n_tokens}")
            if self._since_restore is not None and n_tokens < len(self._tokens) - self._since_restore - 1:
                return False
            del self._tokens[n_tokens:]
            return True

    def sampler(self, sampling: Sampling, grammar: str | None = None) -> FakeSampler:
        """See :class:`agentkv.engine.base.Engine`; a grammar is refused, or taken and not enforced."""
        self._open()
        if grammar is not None and not self._keeps_grammar:
            raise InvalidGrammar("the fake engine has no grammars; see its keeps_grammar")
        return FakeSampler(sampling)

    def close(self) -> None:
        """See :class:`agentkv.engine.base.Engine`."""
        self._closed = True

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeSampler:
    """Greedy, or a seeded draw at a temperature."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling, self._random = sampling, np.random.default_rng(sampling.seed)

    def pick(self, logits: Logits) -> int:
        """The next token id."""
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        wide = logits.astype(np.float64) / self._sampling.temperature
        weights = np.exp(wide - wide.max())
        weights /= weights.sum()
        order = np.argsort(-weights, kind="stable")
        kept = weights[order] >= self._sampling.min_p * weights.max()
        kept &= np.cumsum(weights[order]) - weights[order] < self._sampling.top_p
        if self._sampling.top_k:
            kept[self._sampling.top_k :] = False
        chosen = order[kept]
        return int(self._random.choice(chosen, p=weights[chosen] / weights[chosen].sum()))

    def close(self) -> None:
        """Nothing to release."""
