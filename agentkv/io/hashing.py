"""Digests: canonical JSON, tagged hashes, files.

Key material is canonical JSON (keys sorted, no white space) of a list that opens with a tag,
so that ``("a", "bc")`` and ``("ab", "c")``, and ``None`` and ``""``, never share a digest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

_CHUNK = 1 << 22


def canonical_json(value: Any) -> bytes:
    """``value`` as JSON with sorted keys and no white space; equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def sha256(data: bytes | bytearray | memoryview) -> str:
    """Hex SHA-256 of a buffer (64 characters)."""
    return hashlib.sha256(data).hexdigest()


def tagged_digest(tag: str, *parts: Any) -> str:
    """Hex SHA-256 over a tag and JSON-able parts, unambiguous in their number, order and kind."""
    return sha256(canonical_json(["agentkv", tag, *parts]))


def block_id(fingerprint_id: str, parent_id: str | None, tokens: Sequence[int]) -> str:
    """The identity of a block, known before any prefill: 64 hex characters.

    ``fingerprint_id`` is :attr:`Fingerprint.id`, ``parent_id`` the block it is chained to, ``tokens`` its own ids.
    """
    return tagged_digest("block/1", fingerprint_id, parent_id, list(tokens))


_file_digests: dict[tuple[int, int, int, int], str] = {}


def file_sha256(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """Hex SHA-256 of a file, cached in this process by device, inode, size and mtime in nanoseconds.

    ``progress`` is called with the number of bytes read since the last call. Raises ``OSError``.
    """
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        known = _file_digests.get(key)
        if known is not None:
            return known
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
    _file_digests[key] = digest.hexdigest()
    return digest.hexdigest()
