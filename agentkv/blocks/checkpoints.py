"""Checkpoints: what a conversation leaves in the store, so that its next turn reads only what is new.

A conversation is prefilled in pieces, and after each its state may be kept as a block that follows the one before.
Where the pieces end follows from the messages alone: where a prompt of this conversation ended once, in front of an
answer. So a conversation that goes on, one that is read again from its beginning, and a fork of either make the same
pieces, the same block ids and, by the exactness contract, the same states and logits. An answer's tokens are not kept
as they were generated, one by one: that is another computation than reading them. The next turn reads them as text.

A checkpoint is not probed: it is ``exact_by_config``. Its state, restored, is captured again as the same bytes, and the
configuration has passed a self-test on record in the store.

Nothing is thinned out: every checkpoint stays, so that a conversation can be forked and rewound at each of its turns,
until the store's budget makes the oldest go (see ``agentkv/store/budget.py``). Where all of a state's rows stay visible
a checkpoint holds the segments of the one before and its own tokens' rows, so all of them take little more than the
last alone. Under a sliding window it also holds the window's rows again, and a recurrent state it holds whole.

"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, Engine, State
from agentkv.engine.generate import check_window, first_difference, greedy_hashes
from agentkv.engine.prompt import Prompt
from agentkv.errors import InexactBlock, UnknownBlock
from agentkv.io.hashing import block_id, sha256
from agentkv.records import Ancestor, Exactness, Manifest, SegmentRef, SelfTest

Ids = tuple[int, ...]

SELF_TEST_STEPS = 48
_LENGTHS = (96, 288)
_PAST_WINDOW = 40
MIN_PIECE = 8
"""Tokens of a piece, where it has to give the bits of one pass: fewer go through other kernels (measured, Q4_K_M)."""


# --- where a conversation is cut ----------------------------------------------------------------------


@dataclass(frozen=True)
class Division:
    """A prompt in the parts in which it is read: ``blocks`` (prefix, manual…), ``pieces`` that may be kept, ``rest``.

    ``rest`` may be empty: then the last piece ends with the prompt, and the answer follows from its logits.
    """

    blocks: tuple[Ids, ...]
    pieces: tuple[Ids, ...]
    rest: Ids

    @property
    def parts(self) -> tuple[Ids, ...]:
        """What can be stored, in order."""
        return self.blocks + self.pieces

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return sum(map(len, self.parts)) + len(self.rest)


def divide(prompt: Prompt, roles: Sequence[str], *, opens: bool, alignment: int = 1) -> Division:
    """Cut a prompt in front of each answer, those given and the one to come; ``roles`` are its messages'.

    ``opens``: an answer that is read begins with the opening that asks for one, so the cut falls after the opening,
    where the prompt of that answer ended. Else it falls before it. With an ``alignment`` over 1 cuts are moved back to
    a multiple of it, and so far that nothing shorter than MIN_PIECE is left over: then the pieces give the bits of one
    pass, and each turn reads up to MIN_PIECE + ``alignment`` - 1 tokens more.
    """
    base = sum(map(len, prompt.blocks))
    opening = len(prompt.pieces[-1]) if prompt.pieces else 0
    if not opening:  # where an answer begins is not known
        return Division(prompt.blocks, (), prompt.turn)
    ends = list(accumulate(map(len, prompt.pieces[:-1])))
    cuts = [base]
    for index, end in enumerate(ends):
        is_asked = roles[index] != "assistant" and (index + 1 == len(ends) or roles[index + 1] == "assistant")
        if is_asked and prompt.pieces[index]:
            cuts += _cut(base + end, opening, opens, alignment, cuts[-1])
    turn = prompt.turn
    pieces = tuple(turn[start - base : stop - base] for start, stop in pairwise(cuts))
    return Division(prompt.blocks, pieces, turn[cuts[-1] - base :])


def _cut(end: int, opening: int, opens: bool, alignment: int, before: int) -> list[int]:
    if alignment == 1:
        at, least = end + (opening if opens else 0), 1
    else:
        shared = opening - MIN_PIECE if opens else min(0, opening - MIN_PIECE)
        at, least = (end + shared) // alignment * alignment, MIN_PIECE
    return [at] if at - before >= least else []


def begins_with_opening(prompt: Prompt) -> bool:
    """Whether the answer in a prompt of user, assistant and user begins with what asks for the next one."""
    if len(prompt.pieces) != 4:
        return False
    _, answer, _, opening = prompt.pieces
    return bool(opening) and answer[: len(opening)] == opening


# --- what is kept -------------------------------------------------------------------------------------


class NotKept(Exception):
    """Why a checkpoint cannot be kept. The answer is not concerned."""


class Checkpoints:
    """Keeps states of conversations in the store of ``blocks``. Calls are made by who holds ``blocks.exclusive()``."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._engine, self._store = blocks, blocks.engine, blocks.store
        self._tested: SelfTest | None = None
        self._refused: str | None = None

    def self_test(self, cancellation: Cancellation | None = None) -> SelfTest:
        """The self-test of this configuration: as recorded in the store, else made now; the live context is lost.

        Raises InexactBlock where the configuration is not exact, Cancelled, StoreFull.
        """
        if self._tested is None:
            self._tested = self._store.selftest(self._blocks.fingerprint.id)
        if self._tested is None:
            test = run_self_test(self._engine, self._blocks.fingerprint.id, cancellation)
            self._store.set_selftest(test)
            self._tested = test
        return self._tested

    def keep(self, parts: Sequence[Ids], state: State, cancellation: Cancellation | None = None) -> bool:
        """Store ``state``, that of ``parts`` read one after the other; False if it was there.

        Parts before the last that are not stored leave their ids. Raises NotKept, StoreFull, OverBudget, Cancelled.
        """
        ids = self._blocks.ids_of(parts)
        if self._is_there(ids[-1]):
            return False
        self._require_trust(ids, cancellation)
        ends = list(accumulate(map(len, parts)))
        ranges = [cut for part, end in zip(parts, ends, strict=True) for cut in blobs.cuts(end - len(part), end)]
        before = self._before(ids[:-1])
        if before is None:
            whole = blobs.cut(state.blob, state.layout, len(state.tokens), ranges)
            segments, new = [ref for ref, _ in whole], {ref.sha256: data for ref, data in whole}
            put_together = _cut_and_whole(state, whole)
        else:
            segments, new = blobs.cut_after(state, ranges, before)
            put_together = state  # what was taken over was put together to these bytes before
        digest = self._require_same_again(state, put_together)
        manifest = Manifest(
            block_id=ids[-1],
            parent_id=ids[-2] if len(ids) > 1 else None,
            fingerprint=self._blocks.fingerprint,
            tokens=parts[-1],
            n_tokens=len(state.tokens),
            layout=state.layout,
            segments=tuple(segments),
            state_sha256=digest,
            exactness=Exactness.EXACT_BY_CONFIG,
            probe=None,
        )

        def source(ref: SegmentRef) -> blobs.Blob:
            return new[ref.sha256] if ref.sha256 in new else blobs.piece_of(state, ref)

        created = self._blocks.replace(manifest, source, ancestors=self._ancestors(parts, ids, ends))
        self._blocks.hold(manifest, state)
        return created

    def _is_there(self, identity: str) -> bool:
        """Whether the block is whole, and so are the ids before its own."""
        known = self._blocks.valid(identity)
        try:
            return known is not None and bool(self._blocks.tokens_of(known))
        except UnknownBlock:
            return False

    def _require_trust(self, ids: Sequence[str], cancellation: Cancellation | None) -> None:
        for identity in ids[:-1]:
            if self._blocks.is_untrusted(identity):
                raise NotKept("it follows a block that came in a pack without a trusted signature")
            known = self._store.manifest(identity)
            if known is not None and known.exactness is Exactness.INEXACT:
                raise NotKept("it follows a block that is not exact")
        if self._refused is None:
            try:
                self.self_test(cancellation)
            except InexactBlock as error:
                self._refused = f"this configuration is not exact: it diverged at step {error.step} of {error.steps}"
        if self._refused is not None:
            raise NotKept(self._refused)

    def _before(self, ids: Sequence[str]) -> blobs.Cut | None:
        """The longest of these blocks whose state is in RAM, whole: its segments need not be made again."""
        for identity in reversed(ids):
            manifest = self._store.manifest(identity)
            state = None if manifest is None else self._blocks.held(manifest)
            if manifest is not None and state is not None:
                return blobs.Cut(state, manifest.segments)
        return None

    def _require_same_again(self, state: State, put_together: State) -> str:
        """SHA-256 of the state, which is taken beside. Raises NotKept."""
        with ThreadPoolExecutor(1) as beside:
            digest = beside.submit(sha256, state.blob.data)
            self._engine.clear()
            self._engine.restore(put_together)
            again = self._engine.capture()
            if not np.array_equal(again.blob, state.blob):
                raise NotKept("its state, restored, was not captured again as the same bytes")
            return digest.result()

    def _ancestors(self, parts: Sequence[Ids], ids: Sequence[str], ends: Sequence[int]) -> list[Ancestor]:
        return [
            Ancestor(
                block_id=ids[i],
                parent_id=ids[i - 1] if i else None,
                fingerprint_id=self._blocks.fingerprint.id,
                tokens=parts[i],
                n_tokens=ends[i],
            )
            for i in range(len(parts) - 1)
        ]


def _cut_and_whole(state: State, segments: list[tuple[SegmentRef, blobs.Blob]]) -> State:
    """The state as it is when its segments are put together again."""
    return State(state.tokens, state.layout, blobs.assembled(state.layout, len(state.tokens), segments))


def run_self_test(engine: Engine, fingerprint_id: str, cancellation: Cancellation | None = None) -> SelfTest:
    """Prove, at several lengths and past every sliding window, that restored states go on as uninterrupted ones.

    Raises InexactBlock at the first length where they do not, Cancelled.
    """
    rng = random.Random(0)
    words = [token for token in range(engine.info.n_vocab) if not engine.is_control(token)]
    head = [engine.info.bos] if engine.info.bos is not None else []
    lengths = _test_lengths(engine)
    for length in lengths:
        tokens = [*head, *(rng.choice(words) for _ in range(length - len(head)))]
        engine.clear()
        engine.extend(tokens, cancellation)
        state = engine.capture()
        segments = blobs.cut(state.blob, state.layout, length, blobs.cuts(0, length))
        fresh = greedy_hashes(engine, tokens[-1], SELF_TEST_STEPS, cancellation)
        engine.clear()
        engine.restore(_cut_and_whole(state, segments))
        again = np.array_equal(engine.capture().blob, state.blob)
        step = first_difference(fresh, greedy_hashes(engine, tokens[-1], SELF_TEST_STEPS, cancellation))
        if step is not None or not again:
            raise InexactBlock(block_id(fingerprint_id, None, tokens), step or 1, SELF_TEST_STEPS)
    return SelfTest(fingerprint_id=fingerprint_id, steps=SELF_TEST_STEPS, lengths=tuple(lengths))


def _test_lengths(engine: Engine) -> list[int]:
    """Short lengths, and one past each sliding window that this context is long enough to leave."""
    most = engine.window - SELF_TEST_STEPS
    check_window(0, MIN_PIECE, SELF_TEST_STEPS, engine.window)
    engine.clear()
    engine.extend([engine.info.bos or 0])
    windows = {section.window for section in engine.capture().layout.sections if section.window}
    past = {window + _PAST_WINDOW for window in windows if window + _PAST_WINDOW <= most}
    short = {min(length, most) for length in _LENGTHS}
    return sorted(past | (short if len(short) > 1 else {most // 2, most}))
