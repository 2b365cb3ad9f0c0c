"""Everything that can be checked of a pack without a store or a model, in one pass over the file.

At most one member is in memory at a time, with what is kept of each manifest (its ids and numbers, never its tokens).
Whether a state belongs to its tokens needs a model (``agentkv.packs.proof``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.io.hashing import canonical_json
from agentkv.packs.format import BadMember, check_segment_size, member_name, parse_member
from agentkv.packs.reader import Pack, Progress
from agentkv.records import Exactness, Fingerprint, Manifest, NamedBlock, SegmentRef
from agentkv.store.format import Malformed


@dataclass(frozen=True)
class BlockInfo:
    """What is kept of a manifest. ``n_tokens`` counts the parents' too, ``raw_bytes`` is the whole state's size."""

    block_id: str
    parent_id: str | None
    fingerprint: Fingerprint
    own_tokens: int
    n_tokens: int
    raw_bytes: int
    exactness: Exactness


@dataclass(frozen=True)
class Contents:
    """A pack that was checked: its blocks, parents first; its names; one reference for each segment."""

    blocks: dict[str, BlockInfo]
    names: tuple[NamedBlock, ...]
    segments: dict[str, SegmentRef]

    @property
    def fingerprints(self) -> dict[str, Fingerprint]:
        """The fingerprints of its blocks, by id."""
        return {info.fingerprint.id: info.fingerprint for info in self.blocks.values()}


def check(pack: Pack, *, deep: bool = True, progress: Progress | None = None) -> Contents:
    """Check the whole file: frames, digests, manifests, texts; with ``deep`` also decode every segment.

    Raises InvalidPack with the member at fault.
    """
    pack.check_frames()
    step = _Steps(pack, progress)
    held = {digest for folder, digest in map(parse_member, _names(pack)) if folder == "segments"}
    gathered = _Gathered(pack, held)
    for block_id in pack.index.blocks:
        gathered.add(pack.manifest(block_id))
        step.done(member_name("manifests", block_id))
    contents = gathered.contents()
    for digest, ref in sorted(contents.segments.items()):
        name = member_name("segments", digest)
        if deep:
            pack.segment(ref)
        else:
            pack.check_digest(name)
        step.done(name)
    for folder in ("sources", "licenses"):
        for digest in pack.texts(folder):
            pack.text(digest, folder)
            step.done(member_name(folder, digest))
    return contents


def _names(pack: Pack) -> Iterator[str]:
    return (member.name for member in pack.index.members)


class _Gathered:
    """The manifests of a pack as they come, each compared with those before it."""

    def __init__(self, pack: Pack, held: set[str]) -> None:
        self._pack, self._held = pack, held
        self._blocks: dict[str, BlockInfo] = {}
        self._fingerprints: dict[str, Fingerprint] = {}
        self._segments: dict[str, SegmentRef] = {}

    def add(self, manifest: Manifest) -> None:
        with self._pack.blaming(member_name("manifests", manifest.block_id)):
            self._check_parent(manifest)
            for ref in manifest.segments:
                self._add_segment(ref)
        self._blocks[manifest.block_id] = BlockInfo(
            block_id=manifest.block_id,
            parent_id=manifest.parent_id,
            fingerprint=self._fingerprints[manifest.fingerprint.id],
            own_tokens=len(manifest.tokens),
            n_tokens=manifest.n_tokens,
            raw_bytes=sum(ref.n_bytes for ref in manifest.segments),
            exactness=manifest.exactness,
        )

    def _check_parent(self, manifest: Manifest) -> None:
        limits, fingerprint = self._pack.limits, manifest.fingerprint
        if fingerprint.id not in self._fingerprints:
            size = len(canonical_json(fingerprint.model_dump(mode="json")))
            if size > limits.fingerprint_bytes or len(self._fingerprints) >= limits.fingerprints:
                raise Malformed(f"a fingerprint too large ({size:,} bytes), or one too many")
            self._fingerprints[fingerprint.id] = fingerprint
        if manifest.parent_id is None:
            return
        parent = self._blocks.get(manifest.parent_id)
        if parent is None:
            raise Malformed(f"its parent {manifest.parent_id[:12]} does not come before it")
        if parent.fingerprint.id != fingerprint.id:
            raise Malformed("its parent has another fingerprint")
        if parent.n_tokens + len(manifest.tokens) != manifest.n_tokens:
            raise Malformed(f"{parent.n_tokens:,} + {len(manifest.tokens):,} tokens are not {manifest.n_tokens:,}")

    def _add_segment(self, ref: SegmentRef) -> None:
        if ref.sha256 not in self._held:
            raise Malformed(f"its segment {ref.sha256[:12]} is not in the pack")
        first = self._segments.setdefault(ref.sha256, ref)
        if first.n_bytes != ref.n_bytes:
            raise Malformed(f"segment {ref.sha256[:12]} is given two sizes")
        if ref.n_bytes > self._pack.limits.segment_bytes:
            raise Malformed(
                f"a segment of {ref.n_bytes:,} bytes, over the limit of {self._pack.limits.segment_bytes:,}"
            )

    def contents(self) -> Contents:
        pack, limits = self._pack, self._pack.limits
        unused = sorted(self._held - set(self._segments))
        if unused:
            with pack.blaming(member_name("segments", unused[0])):
                raise Malformed("no manifest names it")
        for ref in self._segments.values():
            name = member_name("segments", ref.sha256)
            with pack.blaming(name):
                check_segment_size(ref, pack.member(name).size)
        with pack.blaming():
            self._check_order()
            raw = sum(ref.n_bytes for ref in self._segments.values())
            stored = sum(pack.member(member_name("segments", digest)).size for digest in self._segments)
            if raw > limits.expansion_free + limits.expansion * stored:
                raise Malformed(
                    f"{stored:,} bytes of segments that would decode to {raw:,}: no model computes such a state"
                )
            for named in pack.index.names:
                if named.fingerprint_id != self._blocks[named.block_id].fingerprint.id:
                    raise Malformed(f"the name {named.name!r} has another fingerprint than its block")
        return Contents(self._blocks, pack.index.names, self._segments)

    def _check_order(self) -> None:
        depth: dict[str, int] = {}
        for block_id, info in self._blocks.items():
            depth[block_id] = 0 if info.parent_id is None else depth[info.parent_id] + 1
        order = sorted(depth, key=lambda block_id: (depth[block_id], block_id))
        if order != list(depth):
            wrong = next(a for a, b in zip(depth, order, strict=True) if a != b)
            raise BadMember(member_name("manifests", wrong), "the blocks do not come by depth, then by id")


class _Steps:
    """Progress by the members' bytes."""

    def __init__(self, pack: Pack, progress: Progress | None) -> None:
        self._pack, self._progress, self._done = pack, progress, 0
        self._total = sum(member.size for member in pack.index.members)

    def done(self, name: str) -> None:
        self._done += self._pack.member(name).size
        if self._progress is not None:
            self._progress(self._done, self._total, "checking")
