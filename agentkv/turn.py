"""One turn: route → build ids → restore or read → generate → record.

Every figure of the record is taken here: tokens from the engine's counters around the decode calls, milliseconds by
stage, SHA-256 over the logits of every step. Refuses to know names, manuals and classifiers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence

from agentkv.blocks import Blocks
from agentkv.engine.base import Cancellation, Logits, Piece, Sampling
from agentkv.engine.generate import check_window, generate
from agentkv.engine.prompt import Prompt
from agentkv.errors import UnknownBlock, UsageError
from agentkv.hashing import sha256
from agentkv.records import Decision, Manifest, Timings, TokenCounts, Turn


class TurnInProgress:
    """One turn. ``decide`` picks a name or none for the question, ``build`` makes the ids behind it."""

    def __init__(
        self,
        blocks: Blocks,
        question: str,
        *,
        decide: Callable[[str], Decision],
        build: Callable[[str | None], Prompt],
        graft: bool,
    ) -> None:
        if not question.strip():
            raise UsageError("the question is empty")
        self._blocks, self._question, self._decide, self._build, self._graft = blocks, question, decide, build, graft
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._finish = "length"
        self._digest = hashlib.sha256()
        self._ms = {"route": 0.0, "restore": 0.0, "prefill": 0.0, "generate": 0.0}

    def run(
        self,
        max_new: int,
        sampling: Sampling | None,
        stop: Sequence[str],
        grammar: str | None,
        cancellation: Cancellation | None,
        logprobs: bool = False,
    ) -> Iterator[Piece]:
        engine = self._blocks.engine
        with self._blocks.exclusive():
            # 1. Route.
            self._decision = self._decide(self._question)
            self._ms["route"] = self._decision.ms
            # 2. Build the ids; nothing is decoded unless everything fits.
            prompt = self._build(self._decision.pick)
            check_window(sum(map(len, prompt.blocks)), len(prompt.turn), max_new, engine.window)
            before = (engine.counters.restored, engine.counters.decoded)
            # 3. Restore what is stored of the chain, read the rest part by part.
            logits = self._read(prompt, cancellation)
            self._first = sha256(logits.data)
            self._restored = engine.counters.restored - before[0]
            self._prefilled = engine.counters.decoded - before[1]
            # 4. Generate.
            start = time.perf_counter()
            for piece in generate(
                engine,
                logits,
                max_new=max_new,
                sampling=sampling,
                stop=(*prompt.stops, *stop),
                grammar=grammar,
                logprobs=logprobs,
                cancellation=cancellation,
                observe=lambda step: self._digest.update(step.data),
            ):
                self._keep(piece)
                yield piece
            self._ms["generate"] = (time.perf_counter() - start) * 1e3

    def _read(self, prompt: Prompt, cancellation: Cancellation | None) -> Logits:
        blocks, engine = self._blocks, self._blocks.engine
        parts = prompt.blocks
        start = time.perf_counter()
        chain = blocks.stored_chain(parts) if self._graft else []
        evicted = False
        if chain:
            try:
                blocks.graft(chain[-1])
            except UnknownBlock:  # another process has evicted or removed it since: a miss
                chain, evicted = [], True
        if not chain:
            engine.clear()
        self._block: Manifest | None = chain[-1] if chain else None
        self._not_restored = "the block was removed just now" if evicted else self._reason(len(chain), len(parts))
        self._ms["restore"] = (time.perf_counter() - start) * 1e3
        start = time.perf_counter()
        for part in parts[len(chain) :]:
            engine.extend(part, cancellation)
        logits = engine.extend(prompt.turn, cancellation)
        self._ms["prefill"] = (time.perf_counter() - start) * 1e3
        return logits

    def _reason(self, restored: int, parts: int) -> str | None:
        if restored == parts:
            return None
        if not self._graft:
            return "asked to read"
        return "the agent prefix is not stored" if restored == 0 else "the manual is not stored behind this prefix"

    def _keep(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        if piece.token is not None:
            self._ids.append(piece.token)
        if piece.logprob is not None:
            self._logprobs.append(piece.logprob)
        if piece.finish is not None:
            self._finish = piece.finish

    def record(self) -> Turn:
        """The turn's record, once it has run to its end."""
        return Turn.model_validate(
            {
                "text": "".join(self._texts).strip(),
                "finish": self._finish,
                "decision": self._decision,
                "block_id": self._block.block_id if self._block else None,
                "exactness": self._block.exactness if self._block else None,
                "not_restored": self._not_restored,
                "tokens": TokenCounts(restored=self._restored, prefilled=self._prefilled, generated=len(self._ids)),
                "ms": Timings(**self._ms),
                "first_logits_sha256": self._first,
                "logits_sha256": self._digest.hexdigest(),
                "token_ids": tuple(self._ids),
                "logprobs": tuple(self._logprobs) or None,
            }
        )
