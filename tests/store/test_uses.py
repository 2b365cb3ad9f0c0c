"""Counts of use: from threads and processes at once, in a file that may be anything and is never in the way."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentkv.store.uses import USES, VERSION, Use, Uses

REPOSITORY = Path(__file__).resolve().parents[2]
A, B = "aa" * 32, "bb" * 32

COUNTER = """
import sys
from pathlib import Path
from agentkv.store.uses import Uses
uses = Uses(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for step in range(300):
    uses.add(sys.argv[2 + step % 2])
    if step % 7 == 0:
        uses.flush()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / USES


def hits(path: Path) -> dict[str, int]:
    return {block_id: use.hits for block_id, use in Uses(path).all().items()}


def test_counts_and_the_last_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("agentkv.store.uses.time.time", lambda: now[0])
    uses = Uses(path)
    uses.add(A)
    now[0] = 2000.0
    uses.add(A)
    uses.add(B)
    assert uses.all() == {A: Use(2, 2000.0), B: Use(1, 2000.0)}
    now[0] = 1500.0  # a clock set back
    uses.add(A)
    assert uses.all()[A] == Use(3, 2000.0)
    uses.forget([A])
    assert Uses(path).all() == {B: Use(1, 2000.0)}


def test_a_use_is_not_written_at_once_but_seen_at_once(path: Path) -> None:
    uses = Uses(path)
    uses.add(A)
    assert not path.exists()
    assert uses.all()[A].hits == 1
    assert hits(path) == {A: 1}


def test_many_uses_are_written_without_being_asked(path: Path) -> None:
    uses = Uses(path)
    for number in range(256):
        uses.add(f"{number:064x}")
    assert len(hits(path)) == 256


def test_uses_are_written_when_the_object_goes_or_the_process_ends(path: Path) -> None:
    uses = Uses(path)
    uses.add(A)
    del uses
    assert hits(path) == {A: 1}
    program = "import sys; from pathlib import Path; from agentkv.store.uses import Uses; "
    program += "uses = Uses(Path(sys.argv[1])); uses.add(sys.argv[2])"
    subprocess.run([sys.executable, "-c", program, str(path), A], cwd=REPOSITORY, check=True)
    assert hits(path) == {A: 2}


def test_two_processes_and_their_threads_lose_nothing(path: Path) -> None:
    command = [sys.executable, "-c", COUNTER, str(path), A, B]
    processes = [
        subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    uses = Uses(path)

    def count() -> None:
        for _ in range(100):
            uses.add(A)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for process in processes:
        process.communicate("go\n", timeout=60)
    for thread in threads:
        thread.join()
    assert [process.returncode for process in processes] == [0, 0]
    uses.flush()
    assert hits(path) == {A: 2 * 150 + 400, B: 2 * 150}


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to be looked at" * 100, b"SQLite format 3\0"]
)
def test_a_damaged_file_is_thrown_away_and_begun_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert Uses(path).all() == {}
    uses = Uses(path)
    uses.add(A)
    uses.flush()
    uses.add(A)  # the first may have been lost with the file
    uses.flush()
    assert hits(path)[A] in (1, 2)


def test_a_file_damaged_inside_is_thrown_away(path: Path) -> None:
    uses = Uses(path)
    for number in range(2000):
        uses.add(f"{number:064x}")
    uses.flush()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    assert Uses(path).all() == {}
    uses.add(A)
    uses.flush()
    uses.add(A)
    uses.flush()
    assert A in hits(path)


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.write_bytes(b"")
    uses = Uses(path)
    assert uses.all() == {}
    uses.add(A)
    uses.flush()
    assert hits(path) == {A: 1}


def test_a_later_version_is_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.execute("CREATE TABLE other (a)")
    connection.close()
    before = path.read_bytes()
    uses = Uses(path)
    uses.add(A)
    uses.flush()
    assert uses.all()[A].hits == 1, "kept in RAM"
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
def test_what_is_no_file_is_ignored_and_never_followed(path: Path, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    if kind == "link":
        victim.write_bytes(b"keep")
        path.symlink_to(victim)
    elif kind == "dangling":
        path.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    mode = stat.S_IFMT(path.lstat().st_mode)
    uses = Uses(path)
    uses.add(A)
    uses.flush()
    assert uses.all()[A].hits == 1
    uses.forget([A])
    assert uses.all() == {}
    assert stat.S_IFMT(path.lstat().st_mode) == mode
    assert victim.read_bytes() == b"keep" if kind == "link" else not victim.exists()


def test_a_file_that_cannot_be_written_is_left_and_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = Uses(path)
    uses.add(A)
    uses.flush()
    before = path.read_bytes()
    real = sqlite3.connect

    def read_only(where: Path, **options: object) -> sqlite3.Connection:
        return real(f"file:{where}?mode=ro", **(options | {"uri": True}))  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("agentkv.store.uses.sqlite3.connect", read_only)
    uses.add(A)
    uses.flush()
    assert path.read_bytes() == before
    assert uses.all()[A].hits == 2, "one in the file, one in RAM"


def test_a_store_without_room_for_the_file_counts_in_ram(tmp_path: Path) -> None:
    uses = Uses(tmp_path / "no" / "such" / "folder" / USES)
    uses.add(A)
    uses.flush()
    assert uses.all()[A].hits == 1
    assert list(tmp_path.iterdir()) == []


def test_another_writer_that_holds_the_file_delays_and_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.store.uses._BUSY_S", 0.05)
    uses = Uses(path)
    uses.add(A)
    uses.flush()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    uses.add(A)
    uses.flush()
    assert uses.all()[A].hits >= 1
    other.execute("ROLLBACK")
    other.close()
    uses.flush()
    assert hits(path) == {A: 2}


def test_a_fork_counts_its_own_only(path: Path) -> None:
    program = f"""
import os, sys
from pathlib import Path
from agentkv.store.uses import Uses
uses = Uses(Path({str(path)!r}))
uses.add({A!r})
pid = os.fork()
uses.add({B!r})
if pid:
    os.waitpid(pid, 0)
uses.flush()
"""
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True)
    assert hits(path) == {A: 1, B: 2}
