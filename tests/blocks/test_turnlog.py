"""The turn log: what turns are in it, that no text is, and that it is never in the way."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, BlockStore, Cancellation, FakeEngine
from agentkv.blocks.turnlog import SWITCH, LoggedTurn, TurnLog
from agentkv.documents import Corpus
from agentkv.errors import AgentKVError, Cancelled, UsageError
from agentkv.store.check import check

FINGERPRINT = "ab" * 32


def memory_in(folder: Path, **how: Any) -> AgentMemory:
    memory = AgentMemory(folder, FakeEngine(replies=lambda _: "7 days"), **how)
    memory.deposit_text("returns", "Returns are accepted for 7 days, if the seal is whole.", "Taking things back.")
    return memory


def turns(memory: AgentMemory) -> list[LoggedTurn]:
    return [line for line in memory.blocks.turns.read() if line.kind != "deposit"]


def test_a_turn_is_counted_as_its_record_has_it(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    turn = memory.ask("How long are things taken back?")
    (line,) = turns(memory)
    assert (line.skill, line.block_id, line.graft) == (turn.decision.pick, turn.block_id, True)
    assert (line.restored, line.read, line.generated) == (
        turn.tokens.restored,
        turn.tokens.prefilled,
        turn.tokens.generated,
    )
    assert (line.route_ms, line.restore_ms, line.read_ms) == (turn.ms.route, turn.ms.restore, turn.ms.prefill)
    assert line.fingerprint_id == memory.blocks.fingerprint.id
    assert line.model_sha256 == memory.engine.info.sha256
    assert datetime.fromisoformat(line.time).tzinfo == UTC


def test_a_deposit_says_what_reading_took_and_one_that_was_there_says_nothing(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    lines = [line for line in memory.blocks.turns.read() if line.kind == "deposit"]
    manual = memory.routing.manifest("returns")
    assert [line.read for line in lines] == [len(link.tokens) for link in memory.blocks.chain(manual)]
    assert all(line.read_ms > 0 for line in lines)
    memory.deposit_text("returns", "Returns are accepted for 7 days, if the seal is whole.", "Taking things back.")
    assert len([line for line in memory.blocks.turns.read() if line.kind == "deposit"]) == len(lines)


def test_capturing_a_conversations_state_is_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_in(tmp_path)
    memory.self_test()
    clock = [0.0]
    monkeypatch.setattr("agentkv.memory.turn.time.perf_counter", lambda: clock[0])
    capture = memory.engine.capture

    def slow() -> Any:
        clock[0] += 5.0
        return capture()

    monkeypatch.setattr(memory.engine, "capture", slow)
    turn = memory.ask("How long?", skill="returns", keep=True)
    (line,) = turns(memory)
    assert turn.checkpoint is not None
    assert turn.ms.prefill >= 5000
    assert line.read_ms == pytest.approx(0)


def test_no_text_is_in_it(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    memory.ask("A secret question", skill="returns")
    memory.thread("a secret name").ask("Another secret question")
    data = memory.blocks.turns._lines.current.read_bytes()
    assert len(data.splitlines()) > 3
    for word in (b"secret", b"question", b"seal", b"7 days", b"Taking"):
        assert word not in data


def test_a_stream_that_is_left_has_still_restored(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    with closing(memory.stream("How long?", skill="returns")) as pieces:  # type: ignore[type-var]
        next(pieces)
    (line,) = turns(memory)
    assert line.restored > 0
    assert line.generated == 1


def test_a_turn_that_fails_before_it_has_read_is_not_counted(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    with pytest.raises(AgentKVError):
        memory.ask("How long?", skill="return")
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        memory.ask("How long?", skill="returns", cancellation=cancelled)
    assert turns(memory) == []


def test_a_turn_without_a_graft_says_so(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    memory.ask("How long?", skill="returns", graft=False)
    (line,) = turns(memory)
    assert (line.graft, line.restored, line.block_id) == (False, 0, None)
    assert line.read > 50


def test_a_window_counts_as_restored_only_if_it_was_there(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text("# Shop\n\nReturns are accepted for 7 days.\n")
    memory = AgentMemory(tmp_path / "store", FakeEngine())
    corpus = Corpus(memory, chunk_tokens=160, overlap=0, keep="lazy")
    corpus.add([tmp_path / "guide.md"])
    corpus.ask("How long are returns accepted?", k=1)
    corpus.ask("How long are returns accepted?", k=1)
    first, second = turns(memory)
    assert (first.kind, first.restored, first.block_id) == ("window", 0, None)
    assert second.restored > 0
    assert second.block_id is not None
    assert memory.store.exists(second.block_id)


@pytest.mark.parametrize(("setting", "kept"), [("0", False), ("off", False), ("1", True), ("", True), (None, True)])
def test_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, kept: bool) -> None:
    if setting is not None:
        monkeypatch.setenv(SWITCH, setting)
    memory = memory_in(tmp_path)
    memory.ask("How long?", skill="returns")
    assert (tmp_path / "turns").exists() is kept
    assert len(turns(memory)) == kept
    assert TurnLog(tmp_path, on=not kept).on is not kept


def test_a_variable_that_says_neither_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "perhaps")
    with pytest.raises(UsageError, match=re.escape("AGENTKV_TURN_LOG is 'perhaps'")):
        AgentMemory(tmp_path, FakeEngine())


def test_a_store_can_be_opened_without_one(tmp_path: Path) -> None:
    with BlockStore(tmp_path, turn_log=False) as store:
        AgentMemory(store, FakeEngine()).ask("Hello?", skill=None, max_new=1)
        assert not (tmp_path / "turns").exists()


def test_lines_of_another_format_and_cut_ones_are_left_out(tmp_path: Path) -> None:
    log = TurnLog(tmp_path)
    log.add(kind="turn", fingerprint_id=FINGERPRINT, restored=3)
    with log._lines.current.open("ab") as file:
        file.write(b'{"format":2,"time":"2026-01-01T00:00:00","kind":"turn"}\n{"form\n\xff\n')
    log.add(kind="turn", fingerprint_id=FINGERPRINT, restored=4)
    assert [line.restored for line in log.read()] == [3, 4]


def _write(root: Path, who: int) -> None:
    log = TurnLog(root)
    for k in range(50):
        log.add(kind="turn", fingerprint_id=FINGERPRINT, restored=1000 * who + k)
    os._exit(log.lost)


def test_processes_and_threads_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(tmp_path, who)) for who in range(3)]
    for process in processes:
        process.start()
    log = TurnLog(tmp_path)

    def write(who: int) -> None:
        for k in range(50):
            log.add(kind="turn", fingerprint_id=FINGERPRINT, restored=1000 * who + k)

    threads = [threading.Thread(target=write, args=(who,)) for who in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    assert sorted(line.restored for line in log.read()) == [1000 * who + k for who in range(5) for k in range(50)]


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_a_log_that_cannot_be_written_does_not_stop_a_turn(tmp_path: Path, kind: str) -> None:
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=lambda _: "7 days"))
    place, victim = tmp_path / "store" / "turns", tmp_path / "victim"
    victim.mkdir()
    if kind == "file":
        place.write_text("in the way")
    elif kind == "link":
        place.symlink_to(victim)
    else:
        (place / "turns.jsonl").mkdir(parents=True)
    assert memory.ask("How long?", skill=None).text == "7 days"
    assert memory.blocks.turns.lost == 1
    assert list(victim.iterdir()) == []


def test_a_check_knows_it(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    memory.ask("How long?", skill="returns")
    assert (tmp_path / "turns" / "turns.jsonl").exists()
    assert check(memory.store.files).findings == ()
    assert memory.store.collect().bytes == 0
    assert len(turns(memory)) == 1
