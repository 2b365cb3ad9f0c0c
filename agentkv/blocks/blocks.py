"""Blocks: deposit and graft, where an engine and a store meet.

A block's own tokens are always decoded as one piece after its parent's, in the first prefill and in every later one.
So one id stands for one computation and, by the exactness contract, for one state. This matters: llama.cpp's
kernels treat the rows left over from groups of four apart, and the same tokens cut elsewhere can differ in their
last bits. Blocks whose length is a multiple of the engine's ``alignment``, as prompts make them, are free of this.

Not guaranteed: that a block of any other length and what follows it give the same bits as both prefilled at once;
``agentkv bench exactness`` shows by how much they differ.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.blocks.restoring import CANNOT_RESTORE, MENDS, Restored, check_sizes
from agentkv.blocks.turnlog import TurnLog
from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, Engine, Logits, State
from agentkv.engine.generate import PROBE_BATCH, PROBE_STEPS, chained, check_window, first_difference, probe_hashes
from agentkv.errors import (
    Cancelled,
    CorruptBlock,
    EngineClosed,
    IncompatibleFingerprint,
    InexactBlock,
    InvalidState,
    NativeRefusal,
    StoreError,
    UnknownBlock,
    UsageError,
)
from agentkv.io.hashing import block_id, sha256
from agentkv.notices import warn
from agentkv.records import Ancestor, Exactness, Manifest, Probe, SegmentRef
from agentkv.store.catalog import BlockStore
from agentkv.store.deposit import Source
from agentkv.tracing import NO_TRACING, Tracing


@dataclass(frozen=True)
class Deposit:
    """What a deposit did. ``created`` is False when the block was there; milliseconds by stage, 0 where not run."""

    manifest: Manifest
    created: bool
    ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Held:
    """A state in RAM, and the digest under which it was put there: a block may have been stored again since."""

    state: State
    state_sha256: str


def _state_of(manifest: Manifest, cached: object) -> State | None:
    if isinstance(cached, _Held) and cached.state_sha256 == manifest.state_sha256:
        return cached.state
    return None


class Blocks:
    """The blocks of one engine in one store. Calls hold the engine's lock. ``tracing`` makes the spans."""

    def __init__(self, engine: Engine, store: BlockStore, tracing: Tracing = NO_TRACING) -> None:
        self.engine, self.store, self.tracing = engine, store, tracing
        self.fingerprint = engine.fingerprint()
        self.turns = TurnLog(store.root, store.turn_log)
        self._busy = False

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """The live context for one piece of work, from empty to empty; other threads wait.

        Raises UsageError on the thread that holds it already: a stream that has not been read to its end or closed
        would go on in a context that is no longer its own.
        """
        with self.engine.lock:
            if self._busy:
                raise UsageError("an answer is still being streamed here; read it to its end or close it first")
            self._busy = True
            try:
                yield
            finally:
                self._busy = False
                with contextlib.suppress(EngineClosed):
                    self.engine.clear()

    def id_of(self, tokens: Sequence[int], parent_id: str | None = None) -> str:
        """The id that ``tokens`` after ``parent_id`` have under this engine; costs a hash."""
        return block_id(self.fingerprint.id, parent_id, tokens)

    def chain(self, manifest: Manifest) -> list[Manifest]:
        """The block and its parents, root first. Raises UnknownBlock if a parent is gone."""
        links = [manifest]
        while (parent_id := links[0].parent_id) is not None:
            parent = self.store.manifest(parent_id)
            if parent is None:
                raise UnknownBlock(parent_id, "It is the parent of a block; deposit the text again.")
            links.insert(0, parent)
        return links

    def tokens_of(self, manifest: Manifest) -> tuple[int, ...]:
        """All ids of the block, its parents' first, also where these are all that is left of them.

        Raises UnknownBlock, CorruptBlock.
        """
        return tuple(token for part in self.parts_of(manifest) for token in part)

    def parts_of(self, manifest: Manifest) -> list[tuple[int, ...]]:
        """The ids of the block's parents and its own, each apart, root first. Raises UnknownBlock, CorruptBlock."""
        parts = [manifest.tokens]
        parent_id = manifest.parent_id
        while parent_id is not None:
            ancestor = self.store.ancestor(parent_id)
            if ancestor is None:
                raise UnknownBlock(parent_id, "It is the parent of a block; deposit the text again.")
            parts.append(ancestor.tokens)
            parent_id = ancestor.parent_id
        return parts[::-1]

    # --- deposit ----------------------------------------------------------------------------------

    def deposit(
        self,
        tokens: Sequence[int],
        *,
        parent: Manifest | None = None,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Prefill ``tokens`` after ``parent`` once, prove the state, store it. A block that is there costs a hash.

        But not one that came in a pack without a trusted signature: a forged state would lie under all that is
        deposited on top of it. It is prefilled again, and takes that one's place.

        Raises WindowOverflow (a block has to leave room for its probe), InexactBlock, StoreFull, Cancelled; then
        nothing was stored.
        """
        if not len(tokens):
            raise UsageError("a block has at least one token")
        identity = self.id_of(tokens, parent.block_id if parent else None)
        known = None if self.is_untrusted(identity) else self.valid(identity)
        if known is not None and (allow_inexact or known.exactness is not Exactness.INEXACT):
            return Deposit(known, created=False)
        check_window((parent.n_tokens if parent else 0) + len(tokens), PROBE_STEPS, 0, self.engine.window)
        with self.exclusive(), self.tracing.span("agentkv.deposit") as span:
            deposit = self._read_prove_store(identity, tokens, parent, allow_inexact, cancellation)
            if span.on:
                span.set({"agentkv.block.id": identity, "agentkv.deposit.created": deposit.created})
                span.set({"agentkv.deposit.tokens": len(tokens), "agentkv.exactness": deposit.manifest.exactness.value})
            return deposit

    def read(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> None:
        """Prefill a block's own tokens after the live context; what that took is noted in the store's turn log.

        Raises WindowOverflow, Cancelled.
        """
        start = time.perf_counter()
        self.engine.extend(tokens, cancellation)
        self.count("deposit", read=len(tokens), read_ms=(time.perf_counter() - start) * 1e3)

    def count(self, kind: str, **fields: Any) -> None:
        """A line in the store's turn log, see :class:`agentkv.blocks.turnlog.LoggedTurn`."""
        self.turns.add(
            kind=kind,
            fingerprint_id=self.fingerprint.id,
            model_sha256=str(self.fingerprint.content.get("model_sha256", "")),
            **fields,
        )

    def is_untrusted(self, identity: str) -> bool:
        """Whether the block came in a pack without a trusted signature; so too where that record cannot be read."""
        try:
            record = self.store.imported(identity)
        except StoreError:
            return True
        return record is not None and record.decision != "trusted"

    def valid(self, identity: str) -> Manifest | None:
        """The stored block if it can be restored as far as is known; else None, so that a deposit mends it."""
        try:
            return self.store.verify(identity, deep=False)
        except StoreError:
            return None

    def _read_prove_store(
        self,
        identity: str,
        tokens: Sequence[int],
        parent: Manifest | None,
        allow_inexact: bool,
        cancellation: Cancellation | None,
    ) -> Deposit:
        watch = _Stopwatch()
        # 1. Prefill: the parent's state comes back, the own tokens are decoded after it as one piece.
        self._read_behind(parent, tokens, watch, cancellation)
        # 2. Capture and cut: at the parents' own cuts first, so that their segments are shared.
        state = self.engine.capture()
        watch.lap("capture")
        n_tokens = len(state.tokens)
        ranges = _ranges(parent) + blobs.cuts(parent.n_tokens if parent else 0, n_tokens)
        segments = blobs.cut(state.blob, state.layout, n_tokens, ranges)
        digest = sha256(state.blob.data)
        watch.lap("cut")
        # 3. Prove: the uninterrupted run against a restore of what will be stored.
        probe, exactness = self._prove(identity, state, segments, tokens, allow_inexact, cancellation)
        watch.lap("probe")
        # 4. Store: segments, then the manifest, which commits.
        manifest = Manifest(
            block_id=identity,
            parent_id=parent.block_id if parent else None,
            fingerprint=self.fingerprint,
            tokens=tuple(tokens),
            n_tokens=n_tokens,
            layout=state.layout,
            segments=tuple(ref for ref, _ in segments),
            state_sha256=digest,
            exactness=exactness,
            probe=probe,
        )
        if cancellation is not None and cancellation.requested:
            raise Cancelled("a deposit")
        created = self.replace(manifest, {ref.sha256: raw for ref, raw in segments})
        self.hold(manifest, state)
        watch.lap("store")
        return Deposit(manifest, created, watch.ms)

    def _read_behind(
        self, parent: Manifest | None, tokens: Sequence[int], watch: _Stopwatch, cancellation: Cancellation | None
    ) -> None:
        """Bring ``parent`` and prefill ``tokens`` after it; a parent whose state will not do is prefilled too."""
        if parent is None:
            self.engine.clear()
        else:
            self.bring(parent, cancellation)
        watch.lap("parent")
        try:
            self.read(tokens, cancellation)
        except NativeRefusal as error:
            if parent is None:
                raise
            self.read_parts(self.parts_of(parent), cancellation)
            self.read(tokens, cancellation)
            self.refuse(parent, error.message)
        watch.lap("prefill")

    def replace(self, manifest: Manifest, segments: Source, *, ancestors: Sequence[Ancestor] = ()) -> bool:
        """Store a block that was computed here, in place of an untrusted one or one that was refused.

        False if it was there with these bytes, or another that is valid. Raises what ``BlockStore.put`` raises.
        """
        identity = manifest.block_id
        untrusted, refused = self.is_untrusted(identity), self._is_refused(identity)
        created = self.store.put(manifest, segments, replace=untrusted or refused, ancestors=ancestors)
        if untrusted or created:  # a record of a block that never came may be there too
            self.store.forget_import(identity)
        if refused:
            self.store.cache.drop(identity)
            self.store.forget_refusal(identity)
        return created

    def _is_refused(self, identity: str) -> bool:
        try:
            known = self.store.manifest(identity)
        except StoreError:
            return True
        return known is not None and self.store.refusal(known) is not None

    def _prove(
        self,
        identity: str,
        state: State,
        segments: list[tuple[SegmentRef, NDArray[np.uint8]]],
        tokens: Sequence[int],
        allow_inexact: bool,
        cancellation: Cancellation | None,
    ) -> tuple[Probe, Exactness]:
        fresh = probe_hashes(self.engine, tokens, PROBE_BATCH, PROBE_STEPS, cancellation)
        whole = blobs.assembled(state.layout, len(state.tokens), segments)
        self.engine.clear()
        self.engine.restore(State(state.tokens, state.layout, whole))
        step = first_difference(fresh, probe_hashes(self.engine, tokens, PROBE_BATCH, PROBE_STEPS, cancellation))
        if step is not None and not allow_inexact:
            raise InexactBlock(identity, step, PROBE_STEPS)
        probe = Probe(steps=PROBE_STEPS, token=tokens[len(tokens) // 2], sha256=chained(fresh), batch=PROBE_BATCH)
        return probe, Exactness.EXACT if step is None else Exactness.INEXACT

    # --- graft ------------------------------------------------------------------------------------

    def graft(self, manifest: Manifest) -> None:
        """Restore the block into the live context, from the RAM cache or, verified, from disk.

        A state that the engine refuses is noted in the store, see :meth:`refuse`. Raises IncompatibleFingerprint,
        CorruptBlock, MissingSegment, WindowOverflow, InvalidState, NativeRefusal, with the context untouched or empty.
        """
        difference = manifest.fingerprint.first_difference(self.fingerprint)
        if difference is not None:
            raise IncompatibleFingerprint(*difference)
        self.store.require_not_refused(manifest)
        with self.engine.lock:
            state = self.state(manifest)
            try:
                self.engine.restore(state)
            except (InvalidState, NativeRefusal) as error:
                self.refuse(manifest, error.message)
                raise
        self.store.used(manifest.block_id)

    def refuse(self, manifest: Manifest, reason: str) -> None:
        """Note that a state cannot be used: it is not tried again, ``check`` and ``list`` show it until a deposit."""
        self.store.refuse(manifest, reason)
        self.store.cache.drop(manifest.block_id)

    def bring(self, manifest: Manifest, cancellation: Cancellation | None = None) -> str | None:
        """Have the block in the context: restored, else prefilled, with a notice. Why it had to be, or None.

        Raises UnknownBlock where its tokens are gone too, IncompatibleFingerprint, Cancelled.
        """
        try:
            self.graft(manifest)
            return None
        except CANNOT_RESTORE as error:
            reason = error.message
        self.read_parts(self.parts_of(manifest), cancellation)
        warn(f"block {manifest.block_id[:12]} was prefilled instead of restored: {reason} {MENDS}")
        return reason

    def extend_behind(
        self, manifest: Manifest, tokens: Sequence[int], cancellation: Cancellation | None = None
    ) -> Logits:
        """Bring the block and prefill ``tokens`` after it; where its state gives no logits, it is refused and
        prefilled.
        """
        self.bring(manifest, cancellation)
        try:
            return self.engine.extend(tokens, cancellation)
        except NativeRefusal as error:
            self.read_parts(self.parts_of(manifest), cancellation)
            logits = self.engine.extend(tokens, cancellation)
            self.refuse(manifest, error.message)
            warn(f"block {manifest.block_id[:12]} was prefilled instead of restored: {error.message} {MENDS}")
            return logits

    def read_parts(self, parts: Sequence[Sequence[int]], cancellation: Cancellation | None = None) -> None:
        """Read a prompt's parts into the empty context, each as one piece, as their blocks are."""
        self.engine.clear()
        for part in parts:
            self.engine.extend(part, cancellation)

    def restore_longest(self, parts: Sequence[Sequence[int]], *, below: int | None = None) -> Restored:
        """Restore the longest stored chain that is a prefix of ``parts`` and can be restored, or clear the context.

        ``below``: only chains of fewer tokens. One that is damaged, unreadable or refused is passed over for the one
        before it. Raises IncompatibleFingerprint, WindowOverflow.
        """
        ids, ends = self.ids_of(parts), list(accumulate(map(len, parts)))
        passed_over: dict[int, str] = {}
        is_gone = False
        for n in range(len(parts), 0, -1):
            if below is not None and ends[n - 1] >= below:
                continue
            try:
                manifest = self.store.manifest(ids[n - 1])
                if manifest is None:
                    continue
                self.graft(manifest)
                return Restored(n, manifest, passed_over, is_gone)
            except UnknownBlock:  # another process has evicted or removed it since: a miss
                is_gone = True
            except CANNOT_RESTORE as error:
                passed_over[n] = error.message
        self.engine.clear()
        return Restored(0, None, passed_over, is_gone)

    def state(self, manifest: Manifest) -> State:
        """The block's state, from the RAM cache, its restore image or its segments.

        Raises CorruptBlock, MissingSegment, StoreReadError.
        """
        cached = _state_of(manifest, self.store.cache.get(manifest.block_id))
        if cached is not None:
            return cached
        try:
            check_sizes(self.store, manifest)
        except CorruptBlock as error:  # the store sees bytes only, and would call it sound
            self.refuse(manifest, error.reason)
            raise
        blob = self.store.image(manifest, blobs.blob_bytes(manifest.layout, manifest.n_tokens))
        if blob is None:
            assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
            self.store.read(manifest, assembly.place)
            blob = assembly.blob
            self.store.keep_image(manifest, blob)
        is_trusted = not self.is_untrusted(manifest.block_id)
        state = State(self.tokens_of(manifest), manifest.layout, blob, is_trusted)
        self.hold(manifest, state)
        return state

    def hold(self, manifest: Manifest, state: State) -> None:
        """Keep in RAM what ``manifest`` says the state is."""
        self.store.cache.put(manifest.block_id, _Held(state, manifest.state_sha256), state.blob.nbytes)

    def held(self, manifest: Manifest) -> State | None:
        """The very state that ``manifest`` describes, if it is in RAM; not counted as a use of it."""
        return _state_of(manifest, self.store.cache.peek(manifest.block_id))

    # --- a prompt in parts ------------------------------------------------------------------------

    def ids_of(self, parts: Sequence[Sequence[int]]) -> list[str]:
        """The ids of a chain of these parts, first to last; nothing has to be stored."""
        ids: list[str] = []
        for part in parts:
            ids.append(self.id_of(part, ids[-1] if ids else None))
        return ids

    def stored_chain(self, parts: Sequence[Sequence[int]]) -> list[Manifest]:
        """The stored blocks of the longest chain that is a prefix of ``parts``: decided on ids, never on text.

        A block that was evicted before those after it is left out, and so is one that cannot be read.
        """
        found = []
        for identity in self.ids_of(parts):
            with contextlib.suppress(StoreError):
                found.append(self.store.manifest(identity))
        return [manifest for manifest in found if manifest is not None]

    def reprove(self, manifest: Manifest) -> bool:
        """Whether the stored state still continues as at deposit: the probe repeated, no prefill."""
        if manifest.probe is None:
            return False
        with self.exclusive():
            self.graft(manifest)
            return self.goes_on_alike(manifest)

    def goes_on_alike(self, manifest: Manifest, cancellation: Cancellation | None = None) -> bool:
        """Whether the live context, which is at the end of this block, continues as its probe says; it is decoded."""
        probe = manifest.probe
        if probe is None:
            return True
        tokens = manifest.tokens if probe.batch > 1 else (probe.token,)
        return chained(probe_hashes(self.engine, tokens, probe.batch, probe.steps, cancellation)) == probe.sha256


def _ranges(manifest: Manifest | None) -> list[tuple[int, int]]:
    """The cuts of a block's first sectioned cache; every section of one block is cut alike."""
    if manifest is None:
        return []
    cut = [i for i, section in enumerate(manifest.layout.sections) if section.kind == "attention"]
    if not cut:
        return [(0, manifest.n_tokens)]
    return [(ref.start, ref.stop) for ref in manifest.segments if ref.section == cut[0]]


class _Stopwatch:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._last = clock, clock()
        self.ms: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = self._clock()
        self.ms[stage], self._last = (now - self._last) * 1e3, now
