"""Does a state belong to its tokens, and do the tokens belong to their text? Answered by a model, for its own blocks.

Digests and signatures say who wrote a block; only the computation shows that it is true. ``recompute`` prefills each
block's own tokens after its recomputed parent and compares every segment; ``prove`` repeats the 32 greedy steps of the
deposit, which costs little and finds corruption, not careful forgery. Everything happens in a temporary store: nothing
is imported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, Engine
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import AgentKVError, ForgedBlock, InexactBlock, InvalidState, UsageError
from agentkv.packs.check import Contents
from agentkv.packs.reader import Pack
from agentkv.records import Exactness, Manifest, NamedBlock, SegmentRef
from agentkv.store.catalog import BlockStore

How = Literal["prove", "recompute"]


@dataclass(frozen=True)
class Proof:
    """The result for one block. ``verdict``: a few words; ``error``: None unless it is ``mismatch``."""

    block_id: str
    names: tuple[str, ...]
    verdict: str
    error: AgentKVError | None = None


def prove_pack(
    pack: Pack, contents: Contents, engine: Engine, how: How, *, cancellation: Cancellation | None = None
) -> Iterator[Proof]:
    """Each block of a checked pack with the verdict of ``engine``, parents first.

    Blocks of other fingerprints are not judged; their verdict says so. Raises InvalidPack, Cancelled, StoreFull.
    """
    with tempfile.TemporaryDirectory(prefix="agentkv-proof-") as folder, BlockStore(folder, cache_bytes=0) as store:
        prover = _Prover(pack, contents, Blocks(engine, store), cancellation)
        judge: Callable[[Manifest], str] = prover.prove if how == "prove" else prover.recompute
        for block_id, info in contents.blocks.items():
            names = prover.names(block_id)
            if info.fingerprint.id != prover.blocks.fingerprint.id:
                yield Proof(block_id, names, "other model or settings")
                continue
            try:
                yield Proof(block_id, names, judge(pack.manifest(block_id)))
            except (ForgedBlock, InexactBlock) as error:
                yield Proof(block_id, names, "mismatch", error)


class _Prover:
    def __init__(self, pack: Pack, contents: Contents, blocks: Blocks, cancellation: Cancellation | None) -> None:
        self.pack, self.contents, self.blocks, self._cancellation = pack, contents, blocks, cancellation
        self._prompts = PromptBuilder(blocks.engine)
        self._names: dict[str, list[NamedBlock]] = {}
        for named in contents.names:
            self._names.setdefault(named.block_id, []).append(named)

    def names(self, block_id: str) -> tuple[str, ...]:
        return tuple(named.name for named in self._names.get(block_id, ()))

    def forged(self, manifest: Manifest, reason: str) -> ForgedBlock:
        return ForgedBlock(self.pack.path, manifest.block_id, self.names(manifest.block_id), reason)

    # --- the probe ---

    def prove(self, manifest: Manifest) -> str:
        """Repeat the proof of the deposit on the state that the pack brings."""
        self.blocks.store.put(manifest, self.pack.segment)
        if manifest.probe is None:
            return "no proof to repeat"
        try:
            if self.blocks.reprove(manifest):
                return "proved"
        except (InvalidState, UsageError) as error:
            raise self.forged(manifest, f"its state or probe does not belong to this model: {error.message}") from error
        if manifest.exactness is Exactness.INEXACT:
            return "inexact, as stored"
        message = (
            f"block {manifest.block_id[:12]} of {self.pack.path} does not continue as its pack says: "
            f"{manifest.probe.steps} steps give other logits here. Its state is corrupt or forged, or this machine "
            "computes differently; `agentkv pack verify --recompute` decides that."
        )
        raise InexactBlock(manifest.block_id, 0, manifest.probe.steps, message)

    # --- the computation ---

    def recompute(self, manifest: Manifest) -> str:
        """Prefill the block's own tokens after its recomputed parent and compare state and text."""
        parent = self.blocks.store.manifest(manifest.parent_id) if manifest.parent_id else None
        try:
            own = self.blocks.deposit(
                manifest.tokens, parent=parent, allow_inexact=True, cancellation=self._cancellation
            ).manifest
        except UsageError as error:
            raise self.forged(manifest, f"its tokens are not of this model: {error.message}") from error
        wrong = self._differing(manifest, own)
        if wrong:
            raise self.forged(
                manifest,
                f"{wrong} of its {len(manifest.segments):,} segments are not what this model computes from its tokens",
            )
        if manifest.state_sha256 != own.state_sha256:
            raise self.forged(manifest, "the digest of its whole state is another than that of its segments together")
        return self._text_verdict(manifest)

    def _differing(self, manifest: Manifest, own: Manifest) -> int:
        """How many of the pack's segments differ from those of the recomputed state, cut alike."""
        if manifest.layout != own.layout:
            return len(manifest.segments)
        if manifest.segments == own.segments:
            return 0
        blob = self.blocks.state(own).blob
        expected: list[SegmentRef] = []
        for section, refs in groupby(manifest.segments, key=lambda ref: ref.section):
            ranges = [(ref.start, ref.stop) for ref in refs]
            cut = blobs.cut(blob, own.layout, own.n_tokens, ranges)
            expected += [ref for ref, _ in cut if ref.section == section]
        if len(expected) != len(manifest.segments):
            return len(manifest.segments)
        return sum(a != b for a, b in zip(manifest.segments, expected, strict=True))

    def _text_verdict(self, manifest: Manifest) -> str:
        """Whether the names' source texts give these tokens, by this version's prompts."""
        seen = False
        for named in self._names.get(manifest.block_id, ()):
            text = None if named.source_sha256 is None else self.pack.text(named.source_sha256)
            if text is None:
                continue
            seen = True
            if self._prompts.build("", text, [Message("user", "?")]).manual != manifest.tokens:
                raise self.forged(
                    manifest,
                    f"its state is that of its tokens, but its tokens are not those of the text {named.name!r}",
                )
        return "recomputed, text and state" if seen else "recomputed"
