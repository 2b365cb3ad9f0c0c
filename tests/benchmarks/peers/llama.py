"""What the arms of llama-cpp-python share: one ``Llama`` object whose every decode is counted and hashed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentkv.io.hashing import sha256
from tests.benchmarks.peers.arm import WARM_UP, Answer, Note, Task


class LlamaArm:
    """``Llama`` as its users open it, with the benchmark's window, threads and settings.

    Its ``eval`` is wrapped: it counts tokens, and keeps the SHA-256 of the logits that each call leaves.
    """

    def __init__(self, task: Task) -> None:
        import llama_cpp

        self.pids = (os.getpid(),)
        self.folder = task.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.block: list[int] = task.block
        self.turns: list[list[int]] = task.turns
        self._native = llama_cpp
        self.llm: Any = llama_cpp.Llama(
            model_path=task.model,
            n_ctx=task.window,
            n_batch=512,
            n_threads=task.threads,
            n_threads_batch=task.threads,
            rope_freq_base=task.step.setup.rope_freq_base,
            flash_attn=task.step.setup.flash_attention,
            seed=0,
            verbose=False,
        )
        self._other = self.llm.tokenize(WARM_UP.encode(), add_bos=False)
        self.evaluated = 0
        self._evaluate = self.llm.eval
        self.llm.eval = self._counted

    def _counted(self, tokens: Sequence[int]) -> None:
        self._evaluate(tokens)
        self.evaluated += len(tokens)

    def logits_sha256(self) -> tuple[str, int]:
        """SHA-256 of the last decode's logits, and their largest's index."""
        pointer = self._native.llama_get_logits_ith(self.llm.ctx, -1)
        logits = np.ctypeslib.as_array(pointer, shape=(self.llm.n_vocab(),))
        return sha256(np.ascontiguousarray(logits).data), int(logits.argmax())

    def go_on(self, steps: int) -> list[str]:
        """Evidence of ``steps`` greedy steps, the first of which has been decoded already."""
        digest, token = self.logits_sha256()
        evidence = [digest]
        for _ in range(steps - 1):
            self.llm.eval([token])
            digest, token = self.logits_sha256()
            evidence.append(digest)
        return evidence

    def read(self) -> float:
        start = time.perf_counter()
        self.llm.reset()
        self.llm.eval(self.block)
        self.logits_sha256()
        return (time.perf_counter() - start) * 1e3

    def ask(self, turn: int, steps: int) -> Answer:
        return self._after(self.turns[turn], steps)

    def whole(self, turn: int, steps: int) -> Answer:
        self.llm.reset()
        return self._after([*self.block, *self.turns[turn]], steps)

    def _after(self, ids: list[int], steps: int) -> Answer:
        before, start = self.evaluated, time.perf_counter()
        self.llm.eval(ids)
        self._native.llama_get_logits_ith(self.llm.ctx, -1)  # llama.cpp waits here until the decode is done
        first_ms, evaluated = (time.perf_counter() - start) * 1e3, self.evaluated - before
        return Answer(first_ms=first_ms, evaluated=evaluated, evidence=self.go_on(steps))

    def forget(self) -> None:
        self.llm.reset()
        self.llm.eval(self._other)

    def digest(self) -> str | None:
        return None

    def note(self) -> Note:
        return Note()

    def close(self) -> None:
        self.llm.close()
