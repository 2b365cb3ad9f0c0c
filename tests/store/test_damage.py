"""Flip, cut, append, rename: every manifest and name file is either as committed or refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import CorruptBlock, StoreError
from agentkv.io.hashing import canonical_json
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore
from agentkv.store.format import (
    MANIFEST_MAGIC,
    NAME_MAGIC,
    Limits,
    Malformed,
    decode_manifest,
    encode_manifest,
    seal,
)
from tests.store.blocks import FINGERPRINT, block, named, reference, state


@pytest.fixture(params=["manifest", "name"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[], object], bytes]:
    """A record's file, a read of it by a fresh look, and the file's good bytes."""
    store = BlockStore(tmp_path / "store")
    manifest, segments = block([1, 2, 3])
    store.put(manifest, segments)
    store.set_name(named(manifest, "straße"))
    if request.param == "manifest":
        path = store.root / "manifests" / manifest.block_id[:2] / f"{manifest.block_id}.json"
        return path, lambda: store.manifest(manifest.block_id), path.read_bytes()
    (path,) = (store.root / "names").iterdir()
    return path, lambda: store.name("skill", "straße", FINGERPRINT.id), path.read_bytes()


def test_every_flip_cut_and_extra_byte_is_refused(target: tuple[Path, Callable[[], object], bytes]) -> None:
    path, read, good = target
    assert read() is not None
    bad = [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    bad += [good[:i] for i in range(len(good))] + [good + b"\n", good + good]
    for changed in bad:
        path.unlink()  # a new file: ext4 flushes one that is cut and written again
        path.write_bytes(changed)
        with pytest.raises(CorruptBlock) as caught:
            read()
        assert caught.value.path == path
    path.write_bytes(good)
    assert read() is not None


def test_a_file_under_another_name_is_refused(target: tuple[Path, Callable[[], object], bytes]) -> None:
    path, read, _ = target
    other = "ab" * 32
    moved = (path.parent.parent / "ab" if "manifests" in path.parts else path.parent) / f"{other}.json"
    moved.parent.mkdir(exist_ok=True)
    shutil.copy(path, moved)
    store = BlockStore(path.parents[2] if "manifests" in path.parts else path.parents[1])
    with pytest.raises(StoreError):
        store.files.names.read(other) if path.parent.name == "names" else store.manifest(other)
    assert read() is not None


def resealed(manifest: Manifest, **changes: object) -> bytes:
    """The file with other fields and a right first line: what only the validator can refuse."""
    body = manifest.on_disk()
    body.update(changes)
    return seal(MANIFEST_MAGIC, canonical_json(body))


def changed_refs(manifest: Manifest, index: int, **changes: object) -> list[object]:
    refs: list[Any] = manifest.model_dump(mode="json")["segments"]
    refs[index].update(changes)
    return refs


CHILD = block(list(range(10)))[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "format"),
        ({"extra": 1}, "extra"),
        ({"n_tokens": 2**31}, "more than the limit|tokens"),
        ({"n_tokens": "10"}, "n_tokens"),
        ({"tokens": []}, "no tokens"),
        ({"tokens": [*range(9), -1]}, "tokens"),
        ({"tokens": [*range(9), 11]}, "are those of block"),
        ({"tokens": [*range(9), 9.0]}, "tokens"),
        ({"tokens": list(range(9))}, "9 tokens and no parent"),
        ({"parent_id": "0" * 64}, "after a parent"),
        ({"parent_id": ""}, "parent_id"),
        ({"fingerprint": {"content": {}, "numerics": {}}}, "are those of block"),
        ({"segments": []}, "do not follow"),
        ({"segments": changed_refs(CHILD, 1, start=3)}, "at position 4"),
        ({"segments": changed_refs(CHILD, 1, start=5)}, "at position 4"),
        ({"segments": changed_refs(CHILD, 2, stop=9)}, "covers 9 of 10"),
        ({"segments": changed_refs(CHILD, 2, stop=11)}, "covers 11 of 10"),
        ({"segments": changed_refs(CHILD, 1, stop=4)}, "at position 4"),
        ({"segments": changed_refs(CHILD, 1, section=1)}, "do not follow"),
        ({"segments": changed_refs(CHILD, 2, section=7)}, "do not follow"),
        ({"segments": changed_refs(CHILD, 1, sha256=CHILD.segments[0].sha256, n_bytes=1)}, "two sizes"),
        ({"segments": changed_refs(CHILD, 0, n_bytes=2**50)}, "bytes of state"),
        ({"segments": changed_refs(CHILD, 0, n_bytes=-1)}, "n_bytes"),
        ({"segments": changed_refs(CHILD, 0, element_bytes=3)}, "element_bytes"),
        ({"segments": changed_refs(CHILD, 0, sha256="../../../../etc/passwd")}, "sha256"),
        ({"segments": changed_refs(CHILD, 0, sha256="A" * 64)}, "sha256"),
    ],
)
def test_the_validator_refuses(changes: dict[str, object], reason: str) -> None:
    data = resealed(CHILD, **changes)
    with pytest.raises(Malformed, match=reason):
        decode_manifest(data, CHILD.block_id, Limits())


@pytest.mark.parametrize(
    "respell",
    [
        lambda body: body.replace(b":", b": ", 1),
        lambda body: body + b"\n",
        lambda body: body.replace(b'"format":1', b'"format":1,"format":1'),
        lambda body: body.replace(b'"test"', rb'"\u0074est"'),
        lambda body: b"\xef\xbb\xbf" + body,
        lambda body: body[:-1] + b',"zz":1}',
    ],
)
def test_json_that_is_not_canonical_is_refused(respell: Callable[[bytes], bytes]) -> None:
    body = canonical_json(CHILD.model_dump(mode="json"))
    assert respell(body) != body
    with pytest.raises(Malformed):
        decode_manifest(seal(MANIFEST_MAGIC, respell(body)), CHILD.block_id, Limits())
    with pytest.raises(Malformed):
        decode_manifest(seal(NAME_MAGIC, body), CHILD.block_id, Limits())


def test_deep_nesting_and_pickles_are_malformed_not_crashes() -> None:
    for body in (b"[" * 100_000, b"\x80\x04N.", b"null", b"", b"1" * 10_000, b'{"tokens":' * 5000):
        with pytest.raises(Malformed):
            decode_manifest(seal(MANIFEST_MAGIC, body), CHILD.block_id, Limits())


def test_a_fixed_section_is_one_piece_of_its_size() -> None:
    data = state(1, 64)
    layout = CHILD.layout.model_dump()
    fixed = {**layout["sections"][0], "kind": "recurrent", "fixed_bytes": 64}
    both = {**layout, "sections": [layout["sections"][0], fixed]}
    refs = CHILD.model_dump(mode="json")["segments"]

    def manifest(pieces: list[dict[str, Any]]) -> bytes:
        return resealed(CHILD, layout=both, segments=[*refs, *pieces])

    whole = reference(data, 0, 10, section=1).model_dump(mode="json")
    decoded = decode_manifest(manifest([whole]), CHILD.block_id, Limits())
    assert encode_manifest(decoded, Limits()) == manifest([whole])
    for pieces in (
        [],
        [{**whole, "n_bytes": 63}],
        [{**whole, "stop": 9}],
        [{**whole, "start": 1}],
        [{**whole, "stop": 5}, {**whole, "start": 5}],
    ):
        with pytest.raises(Malformed):
            decode_manifest(manifest(pieces), CHILD.block_id, Limits())
