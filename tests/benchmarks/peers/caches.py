"""The arms of llama-cpp-python's own caches, which look up, restore and save within ``create_completion``."""

from __future__ import annotations

import abc
import contextlib
import importlib
import io
import time
from typing import Any

from agentkv.io.hashing import sha256
from tests.benchmarks.peers.arm import Answer, Note, Task
from tests.benchmarks.peers.llama import LlamaArm


class _Cached(LlamaArm, abc.ABC):
    """A request of one token is a look-up, a restore, the decode of what is new, the token, and a new save.

    The save comes after the token, so it does not count into the first token's time; it is in ``note``.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._restore = self.llm.load_state
        self.llm.load_state = self._timed_restore
        self._ms: dict[str, float] = {}
        self._keep_ms = 0.0
        self.llm.set_cache(self.cache())

    @abc.abstractmethod
    def cache(self) -> Any:
        """The cache, made with look-ups that are timed."""

    def timed(self, kind: Any) -> Any:
        """``kind`` of cache, that notes what a look-up takes."""
        ms = self._ms

        class Timed(kind):  # type: ignore[misc]
            def __getitem__(self, key: Any) -> Any:
                start = time.perf_counter()
                try:
                    return super().__getitem__(key)
                finally:
                    ms["look up, deserialise"] = (time.perf_counter() - start) * 1e3

        return Timed

    def _timed_restore(self, state: Any) -> None:
        start = time.perf_counter()
        self._restore(state)
        self._ms["set state"] = (time.perf_counter() - start) * 1e3

    def store(self) -> dict[str, float]:
        self.llm.reset()
        first_ms, whole_ms = self._complete(self.block)
        return {"read": first_ms, "get state, write": whole_ms - first_ms}

    def restore(self) -> dict[str, float]:
        return {}

    def ask(self, turn: int, steps: int) -> Answer:
        before = self.evaluated
        self._ms.clear()
        first_ms, whole_ms = self._complete([*self.block, *self.turns[turn]], to_the_end=steps > 0)
        self._keep_ms = whole_ms - first_ms
        evaluated = self.evaluated - before
        return Answer(first_ms=first_ms, evaluated=evaluated, evidence=self.go_on(steps))

    def _complete(self, prompt: list[int], *, to_the_end: bool = True) -> tuple[float, float]:
        """Milliseconds until the first token, and until the request is done, or is given up after that token."""
        start = time.perf_counter()
        first_ms = None
        with contextlib.redirect_stderr(io.StringIO()):  # the disk cache prints each of its steps
            for _ in self.llm.create_completion(prompt, max_tokens=1, temperature=0.0, stream=True):
                first_ms = first_ms or (time.perf_counter() - start) * 1e3
                if not to_the_end:
                    break
        whole_ms = (time.perf_counter() - start) * 1e3
        return first_ms or whole_ms, whole_ms

    def note(self) -> Note:
        return Note(steps=dict(self._ms), keep_ms=self._keep_ms)


class InRAM(_Cached):
    """``LlamaRAMCache`` with its default of 2 GB, of which it counts states only: its rows of logits come on top."""

    def cache(self) -> Any:
        self._cache = self.timed(importlib.import_module("llama_cpp.llama_cache").LlamaRAMCache)()
        return self._cache

    def digest(self) -> str | None:
        n = len(self.block)
        keys = [key for key in self._cache.cache_state if list(key[:n]) == self.block]
        return sha256(self._cache.cache_state[min(keys, key=len)].llama_state) if keys else None


class OnDisk(_Cached):
    """``LlamaDiskCache`` in the arm's folder."""

    def cache(self) -> Any:
        return self.timed(importlib.import_module("llama_cpp.llama_cache").LlamaDiskCache)(str(self.folder))
