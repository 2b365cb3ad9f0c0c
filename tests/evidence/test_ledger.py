"""What is recorded comes back; several writers make one chain; a crash loses at most what was not acknowledged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentkv import FakeEngine
from agentkv.errors import LedgerDamaged, NotScorable, StoreFull, UnknownRun, UsageError
from agentkv.evidence import Item, Ledger, Run, verify
from agentkv.evidence.files import FILE, HEAD
from agentkv.io.hashing import sha256
from agentkv.records import TokenCounts

from .making import filled, lines, parsed, put


def test_a_run_comes_back_as_it_was_recorded(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    questions = tmp_path / "questions.jsonl"
    questions.write_text("{}")
    fingerprint = FakeEngine().fingerprint()
    with ledger.run(
        "demo", version=3, settings={"seed": 7}, inputs={"q": questions}, fingerprints={"engine": fingerprint}
    ) as run:
        run.record("k", {"text": "ä"}, expected=[1], tokens=TokenCounts(restored=5, prefilled=2, generated=1))
        run.verdict("held", False, "no")
        run.scores({"share": 1 / 3})
    found = ledger.find(run.id[:6])
    assert (found.kind, found.body.version, found.status, found.body.settings) == ("demo", 3, "finished", {"seed": 7})
    assert found.body.inputs == {"q": sha256(b"{}")}
    assert found.body.fingerprints["engine"] == fingerprint.model_dump(mode="json")
    assert found.body.code.files["evidence/ledger.py"] == sha256(
        Path(sys.modules[Ledger.__module__].__file__ or "").read_bytes()
    )
    tokens = {"restored": 5, "prefilled": 2, "generated": 1}
    assert ledger.items(found) == [Item("k", {"text": "ä"}, [1], tokens, None)]
    assert [(verdict.name, verdict.passed, verdict.detail) for verdict in found.verdicts] == [("held", False, "no")]
    assert found.scores == {"share": 1 / 3}
    assert verify(ledger.folder).findings == []


def test_a_run_that_raises_is_recorded_as_failed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(UsageError, match="of the run"), ledger.run("demo") as run:
        failing(run)
    found = ledger.find("last")
    assert (found.status, found.error, len(found.items)) == ("failed", "UsageError: of the run", 1)


def failing(run: Run) -> None:
    run.record("k", 1)
    raise UsageError("of the run")


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}, {1, 2}, "\ud800", {1: 2}, 2**70])
def test_what_json_cannot_hold_is_refused_and_the_run_goes_on(tmp_path: Path, value: object) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.run("demo") as run:
        with pytest.raises(UsageError):
            run.record("k", value)
        run.record("k", None)
    assert [item.raw for item in ledger.items(ledger.find("last"))] == [None]
    assert verify(ledger.folder).findings == []


def test_an_unknown_run_and_an_ambiguous_one(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger")
    with pytest.raises(UnknownRun, match="no run 'zz'"):
        ledger.find("zz")
    with pytest.raises(UnknownRun, match="2 runs begin"):
        ledger.find("")


def test_payload_files_are_salted_and_can_be_kept_out(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger", payloads="files")
    files = sorted(path for path in (ledger.folder / "payloads").rglob("*.json"))
    assert len(files) == 8  # the same answer twice is two files: nothing shows that they are the same
    assert all(path.stem == sha256(path.read_bytes()) for path in files)
    assert b"It is 2" not in (ledger.folder / FILE).read_bytes()
    assert ledger.items(ledger.find("last"))[0].raw == {"text": "It is 2.", "p": 0.1}
    files[0].unlink()
    report = verify(ledger.folder)
    assert (report.findings, report.absent) == ([], 1)
    files[1].write_bytes(files[1].read_bytes().replace(b"value", b"valve"))
    assert [finding.problem for finding in verify(ledger.folder).findings] == ["payload"]


def test_digests_only(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger", payloads="digests")
    assert not (ledger.folder / "payloads").exists()
    assert verify(ledger.folder).absent == 8
    with pytest.raises(NotScorable, match="2 of 2 raw generations were left out"):
        ledger.items(ledger.find("last"))
    with pytest.raises(UsageError, match="inline, files, digests"):
        Ledger(tmp_path, payloads="nowhere")  # type: ignore[arg-type]


def test_threads_and_processes_make_one_chain(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    code = (
        "import sys, pathlib; from agentkv.evidence import Ledger\n"
        "with Ledger(pathlib.Path(sys.argv[1])).run('demo') as run:\n"
        "    [run.record(str(i), i) for i in range(20)]\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", code, str(folder)]) for _ in range(2)]

    def record() -> None:
        with Ledger(folder).run("demo") as run:
            for i in range(20):
                run.record(str(i), i)

    threads = [threading.Thread(target=record) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait() for other in others] == [0, 0]
    runs = Ledger(folder).runs()
    assert [[item.key for item in run.items] for run in runs] == [[str(i) for i in range(20)]] * 4
    assert {run.status for run in runs} == {"finished"}


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_a_torn_last_line_is_set_aside_and_nothing_else_is_lost(tmp_path: Path, kept: int) -> None:
    """A crash in the middle of a write: the line is there in part, and head.json is the one before."""
    ledger = filled(tmp_path / "ledger")
    before, head = lines(ledger.folder), (ledger.folder / HEAD).read_bytes()
    with ledger.run("demo"):
        pass
    line = lines(ledger.folder)[len(before)]
    put(ledger.folder, *before, line[:kept])
    (ledger.folder / HEAD).write_bytes(head)
    report = verify(ledger.folder)
    assert (report.findings, report.torn, len(report.entries)) == ([], len(line[:kept]), len(before))
    with ledger.run("demo"):
        pass
    after = parsed(ledger.folder)
    assert [entry["type"] for entry in after[len(before) :]] == ["torn", "run", "end"]
    assert lines(ledger.folder)[: len(before)] == before
    assert (ledger.folder / after[len(before)]["body"]["file"]).read_bytes() == line[:kept]
    assert verify(ledger.folder).findings == []


def test_a_crash_before_the_anchor_is_no_damage(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger")
    head = (ledger.folder / HEAD).read_bytes()
    with ledger.run("demo"):
        pass
    (ledger.folder / HEAD).write_bytes(head)
    report = verify(ledger.folder)
    assert (report.findings, report.beyond) == ([], 2)
    assert len(filled(tmp_path / "ledger").runs()) == 5


def test_a_write_that_fails_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(tmp_path / "ledger")
    before = (ledger.folder / FILE).read_bytes()
    run = ledger.begin("demo")
    after = (ledger.folder / FILE).read_bytes()
    real = os.fsync

    def full(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull):
        run.record("k", 1)
    assert (ledger.folder / FILE).read_bytes() == after != before
    run.record("k", 1)
    assert verify(ledger.folder).findings == []


def test_nothing_is_appended_after_damage(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger")
    whole = lines(ledger.folder)
    for wrong in (whole[:-1], [*whole[:-1], whole[-1][:-1]], [*whole[:-1], whole[-1].replace(b"items", b"itemz")]):
        put(ledger.folder, *wrong)
        damaged = (ledger.folder / FILE).read_bytes()
        with pytest.raises(LedgerDamaged), ledger.run("demo"):
            pass
        assert (ledger.folder / FILE).read_bytes() == damaged
    put(ledger.folder, *whole)
    (ledger.folder / HEAD).unlink()
    with pytest.raises(LedgerDamaged, match=r"head\.json is missing"), ledger.run("demo"):
        pass
