"""One turn: route → build token ids → restore, prefill the rest → generate → keep → record.

The longest stored chain that is a prefix of the prompt's token ids is restored, whatever turn or process made it; a
block or checkpoint that cannot be restored is passed over for the one before it, and where no state will do all is
prefilled: the record says why. What is kept is captured during prefill, and stored after the answer: it costs no time
to the first token, and what goes wrong with it is noted in the record, not raised. A turn that is cancelled, or whose
stream is not read to its end, keeps nothing.

Every figure of the record is taken here: tokens from the engine's counters around the decode calls, milliseconds by
stage, SHA-256 over the logits of every step. A turn that has prefilled its prompt is counted in the store's turn log,
also if its stream is not read to its end.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from agentkv.blocks.blocks import Blocks
from agentkv.blocks.checkpoints import Checkpoints, Division, NotKept
from agentkv.blocks.restoring import MENDS
from agentkv.engine.base import Logits, Piece, Sampling, State
from agentkv.engine.generate import MAX_NEW, generate, room
from agentkv.engine.prompt import Message
from agentkv.errors import AgentKVError, NativeRefusal, StoreError, UsageError
from agentkv.io.hashing import sha256
from agentkv.memory.options import TurnSettings
from agentkv.notices import warn
from agentkv.records import Decision, Manifest, Timings, TokenCounts, Turn
from agentkv.tracing import Span, Value, messages, routed

CUT = "the answer was cut"
"""How the note of a cut answer begins."""


class TurnInProgress:
    """One turn, which answers the last user message of ``conversation``.

    ``decide`` picks a name or none for that question; ``build`` makes the prompt's token ids for the pick, and its stop
    strings. ``checkpoints``: where the conversation's state is kept; None to keep nothing.
    """

    def __init__(
        self,
        blocks: Blocks,
        conversation: Sequence[Message],
        options: TurnSettings,
        *,
        decide: Callable[[str], Decision],
        build: Callable[[str | None], tuple[Division, tuple[str, ...]]],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._question = next((message.content for message in reversed(conversation) if message.role == "user"), "")
        if not self._question.strip():
            raise UsageError("the question is empty")
        self._blocks, self._conversation, self._options = blocks, conversation, options
        self._decide, self._build, self._checkpoints = decide, build, checkpoints
        self._decision: Decision
        self._states: list[tuple[int, State]] = []
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._finish: str | None = None
        self._digest = hashlib.sha256()
        self._ms = {"route": 0.0, "restore": 0.0, "prefill": 0.0, "generate": 0.0, "keep": 0.0}
        self._block: Manifest | None = None
        self._before = (0, 0)
        self._passed_over: str | None = None
        self._damaged: set[int] = set()
        self._checkpoint: str | None = None
        self._deposited = 0
        self._not_kept: str | None = None
        self._captured_ms = 0.0
        self._notes: list[str] = []

    def note(self, text: str) -> None:
        """Say in the record and as a warning what was left out, fell back, was cut or was guessed, and the remedy."""
        if text not in self._notes:
            self._notes.append(text)
            warn(text)

    @property
    def decision(self) -> Decision:
        """What was decided, once that is done."""
        return self._decision

    def fall_back(self, pick: str | None, why: str) -> None:
        """Take another name than was decided on, or none; said in the record."""
        self._decision = self._decision.model_copy(update={"pick": pick, "fallback": why})

    def run(self) -> Iterator[Piece]:
        """Generate the answer, piece by piece; once it is read to its end, :meth:`record` is complete."""
        engine, tracing = self._blocks.engine, self._blocks.tracing
        with self._blocks.exclusive(), tracing.span(f"chat {engine.info.name}") as span:
            self._span = span
            if span.on:
                span.set(self._request(tracing.content))
            self._route()
            division, stops = self._build(self._decision.pick)
            n_blocks = sum(map(len, division.blocks))  # nothing is decoded unless everything fits
            limit = room(n_blocks, division.total - n_blocks, self._options.max_new, engine.window)
            self._before = (engine.counters.restored, engine.counters.decoded)
            logits = self._evaluate(division)
            self._first = sha256(logits.data)
            self._restored = engine.counters.restored - self._before[0]
            self._prefilled = engine.counters.decoded - self._before[1]
            try:
                yield from self._generate(logits, limit, stops)
                if self._checkpoints is not None:
                    with self._stage("keep"):
                        self._keep_states(self._checkpoints, division)
            finally:
                self._count()
                if span.on:
                    span.set(self._response(tracing.content))

    def _route(self) -> None:
        with self._stage("route") as stage:
            self._decision = self._decide(self._question)
            if stage.on:
                stage.set(routed(self._decision))
        self._ms["route"] = self._decision.ms
        for text in self._decision.notes:
            self.note(text)

    def _generate(self, logits: Logits, limit: int, stops: Sequence[str]) -> Iterator[Piece]:
        options, engine = self._options, self._blocks.engine
        with self._stage("generate"):
            for piece in generate(
                engine,
                logits,
                max_new=limit,
                sampling=options.sampling,
                stop=(*stops, *options.stop),
                grammar=options.grammar,
                logprobs=options.logprobs,
                cancellation=options.cancellation,
                observe=lambda step: self._digest.update(step.data),
            ):
                self._record(piece)
                if piece.finish == "length":
                    self._note_cut(limit, engine.window, by_default=options.max_new is None)
                yield piece

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[Span]:
        start = time.perf_counter()
        try:
            with self._span.child(f"agentkv.{name}") as span:
                yield span
        finally:
            self._ms[name] = (time.perf_counter() - start) * 1e3

    def _evaluate(self, division: Division) -> Logits:
        """Restore what is stored of the chain, prefill the rest part by part."""
        with self._stage("restore") as stage:
            done = self._restore(division)
            self._not_restored = self._passed_over or self._reason(done, len(division.blocks))
            if stage.on:
                restored = sum(map(len, division.parts[:done]))
                stage.set({"agentkv.block.id": self._block_id, "agentkv.tokens.restored": restored})
        with self._stage("prefill") as stage:
            try:
                logits = self._prefill(division, done)
            except NativeRefusal as error:
                if self._block is None:
                    raise
                done, logits = 0, self._prefill_whole(division, done, error)
            if stage.on:
                stage.set({"agentkv.tokens.prefilled": division.total - sum(map(len, division.parts[:done]))})
        return logits

    def _prefill(self, division: Division, done: int) -> Logits:
        engine, parts, cancellation = self._blocks.engine, division.parts, self._options.cancellation
        for index in range(done, len(parts)):
            logits = engine.extend(parts[index], cancellation)
            is_kept = index < len(division.blocks) or index == len(parts) - 1 or index + 1 in self._damaged
            if self._checkpoints is not None and is_kept:
                self._capture(index + 1)
        if division.rest:
            logits = engine.extend(division.rest, cancellation)
        return logits

    def _prefill_whole(self, division: Division, done: int, error: NativeRefusal) -> Logits:
        """The prompt without the restored block ``done`` parts long, whose state gives no logits.

        It is refused for good once they come without it.
        """
        engine, block = self._blocks.engine, self._block
        assert block is not None
        self._states.clear()
        self._block = None
        self._before = (engine.counters.restored, engine.counters.decoded)
        engine.clear()
        logits = self._prefill(division, 0)
        self._blocks.refuse(block, error.message)
        self._pass_over(done, division, error.message)
        self._not_restored = self._passed_over
        return logits

    def _capture(self, n: int) -> None:
        start = time.perf_counter()
        self._states.append((n, self._blocks.engine.capture()))
        self._captured_ms += (time.perf_counter() - start) * 1e3

    def _restore(self, division: Division) -> int:
        """Restore the longest chain that leaves a token to prefill, for a state holds no logits; of how many parts."""
        if not self._options.graft:
            self._blocks.engine.clear()
            return 0
        found = self._blocks.restore_longest(division.parts, below=division.total)
        if found.is_gone:
            self._passed_over = "the block was removed just now"
        for n, reason in found.passed_over.items():
            self._pass_over(n, division, reason)
        self._block = found.manifest
        self._note_use(self._blocks.ids_of(division.parts)[: max(0, min(found.parts - 1, len(division.blocks)))])
        return found.parts

    def _pass_over(self, n: int, division: Division, reason: str) -> None:
        """Record that the chain of the first ``n`` parts is stored and could not be restored."""
        is_block = n <= len(division.blocks)
        what, remedy = ("a stored block", MENDS) if is_block else ("a checkpoint", "A turn that keeps it mends it.")
        self._passed_over = f"{what} was passed over: {reason}"
        self._damaged.add(n)  # prefilled again, so it can be mended
        self.note(f"{what} could not be restored, and its tokens were prefilled instead: {reason} {remedy}")

    def _note_use(self, ids: Sequence[str]) -> None:
        """The blocks before a restored one are in use too: eviction should not take a manual for idle."""
        store = self._blocks.store
        for identity in ids:
            with contextlib.suppress(StoreError):
                if store.exists(identity):
                    store.used(identity)

    def _keep_states(self, checkpoints: Checkpoints, division: Division) -> None:
        if not division.pieces:
            self._not_kept = "the model's template does not show where an answer begins"
        elif not self._states:  # prefilled before, and kept
            self._checkpoint = self._blocks.ids_of(division.parts)[-1]
        ends = [0, *accumulate(map(len, division.parts))]
        try:
            for n, state in self._states:
                created = checkpoints.keep(division.parts[:n], state, self._options.cancellation)
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
        if not self._options.graft:
            return "graft is off"
        return "the agent prefix is not stored" if restored == 0 else "the manual is not stored on top of this prefix"

    def _record(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        if piece.token is not None:
            self._ids.append(piece.token)
        if piece.logprob is not None:
            self._logprobs.append(piece.logprob)
        if piece.finish is not None:
            self._finish = piece.finish

    def _note_cut(self, limit: int, window: int, *, by_default: bool) -> None:
        """That the answer is not whole: in the record; as a warning too where nobody asked for so few tokens."""
        if by_default and limit < MAX_NEW:
            remedy = f"no more fit into the window of {window}: shorten the text or open a larger window"
        else:
            remedy = "raise max_new for a longer one"
        text = f"{CUT} at {limit} tokens; {remedy}"
        if by_default:
            self.note(text)
        else:
            self._notes.append(text)

    @property
    def _block_id(self) -> str | None:
        return self._block.block_id if self._block else None

    def _count(self) -> None:
        """A line in the store's turn log."""
        self._blocks.count(
            "turn",
            skill=self._decision.pick,
            block_id=self._block_id,
            graft=self._options.graft,
            restored=self._restored,
            read=self._prefilled,
            generated=len(self._ids),
            route_ms=self._ms["route"],
            restore_ms=self._ms["restore"],
            read_ms=max(0.0, self._ms["prefill"] - self._captured_ms),
            generate_ms=self._ms["generate"],
            keep_ms=self._ms["keep"],
        )

    def _request(self, content: bool) -> dict[str, Value | None]:
        """The span's attributes of the request."""
        sampling = self._options.sampling or Sampling()
        drawn = sampling.temperature > 0
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "agentkv",
            "gen_ai.request.model": self._blocks.engine.info.name,
            "gen_ai.request.max_tokens": self._options.max_new,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p if drawn else None,
            "gen_ai.request.top_k": sampling.top_k or None if drawn else None,
            "gen_ai.request.seed": sampling.seed if drawn else None,
            "gen_ai.conversation.id": self._options.conversation or None,
            "gen_ai.input.messages": messages((m.role, m.content) for m in self._conversation) if content else None,
        }

    def _response(self, content: bool) -> dict[str, Value | None]:
        """The span's attributes of the rest; of a turn that ended early, what there is."""
        finish = "stop" if self._finish == "stop_string" else self._finish
        answer = [("assistant", "".join(self._texts).strip())]
        return {
            "gen_ai.response.finish_reasons": [finish] if finish else None,
            "gen_ai.usage.input_tokens": self._restored + self._prefilled,
            "gen_ai.usage.output_tokens": len(self._ids),
            "gen_ai.usage.cache_read.input_tokens": self._restored,
            "gen_ai.usage.cache_creation.input_tokens": self._deposited,
            "gen_ai.output.messages": messages(answer, finish) if content else None,
            "agentkv.skill": self._decision.pick,
            "agentkv.block.id": self._block_id,
            "agentkv.exactness": self._block.exactness.value if self._block else None,
            "agentkv.restored_whole": self._not_restored is None,
            "agentkv.checkpoint.id": self._checkpoint,
        }

    def record(self) -> Turn:
        """The turn's record, once it has run to its end."""
        return Turn.model_validate(
            {
                "text": "".join(self._texts).strip(),
                "finish": self._finish or "length",
                "decision": self._decision,
                "block_id": self._block_id,
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
                "notes": tuple(self._notes),
            }
        )
