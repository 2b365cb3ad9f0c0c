"""The arm that llama-cpp-python's own documentation leads to: ``save_state``, pickle to a file, ``load_state``.

The only module of the package that touches pickle, and only with a file that this benchmark has written (and, for the
fault arms, damaged) itself: it is the peer's format that is measured here. Nothing else may import it.
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path

from tests.benchmarks.peers.arm import Task
from tests.benchmarks.peers.llama import LlamaArm


class SaveState(LlamaArm):
    """Pickle's newest protocol, no fsync: as fast as its user can have it."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._file = self.folder / "state.pickle"

    def store(self) -> dict[str, float]:
        ms = {"read": self.read()}
        start = time.perf_counter()
        state = self.llm.save_state()
        ms["get state"], start = _lap(start)
        with self._file.open("wb") as file:
            pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)
        ms["serialise, write"], _ = _lap(start)
        return ms

    def restore(self) -> dict[str, float]:
        start = time.perf_counter()
        data = self._file.read_bytes()
        ms: dict[str, float] = {}
        ms["read file"], start = _lap(start)
        state = pickle.loads(data)  # noqa: S301 - our own file, see the module's text
        ms["deserialise"], start = _lap(start)
        self.llm.load_state(state)
        ms["set state"], _ = _lap(start)
        return ms


def state_span(file: Path) -> tuple[int, int]:
    """Where llama.cpp's own bytes lie in a pickled ``LlamaState``, after the logits of a whole batch."""
    data = file.read_bytes()
    state: bytes = pickle.loads(data).llama_state  # noqa: S301 - our own file, see the module's text
    start = data.index(state)
    return start, start + len(state)


def _lap(start: float) -> tuple[float, float]:
    now = time.perf_counter()
    return (now - start) * 1e3, now
