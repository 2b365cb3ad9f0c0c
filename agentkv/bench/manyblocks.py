"""The store that ``agentkv bench catalogue`` measures: any number of small blocks with names, made quickly."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from agentkv.engine import layout as blobs
from agentkv.engine.fake import FakeEngine
from agentkv.io.hashing import block_id, sha256
from agentkv.records import Exactness, Manifest, NamedBlock, Planes, Section, StateLayout
from agentkv.store import format as formats
from agentkv.store.catalog import BlockStore
from agentkv.store.format import Codec
from agentkv.store.index import INDEX
from agentkv.store.segments import segment_file

BLOCK_TOKENS, PREFIX_TOKENS = 200, 256
DESCRIBED = 20_000
"""How many blocks have a description."""
EXTRA = 6
"""How many blocks above its number a store may have for a moment."""

_ROW_BYTES = 16
_LAYOUT = StateLayout(
    architecture="catalogue",
    sections=(Section(kind="attention", keys=(Planes(ggml_type=1, token_major=True, row_bytes=_ROW_BYTES),)),),
)


def deposit(store: BlockStore, prefix: Manifest, i: int) -> Manifest:
    """Put a block and its name into the store."""
    manifest, data = block(prefix, i)
    store.put(manifest, data)
    text = bytes(manifest.tokens).decode() if i < DESCRIBED else None
    store.set_name(named(manifest, i, sha256(text.encode()) if text else None), text)
    return manifest


def write(store: BlockStore, prefix: Manifest, i: int) -> None:
    """The files that a deposit makes, without its care: nobody else is in the store, and nothing of the block there."""
    manifest, data = block(prefix, i)
    entry = named(manifest, i, None)
    ref = manifest.segments[-1]
    parts = segment_file(np.frombuffer(data[ref.sha256], np.uint8), ref, Codec.PLANES, 1)
    key = formats.name_key(entry.kind, entry.name, entry.fingerprint_id)
    made = {
        Path(store.segments.where(ref.sha256)): b"".join(parts),
        store.files.manifests.path(manifest.block_id): formats.encode_record(formats.MANIFEST_MAGIC, manifest),
        store.files.names.path(key): formats.encode_record(formats.NAME_MAGIC, entry),
    }
    for path, content in made.items():
        try:
            path.write_bytes(content)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def disk_of(root: Path, blocks: int) -> dict[str, int]:
    """What a store of so many blocks takes up; see ``catalogue.Disk``."""
    n_bytes = files = 0
    for folder, _, names in os.walk(root):
        files += 1 + len(names)
        n_bytes += sum(os.lstat(Path(folder, name)).st_blocks * 512 for name in names)
    index = sum(path.stat().st_size for path in root.glob(f"{INDEX}*"))
    return {"blocks": blocks, "bytes": n_bytes, "files": files, "index_bytes": index}


def block(parent: Manifest | None, i: int) -> tuple[Manifest, dict[str, bytes]]:
    """Block ``i`` on top of ``parent``, or the prefix: one segment of random bytes, token ids as of a short text."""
    rng, n = random.Random(i), BLOCK_TOKENS if parent else PREFIX_TOKENS
    tokens = tuple(rng.choices(range(32, 127), k=n))
    at = parent.n_tokens if parent else 0
    data = rng.randbytes(n * _ROW_BYTES)
    fingerprint = FakeEngine(window=64).fingerprint() if parent is None else parent.fingerprint
    ref = blobs.reference(0, at, at + n, np.frombuffer(data, np.uint8), 2)
    manifest = Manifest(
        block_id=block_id(fingerprint.id, parent.block_id if parent else None, tokens),
        parent_id=parent.block_id if parent else None,
        fingerprint=fingerprint,
        tokens=tokens,
        n_tokens=at + n,
        layout=_LAYOUT,
        segments=(*(parent.segments if parent else ()), ref),
        state_sha256=sha256(data),
        exactness=Exactness.INEXACT,
        probe=None,
    )
    return manifest, {ref.sha256: data}


def name_of(i: int) -> str:
    """What block ``i`` is called."""
    return f"skill-{i:06d}"


def named(manifest: Manifest, i: int, source_sha256: str | None) -> NamedBlock:
    """Its name; with a description if it is one of the first."""
    described = f"What to do about case {i}: who is asked, what is written down, and by when it has to be done."
    return NamedBlock(
        kind="skill",
        name=name_of(i),
        fingerprint_id=manifest.fingerprint.id,
        block_id=manifest.block_id,
        description=described if i < DESCRIBED else "",
        source=f"skills/{name_of(i)}",
        source_sha256=source_sha256,
    )


def undo(store: BlockStore, count: int) -> None:
    """Take away the blocks that ``deposit`` has made, put in again those that ``evict`` has removed."""
    prefix = block(None, -1)[0]
    for i in range(count, count + EXTRA):
        extra = block(prefix, i)[0].block_id
        if store.has(extra):
            store.take_away([extra])
    for victim in list(store.evicted):
        deposit(store, prefix, int(victim.names[0].removeprefix("skill-")))
