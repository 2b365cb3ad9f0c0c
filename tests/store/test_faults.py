"""Fail and die at every write, fsync, rename and mkdir of a deposit: whole or absent (B08 to B10)."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.errors import StoreError, StoreFull, StoreReadError
from agentkv.io.hashing import sha256
from agentkv.store.catalog import BlockStore
from agentkv.store.deposit import write_name
from agentkv.store.format import Limits, encode_name
from tests.store.blocks import block, contents, named, state, temporaries
from tests.store.faults import CALLS, Fault, injected

REPOSITORY = Path(__file__).resolve().parents[2]
EARLIER = block(list(range(6)))
CHILD = block([6, 7, 8], parent=EARLIER[0])


@functools.cache
def template() -> tempfile.TemporaryDirectory[str]:
    """A store with the earlier block in it, made once and copied."""
    directory = tempfile.TemporaryDirectory()
    with BlockStore(directory.name) as store:
        store.put(*EARLIER)
        store.set_name(named(EARLIER[0]))
    return directory


@pytest.fixture(autouse=True, scope="module")
def _remove_the_template() -> Iterator[None]:
    yield
    template().cleanup()
    template.cache_clear()


def filled(root: Path) -> BlockStore:
    shutil.copytree(template().name, root, dirs_exist_ok=True)
    return BlockStore(root)


def calls_of_a_deposit(root: Path) -> list[tuple[str, str]]:
    store, fault = filled(root), Fault(None, lambda: None)
    with injected(fault):
        store.put(*CHILD)
    return fault.calls


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def assert_whole(root: Path) -> None:
    """Every listed block restores, the earlier one is listed, and the interrupted deposit can be repeated."""
    with BlockStore(root, create=False, verify="always") as store:
        assert store.has(EARLIER[0].block_id)
        for block_id in store.block_ids():
            store.verify(block_id)
        for found in store.names():
            assert store.has(found.block_id)
        store.put(*CHILD)
        assert store.verify(CHILD[0].block_id) == CHILD[0]
        store.set_name(named(CHILD[0]))


def test_a_deposit_makes_every_kind_of_call(tmp_path: Path) -> None:
    calls = calls_of_a_deposit(tmp_path)
    assert {name for name, _ in calls} == set(CALLS)
    assert len(calls) < 60


def test_segments_and_their_directories_are_durable_before_the_manifest(tmp_path: Path) -> None:
    calls = calls_of_a_deposit(tmp_path)
    commit = next(i for i, call in enumerate(calls) if call[0] == "rename" and "/manifests/" in str(call[1]))
    segments = tmp_path / "segments"
    renamed = {Path(str(path)): i for i, (name, path) in enumerate(calls) if name == "rename" and i != commit}
    assert {path.name.removesuffix(".seg") for path in renamed} == set(CHILD[1])
    for path, renaming in renamed.items():
        synced = [i for i, call in enumerate(calls) if call == ("fsync", str(path.parent))]
        assert any(renaming < i < commit for i in synced)
    assert any(call == ("fsync", str(segments)) for call in calls[:commit])
    after = [call for call in calls[commit + 1 :] if call[0] == "fsync"]
    assert after == [("fsync", str(Path(str(calls[commit][1])).parent))]
    assert len([call for call in calls if call[0] == "fsync" and str(call[1]).endswith(".tmp")]) == len(renamed) + 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "Input/output error"), StoreReadError),
        (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_every_failing_call_raises_and_leaves_nothing_half_done(
    tmp_path: Path, error: BaseException, kind: type[BaseException]
) -> None:
    total = len(calls_of_a_deposit(tmp_path / "count"))
    committed = 0
    for k in range(total):
        root = tmp_path / str(k)
        store = filled(root)
        before = contents(root)
        with injected(Fault(k, raising(error))), pytest.raises(kind) as caught:
            store.put(*CHILD)
        if isinstance(caught.value, StoreFull):
            assert caught.value.path.is_relative_to(root)
        assert temporaries(root) == []
        if store.has(CHILD[0].block_id):
            committed += 1  # only the sync of the directory after the rename can be so late
        else:
            assert contents(root) == before
            assert [found.block_id for found in store.names()] == [EARLIER[0].block_id]
        assert store.verify(EARLIER[0].block_id)
        assert_whole(root)
    assert committed == 1


def test_dying_at_every_call_leaves_a_block_wholly_there_or_absent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.store.faults", str(tmp_path), "80"]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=60)
    roots = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
    assert len(roots) > 20
    seen = set()
    for root in roots:
        with BlockStore(root, create=False) as store:
            seen.add((store.has(CHILD[0].block_id), len(store.names()), bool(temporaries(root))))
        assert_whole(root)
        with BlockStore(root, create=False) as store:
            store.collect(min_age_s=0.0)
            assert temporaries(root) == []
            assert store.verify(EARLIER[0].block_id)
            assert store.verify(CHILD[0].block_id)
    assert {there for there, _, _ in seen} == {True, False}


def test_a_full_disk_names_the_path_and_the_bytes_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    before = contents(tmp_path)
    large = block([50, 51], n_bytes=40_000)
    real, room = os.write, 1000

    def write(fd: int, data: memoryview) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real(fd, data[:room])
        room -= done
        return done

    with monkeypatch.context() as patch:
        patch.setattr("os.write", write)
        with pytest.raises(StoreFull) as caught:
            store.put(*large)
    digest = large[0].segments[0].sha256
    assert caught.value.path.name == f"{digest}.seg"
    assert 1000 < caught.value.needed < 40_200
    assert contents(tmp_path) == before
    assert store.put(*large) is True
    assert store.verify(large[0].block_id)


def test_a_name_is_written_with_its_text_or_neither_is(tmp_path: Path) -> None:
    text = "What the name stands for.\n"
    new = named(EARLIER[0], "new").model_copy(update={"source_sha256": sha256(text.encode())})
    data = encode_name(new, Limits())
    count, counted = Fault(None, lambda: None), filled(tmp_path / "count")
    with injected(count):
        write_name(counted.files, new, data, text)
    assert len(count.calls) > 10
    for k in range(len(count.calls)):
        store = filled(tmp_path / str(k))
        before = contents(store.root)
        with injected(Fault(k, raising(KeyboardInterrupt()))), pytest.raises(KeyboardInterrupt):
            write_name(store.files, new, data, text)
        if store.name("skill", "new", new.fingerprint_id) is None:
            assert contents(store.root) == before
        else:  # only the sync of the directory after the rename can be so late
            assert store.text(new.source_sha256 or "") == text
        write_name(store.files, new, data, text)
        assert store.text(new.source_sha256 or "") == text
        assert not list(store.files.temporaries.iterdir())


def test_a_text_that_another_name_needs_is_not_taken_back(tmp_path: Path) -> None:
    text = "What both names stand for.\n"
    store = filled(tmp_path)
    one, two = (
        named(EARLIER[0], name).model_copy(update={"source_sha256": sha256(text.encode())}) for name in ("one", "two")
    )

    def act() -> None:  # while the first one's text is there and its name is not
        write_name(BlockStore(tmp_path).files, two, encode_name(two, Limits()), text)
        raise OSError(errno.EIO, "Input/output error")

    count, counted = Fault(None, lambda: None), filled(tmp_path / "count")
    with injected(count):
        write_name(counted.files, one, encode_name(one, Limits()), text)
    at = next(i for i, call in enumerate(count.calls) if call[0] == "rename" and "/names/" in str(call[1]))
    with injected(Fault(at, act)), pytest.raises(StoreReadError):
        write_name(store.files, one, encode_name(one, Limits()), text)
    assert [found.name for found in store.names() if found.source_sha256] == ["two"]
    assert store.text(sha256(text.encode())) == text


def test_what_a_failed_deposit_shares_with_a_committed_one_stays(tmp_path: Path) -> None:
    store = filled(tmp_path)
    other, _ = block([6, 7, 9], parent=EARLIER[0])
    shared = other.model_copy(update={"segments": CHILD[0].segments})

    def act() -> None:
        assert {path.stem for path in (tmp_path / "segments").rglob("*.seg")} >= set(CHILD[1])
        BlockStore(tmp_path).put(shared, CHILD[1])  # another deposit commits with the same new segments
        raise OSError(errno.ENOSPC, "No space left on device")

    fault = Fault(None, act)
    calls = calls_of_a_deposit(tmp_path.parent / f"{tmp_path.name}-count")
    # The segments are in place by then, the manifest is not.
    fault.at = next(i for i, call in enumerate(calls) if "/manifests" in str(call[1]))
    with injected(fault), pytest.raises(StoreFull):
        store.put(*CHILD)
    assert not store.has(CHILD[0].block_id)
    assert store.verify(shared.block_id) == shared


def test_a_read_only_store_is_read_without_one_write(tmp_path: Path) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    fault = Fault(None, lambda: None)
    real_open = os.open

    def open_for_reading(path: str, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return real_open(path, flags, *rest, **options)

    os.open = open_for_reading  # type: ignore[assignment]
    try:
        with injected(fault), BlockStore(tmp_path, create=False) as store:
            assert store.verify(EARLIER[0].block_id)
            assert len(store.names()) == 1
            assert store.sizes(EARLIER[0]).raw == 512
            with pytest.raises(StoreError):
                store.put(*CHILD)
    finally:
        os.open = real_open
    assert fault.calls == []
    assert contents(tmp_path) == before


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_refused_read_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    store = filled(tmp_path)

    def refuse(*args: object, **options: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.open", refuse)
    for call in (
        lambda: store.verify(EARLIER[0].block_id),
        lambda: store.read(EARLIER[0], lambda ref, raw: None),
        lambda: store.name("skill", "parse-pdf", EARLIER[0].fingerprint.id),
        lambda: store.has(EARLIER[0].block_id),
    ):
        with pytest.raises(StoreReadError):
            call()


def test_creation_fails_or_dies_at_every_call_and_the_next_one_works(tmp_path: Path) -> None:
    count = Fault(None, lambda: None)
    with injected(count):
        BlockStore(tmp_path / "count" / "store")
    for k in range(len(count.calls)):
        with injected(Fault(k, raising(OSError(errno.EIO, "Input/output error")))), pytest.raises(StoreError):
            BlockStore(tmp_path / str(k) / "store")
        store = BlockStore(tmp_path / str(k) / "store")
        assert store.put(*EARLIER) is True


def test_bytes_in_a_store_are_named_by_their_digest(tmp_path: Path) -> None:
    filled(tmp_path)
    assert {path.stem for path in (tmp_path / "segments").rglob("*.seg")} == set(EARLIER[1])
    assert all(sha256(data) == digest for digest, data in EARLIER[1].items())
    assert state(1) == state(1)


# --- a disk that is really full -------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, where this may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bfree * found.f_frsize


def fill(disk: Path) -> Path:
    """Leave not one byte."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert free(disk) == 0
    return ballast


def test_b10_a_full_disk_costs_the_deposit_and_nothing_else(disk: Path) -> None:
    with BlockStore(disk / "store", codec="raw", verify="always") as store:
        made = []
        for number in range(12):
            manifest, segments = block([number, 1, 2, 3, 4, 5, 6, 7], n_bytes=300_000)
            store.put(manifest, segments)
            made.append(manifest)
        manifest, segments = block([99, 1, 2, 3, 4, 5, 6, 7], n_bytes=600_000)
        before, room = contents(store.root), free(disk)
        assert 600_000 < room < 1_200_000  # one of the two segments fits
        with pytest.raises(StoreFull) as caught:
            store.put(manifest, segments)
        error = caught.value
        assert error.path.is_relative_to(store.root)
        assert error.needed == 600_096
        assert error.free is not None
        assert error.free < error.needed
        assert f"{error.needed:,}" in error.message
        assert contents(store.root) == before
        assert free(disk) == room
        for earlier in made:
            store.verify(earlier.block_id)
        store.remove_block(made[0].block_id)
        assert store.collect().bytes > 600_000
        assert store.put(manifest, segments) is True  # the same deposit, without any cleaning by hand
        for there in (*made[1:], manifest):
            store.verify(there.block_id)


def test_b10_a_full_disk_keeps_nobody_from_reading_routing_and_making_room(disk: Path) -> None:
    engine = FakeEngine(window=2048)
    with BlockStore(disk / "store") as store:
        memory = AgentMemory(store, engine)
        memory.deposit_text("returns", "Returns are taken for 30 days.", "Returning goods.")
        memory.deposit_text("warranty", "The warranty lasts for two years.", "What is guaranteed.")
        expected = memory.ask("How long?", skill="returns", max_new=4)
    ballast = fill(disk)
    with BlockStore(disk / "store", create=False, verify="always", cache_bytes=0) as store:
        memory = AgentMemory(store, engine)
        turn = memory.ask("How long?", skill="returns", max_new=4)
        assert (turn.not_restored, turn.logits_sha256) == (None, expected.logits_sha256)
        routed = memory.ask("How long?", max_new=4)  # restores the cards, reads the names
        assert routed.not_restored is None
        assert set(routed.decision.scores) >= {"returns", "warranty"}
        store.uses()  # which writes what was noted, or cannot
        with pytest.raises(StoreFull):
            memory.deposit_text("late", "There is no room for this one. " * 30)
        assert temporaries(store.root) == []
        before = {victim.block_id for victim in store.evict(0, dry_run=True).victims}
        assert {victim.block_id for victim in store.evict(0).victims} == before  # making room needs none
        assert list(store.block_ids()) == []
    ballast.unlink()
    with BlockStore(disk / "store", create=False) as store:
        AgentMemory(store, engine).deposit_text("late", "There is no room for this one. " * 30)


def test_b10_a_full_disk_opens_a_store_that_nobody_has_locked_yet(disk: Path) -> None:
    filled(disk / "store")
    for name in ("agentkv-store.lock", "agentkv-gate.lock"):
        (disk / "store" / name).unlink(missing_ok=True)
    fill(disk)
    with BlockStore(disk / "store", create=False) as store:
        assert store.verify(EARLIER[0].block_id)


def test_a_store_on_a_read_only_disk_is_read_routed_and_left_as_it_is(disk: Path) -> None:
    engine = FakeEngine(window=2048)
    with BlockStore(disk / "store") as store:
        AgentMemory(store, engine).deposit_text("returns", "Returns are taken for 30 days.", "Returning goods.")
        block_id = store.names()[0].block_id
        (store.files.temporaries / "left.1.0123456789ab.tmp").write_bytes(b"x")
    before = contents(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with BlockStore(disk / "store", create=False) as store:
        memory = AgentMemory(store, engine)
        assert memory.ask("How long?", max_new=4).not_restored is None
        assert memory.ask("How long?", skill="returns", max_new=4).not_restored is None
        assert store.uses()[block_id].hits > 0
        assert store.collect(dry_run=True).temporaries == 1
        for change in (
            lambda: memory.deposit_text("more", "There is more."),
            lambda: store.pin(block_id),
            lambda: store.remove_block(block_id),
            lambda: store.set_budget(1),
            lambda: store.evict(0),
            store.collect,
        ):
            with pytest.raises(StoreReadError):
                change()
    assert contents(disk) == before


def test_a_limit_on_the_size_of_files_is_a_full_disk_too(tmp_path: Path) -> None:
    store = filled(tmp_path)
    before = contents(tmp_path)
    large = block([50, 51], n_bytes=400_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StoreFull) as caught:
            store.put(*large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.needed > 100_000
    assert contents(tmp_path) == before
    assert store.put(*large) is True


def test_a_ctrl_c_right_after_a_rename_leaves_nothing_either(tmp_path: Path) -> None:
    """The segment is in place by then, and whoever placed it does not know yet."""
    store = filled(tmp_path)
    before, real = contents(tmp_path), os.replace

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        raise KeyboardInterrupt

    manifest, segments = block([70, 71])
    os.replace = replace  # type: ignore[assignment]
    try:
        with pytest.raises(KeyboardInterrupt):
            store.put(manifest, segments)
    finally:
        os.replace = real
    assert contents(tmp_path) == before
