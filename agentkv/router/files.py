"""What the router keeps beside the blocks: weights as one canonical JSON object, vectors as an array of NumPy.

Whether such a file is valid in form, not what is in it. No block depends on one: a corrupt one is
passed over by the router, and made again. Not guaranteed: that a number is the one that was written.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import orjson

from agentkv.io import fsio
from agentkv.io.hashing import canonical_json
from agentkv.store.files import StoreFiles

_WEIGHTS = re.compile(r"[0-9a-f]{64}\.json")
_VECTORS = re.compile(r"vectors-[0-9a-f]{32}\.npy")
_LIMIT = 1 << 30


def fault(files: StoreFiles, path: Path) -> str | None:
    """Why a file of the router's is not whole; None if it is, is gone, or is another's. Raises StoreReadError."""
    if _WEIGHTS.fullmatch(path.name):
        data = fsio.read_regular(path, _LIMIT)
        return None if data is None or _is_canonical(data) else "it is not a canonical JSON object and a newline"
    if _VECTORS.fullmatch(path.name):
        data = fsio.read_regular(path, _LIMIT)
        return None if data is None else array_fault(data)
    return None


def _is_canonical(data: bytes) -> bool:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and canonical_json(value) + b"\n" == data


def array_fault(data: bytes) -> str | None:
    """Why bytes are not the file of a flat array without objects; nothing is allocated for what its header claims."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, kind = read(file)
    except (ValueError, EOFError, OSError, TypeError, MemoryError):
        return "its header is not that of an array"
    if is_fortran or len(shape) != 1 or kind.hasobject:
        return "its array has another form"
    needed, there = shape[0] * kind.itemsize, len(data) - file.tell()
    return None if needed == there else f"its header claims {needed:,} bytes, {there:,} follow"
