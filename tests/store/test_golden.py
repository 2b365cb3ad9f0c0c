"""Literal bytes of format 1: what was written once must be read, and written alike, for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.hashing import sha256
from agentkv.records import (
    Exactness,
    Fingerprint,
    Manifest,
    NamedBlock,
    Planes,
    Probe,
    Section,
    SegmentRef,
    StateLayout,
)
from agentkv.store.catalog import BlockStore
from agentkv.store.format import (
    Limits,
    decode_manifest,
    decode_name,
    encode_manifest,
    encode_marker,
    encode_name,
)
from agentkv.store.segments import FileSegmentStore

GOLDEN_MARKER = b'{"format":1}\n'

RAW = bytes.fromhex("003c00400042004400450046")  # 1.0, 2.0, 3.0, 4.0, 5.0, 6.0 in half precision
RAW_DIGEST = "998aaf9742cf3f3881d8d90dff05f1c1b931c8fc501647bb1badea090ee55177"
GOLDEN_RAW = bytes.fromhex(
    "414b565345470d0a01000002000000000c000000000000000c00000000000000998aaf9742cf3f3881d8d90dff05f1c1"
    "b931c8fc501647bb1badea090ee55177003c0040004200440045004671378536986da7bd0b89e0e1dc8fab23add91d86"
    "57e73a65eccc5102ca15647b"
)

ZEROS = bytes(64) + bytes.fromhex("003c") * 32
ZEROS_DIGEST = "129d3847051aca1c12547e907c0c30c438bb7736a57dc5ce86f42a71722a614a"
GOLDEN_PLANES = bytes.fromhex(
    "414b565345470d0a010002020000000080000000000000001600000000000000129d3847051aca1c12547e907c0c30c4"
    "38bb7736a57dc5ce86f42a71722a614a28b52ffd20806d00002000003c0003100094a4b9221693ecea428c42e7696d11"
    "3fa25510a59b7eca5b786c9d8020c2441f358215bca9"
)

BLOCK_ID = "082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e"
GOLDEN_MANIFEST = (
    b'agentkv-manifest 1 e9ee66fb42877db77678588d6e9cb02c087ecd6f5d2978fb94e9c481c3d01e71\n{"bloc'
    b'k_id":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","exactness":"exac'
    b't","fingerprint":{"content":{"lora":["a","b"],"model":"smol","none":null,"rope":10000.0,"s'
    b'wa":false},"numerics":{"build":8123}},"format":1,"layout":{"architecture":"llama","section'
    b's":[{"fixed_bytes":0,"keys":[{"channels":1,"ggml_type":1,"row_bytes":4,"token_major":true}'
    b'],"kind":"attention","v_trans":false,"values":[],"window":0}]},"n_tokens":3,"parent_id":nu'
    b'll,"probe":{"sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","s'
    b'teps":32,"token":7},"segments":[{"element_bytes":2,"n_bytes":12,"section":0,"sha256":"998a'
    b'af9742cf3f3881d8d90dff05f1c1b931c8fc501647bb1badea090ee55177","start":0,"stop":3}],"state_'
    b'sha256":"998aaf9742cf3f3881d8d90dff05f1c1b931c8fc501647bb1badea090ee55177","tokens":[1,2,3'
    b"]}"
)

NAME_KEY = "1148a536194ccaac97f086a2890997b22f283d83eea1f163da9e4fa80fb794a1"
GOLDEN_NAME = (
    b'agentkv-name 1 c35ce6949d4b9198ce712fa888dbf970020484172132fde82b60ad5c85a2c0d8\n{"block_id'
    b'":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","description":"Says \\'
    b'"hi\\".","fingerprint_id":"248d2ab7b7aeeeef2ac1f55d35d5d6d05a02d53e30364dcf52210157e1bfd212'
    b'","format":1,"kind":"skill","name":"stra\xc3\x9fe","source":"","source_sha256":null}'
)

MANIFEST = Manifest(
    block_id=BLOCK_ID,
    parent_id=None,
    fingerprint=Fingerprint(
        content={"model": "smol", "rope": 10000.0, "swa": False, "lora": ["a", "b"], "none": None},
        numerics={"build": 8123},
    ),
    tokens=(1, 2, 3),
    n_tokens=3,
    layout=StateLayout(
        architecture="llama",
        sections=(
            Section(
                kind="attention",
                keys=(Planes(ggml_type=1, token_major=True, row_bytes=4),),
            ),
        ),
    ),
    segments=(SegmentRef(section=0, start=0, stop=3, sha256=RAW_DIGEST, n_bytes=12, element_bytes=2),),
    state_sha256=RAW_DIGEST,
    exactness=Exactness.EXACT,
    probe=Probe(steps=32, token=7, sha256="cd" * 32),
)
NAMED = NamedBlock(
    kind="skill",
    name="straße",
    fingerprint_id=MANIFEST.fingerprint.id,
    block_id=BLOCK_ID,
    description='Says "hi".',
)


def test_the_marker() -> None:
    assert encode_marker() == GOLDEN_MARKER


def test_a_raw_segment_is_written_and_read_as_ever(tmp_path: Path) -> None:
    assert sha256(RAW) == RAW_DIGEST
    store = FileSegmentStore(tmp_path / "segments", codec="raw")
    ref = MANIFEST.segments[0]
    store.put(ref, RAW)
    path = tmp_path / "segments" / RAW_DIGEST[:2] / f"{RAW_DIGEST}.seg"
    assert path.read_bytes() == GOLDEN_RAW
    path.write_bytes(GOLDEN_RAW)
    found = store.get(ref, deep=True)
    assert found is not None
    assert found.tobytes() == RAW


@pytest.mark.parametrize("codec", ["planes", "zstd", "raw"])
def test_a_segment_in_planes_is_read_as_ever(tmp_path: Path, codec: str) -> None:
    # Not compared on writing: another zstd may compress otherwise, and must still be read.
    assert sha256(ZEROS) == ZEROS_DIGEST
    store = FileSegmentStore(tmp_path / "segments", codec=codec)
    path = tmp_path / "segments" / ZEROS_DIGEST[:2] / f"{ZEROS_DIGEST}.seg"
    path.parent.mkdir(parents=True)
    path.write_bytes(GOLDEN_PLANES)
    ref = SegmentRef(section=0, start=0, stop=3, sha256=ZEROS_DIGEST, n_bytes=128, element_bytes=2)
    found = store.get(ref, deep=True)
    assert found is not None
    assert found.tobytes() == ZEROS


def test_a_manifest_and_a_name_are_written_and_read_as_ever() -> None:
    assert encode_manifest(MANIFEST, Limits()) == GOLDEN_MANIFEST
    assert decode_manifest(GOLDEN_MANIFEST, BLOCK_ID, Limits()) == MANIFEST
    assert encode_name(NAMED, Limits()) == GOLDEN_NAME
    assert decode_name(GOLDEN_NAME, NAME_KEY, Limits()) == NAMED


def test_a_whole_golden_store_opens(tmp_path: Path) -> None:
    for path, data in {
        "agentkv-store.json": GOLDEN_MARKER,
        f"segments/{RAW_DIGEST[:2]}/{RAW_DIGEST}.seg": GOLDEN_RAW,
        f"manifests/{BLOCK_ID[:2]}/{BLOCK_ID}.json": GOLDEN_MANIFEST,
        f"names/{NAME_KEY}.json": GOLDEN_NAME,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    with BlockStore(tmp_path, create=False) as store:
        assert store.verify(BLOCK_ID) == MANIFEST
        assert store.names() == [NAMED]
