"""``agentkv bench``: ledgers and files of results, all benchmarks in turn, tables, pictures, scores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.main import get_command

from agentkv.bench import every
from agentkv.bench.readme import FOLDER
from agentkv.cli.bench import app
from agentkv.cli.bench.registry import BENCHMARKS, Given, jobs
from agentkv.evidence import Ledger
from tests.conftest import REPOSITORY

from .conftest import Run, error_of, record

NO_BENCHMARK = {"all", "plot", "ratio", "readme", "score"}
CATALOGUE = ("bench", "catalogue", "--blocks", "8", "--processes", "1")


@pytest.fixture
def measured(run: Run, tmp_path: Path) -> Path:
    """A result of the catalogue benchmark, recorded in a ledger too."""
    done = run(*CATALOGUE, "--out", tmp_path / "c.json", "--ledger", tmp_path / "ledger", "--json")
    assert done.exit_code == 0, done.stderr
    shown = record(done)
    assert "raw" not in shown
    saved = orjson.loads((tmp_path / "c.json").read_bytes())
    assert len(saved.pop("raw")) == 1
    assert saved == shown
    return tmp_path / "c.json"


def test_a_benchmark_is_recorded_and_scored_again(run: Run, measured: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    known = ledger.find("last")
    assert (known.kind, known.status, known.body.settings) == ("catalogue", "finished", {"blocks": [8], "processes": 1})
    assert [verdict.passed for verdict in known.verdicts] == [True]
    header = ledger.items(known)[0].raw
    assert header["machine"]["cores"] >= 1
    found = record(run("evidence", "score", "last", "--ledger", ledger.folder, "--json"))
    assert found["equal"] is True
    assert found["run"] == orjson.loads(measured.read_bytes())["ledger_run"]
    assert set(found["computed"]) == {"counts", "growth"}


def test_a_benchmark_that_breaks_off_is_on_record(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.bench import catalogue

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(catalogue, "run", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        run(*CATALOGUE, "--ledger", tmp_path / "ledger")
    (known,) = Ledger(tmp_path / "ledger").runs()
    assert (known.kind, known.status) == ("catalogue", "unfinished")


def test_score_tells_a_bent_file(run: Run, measured: Path) -> None:
    assert "every figure is equal" in run("bench", "score", measured).stdout
    text = measured.read_text()
    measured.write_text(text.replace('"blocks": 8,', '"blocks": 9,', 1))
    refused = run("bench", "score", measured, "--json")
    assert error_of(refused)["exit_code"] == 103
    assert record(refused)["results"][0]["differences"] == ["counts[0].blocks: reported 9, computed 8"]
    measured.write_text("[]")
    assert error_of(run("bench", "score", measured, "--json"))["exit_code"] == 62


def test_readme_writes_and_checks(run: Run, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / FOLDER, tmp_path / FOLDER)
    file = tmp_path / "README.md"
    results = ("--results", tmp_path / FOLDER)
    file.write_text("one\n<!-- results: size -->\n<!-- end of results -->\n")
    refused = run("bench", "readme", file, *results, "--check", "--json")
    assert error_of(refused)["exit_code"] == 65
    assert "| model |" not in file.read_text()
    assert record(run("bench", "readme", file, *results, "--json"))["changed"] == {str(file): ["size"]}
    assert "| gemma-3-270m | 3,000 | 18,464 |" in file.read_text()
    assert run("bench", "readme", file, *results, "--check").exit_code == 0
    assert error_of(run("bench", "readme", file, "--results", tmp_path / "none", "--json"))["exit_code"] == 2


def test_plot_draws_what_there_is(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = REPOSITORY / FOLDER / "size-smollm2-135m.json"
    files = record(run("bench", "plot", result, "--out", tmp_path, "--format", "png", "--json"))["files"]
    assert Path(files[0]).read_bytes().startswith(b"\x89PNG")
    assert error_of(run("bench", "plot", result, "--format", "gif", "--json"))["exit_code"] == 2


def test_a_ratio_is_taken_within_one_run(run: Run, tmp_path: Path) -> None:
    gemma, smol = (REPOSITORY / FOLDER / f"subsidy-{name}.json" for name in ("gemma-3-270m", "smollm2-135m"))
    cold, warm = f"{gemma}:lengths.0.cold_prefill_ms", f"{gemma}:lengths.0.restore_ram_ms.median"
    found = record(run("bench", "ratio", cold, warm, "--json"))
    assert found["ratio"] == found["figure"] / found["over"] > 10
    refused = error_of(run("bench", "ratio", cold, f"{smol}:lengths.0.restore_ram_ms.median", "--json"))
    assert (refused["type"], refused["exit_code"]) == ("DifferentRuns", 63)
    assert error_of(run("bench", "ratio", cold, f"{gemma}:nothing", "--json"))["exit_code"] == 62
    assert error_of(run("bench", "ratio", cold, "nothing", "--json"))["exit_code"] == 2
    (tmp_path / "zero.json").write_text('{"format": 1, "benchmark": "x", "run": "1", "a": 1, "b": 0}')
    zero = run("bench", "ratio", f"{tmp_path / 'zero.json'}:a", f"{tmp_path / 'zero.json'}:b", "--json")
    assert error_of(zero)["exit_code"] == 62


# --- all of them ------------------------------------------------------------------------------------


def test_every_benchmark_is_in_the_registry() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert {one.command for one in BENCHMARKS} == commands - NO_BENCHMARK
    names = [one.name for one in BENCHMARKS]
    assert len(set(names)) == len(names)


def test_the_small_arguments_are_options_of_the_commands() -> None:
    group = get_command(app)
    for job in jobs(Given("m", 1, "problems.jsonl", "work"), small=True) + jobs(Given("m"), small=False):
        command = group.commands[job.arguments[0]]  # type: ignore[attr-defined]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word for word in job.arguments if word.startswith("--")}
        assert given <= options, job.name


def test_all_runs_each_in_its_own_process(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def stand_in(job: every.Job, work: Path, command: Any, progress: Any) -> every.Outcome:
        asked.append(job.arguments)
        work.mkdir(parents=True, exist_ok=True)
        (work / f"{job.name}.json").write_text("{}")
        code = 60 if job.name == "route" else 0
        verdict, reason = (every.FAILS, "it costs too much") if code else (every.HOLDS, None)
        return every.Outcome(job.name, verdict, code, 30.0, reason, f"{job.name}.json")

    monkeypatch.setattr(every, "_run", stand_in)
    done = run("bench", "--small", "--work", tmp_path / "work", "--json")
    assert error_of(done)["message"] == "route: it costs too much"
    result = record(done)
    parts = {part["name"]: part for part in result["parts"]}
    assert set(parts) == {one.name for one in BENCHMARKS}
    assert parts["aime"]["verdict"] == "skipped"
    assert "--problems FILE" in parts["aime"]["reason"]
    assert ("exactness", "--small", "--model", "fake") in asked
    assert result["seconds"] == 30.0 * len(asked)
    asked.clear()
    again = run("bench", "all", "--small", "--work", tmp_path / "work")
    assert asked == [], "all is finished"
    assert again.exit_code == 60
    assert "it costs too much" in again.stdout
    chosen = run("bench", "all", "--only", "route, integrity", "--work", tmp_path / "work", "--threads", "2")
    assert chosen.exit_code == 60
    assert asked == [("integrity",), ("route", "--model", "fake", "--threads", "2")]
    assert error_of(run("bench", "all", "--only", "nothing", "--json"))["exit_code"] == 2


def test_two_real_ones_in_turn(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [every.Job("one", CATALOGUE[1:]), every.Job("two", ("nothing",))]
    monkeypatch.setattr("agentkv.cli.bench.all_.jobs", lambda *_, **__: short)
    done = run("bench", "all", "--work", tmp_path / "work", "--json")
    assert error_of(done)["exit_code"] == 61
    assert [(part["verdict"], part["code"]) for part in record(done)["parts"]] == [("holds", 0), ("broken", 2)]
    assert orjson.loads((tmp_path / "work" / "full" / "one.json").read_bytes())["benchmark"] == "catalogue"


def test_the_group_itself(run: Run) -> None:
    shown = run("bench")
    assert shown.exit_code == 2
    assert "exactness" in shown.stdout
    assert error_of(run("bench", "--small", "catalogue", "--json"))["exit_code"] == 2
