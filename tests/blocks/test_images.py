"""Restore images: made of what was verified, read instead of the segments, and a miss whatever happens to them."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.blocks.blocks import Blocks
from agentkv.engine.fake import FakeEngine
from agentkv.errors import StoreFull, UsageError
from agentkv.io import fsio
from agentkv.records import Manifest
from agentkv.store import images
from agentkv.store.catalog import BlockStore
from agentkv.store.findings import Kind

MANUALS = [list(f"Returns of kind {n} are taken for 21 days. ".encode() * 12) for n in range(4)]


@pytest.fixture(autouse=True)
def _small_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LEAST_BYTES", 1)
    monkeypatch.setattr(images, "_CHUNK", 1000)
    monkeypatch.setattr("os.fsync", lambda fd: None)


class Reader:
    """The store as a new process would see it, and how often a segment was read."""

    def __init__(self, root: Path, **how: Any) -> None:
        self.blocks = Blocks(FakeEngine(), BlockStore(root, **how))
        self.store, self.segments_read = self.blocks.store, 0
        get = self.store.segments.get

        def counted(ref: Any, *, deep: bool = False) -> Any:
            self.segments_read += 1
            return get(ref, deep=deep)

        self.store.segments.get = counted  # type: ignore[method-assign]

    def blob(self, manifest: Manifest) -> bytes:
        """The block's state, once its image is written."""
        blob = self.blocks.state(manifest).blob.tobytes()
        self.store.files.images.wait()
        return blob


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def manifests(root: Path) -> list[Manifest]:
    with BlockStore(root) as store:
        blocks = Blocks(FakeEngine(), store)
        return [blocks.deposit(manual).manifest for manual in MANUALS]


def image_files(root: Path) -> list[Path]:
    return sorted((root / images.IMAGES).rglob(f"*{images.SUFFIX}"))


def test_the_second_process_reads_the_image_and_no_segment(root: Path, manifests: list[Manifest]) -> None:
    assert image_files(root) == [], "a deposit makes none: a block may never be used"
    first, second = Reader(root), Reader(root)
    blob = first.blob(manifests[0])
    assert first.segments_read > 0
    assert len(image_files(root)) == 1
    assert (second.blob(manifests[0]), second.segments_read) == (blob, 0)
    second.blocks.graft(manifests[0])
    assert second.blocks.reprove(manifests[0])


@pytest.mark.parametrize("what", ["flip", "cut", "longer", "empty", "foreign", "version", "folder", "link"])
def test_whatever_else_the_file_is_it_is_a_miss_and_made_again(
    root: Path, manifests: list[Manifest], what: str
) -> None:
    blob = Reader(root).blob(manifests[0])
    (path,) = image_files(root)
    data = path.read_bytes()
    positions = range(0, len(data), 37) if what == "flip" else [0]
    for position in positions:
        path.unlink()
        if what == "flip":
            path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        elif what == "foreign":
            Reader(root).blob(manifests[1])
            (other,) = set(image_files(root)) - {path}
            path.write_bytes(other.read_bytes())
        elif what == "folder":
            path.mkdir()
        elif what == "link":
            path.symlink_to(root / "elsewhere")
        else:
            changed = {"cut": data[:-1], "longer": data + b"x", "empty": b""}
            path.write_bytes(changed.get(what, data.replace(b"image 1", b"image 2", 1)))
        reader = Reader(root)
        assert reader.blob(manifests[0]) == blob, position
        assert reader.segments_read > 0, position
        if what != "folder":
            assert path.read_bytes() == data, position
    if what == "folder":
        path.rmdir()


def test_an_image_of_another_state_of_the_block_is_a_miss(root: Path, manifests: list[Manifest]) -> None:
    Reader(root).blob(manifests[0])
    other = manifests[0].model_copy(update={"state_sha256": "0" * 64})
    reader = Reader(root)
    n_bytes = reader.blocks.state(manifests[0]).blob.nbytes
    assert reader.store.image(other, n_bytes) is None
    assert reader.store.image(manifests[0], n_bytes + 1) is None


def test_only_the_state_that_the_manifest_gives_becomes_an_image(root: Path, manifests: list[Manifest]) -> None:
    store = BlockStore(root)
    state = np.zeros(5000, np.uint8)
    store.keep_image(manifests[0], state)
    store.files.images.wait()
    assert image_files(root) == []


def test_small_states_have_none(root: Path, manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LEAST_BYTES", 1 << 20)
    Reader(root).blob(manifests[0])
    assert image_files(root) == []


@pytest.mark.parametrize("how", [{"verify": "always"}, {"image_bytes": 0}])
def test_who_wants_every_hash_or_no_images_neither_writes_nor_reads_them(
    root: Path, manifests: list[Manifest], how: dict[str, Any]
) -> None:
    Reader(root, **how).blob(manifests[0])
    assert image_files(root) == []
    Reader(root).blob(manifests[0])
    reader = Reader(root, **how)
    reader.blob(manifests[0])
    assert reader.segments_read > 0


def test_the_folder_keeps_to_its_bytes_and_what_was_used_last_stays(root: Path, manifests: list[Manifest]) -> None:
    Reader(root).blob(manifests[0])
    size = image_files(root)[0].stat().st_size
    reader = Reader(root, image_bytes=int(size * 2.5))
    reader.blob(manifests[1])
    reader.store.cache.clear()
    reader.blob(manifests[0])
    reader.blob(manifests[2])
    assert {path.stem for path in image_files(root)} == {manifests[0].block_id, manifests[2].block_id}
    assert Reader(root, image_bytes=size // 2).blob(manifests[3])
    assert manifests[3].block_id not in {path.stem for path in image_files(root)}
    with pytest.raises(UsageError):
        BlockStore(root, image_bytes=-1)


def test_images_go_before_any_block(root: Path, manifests: list[Manifest]) -> None:
    from agentkv.store.budget import stored_bytes

    for manifest in manifests:
        Reader(root).blob(manifest)
    with BlockStore(root) as store:
        taken = stored_bytes(store.files)
        store.set_budget(taken + 30_000)
        Blocks(FakeEngine(), store).deposit(list(b"One more manual. " * 9))
        assert store.evicted == []
        assert sum(path.stat().st_size for path in image_files(root)) <= 30_000
        assert len(image_files(root)) < len(manifests)
        store.set_budget(stored_bytes(store.files))
    Reader(root).blob(manifests[0])
    assert sum(path.stat().st_size for path in image_files(root)) <= 30_000


def test_an_image_goes_with_its_block(root: Path, manifests: list[Manifest]) -> None:
    for manifest in manifests[:2]:
        Reader(root).blob(manifest)
    with BlockStore(root) as store:
        store.take_away([manifests[0].block_id])
        assert [path.stem for path in image_files(root)] == [manifests[1].block_id]
        (root / "manifests" / manifests[1].block_id[:2] / f"{manifests[1].block_id}.json").unlink()
        assert store.collect(dry_run=True).bytes > image_files(root)[0].stat().st_size
        store.collect()
    assert image_files(root) == []


def test_a_block_that_is_removed_while_its_image_waits_leaves_none(
    root: Path, manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    write = images.Images._write

    def waiting(self: images.Images, *given: Any) -> None:
        assert may_write.wait(20)
        write(self, *given)

    monkeypatch.setattr(images.Images, "_write", waiting)
    with BlockStore(root) as store:
        Blocks(FakeEngine(), store).state(manifests[0])
        store.take_away([manifests[0].block_id])
        may_write.set()
    assert image_files(root) == []


def test_a_full_disk_costs_the_image_only(
    root: Path, manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(target: Path, parts: object, **how: object) -> None:
        raise StoreFull(target, 1, 0)

    monkeypatch.setattr(fsio, "write_atomically", full)
    reader = Reader(root)
    assert reader.blob(manifests[0])
    assert image_files(root) == []
    assert list((root / "tmp").glob("*")) == []


def test_a_deep_check_looks_at_images_and_a_repair_takes_bad_ones_away(root: Path, manifests: list[Manifest]) -> None:
    for manifest in manifests:
        Reader(root).blob(manifest)
    with BlockStore(root) as store:
        assert store.check(deep=True).findings == ()
        bad = image_files(root)[:2]
        bad[0].write_bytes(bad[0].read_bytes()[:-5])
        data = bytearray(bad[1].read_bytes())
        data[-7] ^= 1
        bad[1].write_bytes(bytes(data))
        (root / images.IMAGES / "notes.txt").write_text("mine")
        assert store.check(deep=False).damage == (), "only a deep check reads them"
        report = store.check(deep=True)
        assert [finding.path for finding in report.damage] == bad
        store.repair(report)
        assert not any(path.exists() for path in bad)
        assert [finding.kind for finding in store.check(deep=True).findings] == [Kind.FOREIGN]


@pytest.fixture
def many(root: Path) -> Iterator[tuple[BlockStore, list[Manifest]]]:
    with BlockStore(root) as store:
        blocks = Blocks(FakeEngine(), store)
        yield store, [blocks.deposit(list(f"Manual {n}. ".encode() * 9)).manifest for n in range(40)]


def test_only_a_few_states_wait_to_be_written(many: tuple[BlockStore, list[Manifest]], root: Path) -> None:
    store, manifests = many
    store.cache.clear()
    blocks = Blocks(FakeEngine(), store)
    for manifest in manifests:
        blocks.state(manifest)
        assert len(store.files.images._waiting) <= images._MOST_WAITING
    store.close()
    assert 0 < len(image_files(root)) <= 40


def test_the_byte_table_of_the_format_is_the_struct() -> None:
    document = Path(images.__file__).with_name("FORMAT.md").read_text(encoding="utf-8")
    table = document.partition("## Restore image")[2].partition("Then an XXH3-128")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines() if "| `" in line]
    assert "<" + "".join(row[2] for row in rows) == images._HEAD.format
    sizes = [struct.calcsize(f"<{row[2]}") for row in rows]
    assert [int(row[1]) for row in rows] == sizes
    assert [int(row[0]) for row in rows] == [sum(sizes[:n]) for n in range(len(sizes))]
