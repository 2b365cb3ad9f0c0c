"""Raw bytes to stored payload and back: as they are, zstd, byte planes + zstd, or nothing where all are zero.

Byte planes put all highest bytes of the elements together, then all next ones: the sign and exponent bytes of floats
compress, the mantissa bytes do not, and zstd does better on each apart. A payload is decoded only if it is exactly one
complete zstd frame that states the length of its content: one-shot decoders return the first of two frames, streaming
ones the first half of half a frame, and neither calls it an error.
"""

from __future__ import annotations

import threading

import numpy as np
import zstandard
from numpy.typing import NDArray

from agentkv.store.format import Codec, Malformed

Bytes = NDArray[np.uint8]

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_HEADER = 3
_RLE, _RESERVED = 1, 3
_CHECKSUM = 4
_KEEP_SCRATCH = 16 << 20
_HALF = 2


class Scratch(threading.local):
    """Buffers and zstd contexts of one thread: no page faults and no set-up for each segment."""

    def __init__(self) -> None:
        self._buffers: dict[str, Bytes] = {}
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()

    def buffer(self, use: str, n_bytes: int) -> Bytes:
        """``n_bytes`` of undefined content, until the same thread asks again for the same use."""
        if n_bytes > _KEEP_SCRATCH:
            return np.empty(n_bytes, np.uint8)
        kept = self._buffers.get(use)
        if kept is None or kept.size < n_bytes:
            kept = self._buffers[use] = np.empty(n_bytes, np.uint8)
        return kept[:n_bytes]

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """This thread's compressor for ``level``."""
        made = self._compressors.get(level)
        if made is None:
            made = self._compressors[level] = zstandard.ZstdCompressor(level=level)
        return made


scratch = Scratch()


def encode(raw: Bytes, element_bytes: int, codec: Codec, level: int) -> tuple[Codec, bytes | memoryview]:
    """The codec really used and the payload; ``RAW`` where the requested one does not make it smaller.

    Nothing but zeros, such as the rows that a sliding window masks, has an empty payload, whatever is asked for.
    """
    if raw.size and not raw.any():
        return Codec.ZEROS, b""
    if codec is Codec.PLANES and (element_bytes == 1 or raw.size % element_bytes):
        codec = Codec.ZSTD
    if codec is not Codec.RAW and raw.size:
        source = raw if codec is Codec.ZSTD else split_planes(raw, element_bytes)
        payload = scratch.compressor(level).compress(source.data)
        if len(payload) < raw.size:
            return codec, payload
    return Codec.RAW, raw.data


def decode(payload: Bytes, codec: Codec, element_bytes: int, out: Bytes) -> None:
    """Fill ``out``, which has the raw length; Malformed, with ``out`` undefined, if ``payload`` cannot."""
    if codec is Codec.RAW:
        if payload.size != out.size:
            raise Malformed(f"{payload.size:,} raw bytes stored, {out.size:,} expected")
        out[:] = payload
    elif codec is Codec.ZEROS:
        if payload.size:
            raise Malformed(f"{payload.size:,} bytes stored for zeros")
        out[:] = 0
    elif codec is Codec.ZSTD:
        _decompress(payload, out)
    else:
        planes = scratch.buffer("planes", out.size)
        _decompress(payload, planes)
        merge_planes(planes, element_bytes, out)


def split_planes(raw: Bytes, element_bytes: int) -> Bytes:
    """The bytes of each little-endian element apart, highest plane first, in this thread's scratch."""
    planes = scratch.buffer("planes", raw.size)
    rows = planes.reshape(element_bytes, -1)
    if element_bytes == _HALF:  # whole numbers: twice as fast as single bytes, two apart
        numbers = raw.view("<u2")
        np.copyto(rows[1], numbers, casting="unsafe")
        np.copyto(rows[0], numbers >> 8, casting="unsafe")
        return planes
    elements = raw.reshape(-1, element_bytes)
    for plane in range(element_bytes):
        rows[plane] = elements[:, element_bytes - 1 - plane]
    return planes


def merge_planes(planes: Bytes, element_bytes: int, out: Bytes) -> None:
    """The inverse of :func:`split_planes`, into ``out``."""
    rows = planes.reshape(element_bytes, -1)
    if element_bytes == _HALF:  # three times as fast
        numbers = out.view("<u2")
        np.left_shift(rows[0], 8, out=numbers, dtype=np.uint16, casting="unsafe")
        np.bitwise_or(numbers, rows[1], out=numbers)
        return
    elements = out.reshape(-1, element_bytes)
    for plane in range(element_bytes):
        elements[:, element_bytes - 1 - plane] = rows[plane]


def check_frame(payload: Bytes, raw_bytes: int) -> None:
    """Raise Malformed unless ``payload`` is one whole zstd frame whose header says ``raw_bytes`` of content.

    Reads headers only and allocates nothing, so a frame of 8 kB that would expand to 256 MiB is refused here.
    """
    view = payload.data
    if bytes(view[:4]) != _ZSTD_MAGIC:
        raise Malformed("the payload is not a zstd frame")
    try:
        frame = zstandard.get_frame_parameters(view)
        position = zstandard.frame_header_size(view)
    except zstandard.ZstdError as error:
        raise Malformed(f"zstd frame header: {error}") from error
    if frame.content_size != raw_bytes:  # "unknown" is 2**64 - 1, so it differs too
        raise Malformed(f"the zstd frame says {frame.content_size:,} bytes, {raw_bytes:,} expected")
    if frame.dict_id:
        raise Malformed("the zstd frame needs a dictionary")
    end = _end_of_blocks(view, position) + (_CHECKSUM if frame.has_checksum else 0)
    if end > len(view):
        raise Malformed("the zstd frame is cut short")
    if end < len(view):
        raise Malformed(f"{len(view) - end:,} bytes after the zstd frame")


def _end_of_blocks(view: memoryview, position: int) -> int:
    """Where the last block of a frame ends, following the 3-byte block headers (RFC 8878, 3.1.1.2)."""
    while True:
        header = int.from_bytes(view[position : position + _BLOCK_HEADER], "little")
        kind, size = header >> 1 & 3, header >> 3
        position += _BLOCK_HEADER
        if position > len(view):
            raise Malformed("the zstd frame is cut short")
        if kind == _RESERVED:
            raise Malformed("the zstd frame has a reserved block type")
        position += 1 if kind == _RLE else size
        if header & 1:
            return position


def _decompress(payload: Bytes, out: Bytes) -> None:
    check_frame(payload, out.size)
    try:
        with scratch.decompressor.stream_reader(payload.data) as reader:
            done = 0
            while done < out.size and (got := reader.readinto(out[done:].data)):
                done += got
            more = reader.read(1)  # also drives the decoder over the end mark and the frame's checksum
    except zstandard.ZstdError as error:
        raise Malformed(f"zstd: {error}") from error
    if done != out.size or more:
        raise Malformed(f"the zstd frame holds {'more' if more else 'less'} than {out.size:,} bytes")
