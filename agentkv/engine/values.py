"""The values in the rows of a state: how many bytes they take, and whether all of them are finite numbers.

Not covered: opaque sections, and block-quantised types other than q8_0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agentkv.engine.layout import Blob, _Reader, _Run, _walk
from agentkv.records import Section, StateLayout

_TYPES = {0: ("<u4", 0x7F800000), 1: ("<u2", 0x7C00), 30: ("<u2", 0x7F80)}
"""By ggml type number (f32, f16, bf16): how an element is read, and its exponent, all set in NaN and infinity."""
_AT_ONCE = 1 << 16
_F16, _Q8_0, _Q8_0_BLOCK = 1, 8, 34
"""A q8_0 block of 34 bytes begins with a scale of f16."""


def rows_bytes(layout: StateLayout, n_tokens: int) -> int:
    """Bytes that the segments of a state of ``n_tokens`` tokens hold together: rows, fixed sections, no structure."""
    return sum(
        sum(planes.row_bytes for planes in (*section.keys, *section.values)) * n_tokens
        if section.kind == "attention"
        else section.fixed_bytes
        for section in layout.sections
    )


def first_non_number(blob: Blob, layout: StateLayout, n_tokens: int) -> int | None:
    """The offset of a run of rows, or of a recurrent section, that holds NaN or infinity; None if there is none.

    No prefill of a working model leaves one: attention makes NaN of both, for every later token, and some models turn
    that into wrong numbers (gemma-3-270m does). The blob must have passed :func:`agentkv.engine.layout.check`.
    """
    for offset, item in _walk(layout, n_tokens):
        runs: Iterator[tuple[int, Blob]] = iter(())
        if isinstance(item, _Run):
            runs = iter([(item.planes.ggml_type, blob[offset : offset + item.planes.row_bytes * n_tokens])])
        elif isinstance(item, Section) and item.kind == "recurrent":
            runs = _recurrent_rows(blob[offset : offset + item.fixed_bytes])
        if not all(_are_numbers(rows, ggml_type) for ggml_type, rows in runs):
            return offset
    return None


def _are_numbers(rows: Blob, ggml_type: int) -> bool:
    if ggml_type == _Q8_0 and not rows.nbytes % _Q8_0_BLOCK:
        rows, ggml_type = rows.reshape(-1, _Q8_0_BLOCK)[:, :2].copy().reshape(-1), _F16
    kind, exponent = _TYPES.get(ggml_type, ("", 0))
    if not kind or not rows.nbytes or rows.nbytes % np.dtype(kind).itemsize:
        return True
    bits = rows.view(kind)
    scratch = np.empty(min(_AT_ONCE, bits.size), bits.dtype)  # small enough for a cache: a tenth of the time
    for start in range(0, bits.size, _AT_ONCE):
        part = bits[start : start + _AT_ONCE]
        if int(np.bitwise_and(part, bits.dtype.type(exponent), out=scratch[: part.size]).max()) >= exponent:
            return False
    return True


def _recurrent_rows(piece: Blob) -> Iterator[tuple[int, Blob]]:
    """Type and bytes of each run of rows in a recurrent section that is well formed."""
    reader = _Reader(piece, 0)
    (cells,) = reader.take("<I")
    for _ in range(cells):
        _, n_seq = reader.take("<iI")
        reader.take(f"<{n_seq}i")
    reader.take("<II")
    while reader.offset < len(piece):
        ggml_type, row = reader.take("<iQ")
        start = reader.offset
        reader.skip(row * cells)
        yield ggml_type, piece[start : reader.offset]
