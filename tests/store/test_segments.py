"""The contract of ``SegmentStore``, run by every implementation, and what only files can get wrong."""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard

from agentkv.errors import CorruptBlock, StoreError, StoreReadError, UsageError
from agentkv.io.hashing import sha256
from agentkv.records import SegmentRef
from agentkv.store import segments
from agentkv.store.codec import Bytes
from agentkv.store.format import HEADER_BYTES, Codec, SegmentHeader
from agentkv.store.segments import Data, FileSegmentStore, SegmentStore, as_bytes
from tests.store.blocks import reference, state, temporaries


class MemorySegmentStore:
    """The smallest implementation: shows that the protocol needs no files."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def has(self, sha256: str) -> bool:
        return sha256 in self._held

    def check(self, ref: SegmentRef, *, deep: bool = False) -> bool:
        return self.get(ref, deep=deep) is not None

    def put(self, ref: SegmentRef, data: Data) -> bool:
        raw = as_bytes(data).tobytes()
        if sha256(raw) != ref.sha256 or len(raw) != ref.n_bytes:
            raise UsageError("other bytes")
        new = ref.sha256 not in self._held
        self._held[ref.sha256] = raw
        return new

    def get(self, ref: SegmentRef, *, deep: bool = False) -> Bytes | None:
        held = self._held.get(ref.sha256)
        if held is None:
            return None
        if len(held) != ref.n_bytes:
            raise CorruptBlock("segment", None, "another length")
        return as_bytes(held).copy()

    def flush(self, digests: Iterable[str]) -> None:
        list(digests)

    def stored_bytes(self, sha256: str) -> int | None:
        return len(self._held[sha256]) if sha256 in self._held else None

    def remove(self, sha256: str) -> bool:
        return self._held.pop(sha256, None) is not None

    def all(self) -> Iterator[tuple[str, int]]:
        yield from sorted((digest, len(held)) for digest, held in self._held.items())

    def sweep(self, keep: Collection[str], min_age_s: float, *, dry_run: bool = False) -> tuple[int, int]:
        gone = {digest: len(held) for digest, held in self._held.items() if digest not in keep}
        for digest in () if dry_run else gone:
            del self._held[digest]
        return len(gone), sum(gone.values())

    def where(self, sha256: str) -> str:
        return f"memory:{sha256}"


class SegmentStoreContract:
    """What every ``SegmentStore`` does. Subclasses give ``store``."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> SegmentStore:
        raise NotImplementedError

    @pytest.mark.parametrize("n_bytes", [0, 1, 2, 3, 255, 256, 65_536, 300_000])
    @pytest.mark.parametrize("width", [1, 2, 4])
    def test_gives_back_what_was_put(self, store: SegmentStore, n_bytes: int, width: int) -> None:
        data = state(n_bytes, n_bytes)
        ref = reference(data, width=width)
        assert store.put(ref, data) is True
        store.flush([ref.sha256])
        found = store.get(ref, deep=True)
        assert found is not None
        assert found.dtype == np.uint8
        assert found.shape == (n_bytes,)
        assert found.tobytes() == data

    def test_all_are_told_with_their_sizes_and_swept(self, store: SegmentStore) -> None:
        pieces = [state(seed) for seed in range(5)]
        for data in pieces:
            store.put(reference(data), data)
        digests = sorted(sha256(data) for data in pieces)
        assert [digest for digest, _ in store.all()] == digests
        assert all(size == store.stored_bytes(digest) for digest, size in store.all())
        planned = store.sweep(digests[:2], 0.0, dry_run=True)
        assert [digest for digest, _ in store.all()] == digests
        assert store.sweep(digests[:2], 0.0) == planned
        assert planned[0] == 3
        assert [digest for digest, _ in store.all()] == digests[:2]

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda d: np.frombuffer(d, "<f2")])
    def test_takes_any_contiguous_buffer(self, store: SegmentStore, kind: type) -> None:
        data = state(1)
        store.put(reference(data), kind(data))
        found = store.get(reference(data))
        assert found is not None
        assert found.tobytes() == data

    def test_a_miss_is_a_value(self, store: SegmentStore) -> None:
        ref = reference(state(1))
        assert store.has(ref.sha256) is False
        assert store.check(ref) is False
        assert store.get(ref) is None
        assert store.stored_bytes(ref.sha256) is None
        assert store.remove(ref.sha256) is False

    def test_put_again_is_not_new(self, store: SegmentStore) -> None:
        data = state(1)
        assert [store.put(reference(data), data) for _ in range(2)] == [True, False]
        assert store.has(sha256(data))
        assert store.check(reference(data), deep=True)

    def test_refuses_other_bytes_than_named(self, store: SegmentStore) -> None:
        ref = reference(state(1))
        with pytest.raises(UsageError):
            store.put(ref, state(2))
        with pytest.raises(UsageError):
            store.put(ref.model_copy(update={"n_bytes": 12}), state(1))
        assert not store.has(ref.sha256)

    def test_refuses_a_reference_of_another_length(self, store: SegmentStore) -> None:
        data = state(1)
        store.put(reference(data), data)
        with pytest.raises(CorruptBlock):
            store.get(reference(data).model_copy(update={"n_bytes": 255}))

    def test_blocks_of_other_widths_share_equal_bytes(self, store: SegmentStore) -> None:
        zeros = bytes(4096)
        for width in (1, 2, 4):
            store.put(reference(zeros, width=width), zeros)
            for other in (1, 2, 4):
                assert store.check(reference(zeros, width=other), deep=True)

    def test_remove_and_sweep(self, store: SegmentStore) -> None:
        datas = [state(seed) for seed in range(4)]
        for data in datas:
            store.put(reference(data), data)
        assert store.remove(sha256(datas[0])) is True
        count, freed = store.sweep({sha256(datas[1])}, 0.0)
        assert (count, freed > 0) == (2, True)
        assert [store.has(sha256(data)) for data in datas] == [False, True, False, False]

    def test_many_threads(self, store: SegmentStore) -> None:
        datas, failures = [state(seed, 4096) for seed in range(8)], []

        def work(offset: int) -> None:
            for index in range(24):
                data = datas[(index + offset) % 8]
                store.put(reference(data), data)
                found = store.get(reference(data))
                if found is None or found.tobytes() != data:
                    failures.append(index)

        threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


class TestMemory(SegmentStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SegmentStore:
        return MemorySegmentStore()


class TestFiles(SegmentStoreContract):
    @pytest.fixture(params=["planes", "zstd", "raw"])
    def store(self, tmp_path: Path, request: pytest.FixtureRequest) -> SegmentStore:
        return FileSegmentStore(tmp_path / "segments", codec=request.param)

    def test_leaves_no_temporary_file(self, store: FileSegmentStore) -> None:
        store.put(reference(state(1)), state(1))
        assert temporaries(store.root) == []


@pytest.fixture
def files(tmp_path: Path) -> FileSegmentStore:
    return FileSegmentStore(tmp_path / "segments", verify="always")


@pytest.mark.parametrize("options", [{"codec": "gzip"}, {"level": 0}, {"level": 20}, {"verify": "never"}])
def test_refuses_unknown_settings(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        FileSegmentStore(tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", ["planes", "zstd", "raw"])
def test_every_flipped_bit_every_cut_and_an_extra_byte_are_refused(tmp_path: Path, codec: str) -> None:
    store = FileSegmentStore(tmp_path / "segments", codec=codec, verify="always")
    data = bytes(120) + state(3, 40)
    ref = reference(data)
    store.put(ref, data)
    path = store.path(ref.sha256)
    good = path.read_bytes()
    bad = [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    bad += [good[:i] for i in range(len(good))] + [good + b"\x00", good + good]
    for changed in bad:
        path.unlink()  # a new file: ext4 flushes one that is cut and written again
        path.write_bytes(changed)
        for call in (store.get, store.check):
            with pytest.raises(CorruptBlock) as caught:
                call(ref)
            assert caught.value.path == path
    assert store.put(ref, data) is False
    assert store.check(ref, deep=True)


def test_same_size_damage_after_a_check_is_seen_once_settled(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path / "segments")
    data = state(1)
    store.put(reference(data), data)
    path = store.path(sha256(data))
    os.utime(path, ns=(10**18, 10**18))
    assert store.check(reference(data))
    changed = bytearray(path.read_bytes())
    changed[80] ^= 1
    path.write_bytes(changed)
    with pytest.raises(CorruptBlock):
        store.get(reference(data))


def test_damage_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path / "segments", codec="raw")
    data = state(1)
    store.put(reference(data), data)
    path = store.path(sha256(data))
    soon = time.time_ns() + 10**10
    os.utime(path, ns=(soon, soon))
    assert store.check(reference(data))
    changed = bytearray(path.read_bytes())
    changed[80] ^= 1
    path.write_bytes(changed)
    os.utime(path, ns=(soon, soon))
    with pytest.raises(CorruptBlock):
        store.get(reference(data))


class CountingHashlib:
    """``hashlib`` that counts how often a digest is started."""

    def __init__(self) -> None:
        self.started = 0

    def sha256(self, data: bytes) -> object:
        self.started += 1
        return hashlib.sha256(data)


@pytest.mark.parametrize(("verify", "expected"), [("once", 1), ("always", 3)])
def test_once_hashes_once_and_always_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: str, expected: int
) -> None:
    data = state(9, 4096)
    store = FileSegmentStore(tmp_path / verify, verify=verify)
    store.put(reference(data), data)
    os.utime(store.path(sha256(data)), ns=(10**18, 10**18))
    counting = CountingHashlib()
    monkeypatch.setattr(segments, "hashlib", counting)
    for _ in range(3):
        assert store.check(reference(data))
    assert counting.started == expected


FRAME = bytes.fromhex("28b52ffd20073900007b2276223a317d")  # one zstd frame of the 7 bytes {"v":1}


def plant(store: FileSegmentStore, payload: bytes, ref: SegmentRef, codec: Codec = Codec.ZSTD) -> None:
    """A file with a right header and trailer around ``payload``: what only the frame checks can refuse."""
    header = SegmentHeader(codec, 1, ref.n_bytes, len(payload), ref.sha256).pack()
    path = store.path(ref.sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + payload + bytes.fromhex(sha256(header + payload)))


def random_frame() -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(np.random.default_rng(0).bytes(400_000))


def unknown_size(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


@pytest.mark.parametrize(
    ("payload", "raw"),
    [
        (FRAME * 2, b'{"v":1}' * 9),
        (FRAME * 2, b'{"v":1}'),
        (FRAME * 2 + b"\x58\x5a", b'{"v":1}' * 9),
        (random_frame()[:200_000], np.random.default_rng(0).bytes(400_000)),
        (b"", b'{"v":1}'),
        (bytes(16), b'{"v":1}' * 9),
        (unknown_size(bytes(100)), bytes(100)),
        (zstandard.ZstdCompressor().compress(bytes(100)) + b"\x00", bytes(100)),
        (zstandard.ZstdCompressor().compress(bytes(99)), bytes(100)),
        (b"\x50\x2a\x4d\x18" + struct.pack("<I", 8) + bytes(8), bytes(100)),
        (zstandard.ZstdCompressor(write_checksum=True).compress(bytes(100))[:-1], bytes(100)),
    ],
    ids=[
        "two frames", "two frames, first expected", "trailing XZ", "half a frame", "empty", "16 zero bytes",
        "no content size", "one byte more", "another content size", "skippable frame", "checksum cut",
    ],
)  # fmt: skip
def test_b12_only_exactly_one_whole_frame_is_decoded(files: FileSegmentStore, payload: bytes, raw: bytes) -> None:
    ref = reference(raw)
    plant(files, payload, ref)
    with pytest.raises(CorruptBlock):
        files.get(ref)


def test_a_frame_with_a_right_checksum_is_read_and_one_with_a_wrong_one_is_not(
    files: FileSegmentStore,
) -> None:
    raw = bytes(5000)
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(raw)
    plant(files, frame, reference(raw))
    assert files.check(reference(raw), deep=True)
    plant(files, frame[:-1] + bytes([frame[-1] ^ 1]), reference(raw))
    with pytest.raises(CorruptBlock):
        files.get(reference(raw))


def test_b13_a_bomb_is_refused_before_anything_of_its_size_is_allocated(
    files: FileSegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(256 << 20))
    assert len(bomb) < 10_000
    ref = SegmentRef(section=0, start=0, stop=1, sha256="ab" * 32, n_bytes=len(bomb) + 1, element_bytes=1)
    plant(files, bomb, ref)
    asked = []
    real = np.empty

    def empty(shape: int, dtype: type) -> object:
        asked.append(shape)
        return real(shape, dtype)

    monkeypatch.setattr("numpy.empty", empty)
    with pytest.raises(CorruptBlock, match="268,435,456"):
        files.get(ref)
    assert max(asked) <= len(bomb) + 1


def test_a_wrong_raw_digest_is_found_by_deep(files: FileSegmentStore) -> None:
    raw = bytes(200)
    ref = reference(bytes(199) + b"\x01")
    plant(files, zstandard.ZstdCompressor().compress(raw), ref)
    assert files.check(ref)
    with pytest.raises(CorruptBlock, match="another SHA-256"):
        files.check(ref, deep=True)


@pytest.mark.parametrize("level", ["file", "shard", "folder"])
def test_b14_links_are_neither_read_nor_written_through(tmp_path: Path, level: str) -> None:
    outside = FileSegmentStore(tmp_path / "outside")
    data = state(1)
    outside.put(reference(data), data)
    before = outside.path(sha256(data)).read_bytes()
    store = FileSegmentStore(tmp_path / "store" / "segments")
    link, target = {
        "file": (store.path(sha256(data)), outside.path(sha256(data))),
        "shard": (store.path(sha256(data)).parent, outside.path(sha256(data)).parent),
        "folder": (store.root, outside.root),
    }[level]
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    for call in (store.get, store.check, lambda ref: store.put(ref, data), lambda ref: store.has(ref.sha256)):
        with pytest.raises(StoreReadError):
            call(reference(data))
    assert outside.path(sha256(data)).read_bytes() == before
    assert len(list((tmp_path / "outside").rglob("*"))) == 2


@pytest.mark.parametrize("kind", ["fifo", "directory", "dangling"])
def test_b14_other_kinds_of_files_are_refused_at_once(files: FileSegmentStore, kind: str) -> None:
    path = files.path(sha256(state(1)))
    path.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path.parent / "nowhere")
    with pytest.raises(StoreError):
        files.get(reference(state(1)))
    with pytest.raises(StoreError):
        files.put(reference(state(1)), state(1))
    assert list(path.parent.glob("*.tmp")) == []


def test_sweep_leaves_what_is_young_and_what_is_foreign(files: FileSegmentStore) -> None:
    data = state(1)
    files.put(reference(data), data)
    shard = files.path(sha256(data)).parent
    (shard / "note.txt").write_text("mine")
    assert files.sweep(set(), 3600.0) == (0, 0)
    planned = files.sweep(set(), 0.0, dry_run=True)
    assert files.sweep(set(), 0.0) == planned
    assert planned[0] == 1
    assert [path.name for path in shard.iterdir()] == ["note.txt"]


def test_incompressible_bytes_are_stored_raw(files: FileSegmentStore) -> None:
    data = np.random.default_rng(1).bytes(5000)
    files.put(reference(data), data)
    stored = files.path(sha256(data)).read_bytes()
    assert stored[HEADER_BYTES:-32] == data
    assert stored[10] == Codec.RAW


CLAIMED = 128 << 30


@pytest.mark.parametrize("codec", [Codec.ZEROS, Codec.ZSTD, Codec.PLANES])
@pytest.mark.parametrize("free", [None, 1 << 30])
def test_a_segment_that_claims_128_gib_is_corrupt_and_nothing_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec, free: int | None
) -> None:
    monkeypatch.setattr("agentkv.store.segments.available_memory", lambda: free)
    payload = b"" if codec is Codec.ZEROS else bytes(1000)
    head = SegmentHeader(codec, 2, CLAIMED, len(payload), "ab" * 32).pack()
    store = FileSegmentStore(tmp_path / "segments")
    path = store.path("ab" * 32)
    path.parent.mkdir(parents=True)
    path.write_bytes(head + payload + hashlib.sha256(head + payload).digest())
    ref = SegmentRef(section=0, start=0, stop=3, sha256="ab" * 32, n_bytes=CLAIMED, element_bytes=2)
    for call in (lambda: store.check(ref), lambda: store.check(ref, deep=True), lambda: store.get(ref)):
        with pytest.raises(CorruptBlock, match="no model computes such"):
            call()


def test_a_segment_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.store.segments._LARGE", 16)
    monkeypatch.setattr("agentkv.store.segments.available_memory", lambda: 100)
    store = FileSegmentStore(tmp_path / "segments")
    data = state(1)
    store.put(reference(data), data)
    with pytest.raises(CorruptBlock, match="100 are free"):
        store.get(reference(data))
