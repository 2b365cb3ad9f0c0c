"""Small blocks for the store's tests: a manifest and its segments from a few numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agentkv.io.hashing import block_id, sha256
from agentkv.records import (
    Exactness,
    Fingerprint,
    Manifest,
    NamedBlock,
    Planes,
    Probe,
    Section,
    SegmentRef,
    StateLayout,
)

STEP = 4
FINGERPRINT = Fingerprint(content={"model": "ab" * 32, "kv": "f16"}, numerics={"build": "b1", "threads": 2})


def state(seed: int, n_bytes: int = 256) -> bytes:
    """Bytes like half-precision numbers; the same for the same seed."""
    values = np.random.default_rng(seed).standard_normal(n_bytes // 2).astype("<f2")
    return values.tobytes() + b"\x00" * (n_bytes % 2)


def reference(data: bytes, start: int = 0, stop: int = STEP, section: int = 0, width: Any = 2) -> SegmentRef:
    return SegmentRef(
        section=section, start=start, stop=stop, sha256=sha256(data), n_bytes=len(data), element_bytes=width
    )


def block(
    tokens: list[int],
    *,
    parent: Manifest | None = None,
    fingerprint: Fingerprint = FINGERPRINT,
    n_bytes: int = 256,
    salt: int = 0,
) -> tuple[Manifest, dict[str, bytes]]:
    """One attention section, cut every STEP positions; a child shares its parent's whole segments."""
    n_tokens = len(tokens) + (parent.n_tokens if parent else 0)
    shared = [ref for ref in parent.segments if ref.stop - ref.start == STEP] if parent else []
    refs, segments = list(shared), {}
    for start in range(len(shared) * STEP, n_tokens, STEP):
        data = state(hash((tuple(tokens), start, salt)) % 2**32, n_bytes)
        refs.append(reference(data, start, min(start + STEP, n_tokens)))
        segments[refs[-1].sha256] = data
    parent_id = parent.block_id if parent else None
    manifest = Manifest(
        block_id=block_id(fingerprint.id, parent_id, tokens),
        parent_id=parent_id,
        fingerprint=fingerprint,
        tokens=tuple(tokens),
        n_tokens=n_tokens,
        layout=StateLayout(
            architecture="test",
            sections=(
                Section(kind="attention", keys=(Planes(ggml_type=1, token_major=True, row_bytes=n_bytes // STEP),)),
            ),
        ),
        segments=tuple(refs),
        state_sha256=sha256(b"".join(segments.values())),
        exactness=Exactness.EXACT,
        probe=Probe(steps=32, token=7, sha256="cd" * 32),
    )
    return manifest, segments


def named(manifest: Manifest, name: str = "parse-pdf", kind: Any = "skill") -> NamedBlock:
    return NamedBlock(
        kind=kind, name=name, fingerprint_id=manifest.fingerprint.id, block_id=manifest.block_id, source="x"
    )


def contents(root: Path) -> dict[str, bytes]:
    """Every file below ``root`` with its bytes."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def temporaries(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*.tmp")]
