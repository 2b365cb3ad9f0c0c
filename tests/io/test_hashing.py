"""Digests: canonical, tagged, unambiguous; files cached by identity."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.io.hashing import block_id, canonical_json, file_sha256, sha256, tagged_digest


def test_canonical_json_sorts_keys_and_leaves_no_space() -> None:
    assert canonical_json({"b": [1, 2.0, None], "a": "ß"}) == '{"a":"ß","b":[1,2.0,null]}'.encode()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc"), ("ab", "c")),
        ((None,), ("",)),
        ((1,), ("1",)),
        ((1,), (True,)),
        ((["a"], "b"), (["a", "b"],)),
        ((), (None,)),
        (("a\x00", "b"), ("a", "\x00b")),
    ],
)
def test_parts_that_differ_never_share_a_digest(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    assert tagged_digest("t", *one) != tagged_digest("t", *other)
    assert tagged_digest("t", *one) != tagged_digest("u", *one)


def test_a_tagged_digest_is_what_its_definition_says() -> None:
    assert tagged_digest("t/1", "x", None) == hashlib.sha256(b'["agentkv","t/1","x",null]').hexdigest()


def test_a_block_id_depends_on_each_of_its_parts_and_is_the_same_for_ever() -> None:
    base = block_id("f", None, [1, 2])
    assert base == hashlib.sha256(b'["agentkv","block/1","f",null,[1,2]]').hexdigest()
    assert block_id("f", None, (1, 2)) == base
    others = [
        block_id("g", None, [1, 2]),
        block_id("f", "", [1, 2]),
        block_id("f", None, [12]),
        block_id("f", None, []),
    ]
    assert len({base, *others}) == 5


@given(st.lists(st.integers(0, 2**31 - 1)), st.lists(st.integers(0, 2**31 - 1)))
def test_other_tokens_are_another_block(one: list[int], other: list[int]) -> None:
    assert (block_id("f", None, one) == block_id("f", None, other)) == (one == other)


def test_sha256_takes_any_buffer() -> None:
    assert sha256(b"abc") == sha256(bytearray(b"abc")) == sha256(memoryview(b"abc"))
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    read: list[int] = []
    path.write_bytes(b"abc")
    assert file_sha256(path, read.append) == sha256(b"abc")
    assert file_sha256(path, read.append) == sha256(b"abc")
    assert read == [3]
    path.write_bytes(b"abd")
    os.utime(path, ns=(10**18, 10**18))
    assert file_sha256(path, read.append) == sha256(b"abd")
    assert read == [3, 3]
    with pytest.raises(FileNotFoundError):
        file_sha256(tmp_path / "none")
