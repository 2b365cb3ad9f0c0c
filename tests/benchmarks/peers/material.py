"""What all arms are given: the model's file, blocks as ids and as text, and twenty turns.

Turns begin with other words, so that a cache which has kept one of them shares no token of it with the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.engine.base import Engine
from agentkv.io.hashing import canonical_json, sha256
from tests.benchmarks.peers.arm import FAKE

_WORDS = (
    *("Alpha", "Bravo", "Charlie", "Delta", "Echo", "Foxtrot", "Golf", "Hotel", "India", "Juliet"),
    *("Kilo", "Lima", "Mike", "November", "Oscar", "Papa", "Quebec", "Romeo", "Sierra", "Tango"),
)
_ROOM = 160
"""Tokens of the window after a block: turn, steps, the arms' own probes and a chat template."""
_FAKE_WINDOW = 1 << 16


@dataclass(frozen=True)
class Material:
    """``blocks`` and ``texts`` by length, ``turns`` and their ids; ``left_out``: a reason by length."""

    path: str
    model_sha256: str
    threads: int
    blocks: dict[int, list[int]]
    texts: dict[int, str]
    turn_texts: list[str]
    turns: list[list[int]]
    left_out: dict[int, str]

    @property
    def inputs(self) -> bytes:
        """Everything that is read, as canonical JSON."""
        return canonical_json([{str(n): ids for n, ids in self.blocks.items()}, self.turn_texts])

    def digest(self, n: int) -> str:
        """Of all that a record about blocks of ``n`` tokens depends on."""
        return sha256(canonical_json([self.model_sha256, self.threads, self.turn_texts, self.blocks[n]]))

    def task(self, n: int) -> dict[str, Any]:
        """The part of a task that is the same for all arms."""
        room = n + len(max(self.turns, key=len)) + _ROOM
        return {
            "model": self.path,
            "model_sha256": self.model_sha256,
            "threads": self.threads,
            "window": -(-room // 256) * 256,
            "block": self.blocks[n],
            "turns": self.turns,
            "block_text": self.texts[n],
            "turn_texts": self.turn_texts,
        }


def material(model: str, texts: list[str], lengths: Sequence[int], n_turns: int, threads: int | None) -> Material:
    """Cut the blocks from ``texts``, over and over if they are too short. The model is loaded for its tokens only."""
    path, digest, engine, n_threads = _opened(model, threads)
    with_room = engine.info.train_window - _ROOM - 64
    left_out = {n: f"over the trained window of {engine.info.train_window:,}" for n in lengths if n > with_room}
    turn_texts = [
        f"{_WORDS[number % len(_WORDS)]} asks, as number {number}: what does the text above say of this?\nAnswer:"
        for number in range(n_turns)
    ]
    ids = engine.tokenize("\n\n".join(texts), special=False)
    while len(ids) < max(lengths):
        ids = [*ids, *ids]
    blocks = {n: ids[:n] for n in lengths if n not in left_out}
    block_texts = {n: _text(engine, block) for n, block in blocks.items()}
    turns = [engine.tokenize(text, special=False) for text in turn_texts]
    engine.close()
    return Material(path, digest, n_threads, blocks, block_texts, turn_texts, turns, left_out)


def _opened(model: str, threads: int | None) -> tuple[str, str, Engine, int]:
    from agentkv.engine.settings import EngineSettings

    settings = EngineSettings(window=512, threads=threads)
    if model == FAKE:
        from agentkv.engine.fake import FakeEngine

        fake = FakeEngine(window=_FAKE_WINDOW)
        return FAKE, fake.info.sha256, fake, settings.n_threads
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.models import resolve

    found = resolve(model)
    engine = LlamaEngine(found.path, settings, name=found.name, sha256=found.sha256)
    return str(found.path), engine.info.sha256, engine, settings.n_threads


def _text(engine: Engine, block: list[int]) -> str:
    """The block as text; an unfinished character at its end is dropped."""
    return b"".join(engine.token_bytes(token) for token in block).decode("utf-8", "ignore")
