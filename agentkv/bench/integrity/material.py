"""What the integrity benchmark stores, and how it looks at a store afterwards: known bytes, compared bit by bit."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.errors import AgentKVError, CorruptBlock
from agentkv.io.hashing import block_id, sha256
from agentkv.io.lock import GATE, LOCK
from agentkv.records import Exactness, Fingerprint, Manifest, NamedBlock, Planes, Section, SegmentRef, StateLayout
from agentkv.store.catalog import BlockStore
from agentkv.store.files import TURNS
from agentkv.store.marker import MARKER
from agentkv.store.uses import USES

FINGERPRINT = Fingerprint(content={"model": "integrity"}, numerics={"build": 1})
_STEP, _SEGMENT_BYTES = 4, 512
_LAYOUT = StateLayout(
    architecture="integrity",
    sections=(
        Section(kind="attention", keys=(Planes(ggml_type=1, token_major=True, row_bytes=_SEGMENT_BYTES // _STEP),)),
    ),
)


@dataclass(frozen=True)
class Made:
    """A block and the raw bytes of the segments that it does not share with its parent."""

    manifest: Manifest
    segments: dict[str, bytes]

    @property
    def id(self) -> str:
        """The block's id."""
        return self.manifest.block_id


def make(tokens: list[int], parent: Made | None = None) -> Made:
    """A block cut every four tokens; a child shares its parent's whole segments."""
    n_tokens = len(tokens) + (parent.manifest.n_tokens if parent else 0)
    refs = [ref for ref in parent.manifest.segments if ref.stop - ref.start == _STEP] if parent else []
    segments = {}
    for start in range(len(refs) * _STEP, n_tokens, _STEP):
        seed = hashlib.sha256(repr((tokens, start)).encode()).digest()
        data = b"".join(bytes([byte, 60]) for byte in seed * (_SEGMENT_BYTES // 64))  # compressible, like real states
        digest = sha256(data)
        stop = min(start + _STEP, n_tokens)
        refs.append(
            SegmentRef(section=0, start=start, stop=stop, sha256=digest, n_bytes=len(data), element_bytes=2),
        )
        segments[digest] = data
    parent_id = parent.id if parent else None
    return Made(
        Manifest(
            block_id=block_id(FINGERPRINT.id, parent_id, tokens),
            parent_id=parent_id,
            fingerprint=FINGERPRINT,
            tokens=tuple(tokens),
            n_tokens=n_tokens,
            layout=_LAYOUT,
            segments=tuple(refs),
            state_sha256=sha256(b"".join(segments.values())),
            exactness=Exactness.EXACT,
            probe=None,
        ),
        segments,
    )


def named(made: Made, name: str, text: str | None = None) -> NamedBlock:
    """A name for a block, with the digest of its text."""
    return NamedBlock(
        kind="text",
        name=name,
        fingerprint_id=FINGERPRINT.id,
        block_id=made.id,
        source_sha256=None if text is None else sha256(text.encode()),
    )


@dataclass
class Seen:
    """What a look at a store found. ``leftovers``: files that no block, name or mark needs."""

    blocks: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


def look(store: BlockStore, made: Collection[Made], must: Collection[str]) -> Seen:
    """Every listed block read back and compared; ``must``: ids of the blocks that have to be there."""
    known = {one.id: one for one in made}
    raw = {digest: data for one in made for digest, data in one.segments.items()}
    seen = Seen(set(store.block_ids()))
    for found in sorted(seen.blocks):
        try:
            whole = _restores(store, known[found], raw)
        except (AgentKVError, KeyError) as error:
            whole = False
            seen.half.append(f"{found[:12]}: {error}")
        else:
            if not whole:
                seen.half.append(f"{found[:12]}: other bytes")
        if not whole and found in must:
            seen.lost.append(found)
    seen.lost += sorted(set(must) - seen.blocks)
    for one in store.names(on_error=lambda error: seen.half.append(error.message)):
        if one.block_id not in seen.blocks:
            seen.half.append(f"name {one.name} points to nothing")
        elif one.source_sha256 is not None and store.text(one.source_sha256) is None:
            seen.half.append(f"name {one.name} lacks its text")
    seen.leftovers = sorted(files_of(store.root) - needed(store))
    return seen


def _restores(store: BlockStore, made: Made, raw: dict[str, bytes]) -> bool:
    manifest = store.verify(made.id, deep=True)
    read: dict[str, bytes] = {}
    store.read(manifest, lambda ref, data: read.update({ref.sha256: data.tobytes()}), deep=True)
    return manifest == made.manifest and read == {ref.sha256: raw[ref.sha256] for ref in manifest.segments}


def needed(store: BlockStore) -> set[str]:
    """Every file that a store with these blocks, names and marks has."""
    files, root = store.files, store.root
    paths = [root / MARKER, root / "agentkv-settings.json"]
    listed = set(store.block_ids())
    for block in listed:
        paths += [files.manifests.path(block), files.pins.path(block), files.imports.path(block)]
        with suppress(CorruptBlock):
            summary = files.summary(block)
            paths += [Path(store.segments.where(digest)) for digest in (summary.segments if summary else ())]
    paths += [folder.path(name) for folder in (files.names, files.models) for name in folder.digests()]
    for one in files.names.all(on_error=lambda _: None):
        if one.source_sha256 is not None:
            paths.append(files.texts.path(one.source_sha256))
    return {str(path.relative_to(root)) for path in paths if path.exists()}


@dataclass
class Findings:
    """What came of one case; the lists that a subclass adds hold only what must not be."""

    @property
    def wrong(self) -> dict[str, list[str]]:
        """The lists that are not empty."""
        return {name: value for name, value in vars(self).items() if isinstance(value, list) and value}


Wrong = dict[str, list[str]]
"""What must not be, by kind; empty where all was well."""


def counts(kinds: tuple[str, ...], wrongs: list[Wrong], shown: int) -> dict[str, Any]:
    """How much of each kind was wrong in all cases, and the first few."""
    texts = {kind: [text for wrong in wrongs for text in wrong.get(kind, ())] for kind in kinds}
    examples = {kind: known[:shown] for kind, known in texts.items() if known}
    return {**{kind: len(known) for kind, known in texts.items()}, "examples": examples}


def files_of(root: Path) -> set[str]:
    """Every file below a store but its locks, its counts of uses and its log of turns."""
    names = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    return {name for name in names if name not in (LOCK, GATE) and not name.startswith((USES, f"{TURNS}{os.sep}"))}


def bytes_of(root: Path) -> dict[str, bytes]:
    """The same with what is in them."""
    return {name: (root / name).read_bytes() for name in sorted(files_of(root))}


def copy(template: Path, root: Path) -> None:
    """A copy with the same times, since eviction goes by them."""
    shutil.copytree(template, root, symlinks=True)
