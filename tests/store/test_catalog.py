"""``BlockStore``: deposits, reads, names, sizes, removal."""

from __future__ import annotations

import doctest
import hashlib
import os
import shutil
import threading
import time
import warnings
from pathlib import Path

import pytest

from agentkv.errors import (
    CorruptBlock,
    MissingSegment,
    StoreError,
    StoreFormatError,
    StoreReadError,
    StoreUnusable,
    UnknownBlock,
    UsageError,
)
from agentkv.io.hashing import block_id
from agentkv.notices import AgentKVWarning
from agentkv.records import Fingerprint, Manifest, NamedBlock, SegmentRef
from agentkv.store import catalog, files, recordfiles
from agentkv.store.catalog import BlockStore
from agentkv.store.findings import Kind
from agentkv.store.format import Limits
from agentkv.store.repair import empty_quarantine
from agentkv.store.segments import FileSegmentStore
from tests.store.blocks import FINGERPRINT, block, contents, named, temporaries
from tests.store.test_segments import MemorySegmentStore


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "store")


def read_all(store: BlockStore, manifest: Manifest, deep: bool = False) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    store.read(manifest, lambda ref, raw: found.__setitem__((ref.section, ref.start), raw.tobytes()), deep=deep)
    return found


def segment_file(store: BlockStore, sha256: str) -> Path:
    assert isinstance(store.segments, FileSegmentStore)
    return store.segments.path(sha256)


def test_a_block_comes_back_byte_for_byte_in_another_object(store: BlockStore, tmp_path: Path) -> None:
    manifest, segments = block(list(range(10)))
    assert store.has(manifest.block_id) is False
    assert store.manifest(manifest.block_id) is None
    assert store.put(manifest, segments) is True
    with BlockStore(tmp_path / "store", create=False) as other:
        assert other.has(manifest.block_id)
        assert other.manifest(manifest.block_id) == manifest
        expected = {(ref.section, ref.start): segments[ref.sha256] for ref in manifest.segments}
        assert read_all(other, manifest, deep=True) == expected


def test_putting_again_changes_nothing_and_asks_for_nothing(store: BlockStore) -> None:
    manifest, segments = block([1, 2, 3])
    asked: list[SegmentRef] = []

    def source(ref: SegmentRef) -> bytes:
        asked.append(ref)
        return segments[ref.sha256]

    assert store.put(manifest, source) is True
    before = contents(store.root)
    assert store.put(manifest, source) is False
    assert len(asked) == 1
    assert contents(store.root) == before
    assert temporaries(store.root) == []


def test_a_child_shares_its_parents_segments(store: BlockStore) -> None:
    parent, parent_segments = block(list(range(8)))
    child, child_segments = block([8, 9, 10], parent=parent)
    store.put(parent, parent_segments)
    store.put(child, child_segments)
    sizes = store.sizes(child)
    assert (sizes.own_raw, sizes.shared_raw, sizes.raw) == (256, 512, 768)
    on_disk = {ref.sha256: segment_file(store, ref.sha256).stat().st_size for ref in child.segments}
    assert sizes.stored == sum(on_disk.values())
    assert sizes.own_stored == on_disk[child.segments[-1].sha256]
    store.remove_block(parent.block_id)
    assert store.verify(child.block_id) == child
    assert store.sizes(child).shared_raw == 0


def test_a_segment_that_occurs_twice_is_stored_once(store: BlockStore) -> None:
    manifest, _ = block(list(range(8)))
    zeros = bytes(256)
    ref = manifest.segments[0].model_copy(update={"sha256": hashlib.sha256(zeros).hexdigest()})
    twice = manifest.model_copy(update={"segments": (ref, ref.model_copy(update={"start": 4, "stop": 8}))})
    store.put(twice, {ref.sha256: zeros})
    assert read_all(store, twice) == {(0, 0): zeros, (0, 4): zeros}
    sizes = store.sizes(twice)
    assert (sizes.raw, sizes.stored) == (512, segment_file(store, ref.sha256).stat().st_size)


def test_a_missing_segment_is_named_and_a_new_deposit_mends_it(store: BlockStore) -> None:
    manifest, segments = block(list(range(12)))
    store.put(manifest, segments)
    lost = segment_file(store, manifest.segments[1].sha256)
    lost.unlink()
    for call in (lambda: read_all(store, manifest), lambda: store.verify(manifest.block_id)):
        with pytest.raises(MissingSegment) as caught:
            call()
        assert (caught.value.segment, caught.value.path) == (manifest.segments[1].sha256, lost)
    with pytest.raises(MissingSegment):
        store.sizes(manifest)
    assert store.put(manifest, segments) is False
    assert store.verify(manifest.block_id) == manifest


def test_a_damaged_segment_is_refused_and_a_new_deposit_mends_it(store: BlockStore) -> None:
    manifest, segments = block(list(range(12)))
    store.put(manifest, segments)
    path = segment_file(store, manifest.segments[2].sha256)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptBlock) as caught:
        read_all(store, manifest)
    assert caught.value.path == path
    with pytest.raises(CorruptBlock):
        store.verify(manifest.block_id)
    assert store.put(manifest, segments) is False
    assert store.verify(manifest.block_id) == manifest


def test_a_damaged_shared_segment_is_not_taken_over_by_a_child(store: BlockStore) -> None:
    parent, parent_segments = block(list(range(8)))
    child, child_segments = block([8], parent=parent)
    store.put(parent, parent_segments)
    path = segment_file(store, parent.segments[0].sha256)
    path.write_bytes(b"damaged")
    with pytest.raises(UsageError, match="neither stored nor given"):
        store.put(child, child_segments)
    assert not store.has(child.block_id)
    store.put(child, {**parent_segments, **child_segments})
    assert store.verify(parent.block_id) == parent
    assert store.verify(child.block_id) == child


def test_another_state_for_the_same_id_is_kept_out_unless_it_replaces(store: BlockStore) -> None:
    first, first_segments = block([1, 2, 3])
    second, second_segments = block([1, 2, 3], salt=1)
    assert first.block_id == second.block_id
    assert first != second
    store.put(first, first_segments)
    before = contents(store.root)
    assert store.put(second, second_segments) is False
    assert contents(store.root) == before
    assert store.put(second, second_segments, replace=True) is True
    assert store.manifest(first.block_id) == second
    store.put(first, first_segments, replace=True)
    segment_file(store, first.segments[0].sha256).unlink()
    assert store.put(second, second_segments) is True, "a block that cannot be restored is replaced"
    assert store.verify(second.block_id) == second


@pytest.mark.parametrize(
    "change",
    [
        {"block_id": "0" * 64},
        {"tokens": (1, 2, 4)},
        {"n_tokens": 4},
        {"parent_id": "0" * 64},
        {"segments": ()},
    ],
)
def test_put_refuses_a_manifest_that_it_would_not_read(store: BlockStore, change: dict[str, object]) -> None:
    manifest, segments = block([1, 2, 3])
    before = contents(store.root)
    with pytest.raises(UsageError):
        store.put(manifest.model_copy(update=change), segments)
    assert contents(store.root) == before


def test_put_refuses_values_that_json_cannot_hold(store: BlockStore) -> None:
    for value in (float("nan"), 2**70):
        odd = Fingerprint.model_construct(content={"x": value}, numerics={})
        manifest, segments = block([1])
        try:
            identity = block_id(odd.id, None, [1])
        except TypeError:
            identity = manifest.block_id
        with pytest.raises(UsageError):
            store.put(manifest.model_copy(update={"fingerprint": odd, "block_id": identity}), segments)


def test_a_parent_in_the_store_must_fit(store: BlockStore) -> None:
    parent, segments = block(list(range(8)))
    store.put(parent, segments)
    other = Fingerprint(content={"model": "other"}, numerics={})
    stranger, stranger_segments = block([1], parent=parent, fingerprint=other)
    with pytest.raises(UsageError, match="another fingerprint"):
        store.put(stranger, {**segments, **stranger_segments})
    child, child_segments = block([1], parent=parent)
    longer = child.model_copy(
        update={
            "n_tokens": 10,
            "segments": (*child.segments[:-1], child.segments[-1].model_copy(update={"stop": 10})),
        }
    )
    with pytest.raises(UsageError, match=r"8 \+ 1 tokens"):
        store.put(longer, child_segments)


def test_limits_hold_before_and_after(tmp_path: Path) -> None:
    manifest, segments = block(list(range(12)))
    BlockStore(tmp_path / "store").put(manifest, segments)
    for limits in (
        Limits(tokens=11), Limits(segments=2), Limits(raw_bytes=767), Limits(manifest_bytes=100),
    ):  # fmt: skip
        tight = BlockStore(tmp_path / "store", limits=limits)
        with pytest.raises(StoreError):
            tight.manifest(manifest.block_id)
        with pytest.raises(UsageError):
            BlockStore(tmp_path / "other", limits=limits).put(manifest, segments)


def test_the_sinks_error_reaches_the_caller_and_ends_the_read(store: BlockStore) -> None:
    manifest, segments = block(list(range(400)))
    store.put(manifest, segments)
    calls: list[int] = []
    lock = threading.Lock()

    def sink(ref: SegmentRef, raw: object) -> None:
        with lock:
            calls.append(ref.start)
        time.sleep(0.01)
        raise RuntimeError("sink")

    with pytest.raises(RuntimeError, match="sink"):
        store.read(manifest, sink)
    assert len(calls) < len(manifest.segments)
    assert len(read_all(store, manifest)) == 100


def test_ids_and_prefixes(store: BlockStore) -> None:
    manifests = [block([token])[0] for token in range(6)]
    for token, manifest in enumerate(manifests):
        store.put(*block([token]))
        assert store.resolve(manifest.block_id) == manifest.block_id
        assert store.resolve(manifest.block_id[:6]) == manifest.block_id
    assert list(store.block_ids()) == sorted(manifest.block_id for manifest in manifests)
    for key in ("", "abcde", "z" * 64, "../../etc/passwd", "0" * 65, manifests[0].block_id.upper(), "0" * 64):
        with pytest.raises(UnknownBlock):
            store.resolve(key)
    path = store.root / "manifests" / "ab"
    path.mkdir(exist_ok=True)
    for last in "01":
        (path / f"{'ab' * 31}a{last}.json").write_bytes(b"")
    with pytest.raises(UnknownBlock, match="2 blocks start so"):
        store.resolve("ababab")


@pytest.mark.parametrize("key", ["", "../x", "0" * 63, "A" * 64, "0" * 64 + "\n"])
def test_what_is_no_id_never_becomes_a_path(store: BlockStore, key: str) -> None:
    for call in (store.has, store.manifest, store.remove_block, store.verify):
        with pytest.raises(UsageError):
            call(key)


def test_names_point_and_are_replaced(store: BlockStore) -> None:
    first, second = block([1]), block([2])
    store.put(*first)
    store.put(*second)
    store.set_name(named(first[0], "b"))
    store.set_name(named(second[0], "a"))
    store.set_name(named(second[0], "a", kind="text"))
    assert [(found.kind, found.name) for found in store.names()] == [
        ("skill", "a"),
        ("skill", "b"),
        ("text", "a"),
    ]
    assert [found.name for found in store.names("skill", FINGERPRINT.id)] == ["a", "b"]
    assert store.names("skill", "0" * 64) == []
    store.set_name(named(second[0], "b"))
    found = store.name("skill", "b", FINGERPRINT.id)
    assert found == named(second[0], "b")
    assert store.remove_name("skill", "b", FINGERPRINT.id) is True
    assert store.remove_name("skill", "b", FINGERPRINT.id) is False
    assert store.name("skill", "b", FINGERPRINT.id) is None
    assert store.has(second[0].block_id)


def test_a_name_needs_its_block_and_its_fingerprint(store: BlockStore) -> None:
    manifest, segments = block([1])
    with pytest.raises(UnknownBlock):
        store.set_name(named(manifest))
    store.put(manifest, segments)
    with pytest.raises(UsageError):
        store.set_name(named(manifest).model_copy(update={"fingerprint_id": "0" * 64}))
    with pytest.raises(UsageError):
        store.name("skill", "\ud800", FINGERPRINT.id)
    assert store.names() == []


def test_one_bad_name_file_is_told_and_hides_no_other(store: BlockStore) -> None:
    manifest, segments = block([1])
    store.put(manifest, segments)
    for name in ("a", "b"):
        store.set_name(named(manifest, name))
    victim = sorted((store.root / "names").iterdir())[0]
    victim.write_bytes(victim.read_bytes() + b" ")
    with pytest.warns(AgentKVWarning, match="passed over: name"):
        assert len(store.names()) == 1
    assert len(store.names()) == 1  # said once
    errors: list[StoreError] = []
    assert len(store.names(on_error=errors.append)) == 1
    assert [type(error) for error in errors] == [CorruptBlock]


def test_collect_removes_only_what_nothing_needs(store: BlockStore) -> None:
    kept, gone = block(list(range(8))), block([99, 98])
    store.put(*kept)
    store.put(*gone)
    left = store.root / "tmp" / "x.json.1.0123456789ab.tmp"
    left.write_bytes(b"left")
    assert store.remove_block(gone[0].block_id) is True
    assert store.remove_block(gone[0].block_id) is False
    assert store.collect(min_age_s=3600).segments == 0, "everything is younger than an hour"
    planned = store.collect(dry_run=True)
    assert left.exists()
    collected = store.collect()
    assert collected == planned
    assert (collected.segments, collected.temporaries) == (1, 1)
    assert collected.bytes > 4
    assert not left.exists()
    assert store.verify(kept[0].block_id) == kept[0]
    assert store.put(*gone) is True
    assert store.verify(gone[0].block_id) == gone[0]


def test_collect_removes_nothing_while_a_manifest_is_unreadable(store: BlockStore) -> None:
    kept, gone = block(list(range(8))), block([99])
    store.put(*kept)
    store.put(*gone)
    store.remove_block(gone[0].block_id)
    path = store.root / "manifests" / kept[0].block_id[:2] / f"{kept[0].block_id}.json"
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    before = contents(store.root)
    with pytest.raises(CorruptBlock):
        store.collect(min_age_s=0.0)
    assert contents(store.root) == before


def test_segments_may_live_elsewhere(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store", segments=MemorySegmentStore())
    manifest, segments = block(list(range(8)))
    assert store.put(manifest, segments) is True
    assert store.verify(manifest.block_id) == manifest
    assert not (tmp_path / "store" / "segments").exists()


def test_closing_is_repeatable_and_not_final(store: BlockStore) -> None:
    manifest, segments = block(list(range(8)))
    with store:
        store.put(manifest, segments)
        store.cache.put("key", "value", 5)
    store.close()
    assert store.cache.get("key") is None
    assert len(read_all(store, manifest)) == 2


@pytest.mark.parametrize("case", ["file", "foreign", "missing", "below a file", "empty, not to be created"])
def test_what_cannot_be_a_store_is_said(tmp_path: Path, case: str) -> None:
    root = tmp_path / "root"
    if case == "file":
        root.write_text("x")
    elif case == "foreign":
        root.mkdir()
        (root / "thesis.txt").write_text("mine")
    elif case == "below a file":
        (tmp_path / "file").write_text("x")
        root = tmp_path / "file" / "root"
    elif case == "empty, not to be created":
        root.mkdir()
    with pytest.raises(StoreUnusable) as caught:
        BlockStore(root, create=case not in ("missing", "empty, not to be created"))
    assert caught.value.path == root
    assert str(root) in str(caught.value)
    if case == "foreign":
        assert [path.name for path in root.iterdir()] == ["thesis.txt"]


def test_an_unwritable_place_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.mkdir", refuse)
    with pytest.raises(StoreUnusable, match="may write"):
        BlockStore(tmp_path / "new")


@pytest.mark.parametrize(
    "marker", [b'{"format":2}', b'{"format":"1"}', b'{"format":true}', b"{}", b"[]", b"", b"\x80\x04N.", b"{"]
)
def test_an_unknown_format_is_refused_and_left_alone(tmp_path: Path, marker: bytes) -> None:
    (tmp_path / "agentkv-store.json").write_bytes(marker)
    with pytest.raises(StoreFormatError) as caught:
        BlockStore(tmp_path)
    assert caught.value.known == [1]
    assert contents(tmp_path) == {"agentkv-store.json": marker}


def test_a_crashed_creation_goes_on(tmp_path: Path) -> None:
    (tmp_path / "agentkv-store.json.123.abc.tmp").write_bytes(b'{"for')
    store = BlockStore(tmp_path)
    assert list(store.block_ids()) == []


def test_the_examples_in_the_docstrings_run() -> None:
    for module in (catalog, recordfiles, files):
        results = doctest.testmod(module)
        assert results.attempted > 0
        assert results.failed == 0


def test_a_record_changed_within_one_tick_of_the_clock_is_read_again(store: BlockStore) -> None:
    manifest, segments = block([1])
    store.put(manifest, segments)
    path = store.root / "manifests" / manifest.block_id[:2] / f"{manifest.block_id}.json"
    good, soon = path.read_bytes(), time.time_ns() + 10**10
    os.utime(path, ns=(soon, soon))
    assert store.manifest(manifest.block_id) == manifest
    path.write_bytes(good.replace(b"exact", b"eXact"))
    os.utime(path, ns=(soon, soon))
    with pytest.raises(CorruptBlock):
        store.manifest(manifest.block_id)


def test_a_record_is_parsed_once_while_its_file_stays(store: BlockStore) -> None:
    manifest, segments = block([1])
    store.put(manifest, segments)
    os.utime(store.root / "manifests" / manifest.block_id[:2] / f"{manifest.block_id}.json", ns=(10**18, 10**18))
    first = store.manifest(manifest.block_id)
    assert store.manifest(manifest.block_id) is first
    store.remove_block(manifest.block_id)
    assert store.manifest(manifest.block_id) is None


def test_a_named_block_model_is_refused_when_malformed() -> None:
    with pytest.raises(ValueError):
        NamedBlock(kind="skill", name="", fingerprint_id="0" * 64, block_id="0" * 64)


def test_a_store_that_was_removed_while_open_is_made_again(tmp_path: Path) -> None:
    manifest, segments = block([1, 2, 3])
    store = BlockStore(tmp_path / "store")
    store.put(manifest, segments)
    shutil.rmtree(tmp_path / "store")
    assert store.is_gone
    assert store.names() == []
    with pytest.warns(AgentKVWarning, match="while it was open"):
        assert store.put(manifest, segments) is True
    store.set_name(named(manifest))
    assert BlockStore(tmp_path / "store", create=False).verify(manifest.block_id) == manifest


OTHERS = ("notes.tmp", "draft.1.tmp", "x.json.1.abc.tmp", "0123456789ab.intent", "plan.intent", "letter.txt", ".hidden")


def test_only_what_bears_our_mark_is_cleaned_up(tmp_path: Path) -> None:
    root = tmp_path / "store"
    BlockStore(root).put(*block([1, 2, 3]))
    places = [root / "tmp" / name for name in OTHERS] + [root / name for name in OTHERS]
    places += [root / "quarantine" / name for name in OTHERS]
    ours = [root / "tmp" / f"{'ab' * 32}.seg.12.0123456789ab.tmp", root / "tmp" / "12.0123456789ab.intent"]
    for path in [*places, *ours]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
        os.utime(path, (1, 1))
    with BlockStore(root) as store:
        assert not any(path.exists() for path in ours)
        found = {finding.path: finding.kind for finding in store.check().findings}
        assert found == dict.fromkeys([path for path in places if path.parent.name != "quarantine"], Kind.FOREIGN)
        store.repair(store.check())
        store.collect(min_age_s=0.0)
        assert empty_quarantine(store.files) == (0, 0)
    assert all(path.read_bytes() == b"mine" for path in places)


@pytest.mark.parametrize("data", [b"", bytes(13), b"{", b'{"format": 1}', b"null\n", b'{"format":1}\n\n', None])
def test_a_damaged_marker_is_passed_over_and_mended_from_what_stands_around_it(
    tmp_path: Path, data: bytes | None
) -> None:
    root = tmp_path / "store"
    manifest, segments = block([1, 2, 3])
    BlockStore(root).put(manifest, segments)
    marker, good = root / "agentkv-store.json", (root / "agentkv-store.json").read_bytes()
    marker.unlink() if data is None else marker.write_bytes(data)
    with pytest.warns(AgentKVWarning, match="check --repair"):
        store = BlockStore(root, create=False)
    assert store.verify(manifest.block_id) == manifest
    assert store.put(*block([4])) is True
    (finding,) = store.check().damage
    assert (finding.path, finding.kind) == (marker, Kind.MISSING if data is None else Kind.CORRUPT)
    store.repair(store.check())
    assert marker.read_bytes() == good
    assert store.check().damage == ()
    assert BlockStore(root, create=False).verify(manifest.block_id) == manifest


@pytest.mark.parametrize("data", [b'{"format":2}\n', b'{"format":"1"}\n'])
def test_a_marker_of_another_format_is_refused_whatever_stands_around_it(tmp_path: Path, data: bytes) -> None:
    BlockStore(tmp_path / "store").put(*block([1, 2, 3]))
    (tmp_path / "store" / "agentkv-store.json").write_bytes(data)
    with pytest.raises(StoreFormatError):
        BlockStore(tmp_path / "store")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "agentkv-store.json").write_bytes(bytes(13))
    with pytest.raises(StoreFormatError):
        BlockStore(tmp_path / "other")


def test_of_many_alike_only_the_first_few_are_told(store: BlockStore) -> None:
    errors = [StoreReadError(store.root / f"{n}.seg", "Permission denied") for n in range(40)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for error in errors * 2:
            store.tell_once(error, "Check permissions.")
        store.tell_once(StoreReadError(store.root / "other", "Permission denied"))
    texts = [str(warning.message) for warning in caught]
    assert [("0.seg" in texts[0], "1.seg" in texts[1], "2.seg" in texts[2]), len(texts)] == [(True, True, True), 5]
    assert texts[3].endswith("listed one by one. Check permissions.")
    assert texts[4].endswith("`agentkv check` lists it.")
