"""The state blob of llama.cpp: parse, check, cut by position, assemble, zero masked rows.

The structure of a blob (headers, cell table, row sizes) follows from a :class:`StateLayout` and the number of tokens,
so one generator of structure bytes serves both to write a blob and to check one: whatever differs from it is refused
before native code sees it.

Source of the format: llama.cpp ``llama-kv-cache.cpp`` and ``llama-memory-recurrent.cpp`` (whole-context
state, unified cache, every cell owned by sequences 0 and 1). Not guaranteed: pieces that cannot be parsed
(such as a recurrent section before another one) are kept as one opaque piece, covered by its hash only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentkv.engine.base import State
from agentkv.errors import InvalidState
from agentkv.io.hashing import sha256
from agentkv.records import Planes, Section, SegmentRef, StateLayout

SEGMENT_TOKENS = 256
SEQUENCES = (0, 1)
"""Each cell belongs to both: llama.cpp never re-uses a cell that two sequences own, so a restored context
lays new tokens into the same cells as the uninterrupted run did, also on sliding-window models."""

CELLS = -1
"""Stands for a ggml type in the first of a section's keys: no tensor but the cell table itself, a cell a row.

A cell table is structure and follows from the number of tokens, except where cells carry the token's id
(M-RoPE). A section without layers has this entry too, so that every section has rows to cut."""

_CELL = struct.Struct("<iIii")
_MROPE_CELL = struct.Struct("<iIiiiii")
"""Position, number of sequences, x, y, token id, the sequences. For text, x and y are the position."""
_F16_F32_BF16 = {0: 4, 1: 2, 30: 2}
"""Bytes of an element by ggml type number; block-quantised types are split by single bytes."""

Blob = NDArray[np.uint8]


@dataclass(frozen=True)
class _Run:
    """Where one layer's keys or values lie in a blob."""

    section: int
    planes: Planes
    offset: int


def element_bytes(section: Section) -> int:
    """The width by which a segment of this section is split into byte planes: 1, 2 or 4."""
    planes = [planes for planes in (*section.keys, *section.values) if planes.ggml_type != CELLS]
    widths = {_F16_F32_BF16.get(item.ggml_type, 1) for item in planes}
    return widths.pop() if len(widths) == 1 else 1


# --- structure: one generator for writing and checking --------------------------------------------


def _walk(layout: StateLayout, n_tokens: int) -> Iterator[tuple[int, bytes | _Run | Section]]:
    """Everything in a blob in order: structure bytes, runs of rows, fixed sections, each with its offset."""
    name = layout.architecture.encode()
    offset = 0
    head = struct.pack("<I", len(name)) + name
    yield offset, head
    offset += len(head)
    for index, section in enumerate(layout.sections):
        if section.kind != "attention":
            yield offset, section
            offset += section.fixed_bytes
            continue
        for item in _walk_attention(section, n_tokens):
            if isinstance(item, bytes):
                yield offset, item
                offset += len(item)
            else:
                yield offset, _Run(index, item, offset)
                offset += item.row_bytes * n_tokens
    yield offset, b""


def _walk_attention(section: Section, n_tokens: int) -> Iterator[bytes | Planes]:
    yield struct.pack("<II", 1, n_tokens)
    keys = section.keys
    if keys and keys[0].ggml_type == CELLS:
        yield keys[0]
        keys = keys[1:]
    else:
        yield _cell_table(n_tokens)
    yield struct.pack("<II", int(section.v_trans), len(keys))
    for planes in keys:
        yield struct.pack("<iQ", planes.ggml_type, planes.row_bytes)
        yield planes
    for planes in section.values:
        if planes.token_major:
            yield struct.pack("<iQ", planes.ggml_type, planes.row_bytes)
        else:
            yield struct.pack("<iII", planes.ggml_type, planes.row_bytes // planes.channels, planes.channels)
        yield planes


def _cell_table(n_tokens: int) -> bytes:
    table = np.empty((n_tokens, 4), "<i4")
    table[:, 0] = np.arange(n_tokens)
    table[:, 1] = len(SEQUENCES)
    table[:, 2:] = SEQUENCES
    return table.tobytes()


def is_sequence(layout: StateLayout) -> bool:
    """Whether a state of this layout can be written as that of one sequence: attention only, plain cells."""
    return all(
        section.kind == "attention" and not (section.keys and section.keys[0].ggml_type == CELLS)
        for section in layout.sections
    )


def sequence_blob(state: State, head: bytes) -> Blob:
    """The same state as llama.cpp writes that of one sequence: ``head`` for the architecture, cells of sequence 0."""
    n_tokens, source = len(state.tokens), state.blob
    cells = np.zeros((n_tokens, 3), "<i4")
    cells[:, 0], cells[:, 1] = np.arange(n_tokens), 1
    table, begin = _cell_table(n_tokens), 4 + len(state.layout.architecture.encode())
    parts = [np.frombuffer(head, np.uint8)]
    for offset, item in _walk(state.layout, n_tokens):
        if item == table:
            parts += [source[begin:offset], cells.reshape(-1).view(np.uint8)]
            begin = offset + len(table)
    return np.concatenate([*parts, source[begin:]])


def blob_bytes(layout: StateLayout, n_tokens: int) -> int:
    """Size in bytes of a blob of ``n_tokens`` tokens."""
    size = 0
    for size, _ in _walk(layout, n_tokens):  # noqa: B007 - the last offset is the size
        pass
    return size


def check(blob: Blob, layout: StateLayout, n_tokens: int) -> None:
    """Refuse a blob whose size or any structure byte is not what ``layout`` says. Raises InvalidState."""
    size = blob_bytes(layout, n_tokens)
    if blob.ndim != 1 or blob.dtype != np.uint8 or not blob.flags.c_contiguous:
        raise InvalidState("not a flat array of bytes")
    if blob.nbytes != size:
        raise InvalidState(f"{blob.nbytes:,} bytes where {n_tokens} tokens take {size:,}")
    for offset, item in _walk(layout, n_tokens):
        if isinstance(item, bytes):
            found = blob[offset : offset + len(item)].tobytes()
            if found != item:
                first = next(i for i, (a, b) in enumerate(zip(found, item, strict=True)) if a != b)
                raise InvalidState("its structure is not that of this model and length", offset + first)
        elif isinstance(item, _Run):
            if item.planes.ggml_type == CELLS and not _are_cells(_rows(blob, item, n_tokens)):
                raise InvalidState("its cell table is not that of this length", offset)
        elif item.kind == "recurrent":
            piece = blob[offset : offset + item.fixed_bytes]
            if _recurrent_fields(piece, n_tokens) is None:
                raise InvalidState("its recurrent section is not well formed", offset)


def recurrent_fields(blob: Blob, layout: StateLayout, n_tokens: int) -> list[tuple[int, ...] | None]:
    """The structure fields inside each recurrent section: those of one model are the same at every length.

    A layout holds a recurrent section's size only, so an engine compares these with those of its own states.
    """
    fixed = [(at, item) for at, item in _walk(layout, n_tokens) if isinstance(item, Section)]
    pieces = [blob[at : at + item.fixed_bytes] for at, item in fixed if item.kind == "recurrent"]
    return [_recurrent_fields(piece, n_tokens) for piece in pieces]


def _are_cells(rows: Blob) -> bool:
    """Whether rows of 16 bytes, or 28 with an M-RoPE record, are the cells of positions 0, 1, 2…"""
    if rows.shape[1] == _CELL.size:
        return rows.tobytes() == _cell_table(len(rows))
    if rows.shape[1] != _MROPE_CELL.size:
        return False
    fields = rows.view("<i4")
    plain, place = fields[:, [0, 1, 5, 6]], fields[:, 2:4]
    return plain.tobytes() == _cell_table(len(rows)) and bool((place == fields[:, :1]).all())


# --- parsing: once per engine, on a blob that llama.cpp itself has just written -------------------


class _Reader:
    def __init__(self, blob: Blob, offset: int) -> None:
        self.blob, self.offset = blob, offset

    def take(self, fmt: str) -> tuple[int, ...]:
        size = struct.calcsize(fmt)
        if self.offset + size > len(self.blob):
            raise InvalidState("it ends in the middle of a field", self.offset)
        values = struct.unpack_from(fmt, self.blob.data, self.offset)
        self.offset += size
        return values

    def skip(self, size: int) -> None:
        if size < 0 or self.offset + size > len(self.blob):
            raise InvalidState("a row count points past the end", self.offset)
        self.offset += size


def parse(blob: Blob, n_tokens: int, window: int) -> StateLayout:
    """The layout of a blob that llama.cpp has just written for ``n_tokens`` tokens.

    ``window`` is the model's sliding window in tokens, 0 for none: where there are two attention sections,
    the second is the windowed one. What cannot be parsed becomes one opaque section.
    """
    reader = _Reader(blob, 0)
    (length,) = reader.take("<I")
    start = reader.offset
    if length > 128:
        raise InvalidState("no architecture name", 0)
    reader.skip(length)
    name = blob[start : start + length].tobytes().decode("utf-8", "replace")
    sections = _parse_sections(blob, reader.offset, n_tokens)
    if sections is None:
        sections = [Section(kind="opaque", fixed_bytes=len(blob) - reader.offset)]
    attention = [i for i, section in enumerate(sections) if section.kind == "attention"]
    if window and len(attention) == 2:
        sections[attention[1]] = sections[attention[1]].model_copy(update={"window": window})
    layout = StateLayout(architecture=name, sections=tuple(sections))
    check(blob, layout, n_tokens)
    return layout


def _parse_sections(blob: Blob, offset: int, n_tokens: int) -> list[Section] | None:
    """Sections up to the exact end of the blob, or None."""
    if offset == len(blob):
        return []
    for cell, with_values in ((_CELL, True), (_CELL, False), (_MROPE_CELL, True), (_MROPE_CELL, False)):
        try:
            section, end = _parse_attention(blob, offset, n_tokens, cell.size, with_values)
        except InvalidState:
            continue
        rest = _parse_sections(blob, end, n_tokens)
        if rest is not None:
            return [section, *rest]
    length = len(blob) - offset
    if _recurrent_fields(blob[offset:], n_tokens) is not None:
        return [Section(kind="recurrent", fixed_bytes=length)]
    return None


def _parse_attention(blob: Blob, offset: int, n_tokens: int, cell_bytes: int, with_values: bool) -> tuple[Section, int]:
    reader = _Reader(blob, offset)
    if reader.take("<II") != (1, n_tokens):
        raise InvalidState("not an attention section", offset)
    table = reader.offset
    reader.skip(cell_bytes * n_tokens)
    if not _are_cells(blob[table : reader.offset].reshape(n_tokens, cell_bytes)):
        raise InvalidState("not an attention section", offset)
    v_trans, n_layer = reader.take("<II")
    if v_trans > 1 or n_layer > 4096:
        raise InvalidState("not an attention section", offset)
    keys = [_parse_planes(reader, n_tokens, channel_major=False) for _ in range(n_layer)]
    if cell_bytes != _CELL.size or not keys:
        keys.insert(0, Planes(ggml_type=CELLS, token_major=True, row_bytes=cell_bytes))
    values = [_parse_planes(reader, n_tokens, bool(v_trans)) for _ in range(n_layer)] if with_values else []
    section = Section(kind="attention", v_trans=bool(v_trans), keys=tuple(keys), values=tuple(values))
    return section, reader.offset


def _parse_planes(reader: _Reader, n_tokens: int, channel_major: bool) -> Planes:
    if channel_major:
        ggml_type, element, channels = reader.take("<iII")
        row = element * channels
    else:
        ggml_type, row = reader.take("<iQ")
        channels = 1
    if not 0 < row <= 2**24:
        raise InvalidState("no plausible row size", reader.offset)
    reader.skip(row * n_tokens)
    return Planes(ggml_type=ggml_type, token_major=not channel_major, row_bytes=row, channels=channels)


def _recurrent_fields(piece: Blob, n_tokens: int) -> tuple[int, ...] | None:
    """The structure fields, without positions, of a recurrent section that fills ``piece``; else None."""
    reader, fields = _Reader(piece, 0), []
    try:
        (cells,) = reader.take("<I")
        if not 0 < cells <= len(SEQUENCES):
            return None
        for _ in range(cells):
            pos, n_seq = reader.take("<iI")
            if pos != n_tokens - 1 or not 0 < n_seq <= len(SEQUENCES):
                return None
            fields += [n_seq, *reader.take(f"<{n_seq}i")]
        s_trans, n_layer = reader.take("<II")
        if s_trans != 0 or not 0 < n_layer <= 4096:
            return None
        fields.append(n_layer)
        while reader.offset < len(piece):
            ggml_type, row = reader.take("<iQ")
            if ggml_type not in _F16_F32_BF16 or len(fields) > 4 * n_layer + 8:
                return None
            fields += [ggml_type, row]
            reader.skip(row * cells)
    except InvalidState:
        return None
    return (cells, *fields)


# --- masked rows ----------------------------------------------------------------------------------


def _rows(blob: Blob, run: _Run, n_tokens: int) -> Blob:
    """A view of shape (n_tokens, row_bytes) or, channel-major, (channels, n_tokens * element bytes)."""
    flat = blob[run.offset : run.offset + run.planes.row_bytes * n_tokens]
    if run.planes.token_major:
        return flat.reshape(n_tokens, run.planes.row_bytes)
    return flat.reshape(run.planes.channels, -1)


def _slice(blob: Blob, run: _Run, n_tokens: int, start: int, stop: int) -> Blob:
    rows = _rows(blob, run, n_tokens)
    if run.planes.token_major:
        return rows[start:stop]
    element = run.planes.row_bytes // run.planes.channels
    return rows[:, start * element : stop * element]


def _runs(layout: StateLayout, n_tokens: int) -> list[_Run]:
    return [item for _, item in _walk(layout, n_tokens) if isinstance(item, _Run)]


def zero_masked_rows(blob: Blob, layout: StateLayout, n_tokens: int) -> None:
    """Zero, in place, the rows of windowed sections that no later token can see.

    A row at position p is masked for a query at q when q - p >= window. Rows are kept that the last token
    itself saw, so a context may still be cut by one token.
    """
    for run in _runs(layout, n_tokens):
        window = layout.sections[run.section].window if run.planes.ggml_type != CELLS else 0
        dead = n_tokens - window
        if window and dead > 0:
            _slice(blob, run, n_tokens, 0, dead)[...] = 0


# --- cutting and assembling -----------------------------------------------------------------------


def cuts(start: int, stop: int) -> list[tuple[int, int]]:
    """Position ranges of at most SEGMENT_TOKENS that tile ``start`` to ``stop``."""
    return [(at, min(at + SEGMENT_TOKENS, stop)) for at in range(start, stop, SEGMENT_TOKENS)]


def cut(blob: Blob, layout: StateLayout, n_tokens: int, ranges: list[tuple[int, int]]) -> list[tuple[SegmentRef, Blob]]:
    """A blob as segments: each section by ``ranges`` (which tile 0 to ``n_tokens``), fixed sections whole.

    Inside a segment: keys of each layer, then values of each layer, every piece contiguous.
    """
    places, segments = _Places(layout, n_tokens), []
    for index, section in enumerate(layout.sections):
        for start, stop in ranges if section.kind == "attention" else [(0, n_tokens)]:
            data = places.piece(blob, index, start, stop)
            segments.append((reference(index, start, stop, data, _width(section)), data))
    return segments


def piece_of(state: State, ref: SegmentRef) -> Blob:
    """The bytes of one segment of a state."""
    return _Places(state.layout, len(state.tokens)).piece(state.blob, ref.section, ref.start, ref.stop)


@dataclass(frozen=True)
class Cut:
    """A state with the segments that it has been cut into, which together hold its bytes."""

    state: State
    segments: tuple[SegmentRef, ...]


def cut_after(state: State, ranges: list[tuple[int, int]], before: Cut) -> tuple[list[SegmentRef], dict[str, Blob]]:
    """Like :func:`cut`, for a state that begins with ``before``'s tokens; by digest, the bytes of new segments only.

    A segment of ``before`` is used again where a comparison finds its rows to be the same bytes: they are neither
    copied nor hashed. Under a sliding window not all are, since rows that were visible there are masked here.
    """
    layout, n_tokens = state.layout, len(state.tokens)
    places, others = _Places(layout, n_tokens), _Places(before.state.layout, len(before.state.tokens))
    old = {(ref.section, ref.start, ref.stop): ref for ref in before.segments if before.state.layout == layout}
    refs: list[SegmentRef] = []
    new: dict[str, Blob] = {}
    for index, section in enumerate(layout.sections):
        is_cut = section.kind == "attention"
        for start, stop in ranges if is_cut else [(0, n_tokens)]:
            ref = old.get((index, start, stop)) if is_cut else None
            if ref is not None:
                mine = places.rows(state.blob, index, start, stop)
                theirs = others.rows(before.state.blob, index, start, stop)
                if not all(map(np.array_equal, mine, theirs)):
                    ref = None
            if ref is None:
                data = places.piece(state.blob, index, start, stop)
                ref = reference(index, start, stop, data, _width(section))
                new[ref.sha256] = data
            refs.append(ref)
    return refs, new


class _Places:
    """Offsets in a blob of each section's rows and of the fixed sections, found once for a layout and length."""

    def __init__(self, layout: StateLayout, n_tokens: int) -> None:
        self._layout, self._n_tokens = layout, n_tokens
        self.runs: dict[int, list[_Run]] = {}
        self.fixed: dict[int, int] = {}
        self.structure: list[tuple[int, bytes]] = []
        indices = iter([i for i, section in enumerate(layout.sections) if section.kind != "attention"])
        for offset, item in _walk(layout, n_tokens):
            if isinstance(item, bytes):
                self.structure.append((offset, item))
            elif isinstance(item, _Run):
                self.runs.setdefault(item.section, []).append(item)
            else:
                self.fixed[next(indices)] = offset

    def rows(self, blob: Blob, index: int, start: int, stop: int) -> Iterator[Blob]:
        """Views of the rows of positions ``start`` to ``stop`` of an attention section, layer by layer."""
        return (_slice(blob, run, self._n_tokens, start, stop) for run in self.runs.get(index, ()))

    def piece(self, blob: Blob, index: int, start: int, stop: int) -> Blob:
        """The bytes of one segment: rows of an attention section, or a fixed section whole."""
        if index in self.fixed:
            offset = self.fixed[index]
            return blob[offset : offset + self._layout.sections[index].fixed_bytes].copy()
        return np.concatenate([rows.reshape(-1) for rows in self.rows(blob, index, start, stop)])


def _width(section: Section) -> int:
    """The width by which a segment is split into byte planes."""
    if section.kind == "attention":
        return element_bytes(section)
    return 4 if section.kind == "recurrent" else 1


def reference(index: int, start: int, stop: int, piece: Blob, width: int) -> SegmentRef:
    """The reference of a segment: section ``index``, positions ``start`` to ``stop``, bytes ``piece``."""
    return SegmentRef.model_validate(
        {
            "section": index,
            "start": start,
            "stop": stop,
            "sha256": sha256(piece.data),
            "n_bytes": piece.nbytes,
            "element_bytes": width,
        }
    )


class Assembly:
    """A blob being assembled from segments; ``place`` may be called from several threads at once."""

    def __init__(self, layout: StateLayout, n_tokens: int) -> None:
        self.layout, self.n_tokens = layout, n_tokens
        self.blob: Blob = np.zeros(blob_bytes(layout, n_tokens), np.uint8)
        self._places = _Places(layout, n_tokens)
        for offset, item in self._places.structure:
            self.blob[offset : offset + len(item)] = np.frombuffer(item, np.uint8)

    def place(self, ref: SegmentRef, raw: Blob) -> None:
        """Copy one segment's raw bytes into the blob. Raises InvalidState if it is not of the right size."""
        if ref.section in self._places.fixed:
            offset = self._places.fixed[ref.section]
            if raw.nbytes != self.layout.sections[ref.section].fixed_bytes:
                raise InvalidState(f"a fixed section of {raw.nbytes:,} bytes")
            self.blob[offset : offset + raw.nbytes] = raw
            return
        at = 0
        is_blank = not raw.any()  # as the blob is: most of a long windowed state is not written at all
        for target in self._places.rows(self.blob, ref.section, ref.start, ref.stop):
            size = target.size
            if at + size > raw.nbytes:
                raise InvalidState("a segment that is too short for its positions")
            if not is_blank:
                target[...] = raw[at : at + size].reshape(target.shape)
            at += size
        if at != raw.nbytes:
            raise InvalidState("a segment that is too long for its positions")


def assembled(layout: StateLayout, n_tokens: int, segments: Sequence[tuple[SegmentRef, Blob]]) -> Blob:
    """The blob of all of a state's segments, as :func:`cut` made them."""
    assembly = Assembly(layout, n_tokens)
    for ref, raw in segments:
        assembly.place(ref, raw)
    return assembly.blob
