"""Several processes and threads on one store (B11)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agentkv.errors import StoreReadError, UnknownBlock, UsageError
from agentkv.io import fsio
from agentkv.io import lock as locks
from agentkv.io.lock import StoreLock
from agentkv.records import SegmentRef
from agentkv.store.catalog import BlockStore
from tests.store.blocks import block, contents, named, temporaries

REPOSITORY = Path(__file__).resolve().parents[2]

WRITER = """
import sys
from agentkv.store.catalog import BlockStore
from tests.store.blocks import block, named
same = block(list(range(12)))
with BlockStore(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(15):
        other = block([100 + step % 4])
        for manifest, segments in (same, other):
            store.put(manifest, segments)
            store.set_name(named(manifest, "one-name"))
            store.verify(manifest.block_id)
            assert store.name("skill", "one-name", manifest.fingerprint.id) is not None
        if step % 5 == 4:
            store.collect(min_age_s=3600.0)
"""


def test_four_processes_depositing_the_same_content(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
    processes = [
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    ends = [process.communicate("go\n", timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, ends
    expected = {block(list(range(12)))[0].block_id} | {block([100 + step])[0].block_id for step in range(4)}
    with BlockStore(tmp_path / "store", create=False) as store:
        assert set(store.block_ids()) == expected
        for block_id in expected:
            store.verify(block_id)
        assert len(store.names()) == 1
        assert temporaries(store.root) == []
        assert store.collect(min_age_s=0.0).segments == 0


def test_threads_deposit_read_and_fail_beside_each_other(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    errors: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for step in range(12):
                manifest, segments = block([(step + offset) % 5, 1, 2, 3, 4, 5])
                store.put(manifest, segments)
                read: dict[str, bytes] = {}
                store.read(manifest, lambda ref, raw, read=read: read.update({ref.sha256: raw.tobytes()}))  # type: ignore[misc]
                assert read == segments
                with pytest.raises(ZeroDivisionError):
                    store.put(*failing(offset))
        except BaseException as error:
            errors.append(error)

    def failing(offset: int):  # type: ignore[no-untyped-def]
        manifest, segments = block([900 + offset, 1, 2, 3, 4])

        def source(ref):  # type: ignore[no-untyped-def]
            if ref.start == 4:
                raise ZeroDivisionError
            return segments[ref.sha256]

        return manifest, source

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list(store.block_ids())) == 5
    assert store.collect(min_age_s=0.0).segments == 0, "failed deposits leave no segments"


def test_a_rename_refused_three_times_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore(tmp_path / "store")
    refused: list[object] = []
    real = os.replace

    def replace(source: object, target: object) -> None:
        if len(refused) < 3:
            refused.append(target)
            raise PermissionError(13, "Access is denied")
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr("os.replace", replace)
    manifest, segments = block([1])
    assert store.put(manifest, segments) is True
    store.set_name(named(manifest))
    assert store.verify(manifest.block_id) == manifest
    assert temporaries(store.root) == []
    assert len(refused) == 3


# --- the lock -------------------------------------------------------------------------------------


class Holding(threading.Thread):
    """A thread that shares the lock until it is asked to let go."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._root, self._ready, self._end = root, threading.Event(), threading.Event()

    def __enter__(self) -> Holding:
        self.start()
        assert self._ready.wait(5)
        return self

    def run(self) -> None:
        with StoreLock(self._root).shared():
            self._ready.set()
            self._end.wait(20)

    def let_go(self) -> None:
        self._end.set()

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self.join()


def test_who_waits_to_be_alone_lets_nobody_in_before_it(tmp_path: Path) -> None:
    order: list[str] = []

    def alone() -> None:
        with StoreLock(tmp_path).try_exclusive() as got:
            assert got
            order.append("alone")

    def shared() -> None:
        with StoreLock(tmp_path).shared():
            order.append("shared")

    with Holding(tmp_path) as holding:
        threads = [threading.Thread(target=work) for work in (alone, shared)]
        threads[0].start()
        time.sleep(0.1)
        threads[1].start()
        time.sleep(0.1)
        assert order == []
        holding.let_go()
        for thread in threads:
            thread.join()
    assert order == ["alone", "shared"]


def test_a_long_deposit_and_who_waits_for_its_end_do_not_keep_readers_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_CLOSED_S", 0.2)
    done: list[bool | None] = []

    def alone() -> None:
        with StoreLock(tmp_path).try_exclusive(wait_s=3.0) as got:
            done.append(got)

    with Holding(tmp_path) as holding:
        thread = threading.Thread(target=alone)
        thread.start()
        time.sleep(0.1)
        for _ in range(3):
            with StoreLock(tmp_path).shared(wait_s=1.0):  # StoreReadError if the gate stayed closed
                assert done == []
        holding.let_go()
        thread.join()
    assert done == [True]


def test_long_deposits_that_overlap_keep_nobody_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_CLOSED_S", 0.05)
    monkeypatch.setattr(locks, "_OPEN_S", 0.02)
    end = threading.Event()

    def deposits() -> None:
        while not end.is_set():
            with StoreLock(tmp_path).shared():
                time.sleep(0.3)  # longer than the gate is closed at first

    threads = [threading.Thread(target=deposits) for _ in range(3)]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(0.1 if number < 2 else 0)
    try:
        with StoreLock(tmp_path).try_exclusive(wait_s=5.0) as got:
            assert got is True
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_waiting_to_be_alone_ends_in_time_and_says_so(tmp_path: Path) -> None:
    with Holding(tmp_path):
        start, lock = time.monotonic(), StoreLock(tmp_path)
        with lock.try_exclusive(wait_s=0.3) as got:
            assert (got, lock.is_held) == (False, False)
        assert 0.25 < time.monotonic() - start < 1.5
        with pytest.raises(StoreReadError, match="other processes"), StoreLock(tmp_path).exclusive(wait_s=0.0):
            pass
        with StoreLock(tmp_path).shared(wait_s=0.0):  # and the gate is open again
            pass


def test_whoever_is_alone_keeps_everybody_out_of_both_files(tmp_path: Path) -> None:
    with StoreLock(tmp_path).try_exclusive() as got:
        assert got
        errors: list[Exception] = []

        def shared() -> None:
            try:
                with StoreLock(tmp_path).shared(wait_s=0.05):
                    pass
            except StoreReadError as error:
                errors.append(error)

        thread = threading.Thread(target=shared)
        thread.start()
        thread.join()
        assert len(errors) == 1


def test_a_thread_that_shares_cannot_ask_to_be_alone_and_gets_an_error_at_once(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    with lock.shared(), lock.shared():
        assert (lock.is_held, lock.is_exclusive) == (True, False)
        with pytest.raises(UsageError, match="at work"), lock.try_exclusive():
            pass
    assert not lock.is_held
    with lock.try_exclusive():
        assert lock.is_exclusive
        with lock.shared():  # what is alone may read
            assert lock.is_exclusive
    assert (lock.is_held, lock.is_exclusive) == (False, False)


def test_a_reader_that_removes_from_within_a_read_gets_an_error_at_once(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "store") as store:
        manifest, segments = block([1])  # one segment: the sink runs in this thread
        store.put(manifest, segments)
        with pytest.raises(UsageError):
            store.read(manifest, lambda *_: store.remove_block(manifest.block_id))  # type: ignore[arg-type]
        assert store.verify(manifest.block_id)


def test_a_failure_inside_more_work_is_the_error_that_is_raised(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "store") as store:
        manifest, segments = block(list(range(8)))

        def source(ref: SegmentRef) -> bytes:
            if ref.start == 0:
                return segments[ref.sha256]
            raise ZeroDivisionError

        with store.files.lock.shared(), pytest.raises(ZeroDivisionError):
            store.put(manifest, source)
        assert not store.has(manifest.block_id)
        with BlockStore(store.root) as opened:  # what it could not take back then, the next open does
            assert not list(opened.files.temporaries.iterdir())


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with StoreLock(tmp_path).try_exclusive():
            os._exit(9)
    os.waitpid(child, 0)
    with StoreLock(tmp_path).try_exclusive(wait_s=0.0) as got:
        assert got is True


# --- without locks ----------------------------------------------------------------------------------


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsio, "fcntl", None)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_nothing_young_is_taken_for_left_over(tmp_path: Path) -> None:
    manifest, segments = block(list(range(8)))
    with BlockStore(tmp_path / "store") as store:

        def source(ref: object) -> bytes:
            under_way = contents(store.root)
            assert any(name.endswith(".intent") for name in under_way)
            with BlockStore(store.root) as other:  # opens, collects and evicts in the middle of this deposit
                assert other.collect().segments == 0
                assert not other.evict(0).victims
            assert contents(store.root).keys() >= under_way.keys()
            return segments[ref.sha256]  # type: ignore[attr-defined]

        assert store.put(manifest, source)
        assert store.verify(manifest.block_id)
        assert temporaries(store.root) == []


@pytest.mark.usefixtures("no_locks")
def test_without_locks_an_eviction_leaves_segments_that_somebody_may_be_about_to_use(tmp_path: Path) -> None:
    first, segments = block(list(range(8)))
    twin = block([9, 9, 9, 9, 9, 9, 9, 9])[0].model_copy(update={"segments": first.segments})
    with BlockStore(tmp_path / "store") as store:
        store.put(first, segments)

        real = store.segments.flush

        def flush(digests: object) -> None:  # the twin's deposit has found all its segments; now its manifest follows
            with BlockStore(store.root) as other:
                assert [victim.block_id for victim in other.evict(0).victims] == [first.block_id]
            real(digests)  # type: ignore[arg-type]

        store.segments.flush = flush  # type: ignore[method-assign]
        assert store.put(twin, {})
        assert store.verify(twin.block_id) == twin
        with pytest.raises(UnknownBlock):
            store.verify(first.block_id)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_failed_deposit_is_collected_once_it_is_old(tmp_path: Path) -> None:
    manifest, segments = block(list(range(8)))

    def first_only(ref: SegmentRef) -> bytes:
        if ref.start:
            raise ZeroDivisionError
        return segments[ref.sha256]

    with BlockStore(tmp_path / "store") as store:
        with pytest.raises(ZeroDivisionError):
            store.put(manifest, first_only)
        left = [path for path in store.root.rglob("*") if path.suffix in (".seg", ".intent")]
        assert left
        assert store.collect().temporaries == 0
        for path in left:
            os.utime(path, (1, 1))
        store.collect()
        assert [path for path in left if path.exists()] == []
