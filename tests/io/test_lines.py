"""A log of lines: whole lines from everybody, each read once though the files rotate, links never followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkv.errors import StoreReadError
from agentkv.io import fsio
from agentkv.io.lines import LineLog


def log_in(folder: Path, **how: int) -> LineLog:
    return LineLog(folder / "log", "stem", max_bytes=how.get("max_bytes", 100), keep=how.get("keep", 50), within=folder)


def test_lines_come_back_in_order_over_all_files(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    written = [f"line {k}".encode() for k in range(40)]
    for line in written:
        log.append(line)
    assert list(log.lines()) == written
    assert len(list(log.folder.glob("stem-*.jsonl"))) > 2
    assert all(path.stat().st_size <= 100 for path in log.folder.glob("*.jsonl"))


def test_a_rotation_while_it_is_read_neither_loses_nor_repeats_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(tmp_path)
    written = [f"line {k:03}".encode() for k in range(15)]
    for line in written:
        log.append(line)
    rotated = LineLog._rotated

    def later(self: LineLog) -> list[Path]:
        monkeypatch.setattr(LineLog, "_rotated", rotated)
        for k in range(20):  # the file read as the current one is an older one by now
            log.append(f"later {k}".encode())
        return rotated(self)

    monkeypatch.setattr(LineLog, "_rotated", later)
    found = list(log.lines())
    assert [line for line in found if line.startswith(b"line")] == written
    assert len(set(found)) == len(found)


def test_a_line_cut_short_by_a_crash_spoils_no_other(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(b"one")
    with log.current.open("ab") as file:
        file.write(b"tw")
    log.append(b"three")
    assert list(log.lines()) == [b"one", b"tw", b"three"]


def test_a_write_that_is_cut_short_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_in(tmp_path)
    log.append(b"one")
    write = os.write
    monkeypatch.setattr("agentkv.io.lines.os.write", lambda fd, data: write(fd, data[:2]))
    log.append(b"two")
    monkeypatch.undo()
    log.append(b"three")
    assert (log.lost, "No space" in log.reason) == (1, True)
    assert list(log.lines()) == [b"one", b"tw", b"three"]


def test_a_log_that_another_holds_is_not_waited_for_long(tmp_path: Path) -> None:
    log = LineLog(tmp_path, "stem", max_bytes=100, keep=1, wait_s=0.05)
    with fsio.file_lock(tmp_path / "stem.lock", exclusive=True, wait_s=0):
        log.append(b"one")
    assert (log.lost, list(log.lines())) == (1, [])
    log.append(b"two")
    assert (log.lost, list(log.lines())) == (1, [b"two"])


@pytest.fixture(params=["folder", "file", "file to a file that is there"])
def linked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LineLog]:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "store").mkdir()
    log = log_in(tmp_path / "store")
    if request.param == "folder":
        log.folder.symlink_to(outside)
    else:
        log.folder.mkdir()
        if request.param != "file":
            (outside / "x").write_bytes(b"keep\n")
        log.current.symlink_to(outside / "x")
    before = {path: path.read_bytes() for path in outside.iterdir()}
    yield log
    assert {path: path.read_bytes() for path in outside.iterdir()} == before


def test_no_link_is_followed(linked: LineLog) -> None:
    linked.append(b"one")
    assert linked.lost == 1
    with pytest.raises(StoreReadError):
        list(linked.lines())


def test_a_log_that_is_not_there_has_no_lines_and_is_not_made_by_reading(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert list(log.lines()) == []
    assert list(tmp_path.iterdir()) == []
