"""The arms of agentkv: from the RAM cache, and from files that are verified on the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Engine
from agentkv.engine.generate import greedy_hashes
from agentkv.errors import UnknownBlock
from agentkv.io.hashing import sha256
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore
from tests.benchmarks.peers.arm import ALTERED, FAKE, WARM_UP, Answer, Note, Task

_CACHE_BYTES = 1 << 34


class _Ours:
    """Prefill, asking and forgetting; how a block comes back is the subclass's."""

    def __init__(self, task: Task) -> None:
        self.pids = (os.getpid(),)
        self.folder = task.folder
        self.block: list[int] = task.block
        self._turns: list[list[int]] = task.turns
        self.engine = open_engine(task)
        self._other = self.engine.tokenize(WARM_UP, special=False)
        self.blocks: Blocks | None = None

    def read(self) -> float:
        start = time.perf_counter()
        self.engine.clear()
        self.engine.extend(self.block)
        return _ms(start)

    def store(self) -> dict[str, float]:
        self.blocks = Blocks(self.engine, BlockStore(self.folder, cache_bytes=_CACHE_BYTES))
        ms = self.blocks.deposit(self.block).ms
        return {"read" if stage == "prefill" else stage: value for stage, value in ms.items() if stage != "parent"}

    def ask(self, turn: int, steps: int) -> Answer:
        return self._go_on(self._turns[turn], steps)

    def whole(self, turn: int, steps: int) -> Answer:
        self.engine.clear()
        return self._go_on([*self.block, *self._turns[turn]], steps)

    def _go_on(self, ids: list[int], steps: int) -> Answer:
        before, start = self.engine.counters.decoded, time.perf_counter()
        logits = self.engine.extend(ids)
        first_ms, evaluated = _ms(start), self.engine.counters.decoded - before
        evidence = [sha256(logits.data)]
        if steps > 1:
            evidence += greedy_hashes(self.engine, int(logits.argmax()), steps - 1)
        return Answer(first_ms=first_ms, evaluated=evaluated, evidence=evidence)

    def forget(self) -> None:
        self.engine.clear()
        self.engine.extend(self._other)
        self.engine.clear()

    def note(self) -> Note:
        return Note()

    def close(self) -> None:
        if self.blocks is not None:
            self.blocks.store.close()
        self.engine.close()


class FromRAM(_Ours):
    """A process that has read the block, or met it before: the state lies in its RAM cache."""

    def restore(self) -> dict[str, float]:
        assert self.blocks is not None
        start = time.perf_counter()
        self.blocks.graft(self._manifest(self.blocks))
        return {"set state": _ms(start)}

    def digest(self) -> str | None:
        assert self.blocks is not None
        return sha256(self.blocks.state(self._manifest(self.blocks)).blob.data)

    def _manifest(self, blocks: Blocks) -> Manifest:
        manifest = blocks.store.manifest(blocks.id_of(self.block))
        assert manifest is not None
        return manifest


class FromDisk(_Ours):
    """A new process: open the store, read and verify every byte, set the state.

    Another model or other settings make another block id, so such a block would simply not be found. Here it is
    offered all the same, so that the fingerprint has to refuse it.
    """

    def restore(self) -> dict[str, float]:
        start = time.perf_counter()
        store = BlockStore(self.folder, create=False, cache_bytes=_CACHE_BYTES)
        self.blocks = Blocks(self.engine, store)
        identity = self.blocks.id_of(self.block)
        manifest = store.manifest(identity) or next(filter(None, map(store.manifest, store.block_ids())), None)
        if manifest is None:
            raise UnknownBlock(identity)
        opened = time.perf_counter()
        if manifest.fingerprint == self.blocks.fingerprint:
            self.blocks.state(manifest)
        read = time.perf_counter()
        self.blocks.graft(manifest)
        return {
            "open store": (opened - start) * 1e3,
            "read, verify, decode": (read - opened) * 1e3,
            "set state": _ms(read),
        }

    def digest(self) -> str | None:
        return None


def open_engine(task: Task) -> Engine:
    """The engine with the task's model, window and settings; for the model ``fake`` the fake engine."""
    if task.model == FAKE:
        from agentkv.engine.fake import FakeEngine

        return FakeEngine(window=task.window, weights=str([task.step.variant == ALTERED, task.step.setup]))
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    settings = EngineSettings(
        window=task.window,
        threads=task.threads,
        rope_freq_base=task.step.setup.rope_freq_base,
        flash_attention=task.step.setup.flash_attention,
    )
    return LlamaEngine(Path(task.model), settings)


def _ms(start: float) -> float:
    return (time.perf_counter() - start) * 1e3
