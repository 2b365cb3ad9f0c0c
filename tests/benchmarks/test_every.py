"""All benchmarks in turn, with a stand-in for the command: order, verdicts, going on, and nothing run twice at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import orjson
import pytest

from agentkv.evidence import environment as source
from tests.benchmarks import every
from tests.benchmarks.errors import PackageUnavailable
from tests.benchmarks.every import Job, Outcome

PYTHON = (sys.executable, "-I", "-S")
"""Starts in half the time: no packages of the environment are looked for."""
SCRIPT = """
import json, os, pathlib, sys
name, code, out = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
log = out.parent / "log.txt"
running = out.parent / "running"
assert not running.exists(), "two at once"
running.write_text("")
with log.open("a") as file:
    file.write(name + "\\n")
print("progress of " + name, file=sys.stderr)
if code not in (9, 66):
    out.write_text(json.dumps({"benchmark": name, **json.loads(sys.argv[3])}))
running.unlink()
if code:
    print("error: it is so", file=sys.stderr)
sys.exit(code)
"""


def job(name: str, code: int = 0, extra: str = "{}", skip: str | None = None) -> Job:
    return Job(name, (name, str(code), extra), skip)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "command.py").write_text(SCRIPT)
    return [*PYTHON, str(tmp_path / "command.py")]


def names(work: Path) -> list[str]:
    return (work / "log.txt").read_text().split()


def verdicts(found: list[Outcome]) -> list[tuple[str, str, int | None, str | None]]:
    return [(one.name, one.verdict, one.code, one.reason) for one in found]


def test_each_in_turn_with_its_verdict(tmp_path: Path, command: list[str]) -> None:
    work, lines, progress = tmp_path / "work", list[str](), list[str]()
    jobs = [
        job("good"),
        job("weak", 60),
        job("absent", skip="no data"),
        job("empty", extra='{"skipped": "no file"}'),
        job("ill", 9),
        job("wrong", 12),
        job("unfetched", PackageUnavailable.exit_code),
    ]
    found = every.run(jobs, work, tell=lines.append, progress=progress.append, command=command)
    assert verdicts(found) == [
        ("good", "holds", 0, None),
        ("weak", "does not hold", 60, "it is so"),
        ("absent", "skipped", None, "no data"),
        ("empty", "skipped", 0, "no file"),
        ("ill", "broken", 9, "it is so"),
        ("wrong", "broken", 12, "it is so"),
        ("unfetched", "skipped", 66, "it is so"),
    ]
    assert names(work) == ["good", "weak", "empty", "ill", "wrong", "unfetched"]
    assert [one.result for one in found] == ["good.json", "weak.json", *[None] * 5]
    assert lines[:2] == ["1 of 7, good: python -m tests.benchmarks good 0 {}", "1 of 7, good: holds"]
    assert progress[:2] == ["progress of good", "progress of weak"]


def test_what_is_finished_is_not_run_again(tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    jobs = [job("good"), job("weak", 60), job("ill", 9), job("empty", extra='{"skipped": "no file"}')]
    first = every.run(jobs, work, command=command)
    again = every.run(jobs, work, command=command)
    assert again[:2] == first[:2]
    assert names(work) == ["good", "weak", "ill", "empty", "ill", "empty"], "what was missing may be there now"
    every.run([job("good", extra='{"size": 2}')], work, command=command)
    assert names(work)[6:] == ["good"], "other arguments are another job"
    (work / "good.json").unlink()
    every.run([job("good", extra='{"size": 2}')], work, command=command)
    (work / "done" / "good.json").write_bytes(b"{")
    every.run([job("good", extra='{"size": 2}')], work, command=command)
    assert names(work)[7:] == ["good", "good"], "a result that is gone or unreadable is made again"
    other = source.source_code().model_copy(update={"tree_sha256": "0" * 64})
    monkeypatch.setattr(source, "source_code", lambda: other)
    every.run([job("weak", 60)], work, command=command)
    assert names(work)[9:] == ["weak"], "another source tree gives other results"


def test_the_record_of_a_finished_job_is_whole(tmp_path: Path, command: list[str]) -> None:
    every.run([job("good")], tmp_path / "work", command=command)
    kept = orjson.loads((tmp_path / "work" / "done" / "good.json").read_bytes())
    assert set(kept) == {"key", "name", "verdict", "code", "seconds", "reason", "result"}


def test_no_process_outlives_what_started_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    inner = "import time; time.sleep(10_000)"
    outer = (
        f"import subprocess, sys, time; file = open({str(pipe)!r}, 'w')\n"
        f"subprocess.Popen([*{PYTHON!r}, '-c', {inner!r}], stdout=file)\n"
        "print('on', file=sys.stderr, flush=True); time.sleep(10_000)"
    )
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def stop(text: str) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            every.run([job("long")], tmp_path / "work", progress=stop, command=[*PYTHON, "-c", outer])
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b"", "the end comes when the last process that could write is gone"
    finally:
        os.close(reader)
    assert not (tmp_path / "work" / "done").exists()
