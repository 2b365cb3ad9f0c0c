"""Is this file a complete GGUF? Reads the header, never the tensor data, and allocates nothing it has not seen.

Covers: magic, versions 2 and 3 (little-endian), metadata, tensor infos, and whether the last byte of every
tensor lies inside the file. Does not cover: corruption inside tensor data (that is what the SHA-256 is for), and
whether llama.cpp knows the architecture. Memory stays below ``MAX_HEADER``; nothing is mapped, so a file that
shrinks while it is read is an error and not a signal.
"""

from __future__ import annotations

import math
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from agentkv.errors import ModelUnreadable

MAGIC = b"GGUF"
MAX_HEADER = 256 << 20
MAX_METADATA = 1 << 16
MAX_TENSORS = 1 << 16
MAX_NAME = 1 << 16
MAX_DIMENSIONS = 4
_FIRST_READ = 1 << 20
_MAX_BYTES = 1 << 62

# Widths in bytes of the metadata value types with a fixed width; 8 is a string, 9 an array.
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_U16, _U32, _STRING, _ARRAY = 2, 4, 8, 9

# ggml type number -> (elements, bytes) of one quantisation block; a test compares it with the gguf package.
TYPE_SIZES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip


@dataclass(frozen=True)
class GgufHeader:
    """From the header: counts, ``alignment`` and byte offsets of the tensor data (``data_end`` exclusive).

    ``unsized`` counts tensors of a type that this version does not know, whose ends could not be checked.
    """

    version: int
    n_metadata: int
    n_tensors: int
    alignment: int
    data_start: int
    data_end: int
    unsized: int


def gguf_check(path: Path) -> GgufHeader:
    """Check that ``path`` is a whole GGUF file; reads a few MB of a usual model. Raises ModelUnreadable."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise ModelUnreadable(path, f"it is {kind}")
        with path.open("rb") as file:
            return _Header(path, file, info.st_size).parse()
    except OSError as error:
        raise ModelUnreadable(path, error.strerror or str(error)) from error


class _Header:
    """A cursor over the start of the file, which reads on as it is asked for more."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.size = path, file, size
        self.buffer = b""
        self.position = 0
        self.alignment = 32

    def parse(self) -> GgufHeader:
        version = self.opening()
        n_tensors, n_metadata = self.number("<Q"), self.number("<Q")
        if n_tensors > MAX_TENSORS or n_metadata > MAX_METADATA:
            self.refuse(f"it claims {n_tensors:,} tensors and {n_metadata:,} metadata entries")
        if n_tensors == 0:
            self.refuse("it holds no tensors")
        for _ in range(n_metadata):
            self.metadata()
        tensors = [self.tensor() for _ in range(n_tensors)]
        data_start = -(-self.position // self.alignment) * self.alignment
        data_end = data_start
        for offset, n_bytes in tensors:
            if offset % self.alignment:
                self.refuse(f"a tensor starts at {offset}, not a multiple of the alignment {self.alignment}")
            data_end = max(data_end, data_start + offset + (n_bytes or 0))
        if data_end > self.size:
            self.refuse(f"it is truncated: {self.size:,} bytes of at least {data_end:,}")
        unsized = sum(n_bytes is None for _, n_bytes in tensors)
        return GgufHeader(version, n_metadata, n_tensors, self.alignment, data_start, data_end, unsized)

    def opening(self) -> int:
        if self.size == 0:
            self.refuse("it is empty")
        if self.take(min(4, self.size)) != MAGIC:
            self.refuse("it is not a GGUF file (it does not start with `GGUF`)")
        version = self.number("<I")
        if version & 0xFFFF == 0:
            self.refuse("it is a big-endian GGUF")
        if version not in (2, 3):
            self.refuse(f"it is GGUF version {version}, known are 2 and 3")
        return version

    def metadata(self) -> None:
        key = self.string()
        kind = self.number("<I")
        if key == b"general.alignment":
            if kind != _U32:
                self.refuse("general.alignment is not a 32-bit number")
            self.alignment = self.number("<I")
            if self.alignment == 0 or self.alignment & (self.alignment - 1):
                self.refuse(f"general.alignment is {self.alignment}, not a power of two")
        elif key == b"split.count" and kind == _U16:
            # One shard's SHA-256 is not the model's: the identity of every block would be wrong.
            if (shards := self.number("<H")) > 1:
                self.refuse(f"it is one of {shards} shards; join them with `llama-gguf-split --merge`")
        elif kind == _ARRAY:
            self.array(key)
        elif kind == _STRING:
            self.skip_strings(1)
        elif kind in _WIDTHS:
            self.skip(_WIDTHS[kind])
        else:
            self.refuse(f"metadata {key[:40]!r} has the unknown type {kind}")

    def array(self, key: bytes) -> None:
        kind, count = self.number("<I"), self.number("<Q")
        if kind == _STRING:
            self.skip_strings(count)
        elif kind in _WIDTHS:
            self.skip(count * _WIDTHS[kind])
        else:
            self.refuse(f"metadata {key[:40]!r} is an array of the unusable type {kind}")

    def tensor(self) -> tuple[int, int | None]:
        """(offset, bytes) of one tensor; None for a type without a known size."""
        name = self.string()
        n_dimensions = self.number("<I")
        if n_dimensions > MAX_DIMENSIONS:
            self.refuse(f"tensor {name[:40]!r} has {n_dimensions} dimensions")
        dimensions = [self.number("<Q") for _ in range(n_dimensions)]
        kind, offset = self.number("<I"), self.number("<Q")
        elements = math.prod(dimensions)
        if elements > _MAX_BYTES or offset > _MAX_BYTES:
            self.refuse(f"tensor {name[:40]!r} claims {elements:,} elements at {offset:,}")
        if kind not in TYPE_SIZES:
            return offset, None
        per_block, block_bytes = TYPE_SIZES[kind]
        if dimensions and dimensions[0] % per_block:
            self.refuse(f"tensor {name[:40]!r} has rows of {dimensions[0]}, not a multiple of {per_block}")
        return offset, elements // per_block * block_bytes

    def string(self) -> bytes:
        length = self.number("<Q")
        if length > MAX_NAME:
            self.refuse(f"a name of {length:,} bytes at {self.position:,}")
        return self.take(length)

    def number(self, layout: str) -> int:
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def take(self, n_bytes: int) -> bytes:
        start = self.position
        self.skip(n_bytes)
        return self.buffer[start : self.position]

    def skip(self, n_bytes: int) -> None:
        self.reach(self.position + n_bytes)
        self.position += n_bytes

    def skip_strings(self, count: int) -> None:
        # The hot loop: a vocabulary is some 300,000 strings, so it works on locals and rarely reads on.
        unpack, position, end = struct.Struct("<Q").unpack_from, self.position, len(self.buffer)
        for _ in range(count):
            if position + 8 > end:
                end = self.reach(position + 8)
            position += 8 + unpack(self.buffer, position)[0]
            if position > end:
                end = self.reach(position)
        self.position = position

    def reach(self, position: int) -> int:
        """Have the buffer hold the file up to ``position``; its new length."""
        if position > self.size:
            self.refuse(f"it is truncated: the header does not end within its {self.size:,} bytes")
        if position > MAX_HEADER:
            self.refuse(f"its header is larger than {MAX_HEADER:,} bytes")
        if position > len(self.buffer):
            n_missing = max(position, 2 * len(self.buffer), _FIRST_READ) - len(self.buffer)
            self.buffer += self.file.read(n_missing)
            if position > len(self.buffer):
                self.refuse("it was cut while it was read")
        return len(self.buffer)

    def refuse(self, reason: str) -> NoReturn:
        raise ModelUnreadable(self.path, reason)
