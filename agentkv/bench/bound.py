"""A state's bytes in each codec, and the order-0 bound that an ideal coder of single bytes could reach."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.bench.results import say
from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.errors import GuaranteeViolated
from agentkv.records import SegmentRef
from agentkv.store import codec as codecs
from agentkv.store.format import HEADER_BYTES, TRAILER_BYTES, Codec

OVERHEAD = HEADER_BYTES + TRAILER_BYTES
"""Bytes of a segment file around its payload."""
_REPEATS = 3

Segments = list[tuple[SegmentRef, NDArray[np.uint8]]]


def label(codec: Codec, level: int) -> str:
    """How a codec and its level are called in results: ``planes 1``."""
    return "raw" if codec is Codec.RAW else f"{codec.name.lower()} {level}"


def measure_codecs(state: State, settings: Sequence[tuple[Codec, int]]) -> dict[str, Any]:
    """One state's segments under each codec, and the order-0 bound."""
    n, raw = len(state.tokens), state.blob.nbytes
    cut = blobs.cut(state.blob, state.layout, n, blobs.cuts(0, n))
    segments = list({ref.sha256: (ref, data) for ref, data in cut}.values())
    bound = sum(planes_entropy(data, ref.element_bytes) for ref, data in segments)
    live = raw - masked_bytes(state)
    rows = []
    for codec, level in settings:
        rows.append({"codec": label(codec, level), **_encode_all(segments, codec, level)})
        say(f"n = {n:,}, {label(codec, level)}: {rows[-1]['bytes'] / raw:.4f} of raw")
    return {
        "n": n,
        "raw_bytes": raw,
        "live_bytes": live,
        "bound_bytes": bound,
        "segments": len(segments),
        "codecs": rows,
    }


def masked_bytes(state: State) -> int:
    """Bytes of rows that a sliding window masks from every later token; they are zero in the state."""
    n, total = len(state.tokens), 0
    for section in state.layout.sections:
        planes = [item for item in (*section.keys, *section.values) if item.ggml_type != blobs.CELLS]
        dead = max(0, n - section.window) if section.window else 0
        total += dead * sum(item.row_bytes for item in planes)
    return total


def plane_entropies(raw: NDArray[np.uint8], width: int) -> list[float]:
    """Bytes that an ideal order-0 coder needs for each byte plane of ``raw``, highest plane first."""
    elements = raw.reshape(-1, width) if raw.size % width == 0 else raw.reshape(-1, 1)
    return [entropy(elements[:, plane]) for plane in reversed(range(elements.shape[1]))]


def planes_entropy(raw: NDArray[np.uint8], width: int) -> float:
    """The order-0 bound of one segment, in bytes."""
    return sum(plane_entropies(raw, width))


def entropy(values: NDArray[Any]) -> float:
    """Of byte values, in bytes."""
    counts = np.bincount(values, minlength=256)
    shares = counts[counts > 0] / values.size
    return float(-(shares * np.log2(shares)).sum() * values.size / 8)


def _encode_all(segments: Segments, codec: Codec, level: int) -> dict[str, Any]:
    """Bytes of the files, and milliseconds on one thread of each repeat: three, one for slow levels."""
    repeats = _REPEATS if level < 9 else 1
    encode, decode, size = list[float](), list[float](), 0
    out = np.empty(max(data.size for _, data in segments), np.uint8)
    for _ in range(repeats):
        size, spent, back = 0, 0.0, 0.0
        for ref, data in segments:
            start = time.perf_counter()
            used, payload = codecs.encode(data, ref.element_bytes, codec, level)
            spent += time.perf_counter() - start
            kept = np.frombuffer(payload, np.uint8)
            size += kept.size + OVERHEAD
            start = time.perf_counter()
            codecs.decode(kept, used, ref.element_bytes, out[: data.size])
            back += time.perf_counter() - start
            if not np.array_equal(out[: data.size], data):
                raise GuaranteeViolated(f"{label(codec, level)} gave back other bytes than it was given")
        encode.append(spent * 1e3)
        decode.append(back * 1e3)
    return {"bytes": size, "encode_ms": encode, "decode_ms": decode}
