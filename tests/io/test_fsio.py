"""Atomic, durable writes; reads that follow no link and wait on nothing; locks."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from agentkv.errors import StoreFull, StoreReadError
from agentkv.io import fsio


def test_writes_parts_in_order_and_makes_directories(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "file"
    fsio.write_durably(target, [b"one", bytearray(b"two"), memoryview(b"three")])
    assert target.read_bytes() == b"onetwothree"
    fsio.write_durably(target, [b""])
    assert target.read_bytes() == b""
    assert list(target.parent.iterdir()) == [target]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr("os.write", lambda fd, data: real(fd, data[:3]))
    fsio.write_durably(tmp_path / "file", [b"0123456789", b"ab"])
    assert (tmp_path / "file").read_bytes() == b"0123456789ab"


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StoreReadError), (errno.ENOSPC, StoreFull)])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, kind: type[Exception]
) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(f"os.{call}", fail)
        with pytest.raises(kind) as caught:
            fsio.write_durably(target, [b"new", b"er"])
    assert caught.value.path == target  # type: ignore[attr-defined]
    if isinstance(caught.value, StoreFull):
        assert caught.value.needed == 5
        assert caught.value.free is not None
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_rename_is_tried_again_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def refuse(*args: object) -> None:
        tries.append(args)
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr("os.replace", refuse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(StoreReadError):
        fsio.write_durably(tmp_path / "file", [b"x"])
    assert 4 <= len(tries) <= 10
    assert list(tmp_path.iterdir()) == []


def test_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_bytes(b"keep")
    link.symlink_to(victim)
    fsio.write_durably(link, [b"new"])
    assert (victim.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"keep", b"new", False)


def test_each_new_directory_is_synced_into_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(fsio, "sync_directory", synced.append)
    fsio.write_durably(tmp_path / "a" / "b" / "file", [b"x"], sync_parent=False)
    assert synced == [tmp_path, tmp_path / "a"]
    fsio.write_durably(tmp_path / "a" / "b" / "file", [b"y"])
    assert synced[2:] == [tmp_path / "a" / "b"]


def test_reads_a_regular_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert fsio.read_regular(path, 5) == b"12345"
    assert fsio.read_regular(tmp_path / "none", 5) is None
    assert fsio.read_regular(path / "below", 5) is None
    found = fsio.read_identified(path, 5)
    assert found == (b"12345", fsio.identity_of(path.stat()))
    with pytest.raises(StoreReadError, match="limit"):
        fsio.read_regular(path, 4)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "."):
        with pytest.raises(StoreReadError):
            fsio.read_regular(tmp_path / name, 5)


def test_links_between_root_and_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_bytes(b"")
    fsio.refuse_links(tmp_path, tmp_path / "real" / "x")
    fsio.refuse_links(tmp_path, tmp_path / "none" / "none" / "x")
    fsio.refuse_links(tmp_path / "link", tmp_path / "link" / "x")
    for name in ("link", "file"):
        with pytest.raises(StoreReadError):
            fsio.refuse_links(tmp_path, tmp_path / name / "x")


def test_lists_regular_files_one_level_down(tmp_path: Path) -> None:
    for name in ("b", "a/2", "a/1", "a/c/deep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"xy")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b")
    (tmp_path / "z").symlink_to(tmp_path / "a")
    found = [(str(path.relative_to(tmp_path)), size) for path, size in fsio.files_below(tmp_path)]
    assert found == [("a/1", 2), ("a/2", 2), ("b", 2)]
    assert list(fsio.files_below(tmp_path, 60.0)) == []
    assert list(fsio.files_below(tmp_path / "none")) == []


def test_removing_says_whether_there_was_something(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert fsio.remove_file(tmp_path / "file", sync_parent=True) is True
    assert fsio.remove_file(tmp_path / "file") is False
    with pytest.raises(StoreReadError):
        fsio.remove_file(tmp_path)


def test_shared_locks_exclude_an_exclusive_one(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        fsio.file_lock(lock, exclusive=False, wait_s=0) as one,
        fsio.file_lock(lock, exclusive=False, wait_s=0) as two,
        fsio.file_lock(lock, exclusive=True, wait_s=0.03) as three,
    ):
        assert (one, two, three) == (True, True, False)
    with (
        fsio.file_lock(lock, exclusive=True, wait_s=0) as one,
        fsio.file_lock(lock, exclusive=False, wait_s=0) as two,
    ):
        assert (one, two) == (True, False)


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    order: list[object] = []

    def hold() -> None:
        with fsio.file_lock(lock, exclusive=True, wait_s=0):
            order.append("held")
            time.sleep(0.1)
            order.append("released")

    thread = threading.Thread(target=hold)
    thread.start()
    while not order:
        time.sleep(0.001)
    with fsio.file_lock(lock, exclusive=False, wait_s=10) as held:
        order.append(held)
    thread.join()
    assert order == ["held", "released", True]


def test_without_locks_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsio, "fcntl", None)
    with fsio.file_lock(tmp_path / "lock", exclusive=True, wait_s=0) as held:
        assert held is None


def test_a_young_file_is_not_settled() -> None:
    now = time.time_ns()
    assert not fsio.is_settled((1, 1, 1, now))
    assert not fsio.is_settled((1, 1, 1, now + 10**12))
    assert fsio.is_settled((1, 1, 1, now - 10**9))
