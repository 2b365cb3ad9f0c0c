"""One segment file as bytes in memory: raw bytes to file and back, checked wholly.

The file is the store's own, byte for byte (see agentkv/store/FORMAT.md). Refuses to know where it lies. Encoding
depends on the raw bytes, the element width, the codec and the zstd library alone, never on how a store keeps them.
"""

from __future__ import annotations

import hashlib

import numpy as np

from agentkv.errors import UsageError
from agentkv.io.fsio import Buffer
from agentkv.records import SegmentRef
from agentkv.store import codec as codecs
from agentkv.store.codec import Bytes
from agentkv.store.format import HEADER_BYTES, TRAILER_BYTES, Codec, Malformed, read_header
from agentkv.store.segments import CODECS, segment_file

LEVEL = 3


def encode_segment(raw: Bytes, ref: SegmentRef, codec: str) -> list[Buffer]:
    """The file in parts, valid until this thread encodes another. ``codec``: planes, zstd or raw."""
    if codec not in CODECS:
        raise UsageError(f"codec is {codec!r}, must be one of {', '.join(CODECS)}")
    return segment_file(raw, ref, CODECS[codec], LEVEL)


def check_segment_size(ref: SegmentRef, file_bytes: int) -> None:
    """Raise Malformed if no file of that size can hold ``ref``."""
    if not HEADER_BYTES + TRAILER_BYTES <= file_bytes <= HEADER_BYTES + ref.n_bytes + TRAILER_BYTES:
        raise Malformed(f"{file_bytes:,} bytes cannot hold a segment of {ref.n_bytes:,}")


def decode_segment(file: Bytes, ref: SegmentRef) -> Bytes:
    """The raw bytes, uint8 of shape (n_bytes,); Malformed unless header, trailer, frame and digest are ``ref``'s.

    Everything that can be told without decoding is checked before the output is allocated.
    """
    header = read_header(file[:HEADER_BYTES].tobytes(), ref, file.size)
    payload = file[HEADER_BYTES : file.size - TRAILER_BYTES]
    if hashlib.sha256(file[: file.size - TRAILER_BYTES].data).digest() != file[file.size - TRAILER_BYTES :].tobytes():
        raise Malformed("the bytes do not have the SHA-256 in the trailer")
    if header.codec in (Codec.ZSTD, Codec.PLANES):
        codecs.check_frame(payload, ref.n_bytes)
    out = np.empty(ref.n_bytes, np.uint8)
    codecs.decode(payload, header.codec, header.element_bytes, out)
    if hashlib.sha256(out.data).hexdigest() != ref.sha256:
        raise Malformed("the decoded bytes have another SHA-256")
    return out
