"""A check finds every kind of damage and changes nothing; a repair loses only what it says, whenever it dies."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import StoreReadError
from agentkv.io.hashing import sha256
from agentkv.records import Import, Manifest
from agentkv.store.catalog import BlockStore
from agentkv.store.check import check
from agentkv.store.findings import Kind, Report
from agentkv.store.repair import Repaired, empty_quarantine, quarantined, repair
from tests.store.blocks import FINGERPRINT, block, named
from tests.store.faults import Fault, injected
from tests.store.test_segments import MemorySegmentStore

REPOSITORY = Path(__file__).resolve().parents[2]
PARENT = block(list(range(8)))
CHILD = block([8, 9], parent=PARENT[0])
OTHER = block([100, 101, 102])
ALL = (PARENT, CHILD, OTHER)


def fill(root: Path) -> BlockStore:
    """A chain of two and a block of its own, each with a name, a pin, an import and a text."""
    store = BlockStore(root)
    for number, (manifest, segments) in enumerate(ALL):
        store.put(manifest, segments)
        text = f"text {number}"
        entry = named(manifest, f"name-{number}").model_copy(update={"source_sha256": sha256(text.encode())})
        store.set_name(entry, text)
        store.pin(manifest.block_id)
        store.set_import(Import(block_id=manifest.block_id, pack_sha256="ab" * 32, signed_by=None, decision="unsigned"))
    store.set_budget(10**9)
    store.used(OTHER[0].block_id)
    store.close()
    return store


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return fill(tmp_path / "store")


def segment(store: BlockStore, manifest: Manifest, index: int = -1) -> Path:
    return Path(store.segments.where(manifest.segments[index].sha256))


def manifest_file(store: BlockStore, manifest: Manifest) -> Path:
    return store.files.manifests.path(manifest.block_id)


def name_file(store: BlockStore, name: str) -> Path:
    from agentkv.store.format import name_key

    return store.files.names.path(name_key("skill", name, FINGERPRINT.id))


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Every entry below ``root`` with its kind, mtime and bytes."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        regular = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(root))] = (info.st_mode, info.st_mtime_ns, path.read_bytes() if regular else None)
    return found


def kinds(report: Report) -> list[tuple[Kind, Path]]:
    return [(finding.kind, finding.path) for finding in report.findings]


def names_lost(done: Repaired) -> set[str]:
    return {entry.name for lost in done.blocks for entry in lost.names} | {entry.name for entry in done.names}


# --- check ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [True, False])
def test_a_sound_store_has_no_findings_and_is_left_byte_for_byte(store: BlockStore, deep: bool) -> None:
    before = everything(store.root)
    report = check(store.files, deep=deep)
    assert report.findings == ()
    segments = {ref.sha256 for manifest, _ in ALL for ref in manifest.segments}
    assert (report.blocks, report.segments) == (3, len(segments))
    assert report.bytes == sum(Path(store.segments.where(digest)).stat().st_size for digest in segments)
    assert everything(store.root) == before


def test_every_flipped_bit_of_every_file_is_found(store: BlockStore) -> None:
    skipped = ("agentkv-store", "agentkv-uses", "agentkv-gate")  # the store opens or not; no block depends on it
    files = [path for path in store.root.rglob("*") if path.is_file() and not path.name.startswith(skipped)]
    assert len(files) > 15
    for path in files:
        good = path.read_bytes()
        for at in {0, len(good) // 3, len(good) // 2, len(good) - 1}:
            flip(path, at)
            report = check(store.files)
            assert [finding.path for finding in report.damage] == [path], (path, at)
            assert report.damage[0].kind in (Kind.CORRUPT, Kind.WRONG_SIZE)
            path.write_bytes(good)
    assert check(store.files).findings == ()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def extend(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def link(path: Path) -> None:
    path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(path.parents[3] / "elsewhere")


def folder(path: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "of_segment", "of_manifest"),
    [
        (flip, Kind.CORRUPT, Kind.CORRUPT),
        (cut, Kind.WRONG_SIZE, Kind.CORRUPT),
        (extend, Kind.WRONG_SIZE, Kind.CORRUPT),
        (lambda path: path.write_bytes(b""), Kind.WRONG_SIZE, Kind.CORRUPT),
        (link, Kind.CORRUPT, Kind.CORRUPT),
        (folder, Kind.CORRUPT, Kind.CORRUPT),
        (fifo, Kind.CORRUPT, Kind.CORRUPT),
    ],
)
def test_harm_to_a_file_is_found_and_repaired(
    store: BlockStore, harm: Callable[[Path], None], of_segment: Kind, of_manifest: Kind
) -> None:
    harmed = {segment(store, CHILD[0]): of_segment, manifest_file(store, OTHER[0]): of_manifest}
    for path in harmed:
        harm(path)
    before = everything(store.root)
    report = check(store.files)
    assert everything(store.root) == before
    assert {finding.path: finding.kind for finding in report.damage} == harmed
    by_path = {finding.path: finding for finding in report.damage}
    assert (by_path[segment(store, CHILD[0])].blocks, by_path[segment(store, CHILD[0])].names) == (
        (CHILD[0].block_id,),
        ("name-1",),
    )
    assert by_path[manifest_file(store, OTHER[0])].names == ("name-2",)
    done = repair(store.files, report)
    assert names_lost(done) == {"name-1", "name-2"}
    assert_whole_without(store, CHILD, OTHER)


def assert_whole_without(store: BlockStore, *lost: tuple[Manifest, dict[str, bytes]]) -> None:
    """No damage, every other block verifies, and the lost ones can be deposited again."""
    assert check(store.files).damage == ()
    kept = [manifest for manifest, segments in ALL if (manifest, segments) not in lost]
    assert set(store.block_ids()) == {manifest.block_id for manifest in kept}
    with BlockStore(store.root, create=False, verify="always") as fresh:
        for manifest in kept:
            assert fresh.verify(manifest.block_id) == manifest
        assert {entry.block_id for entry in fresh.names()} == {manifest.block_id for manifest in kept}
        assert fresh.pinned() == {manifest.block_id for manifest in kept}
        fresh.collect()
        for manifest, segments in ALL:
            fresh.put(manifest, segments)
            fresh.set_name(named(manifest))
        for manifest, _ in ALL:
            assert fresh.verify(manifest.block_id) == manifest
    assert check(store.files).damage == ()


def test_a_missing_segment_and_all_that_is_read_behind_it(store: BlockStore) -> None:
    path = segment(store, PARENT[0], 0)
    path.unlink()
    (finding,) = check(store.files).findings
    assert (finding.kind, finding.path, finding.damage) == (Kind.MISSING, path, True)
    assert finding.names == ("name-0", "name-1")
    done = repair(store.files, check(store.files))
    assert names_lost(done) == {"name-0", "name-1"}
    assert {lost.block_id: lost.tokens for lost in done.blocks} == {PARENT[0].block_id: 8, CHILD[0].block_id: 10}
    assert_whole_without(store, PARENT, CHILD)


def test_a_damaged_parent_takes_its_children_with_it(store: BlockStore) -> None:
    flip(manifest_file(store, PARENT[0]))
    (finding,) = check(store.files).damage
    assert finding.names == ("name-0", "name-1")
    done = repair(store.files, check(store.files))
    assert [lost.tokens for lost in done.blocks if lost.block_id == PARENT[0].block_id] == [None]
    assert_whole_without(store, PARENT, CHILD)


def test_dangling(store: BlockStore) -> None:
    manifest_file(store, PARENT[0]).unlink()
    found = check(store.files).damage
    expected = {manifest_file(store, CHILD[0]), name_file(store, "name-0")}
    expected |= {store.files.pins.path(PARENT[0].block_id)}
    assert {finding.path for finding in found} == expected
    of_nothing = store.files.imports.path(PARENT[0].block_id)  # as an import that was cut short leaves it
    assert [finding.path for finding in check(store.files).of(Kind.ORPHAN)] == [of_nothing]
    assert {finding.kind for finding in found} == {Kind.DANGLING}
    done = repair(store.files, check(store.files))
    assert names_lost(done) == {"name-0", "name-1"}
    assert [entry.name for entry in done.names] == ["name-0"]
    assert_whole_without(store, PARENT, CHILD)


def test_marks_texts_and_settings_are_lost_by_themselves(store: BlockStore) -> None:
    entry = store.names()[2]
    assert entry.source_sha256 is not None
    other = OTHER[0].block_id
    paths = [store.files.pins.path(other), store.files.imports.path(other), store.root / "agentkv-settings.json"]
    paths += [store.files.texts.path(entry.source_sha256), name_file(store, "name-1")]
    for path in paths:
        flip(path)
    report = check(store.files)
    assert {finding.path for finding in report.damage} == set(paths)
    assert {finding.names for finding in report.damage if finding.path.suffix == ".txt"} == {("name-2",)}
    done = repair(store.files, report)
    assert {source for source, _ in done.moved} == set(paths)
    assert (done.blocks, done.names, done.settings) == ((), (), True)
    assert [named.name for named in done.texts] == ["name-2"]
    (finding,) = check(store.files).damage
    assert (finding.kind, finding.path) == (Kind.MISSING, paths[3]), "no move brings a text back"
    store.put_text("text 2")
    assert check(store.files).damage == ()
    assert store.budget is None
    assert sorted(found.name for found in store.names()) == ["name-0", "name-2"]


def test_a_missing_text_is_damage_that_no_move_mends(store: BlockStore) -> None:
    texts = [store.files.texts.path(sha256(f"text {number}".encode())) for number in range(3)]
    store.files.imports.path(OTHER[0].block_id).unlink()
    store.files.imports.path(PARENT[0].block_id).unlink()
    shutil.rmtree(store.root / "texts")
    report = check(store.files)
    assert kinds(report) == [(Kind.MISSING, path) for path in sorted([texts[0], texts[2]])], "1 came with a pack"
    assert {(finding.path, finding.names, finding.blocks) for finding in report.damage} == {
        (texts[0], ("name-0",), ()),
        (texts[2], ("name-2",), ()),
    }
    before = everything(store.root)
    done = repair(store.files, report)
    assert (done.moved, done.blocks, done.names, done.left) == ((), (), (), ())
    assert sorted(named.name for named in done.texts) == ["name-0", "name-2"]
    assert everything(store.root) == before
    entry = next(named for named in store.names() if named.name == "name-2")
    store.set_name(entry.model_copy(update={"source_sha256": None}))
    store.remove_name("skill", "name-0", FINGERPRINT.id)
    assert check(store.files).findings == (), "a name that needs no text lacks none"


def test_a_text_that_nobody_needs_any_more_is_not_missing(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the names and the look at the texts the name is removed, and its text collected."""
    store.files.imports.path(OTHER[0].block_id).unlink()
    other = BlockStore(store.root)

    def marks(self: Any) -> None:
        other.remove_name("skill", "name-2", FINGERPRINT.id)
        other.collect()

    monkeypatch.setattr("agentkv.store.check._Pointers._marks", marks)
    assert check(store.files).damage == ()
    assert not store.files.texts.path(sha256(b"text 2")).exists()


def test_the_logs_and_the_routers_files_are_the_stores(store: BlockStore) -> None:
    for folder, file in (("decisions", "x.jsonl"), ("router", "ab" * 32 + ".json"), ("turns", "turns-000001.jsonl")):
        (store.root / folder).mkdir()
        (store.root / folder / file).write_bytes(b"{}\n")
    assert check(store.files).findings == ()
    os.mkfifo(store.root / "router" / "pipe")
    shutil.rmtree(store.root / "decisions")
    (store.root / "decisions").symlink_to("/etc")
    expected = {store.root / "decisions": Kind.FOREIGN, store.root / "router" / "pipe": Kind.FOREIGN}
    assert {finding.path: finding.kind for finding in check(store.files).findings} == expected


def test_leftovers_and_foreign_things_are_no_damage(store: BlockStore) -> None:
    orphan = Path(store.segments.where("ab" * 32))
    text = store.files.texts.path(store.put_text("nobody's"))
    (store.root / "tmp").mkdir(exist_ok=True)
    temporary, intent = store.root / "tmp" / "x.1.0123456789ab.tmp", store.root / "tmp" / "1.0123456789ab.intent"
    foreign = [store.root / "letter.txt", store.root / "segments" / "xy", store.root / "names" / "notes"]
    foreign += [store.root / "manifests" / "ab" / ("cd" * 32 + ".json"), store.root / "tmp" / "pipe"]
    for path in (orphan, temporary, intent, *foreign[:1], foreign[3]):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
    foreign[1].symlink_to("/etc")
    foreign[2].mkdir()
    (foreign[2] / "deep").write_bytes(b"123")
    os.mkfifo(foreign[4])
    found = {finding.path: finding for finding in check(store.files).findings}
    expected = dict.fromkeys(foreign, Kind.FOREIGN) | dict.fromkeys([orphan, text], Kind.ORPHAN)
    assert {path: finding.kind for path, finding in found.items()} == expected | dict.fromkeys(
        [temporary, intent], Kind.STALE_TEMP
    )
    assert not any(finding.damage for finding in found.values())
    assert [found[path].bytes for path in (orphan, foreign[0], foreign[2])] == [5, 5, 3]
    would = store.collect(dry_run=True)
    assert (would.segments, would.texts, would.temporaries) == (1, 1, 2)
    before = everything(store.root)
    assert repair(store.files, check(store.files)).moved == ()
    assert {path: entry for path, entry in everything(store.root).items() if "lock" not in path} == {
        path: entry for path, entry in before.items() if "lock" not in path
    }


def test_a_linked_folder_is_not_judged_and_nothing_behind_it_is_moved(store: BlockStore, tmp_path: Path) -> None:
    shutil.move(store.root / "segments", tmp_path / "large-disk")
    (store.root / "segments").symlink_to(tmp_path / "large-disk")
    report = check(store.files)
    assert kinds(report) == [(Kind.UNREADABLE, store.root / "segments")]
    assert len(report.damage[0].blocks) == 3
    done = repair(store.files, report)
    assert (done.moved, len(done.left)) == ((), 1)
    (store.root / "segments").unlink()
    shutil.move(tmp_path / "large-disk", store.root / "segments")
    assert check(store.files).findings == ()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("suffix", [".seg", ".json", ".txt"])
def test_a_refused_read_is_unreadable_and_nothing_is_moved(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch, number: int, suffix: str
) -> None:
    real = os.open

    def refuse(path: Any, *rest: Any, **options: Any) -> int:
        if str(path).endswith(suffix):
            raise OSError(number, os.strerror(number))
        return real(path, *rest, **options)

    before = everything(store.root)
    with monkeypatch.context() as patch:
        patch.setattr("os.open", refuse)
        report = check(store.files)
        assert {finding.kind for finding in report.findings} == {Kind.UNREADABLE}
        done = repair(store.files, report)
    assert done.moved == ()
    assert len(done.left) == len(report.findings)
    assert everything(store.root) == before
    assert check(store.files).findings == ()


def test_a_read_that_fails_half_way_is_unreadable(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("agentkv.io.fsio.read_fully", refuse)
        report = check(store.files)
    assert {finding.kind for finding in report.findings} == {Kind.UNREADABLE}
    assert repair(store.files, report).moved == ()


def test_a_repair_looks_again_before_it_moves(store: BlockStore) -> None:
    path = segment(store, CHILD[0])
    good = path.read_bytes()
    flip(path)
    report = check(store.files)
    path.write_bytes(good)
    assert repair(store.files, report).moved == ()
    assert check(store.files).findings == ()


class Memory(MemorySegmentStore):
    def all(self) -> Iterator[tuple[str, int]]:
        return iter([(digest, len(held)) for digest, held in sorted(self._held.items())])


def test_a_segment_store_without_files(tmp_path: Path) -> None:
    memory = Memory()
    store = BlockStore(tmp_path / "store", segments=memory)
    for manifest, segments in ALL:
        store.put(manifest, segments)
    assert check(store.files).findings == ()
    memory.remove(OTHER[0].segments[0].sha256)
    (finding,) = check(store.files).findings
    assert (finding.kind, finding.blocks) == (Kind.MISSING, (OTHER[0].block_id,))
    assert [lost.block_id for lost in repair(store.files, check(store.files)).blocks] == [OTHER[0].block_id]
    assert check(store.files).damage == ()


def test_progress_ends_at_the_whole(store: BlockStore) -> None:
    seen: list[tuple[int, int, str]] = []
    report = check(store.files, progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (report.bytes, report.bytes)


# --- beside others ----------------------------------------------------------------------------------


def test_a_deposit_under_way_is_no_finding(store: BlockStore) -> None:
    new, segments = block([50, 51, 52, 53, 54], salt=1)
    reached, go_on = threading.Event(), threading.Event()

    def source(ref: Any) -> bytes:
        if ref.start == 4:
            reached.set()
            assert go_on.wait(10)
        return segments[ref.sha256]

    thread = threading.Thread(target=store.put, args=(new, source))
    thread.start()
    assert reached.wait(10)
    try:
        assert any(store.files.temporaries.iterdir())
        assert check(store.files).findings == ()
    finally:
        go_on.set()
        thread.join()
    assert check(store.files).findings == ()
    assert store.has(new.block_id)


def test_a_block_removed_meanwhile_is_no_finding(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing and the look at each block somebody removes it and collects its segments."""
    real, other = store.files.lock.shared, BlockStore(store.root)

    def shared(wait_s: float = 60.0) -> Any:
        for block_id in list(other.block_ids()):
            other.remove_block(block_id)
        other.collect()
        return real(wait_s)

    monkeypatch.setattr(store.files.lock, "shared", shared)
    report = check(store.files)
    assert report.findings == ()
    assert report.blocks == 0


def test_deposits_removals_and_collections_beside_a_check(store: BlockStore) -> None:
    errors: list[BaseException] = []
    stop = threading.Event()

    def churn() -> None:
        try:
            with BlockStore(store.root) as other:
                step = 0
                while not stop.is_set():
                    manifest, segments = block([200 + step % 3, 1, 2, 3, 4, 5], salt=2)
                    other.put(manifest, segments)
                    other.set_name(named(manifest, "churn"))
                    if step % 2:
                        other.remove_block(manifest.block_id)
                        other.collect()
                    step += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        until = time.monotonic() + 1.5
        rounds = 0
        while time.monotonic() < until or rounds < 5:
            report = check(store.files)
            assert report.damage == ()
            assert {finding.kind for finding in report.findings} <= {Kind.ORPHAN}, "removed, not collected yet"
            rounds += 1
    finally:
        stop.set()
        thread.join()
    assert errors == []


def test_a_collector_does_not_wait_for_a_whole_check(store: BlockStore) -> None:
    """While a check is between blocks the lock is free: whoever waits for it gets it."""
    for number in range(20):
        store.put(*block([300 + number], salt=3))
    got = threading.Event()

    def collect() -> None:
        with BlockStore(store.root) as other:
            other.collect()
        got.set()

    at: list[bool] = []
    thread = threading.Thread(target=collect)

    def progress(done: int, total: int, label: str) -> None:
        if not at:
            thread.start()
        at.append(got.is_set())
        time.sleep(0.02)

    assert check(store.files, progress=progress).findings == ()
    thread.join()
    assert at[-1]


def test_repair_waits_for_readers(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(segment(store, OTHER[0]))
    report = check(store.files)
    monkeypatch.setattr("agentkv.io.lock.WAIT_S", 0.05)
    other = BlockStore(store.root)
    with other.files.lock.shared():
        before = everything(store.root)
        real = store.files.lock.try_exclusive
        monkeypatch.setattr(store.files.lock, "try_exclusive", lambda wait_s=0.0: real(0.05))
        with pytest.raises(StoreReadError):
            repair(store.files, report)
        assert everything(store.root) == before


# --- dying ------------------------------------------------------------------------------------------


def harm_all(store: BlockStore) -> None:
    """Damage of every kind that a repair moves: it takes the whole chain and leaves the third block."""
    flip(segment(store, PARENT[0], 0))
    flip(manifest_file(store, CHILD[0]))
    flip(store.files.texts.path(sha256(b"text 2")))
    flip(store.root / "agentkv-settings.json")


def die_at_every_call(root: Path, limit: int) -> None:
    """For k = 0, 1, …: a child repairs ``root/k`` and dies at its k-th call, until one does not."""
    os.fsync = lambda fd: None
    template = root.with_name(f"{root.name}-template")
    harm_all(fill(template))
    for k in range(limit):
        shutil.copytree(template, root / str(k))
        pid = os.fork()
        if pid == 0:
            store = BlockStore(root / str(k))
            report = check(store.files)
            with injected(Fault(k, lambda: os._exit(9))):
                repair(store.files, report)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
            return
    raise SystemExit(f"still dying at call {limit}")


def test_dying_at_every_step_of_a_repair_leaves_what_a_second_one_finishes(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    command = [sys.executable, "-m", "tests.store.test_check", str(root), "80"]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=60)
    roots = sorted(root.iterdir(), key=lambda path: int(path.name))
    assert len(roots) > 10
    states = set()
    for place in roots:
        store = BlockStore(place, create=False)
        report = check(store.files)
        states.add((len(report.damage), quarantined(store.files)[0]))
        repair(store.files, report)
        assert {path.name for path in store.files.quarantine.iterdir()} != set()
        moved = quarantined(store.files)[0]
        assert moved >= 10, "segment, text, settings, two names, pins, imports and manifests"
        assert_whole_without(store, PARENT, CHILD)
    assert len(states) > 6, "the deaths left different states"


def test_quarantine_keeps_equal_names_apart_and_is_emptied_on_request(store: BlockStore) -> None:
    sizes = []
    for _ in range(2):
        store.put(*CHILD)
        path = segment(store, CHILD[0])
        flip(path)
        sizes.append(path.stat().st_size)
        repair(store.files, check(store.files))
    moved = [path for path in store.files.quarantine.iterdir() if path.name.startswith("segments-")]
    assert len(moved) == 2
    assert all(CHILD[0].segments[-1].sha256 in path.name for path in moved)
    (store.files.quarantine / "folder").mkdir()
    (store.files.quarantine / "folder" / "file").write_bytes(b"12345")
    victim = store.root.parent / "victim"
    victim.write_text("keep")
    (store.files.quarantine / "link").symlink_to(victim)
    count, n_bytes = quarantined(store.files)
    assert n_bytes > sum(sizes)
    assert check(store.files).damage == ()
    assert empty_quarantine(store.files) == (count, n_bytes)
    assert quarantined(store.files) == (0, 0)
    assert victim.read_text() == "keep"


if __name__ == "__main__":
    die_at_every_call(Path(sys.argv[1]), int(sys.argv[2]))
