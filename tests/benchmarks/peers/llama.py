"""What the arms of llama-cpp-python share: one ``Llama`` object whose every decode is counted and hashed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.io.hashing import sha256
from tests.benchmarks.peers.arm import WARM_UP, Answer


class LlamaArm:
    """``Llama`` as its users open it, with the benchmark's window, threads and settings.

    Its ``eval`` is wrapped: it counts tokens, and keeps the SHA-256 of the logits that each call leaves.
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        import llama_cpp

        self.pids = (os.getpid(),)
        self.folder = Path(payload["folder"])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.block: list[int] = payload["block"]
        self.turns: list[list[int]] = payload["turns"]
        self._native = llama_cpp
        self.llm: Any = llama_cpp.Llama(
            model_path=payload["model"],
            n_ctx=payload["window"],
            n_batch=512,
            n_threads=payload["threads"],
            n_threads_batch=payload["threads"],
            rope_freq_base=payload["settings"]["rope_freq_base"],
            flash_attn=payload["settings"]["flash_attention"],
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
        return self._behind(self.turns[turn], steps)

    def whole(self, turn: int, steps: int) -> Answer:
        self.llm.reset()
        return self._behind([*self.block, *self.turns[turn]], steps)

    def _behind(self, ids: list[int], steps: int) -> Answer:
        before, start = self.evaluated, time.perf_counter()
        self.llm.eval(ids)
        self._native.llama_get_logits_ith(self.llm.ctx, -1)  # llama.cpp waits here until the decode is done
        first_ms, evaluated = (time.perf_counter() - start) * 1e3, self.evaluated - before
        return Answer(first_ms, evaluated, self.go_on(steps))

    def forget(self) -> None:
        self.llm.reset()
        self.llm.eval(self._other)

    def digest(self) -> str | None:
        return None

    def note(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.llm.close()
