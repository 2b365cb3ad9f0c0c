"""Byte planes against a spelled-out version of themselves."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv.store.codec import decode, encode, merge_planes, split_planes
from agentkv.store.format import Codec, Malformed
from tests.store.blocks import state


def test_planes_put_the_highest_byte_of_each_element_first() -> None:
    two = np.array([0x1122, 0x3344, 0x5566], "<u2").view(np.uint8)
    assert split_planes(two, 2).tobytes().hex() == "113355" + "224466"
    four = np.array([0x11223344, 0x55667788], "<u4").view(np.uint8)
    assert split_planes(four, 4).tobytes().hex() == "1155" + "2266" + "3377" + "4488"


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("count", [0, 1, 7, 4096])
def test_merging_undoes_splitting(width: int, count: int) -> None:
    raw = np.frombuffer(np.random.default_rng(count).bytes(width * count), np.uint8)
    for offset in (0, 1):  # where in memory makes no difference
        out = np.zeros(raw.size + offset, np.uint8)[offset:]
        merge_planes(split_planes(raw, width), width, out)
        assert out.tobytes() == raw.tobytes()
        shifted = np.concatenate([np.zeros(offset, np.uint8), raw])[offset:]
        assert split_planes(shifted, width).tobytes() == split_planes(raw, width).tobytes()


def test_planes_compress_half_precision_numbers_better_than_zstd_alone() -> None:
    raw = np.frombuffer(state(0, 1 << 20), np.uint8)
    planes = encode(raw, 2, Codec.PLANES, 1)
    plain = encode(raw, 2, Codec.ZSTD, 1)
    assert planes[0] is Codec.PLANES
    assert len(planes[1]) < 0.95 * memoryview(plain[1]).nbytes


@pytest.mark.parametrize(("width", "size"), [(1, 4096), (2, 4095), (4, 4098)])
def test_what_has_no_whole_elements_is_not_split(width: int, size: int) -> None:
    codec, payload = encode(np.ones(size, np.uint8), width, Codec.PLANES, 1)
    assert codec is Codec.ZSTD
    out = np.zeros(size, np.uint8)
    decode(np.frombuffer(payload, np.uint8), codec, width, out)
    assert out.all()


@pytest.mark.parametrize("asked", [Codec.RAW, Codec.ZSTD, Codec.PLANES])
def test_zeros_are_no_payload(asked: Codec) -> None:
    codec, payload = encode(np.zeros(4096, np.uint8), 2, asked, 1)
    assert (codec, memoryview(payload).nbytes) == (Codec.ZEROS, 0)
    out = np.ones(4096, np.uint8)
    decode(np.empty(0, np.uint8), Codec.ZEROS, 2, out)
    assert not out.any()
    with pytest.raises(Malformed):
        decode(np.zeros(1, np.uint8), Codec.ZEROS, 2, out)
    one = np.zeros(4096, np.uint8)
    one[-1] = 1
    assert encode(one, 2, asked, 1)[0] is asked
    assert encode(one[:0], 2, asked, 1)[0] is Codec.RAW


def test_a_large_segment_does_not_stay_in_scratch() -> None:
    raw = np.zeros(40 << 20, np.uint8)
    raw[0] = 1
    codec, payload = encode(raw, 2, Codec.PLANES, 1)
    out = np.ones(raw.size, np.uint8)
    decode(np.frombuffer(payload, np.uint8), codec, 2, out)
    assert np.array_equal(out, raw)


def test_raw_of_another_length_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(np.zeros(3, np.uint8), Codec.RAW, 1, np.zeros(4, np.uint8))
