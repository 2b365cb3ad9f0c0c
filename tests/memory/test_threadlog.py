from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import CorruptThread, StoreReadError, ThreadChanged, UsageError
from agentkv.memory.threadlog import EMPTY, THREADS, ThreadLog, thread_names
from agentkv.records import ThreadEntry
from agentkv.store.catalog import BlockStore
from agentkv.store.findings import Kind


def entry(after: int = 0, text: str | None = "hello", **changes: Any) -> ThreadEntry:
    return ThreadEntry(
        **{
            "thread_id": "a/b ../c",
            "seq": after + 1,
            "after": after,
            "question": text,
            "answer": text,
            "skill": None,
            "finish": "stop" if text else None,
            "checkpoint": None,
            **changes,
        }
    )


def append(log: ThreadLog, entry: ThreadEntry) -> ThreadEntry:
    """After whatever is newest."""
    return log.append(entry, log.head())[0]


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "store")


@pytest.fixture
def log(store: BlockStore) -> ThreadLog:
    return ThreadLog(store.files, "a/b ../c")


def test_entries_are_numbered_as_they_come_and_lead_to_one_another(log: ThreadLog, store: BlockStore) -> None:
    assert log.numbers() == []
    written = [append(log, entry(after, f"turn {after}")) for after in (0, 1, 2, 1)]
    assert [one.seq for one in written] == log.numbers() == [1, 2, 3, 4]
    assert log.way_to(3) == written[:3]
    assert log.way_to(4) == [written[0], written[3]]
    append(log, entry(3, None))
    assert log.way_to(5) == written[:3], "a rewind is not a turn"
    assert thread_names(store.files) == ["a/b ../c"]
    assert log.folder.parent == store.root / THREADS, "a name is never a path"
    assert not store.check().findings


def test_of_writers_at_once_who_know_one_head_one_writes(store: BlockStore) -> None:
    logs = [ThreadLog(BlockStore(store.root).files, "a/b ../c") for _ in range(4)]
    won: list[str] = []
    lost: list[str] = []
    start = threading.Barrier(4)

    def write(log: ThreadLog, name: str) -> None:
        for i in range(8):
            head = log.head()
            start.wait()
            try:
                log.append(entry(0, f"{name} {i}"), head)
                won.append(f"{name} {i}")
            except ThreadChanged:
                lost.append(f"{name} {i}")
            start.wait()

    threads = [threading.Thread(target=write, args=(log, str(i))) for i, log in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logs[0].numbers() == list(range(1, 9))
    assert [logs[0].read(seq).question for seq in logs[0].numbers()] == won
    assert len(lost) == 24
    assert list((store.root / "tmp").iterdir()) == []


def test_a_log_that_was_begun_anew_has_another_head(log: ThreadLog) -> None:
    head = log.append(entry(text="one"), EMPTY)[1]
    assert log.head() == head
    log.remove()
    with pytest.raises(ThreadChanged):
        log.append(entry(1), head)
    append(log, entry(text="two"))
    with pytest.raises(ThreadChanged):
        log.append(entry(1), head)
    assert log.numbers() == [1]


def test_what_was_left_out_is_in_the_entry_and_an_entry_without_it_has_the_bytes_of_before(log: ThreadLog) -> None:
    plain = append(log, entry())
    assert b"left_out" not in log.path(1).read_bytes()
    cut = append(log, entry(1, left_out=1, summary="They said hello."))
    assert [log.read(seq) for seq in (1, 2)] == [plain, cut]
    data = log.path(2).read_bytes()
    log.path(2).write_bytes(data.replace(b'"left_out":1', b'"left_out":2'))
    with pytest.raises(CorruptThread):
        log.read(2)


@pytest.mark.parametrize("at", [5, 40, -3])
def test_a_flipped_bit_is_found_here_and_by_a_check_and_moved_aside(store: BlockStore, log: ThreadLog, at: int) -> None:
    for after in range(3):
        append(log, entry(after))
    path = log.path(2)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptThread) as caught:
        log.way_to(3)
    assert caught.value.path == path
    assert len(log.way_to(1)) == 1
    (finding,) = store.check().damage
    assert (finding.kind, finding.path) == (Kind.CORRUPT, path)
    store.repair(store.check())
    assert not store.check().damage
    with pytest.raises(CorruptThread, match="missing"):
        log.way_to(3)


def test_what_is_no_thread_is_told_and_not_followed(store: BlockStore, log: ThreadLog, tmp_path: Path) -> None:
    append(log, entry())
    (log.folder / "notes.txt").write_text("x")
    (store.root / THREADS / "stray").mkdir()
    assert {finding.kind for finding in store.check().findings} == {Kind.FOREIGN}
    assert thread_names(store.files) == ["a/b ../c"]
    other = ThreadLog(store.files, "other")
    (tmp_path / "elsewhere").mkdir()
    other.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreReadError):
        append(other, entry(thread_id="other"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_names_that_cannot_be_kept_are_refused(store: BlockStore) -> None:
    with pytest.raises(UsageError):
        ThreadLog(store.files, "\ud800")
    log = ThreadLog(store.files, "x")
    with pytest.raises(UsageError):
        append(log, entry(thread_id="x", question="\ud800"))
    assert log.numbers() == []
    assert list(store.root.rglob("*.tmp")) == []


def test_removing_takes_the_log_and_nothing_else(store: BlockStore, log: ThreadLog) -> None:
    other = ThreadLog(store.files, "other")
    append(other, entry(thread_id="other"))
    for after in range(3):
        append(log, entry(after))
    assert log.remove() == 3
    assert (log.remove(), log.numbers(), thread_names(store.files)) == (0, [], ["other"])
    assert not log.folder.exists()
