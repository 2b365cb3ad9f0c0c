from __future__ import annotations

import numpy as np
import pytest

from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.engine.fake import LAYOUT, FakeEngine
from agentkv.errors import InvalidState
from agentkv.records import SegmentRef


def blob_of(n: int) -> np.ndarray:
    engine = FakeEngine()
    engine.extend([i % 250 for i in range(n)])
    return engine.capture().blob


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 255, 256, 257, 700])
def test_parse_finds_the_layout_and_cut_and_assembly_are_inverse(n: int) -> None:
    blob = blob_of(n)
    assert blobs.parse(blob, n, 64) == LAYOUT
    assembly = blobs.Assembly(LAYOUT, n)
    assembly.blob[:] = 0xEE
    assembly = blobs.Assembly(LAYOUT, n)
    for ref, raw in reversed(blobs.cut(blob, LAYOUT, n, blobs.cuts(0, n))):
        assembly.place(ref, raw)
    assert np.array_equal(assembly.blob, blob)


def state_of(n: int) -> State:
    engine = FakeEngine()
    engine.extend([i % 250 for i in range(n)])
    return engine.capture()


@pytest.mark.parametrize(("before", "n"), [(1, 2), (40, 60), (40, 300), (63, 64), (256, 257), (300, 700)])
def test_a_state_that_extends_a_known_one_is_cut_as_it_would_be_alone(before: int, n: int) -> None:
    old, new = state_of(before), state_of(n)
    known = blobs.Cut(old, tuple(ref for ref, _ in blobs.cut(old.blob, LAYOUT, before, blobs.cuts(0, before))))
    ranges = blobs.cuts(0, before) + blobs.cuts(before, n)
    alone = blobs.cut(new.blob, LAYOUT, n, ranges)
    refs, made = blobs.cut_after(new, ranges, known)
    assert refs == [ref for ref, _ in alone]
    for ref, data in alone:
        assert np.array_equal(blobs.piece_of(new, ref), data)
        assert ref.sha256 not in made or np.array_equal(made[ref.sha256], data)
    taken = {ref.sha256 for ref in refs} - set(made)
    assert taken  # rows that no window masks are the same
    assert taken <= {ref.sha256 for ref in known.segments}


def test_a_segment_whose_rows_differ_is_not_taken_over() -> None:
    old, new = state_of(300), state_of(400)
    known = blobs.Cut(old, tuple(ref for ref, _ in blobs.cut(old.blob, LAYOUT, 300, blobs.cuts(0, 300))))
    ranges = blobs.cuts(0, 300) + blobs.cuts(300, 400)
    run = blobs._runs(LAYOUT, 400)[0]
    blobs._slice(new.blob, run, 400, 299, 300)[...] ^= 1
    refs, made = blobs.cut_after(new, ranges, known)
    assert refs == [ref for ref, _ in blobs.cut(new.blob, LAYOUT, 400, ranges)]
    assert (run.section, 0, 256) in {(ref.section, ref.start, ref.stop) for ref in refs if ref.sha256 not in made}
    assert (run.section, 256, 300) in {(ref.section, ref.start, ref.stop) for ref in refs if ref.sha256 in made}


def test_every_structure_byte_is_checked() -> None:
    n = 3
    blob = blob_of(n)
    rows = np.ones(len(blob), bool)
    at = 4 + len(LAYOUT.architecture)
    for section in LAYOUT.sections:
        head = 8 + 16 * n + 8
        rows[at : at + head] = False
        at += head
        for planes in (*section.keys, *section.values):
            rows[at : at + 12] = False
            at += 12 + planes.row_bytes * n
    rows[: 4 + len(LAYOUT.architecture)] = False
    assert at == len(blob)
    for offset in np.flatnonzero(~rows):
        for bit in (1, 128):
            bad = blob.copy()
            bad[offset] ^= bit
            with pytest.raises(InvalidState):
                blobs.check(bad, LAYOUT, n)
    for offset in np.flatnonzero(rows)[:5]:
        good = blob.copy()
        good[offset] ^= 1
        blobs.check(good, LAYOUT, n)


def test_every_truncation_is_refused() -> None:
    blob = blob_of(5)
    for size in range(len(blob)):
        with pytest.raises(InvalidState):
            blobs.check(blob[:size], LAYOUT, 5)


def test_zeroing_keeps_what_the_window_sees_and_one_more() -> None:
    n, window = 100, LAYOUT.sections[1].window
    engine = FakeEngine()
    engine.extend([i % 250 for i in range(n)])
    blob = engine.capture().blob
    for ref, raw in blobs.cut(blob, LAYOUT, n, [(i, i + 1) for i in range(n)]):
        masked = ref.section == 1 and ref.start < n - window
        assert raw.any() != masked, ref


def test_a_segment_of_the_wrong_size_is_refused() -> None:
    (ref, raw), *_ = blobs.cut(blob_of(10), LAYOUT, 10, [(0, 10)])
    assembly = blobs.Assembly(LAYOUT, 10)
    for bad in (raw[:-1], np.append(raw, np.uint8(1))):
        with pytest.raises(InvalidState):
            assembly.place(ref, bad)


def test_cuts_tile_the_range() -> None:
    assert blobs.cuts(0, 600) == [(0, 256), (256, 512), (512, 600)]
    assert blobs.cuts(300, 301) == [(300, 301)]
    assert blobs.cuts(5, 5) == []


def test_a_recurrent_section_is_one_piece() -> None:
    import struct

    head = struct.pack("<I4s", 4, b"toy!")
    cell = struct.pack("<IiI2i", 1, 6, 2, 0, 1)
    layers = struct.pack("<II", 0, 1) + struct.pack("<iQ", 0, 8) + b"r" * 8 + struct.pack("<iQ", 0, 4) + b"s" * 4
    blob = np.frombuffer(head + cell + layers, np.uint8)
    layout = blobs.parse(blob, 7, 0)
    assert [section.kind for section in layout.sections] == ["recurrent"]
    ((ref, raw),) = blobs.cut(blob, layout, 7, blobs.cuts(0, 7))
    assert (ref.start, ref.stop, ref.element_bytes) == (0, 7, 4)
    assembly = blobs.Assembly(layout, 7)
    assembly.place(ref, raw)
    assert np.array_equal(assembly.blob, blob)
    with pytest.raises(InvalidState):
        blobs.check(blob, layout, 8)


def test_what_cannot_be_parsed_is_opaque() -> None:
    blob = np.frombuffer(b"\x03\0\0\0abc" + bytes(range(1, 60)), np.uint8)
    layout = blobs.parse(blob, 2, 0)
    assert [(s.kind, s.fixed_bytes) for s in layout.sections] == [("opaque", 59)]


def test_references_are_of_the_raw_bytes() -> None:
    import hashlib

    for ref, raw in blobs.cut(blob_of(300), LAYOUT, 300, blobs.cuts(0, 300)):
        assert isinstance(ref, SegmentRef)
        assert ref.sha256 == hashlib.sha256(raw.tobytes()).hexdigest()
        assert ref.n_bytes == raw.nbytes
