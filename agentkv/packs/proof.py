"""Does a state belong to its tokens, and do the tokens belong to their text? A model answers, for its own blocks.

Digests and signatures say who wrote a block; only the computation says that it is true. ``recompute`` reads each
block's own tokens behind its recomputed parent and compares every segment; ``prove`` repeats the 32 greedy steps
of the deposit, which costs little and finds what is damaged, not what was forged with care. Everything happens in a
temporary store: nothing is imported. Does not guarantee that a text is harmless.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

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
    """What was found of one block. ``verdict`` is a few words; ``error`` is None unless the block is refuted."""

    block_id: str
    names: tuple[str, ...]
    verdict: str
    error: AgentKVError | None = None


def prove_pack(
    pack: Pack, contents: Contents, engine: Engine, how: How, *, cancellation: Cancellation | None = None
) -> Iterator[Proof]:
    """Each block of a checked pack with what ``engine`` says of it, parents first.

    Blocks of other fingerprints are left out of the judgement and say so. Raises InvalidPack, Cancelled, StoreFull.
    """
    with tempfile.TemporaryDirectory(prefix="agentkv-proof-") as folder, BlockStore(folder, cache_bytes=0) as store:
        court = _Court(pack, contents, Blocks(engine, store), cancellation)
        judge: Callable[[Manifest], str] = court.prove if how == "prove" else court.recompute
        for block_id, info in contents.blocks.items():
            names = court.names(block_id)
            if info.fingerprint.id != court.blocks.fingerprint.id:
                yield Proof(block_id, names, "other model or settings")
                continue
            try:
                yield Proof(block_id, names, judge(pack.manifest(block_id)))
            except (ForgedBlock, InexactBlock) as error:
                yield Proof(block_id, names, "refuted", error)


class _Court:
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
            raise self.forged(manifest, f"its state or probe is none of this model: {error.message}") from error
        if manifest.exactness is Exactness.INEXACT:
            return "inexact, as stored"
        refuted = InexactBlock(manifest.block_id, 0, manifest.probe.steps)
        refuted.message = (
            f"block {manifest.block_id[:12]} of {self.pack.path} does not continue as its pack says: "
            f"{manifest.probe.steps} steps give other logits here. Its state is damaged or forged, or this machine "
            "computes otherwise; `agentkv pack verify --recompute` tells."
        )
        refuted.args = (refuted.message,)
        raise refuted

    # --- the computation ---

    def recompute(self, manifest: Manifest) -> str:
        """Read the block's own tokens behind its recomputed parent and compare state and text."""
        parent = self.blocks.store.manifest(manifest.parent_id) if manifest.parent_id else None
        how: Any = {"allow_inexact": True, "cancellation": self._cancellation}
        try:
            fresh = self.blocks.deposit(manifest.tokens, parent=parent, **how).manifest
        except UsageError as error:
            raise self.forged(manifest, f"its tokens are none of this model: {error.message}") from error
        wrong = self._differing(manifest, fresh)
        if wrong:
            raise self.forged(
                manifest,
                f"{wrong} of its {len(manifest.segments):,} segments are not what this model computes from its tokens",
            )
        if manifest.state_sha256 != fresh.state_sha256:
            raise self.forged(manifest, "the digest of its whole state is another than that of its segments together")
        return self._text_verdict(manifest)

    def _differing(self, manifest: Manifest, fresh: Manifest) -> int:
        """How many of the pack's segments are others than the recomputed state's, cut alike."""
        if manifest.layout != fresh.layout:
            return len(manifest.segments)
        if manifest.segments == fresh.segments:
            return 0
        blob = self.blocks.state(fresh).blob
        expected: list[SegmentRef] = []
        for section, refs in groupby(manifest.segments, key=lambda ref: ref.section):
            ranges = [(ref.start, ref.stop) for ref in refs]
            cut = blobs.cut(blob, fresh.layout, fresh.n_tokens, ranges)
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
