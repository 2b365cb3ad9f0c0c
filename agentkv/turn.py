"""One turn: route → build ids → restore or read → generate → keep → record.

The longest stored chain that is a prefix of the prompt's ids is restored, whatever turn or process made it; a damaged
checkpoint is passed over for the one before it. What is kept is captured while the prompt is read, and stored after the
answer: it costs no time to the first token, and what goes wrong with it is told in the record, not raised. A turn that
is cancelled, or whose stream is not read to its end, keeps nothing.

Every figure of the record is taken here: tokens from the engine's counters around the decode calls, milliseconds by
stage, SHA-256 over the logits of every step. Refuses to know names, manuals and classifiers.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from agentkv.blocks import Blocks
from agentkv.checkpoints import Checkpoints, Division, NotKept
from agentkv.engine.base import Cancellation, Logits, Piece, Sampling, State
from agentkv.engine.generate import check_window, generate
from agentkv.errors import AgentKVError, InvalidState, NativeRefusal, StoreError, UnknownBlock, UsageError
from agentkv.hashing import sha256
from agentkv.records import Decision, Manifest, Timings, TokenCounts, Turn


class TurnInProgress:
    """One turn. ``decide`` picks a name or none for the question, ``build`` makes the ids behind it, and stop strings.

    ``checkpoints``: where the conversation's state is to be kept; None to keep nothing.
    """

    def __init__(
        self,
        blocks: Blocks,
        question: str,
        *,
        decide: Callable[[str], Decision],
        build: Callable[[str | None], tuple[Division, tuple[str, ...]]],
        graft: bool,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        if not question.strip():
            raise UsageError("the question is empty")
        self._blocks, self._question, self._decide, self._build, self._graft = blocks, question, decide, build, graft
        self._checkpoints = checkpoints
        self._states: list[tuple[int, State]] = []
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._finish = "length"
        self._digest = hashlib.sha256()
        self._ms = {"route": 0.0, "restore": 0.0, "prefill": 0.0, "generate": 0.0, "keep": 0.0}
        self._block: Manifest | None = None
        self._passed_over: str | None = None
        self._damaged: set[int] = set()
        self._checkpoint: str | None = None
        self._deposited = 0
        self._not_kept: str | None = None

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
            division, stops = self._build(self._decision.pick)
            n_blocks = sum(map(len, division.blocks))
            check_window(n_blocks, division.total - n_blocks, max_new, engine.window)
            before = (engine.counters.restored, engine.counters.decoded)
            # 3. Restore what is stored of the chain, read the rest part by part.
            logits = self._read(division, cancellation)
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
                stop=(*stops, *stop),
                grammar=grammar,
                logprobs=logprobs,
                cancellation=cancellation,
                observe=lambda step: self._digest.update(step.data),
            ):
                self._keep(piece)
                yield piece
            self._ms["generate"] = (time.perf_counter() - start) * 1e3
            # 5. Keep what the next turn can go on from.
            start = time.perf_counter()
            self._keep_states(division, cancellation)
            self._ms["keep"] = (time.perf_counter() - start) * 1e3

    def _read(self, division: Division, cancellation: Cancellation | None) -> Logits:
        engine, parts = self._blocks.engine, division.parts
        start = time.perf_counter()
        done = self._restore(division)
        if not done:
            engine.clear()
        self._not_restored = self._passed_over or self._reason(done, len(division.blocks))
        self._ms["restore"] = (time.perf_counter() - start) * 1e3
        start = time.perf_counter()
        for index in range(done, len(parts)):
            logits = engine.extend(parts[index], cancellation)
            wanted = index < len(division.blocks) or index == len(parts) - 1 or index + 1 in self._damaged
            if self._checkpoints is not None and wanted:
                self._states.append((index + 1, engine.capture()))
        if division.rest:
            logits = engine.extend(division.rest, cancellation)
        self._ms["prefill"] = (time.perf_counter() - start) * 1e3
        return logits

    def _restore(self, division: Division) -> int:
        """Restore the longest chain that leaves a token to read; of how many parts it is."""
        parts, blocks = division.parts if self._graft else (), self._blocks
        ids, ends = blocks.ids_of(parts), list(accumulate(map(len, parts)))
        for n in range(len(parts), 0, -1):
            if ends[n - 1] == division.total:  # a state holds no logits
                continue
            try:
                manifest = blocks.store.manifest(ids[n - 1])
                if manifest is None:
                    continue
                blocks.graft(manifest)
            except UnknownBlock:  # another process has evicted or removed it since: a miss
                self._passed_over = "the block was removed just now"
                continue
            except (StoreError, InvalidState, NativeRefusal) as error:
                if n <= len(division.blocks):
                    raise
                self._passed_over = f"a checkpoint was passed over: {error.message}"
                self._damaged.add(n)  # read once more, so it can be mended
                continue
            self._block = manifest
            self._note_use(ids[: min(n - 1, len(division.blocks))])
            return n
        return 0

    def _note_use(self, ids: Sequence[str]) -> None:
        """The blocks that a restored one stands behind are in use too: eviction should not take a manual for idle."""
        store = self._blocks.store
        for identity in ids:
            with contextlib.suppress(StoreError):
                if store.exists(identity):
                    store.used(identity)

    def _keep_states(self, division: Division, cancellation: Cancellation | None) -> None:
        if self._checkpoints is None:
            return
        if not division.pieces:
            self._not_kept = "the model's template does not show where an answer begins"
        elif not self._states:  # read before, and kept
            self._checkpoint = self._blocks.ids_of(division.parts)[-1]
        ends = [0, *accumulate(map(len, division.parts))]
        try:
            for n, state in self._states:
                created = self._checkpoints.keep(division.parts[:n], state, cancellation)
                if n == len(division.parts) and division.pieces:
                    self._checkpoint = self._blocks.ids_of(division.parts)[-1]
                    self._deposited = ends[n] - self._restored if created else 0
        except NotKept as error:
            self._not_kept = str(error)
        except AgentKVError as error:
            self._not_kept = error.message
        finally:
            self._states.clear()

    def _reason(self, restored: int, parts: int) -> str | None:
        if restored >= parts:
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
                "checkpoint": self._checkpoint,
                "deposited": self._deposited,
                "not_kept": self._not_kept,
            }
        )
