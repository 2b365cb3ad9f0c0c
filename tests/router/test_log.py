"""The decision log: whole lines from everybody, rotated, and never in the way of a turn."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.errors import UsageError
from agentkv.records import Decision
from agentkv.router.base import Candidate
from agentkv.router.log import CURRENT, SWITCH, DecisionLog, library_sha256

LIBRARY = {"csv": Candidate("Files.", "rows"), "refunds": Candidate("Money back.", "21 days")}


def decision(raw_pick: str = "csv", tokens: int = 3) -> Decision:
    return Decision(
        raw_pick=raw_pick, pick="csv", fallback=None, scores={"csv": 1.5}, classifier="c/1", tokens=tokens, ms=1.0
    )


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log")
    for k in range(5):
        log.append(f"question {k}\n\u2028", LIBRARY, decision(f"pick\n{k}"))
    found = list(log.read())
    assert [entry.question for entry in found] == [f"question {k}\n\u2028" for k in range(5)]
    assert [entry.decision for entry in found] == [decision(f"pick\n{k}") for k in range(5)]
    assert {entry.library_sha256 for entry in found} == {library_sha256(LIBRARY)}
    assert [entry.time for entry in found] == sorted(entry.time for entry in found)
    assert log.lost == 0


def test_the_librarys_digest_is_of_what_could_be_picked() -> None:
    backwards = dict(reversed(LIBRARY.items()))
    assert library_sha256(backwards) == library_sha256(LIBRARY)
    for changed in (
        {**LIBRARY, "csv": Candidate("Files!", "rows")},
        {**LIBRARY, "csv": Candidate("Files.", "columns")},
        {"csv": LIBRARY["csv"]},
    ):
        assert library_sha256(changed) != library_sha256(LIBRARY)


def test_questions_can_be_kept_out(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, questions=False)
    log.append("my secret", LIBRARY, decision())
    (entry,) = log.read()
    assert entry.question is None
    assert b"secret" not in (tmp_path / CURRENT).read_bytes()


def test_it_rotates_and_keeps_so_many(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, max_bytes=2000, keep=3)
    for k in range(60):
        log.append(f"question {k}", LIBRARY, decision())
    files = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert len(files) == 4
    assert all((tmp_path / name).stat().st_size <= 2000 for name in files)
    kept = [entry.question for entry in log.read()]
    assert kept == [f"question {k}" for k in range(60 - len(kept), 60)]
    assert len(kept) > 10


def test_a_line_cut_short_costs_itself_only(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    log.append("one", LIBRARY, decision())
    log.append("two", LIBRARY, decision())
    path = tmp_path / CURRENT
    path.write_bytes(path.read_bytes()[:-20])
    log.append("three", LIBRARY, decision())
    assert [entry.question for entry in log.read()] == ["one", "three"]


def _write(folder: Path, who: int) -> None:
    log = DecisionLog(folder, max_bytes=20_000, keep=100)
    for k in range(50):
        log.append(f"{who} {k}", LIBRARY, decision())
    os._exit(log.lost)


def test_processes_and_threads_write_whole_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(tmp_path, who)) for who in range(4)]
    for process in processes:
        process.start()
    log = DecisionLog(tmp_path, max_bytes=20_000, keep=100)

    def write(who: int) -> None:
        for k in range(50):
            log.append(f"{who} {k}", LIBRARY, decision())

    threads = [threading.Thread(target=write, args=(who,)) for who in (8, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    questions = [entry.question for entry in log.read()]
    assert sorted(map(str, questions)) == sorted(f"{who} {k}" for who in (0, 1, 2, 3, 8, 9) for k in range(50))


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_a_log_that_cannot_be_written_does_not_stop_a_turn(tmp_path: Path, kind: str) -> None:
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=lambda _: "21 days"))
    memory.deposit_text("returns", "Returns are taken for 21 days.", "Taking things back.")
    folder = memory.decisions.folder
    victim = tmp_path / "victim"
    victim.write_text("keep")
    if kind == "file":
        folder.write_text("in the way")
    else:
        folder.mkdir()
        (folder / CURRENT).mkdir() if kind == "folder" else (folder / CURRENT).symlink_to(victim)
    assert memory.ask("Taking things back?").text == "21 days"
    assert memory.decisions.lost == 1
    assert memory.decisions.reason
    assert victim.read_text() == "keep"


def test_a_turns_decision_is_in_the_log(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(replies=lambda _: "21 days"))
    memory.deposit_text("returns", "Returns are taken for 21 days.", "Taking things back.")
    turn = memory.ask("Are things taken back?")
    memory.ask("Named by the caller", skill="returns")
    (entry,) = memory.decisions.read()
    assert entry.decision == turn.decision
    assert entry.question == "Are things taken back?"


def test_the_environment_keeps_no_log_or_no_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, kept in (("0", []), ("off", []), ("digests", [None]), ("1", ["mine"]), ("", ["mine"])):
        monkeypatch.setenv(SWITCH, setting)
        log = DecisionLog(tmp_path / f"log {setting}")
        log.append("mine", LIBRARY, decision())
        assert [entry.question for entry in log.read()] == kept
        assert any(tmp_path.rglob(f"log {setting}/*.jsonl")) == bool(kept)
    monkeypatch.setenv(SWITCH, "0")
    memory = AgentMemory(tmp_path / "store", FakeEngine())
    memory.deposit_text("returns", "Returns are taken for 21 days.", "Taking things back.")
    memory.route("How long are returns taken?")
    assert not any(b"returns taken" in path.read_bytes() for path in memory.store.root.rglob("*") if path.is_file())
    monkeypatch.setenv(SWITCH, "perhaps")
    with pytest.raises(UsageError, match="digests"):
        DecisionLog(tmp_path / "x")


def test_lines_are_left_out_for_good_in_every_file(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, max_bytes=2000, keep=50)
    for number in range(40):
        log.append(f"question {number}", LIBRARY, decision())
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    assert log.rewrite(lambda line: b"question 7" not in line, dry_run=True) == 1
    assert log.rewrite(lambda line: b"question 1" not in line) == 11
    left = [entry.question for entry in log.read()]
    assert left == [f"question {n}" for n in range(40) if not str(n).startswith("1")]
    log.append("question 1 again", LIBRARY, decision())
    assert [entry.question for entry in log.read()][-1] == "question 1 again"
