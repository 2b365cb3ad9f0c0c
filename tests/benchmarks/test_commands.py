"""``python -m tests.benchmarks``: all benchmarks in turn, tables, pictures; the product's own are there too."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.main import get_command

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import options
from tests.benchmarks import every
from tests.benchmarks.commands import app
from tests.benchmarks.commands.registry import BENCHMARKS, Given, jobs
from tests.benchmarks.readme import FOLDER
from tests.cli.conftest import Run, error_of, record
from tests.conftest import REPOSITORY

NO_BENCHMARK = {"all", "plot", "ratio", "readme", "score", "evidence"}
CATALOGUE = ("catalogue", "--blocks", "8", "--processes", "1")


def test_readme_writes_and_checks(bench: Run, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / FOLDER, tmp_path / FOLDER)
    file = tmp_path / "README.md"
    results = ("--results", tmp_path / FOLDER)
    file.write_text("one\n<!-- results: size -->\n<!-- end of results -->\n")
    refused = bench("readme", file, *results, "--check", "--json")
    assert error_of(refused)["exit_code"] == 65
    assert "| model |" not in file.read_text()
    assert record(bench("readme", file, *results, "--json"))["changed"] == {str(file): ["size"]}
    assert "| gemma-3-270m | 3,000 | 18,464 |" in file.read_text()
    assert bench("readme", file, *results, "--check").exit_code == 0
    assert error_of(bench("readme", file, "--results", tmp_path / "none", "--json"))["exit_code"] == 2


def test_plot_draws_what_there_is(bench: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = REPOSITORY / FOLDER / "size-smollm2-135m.json"
    files = record(bench("plot", result, "--out", tmp_path, "--format", "png", "--json"))["files"]
    assert Path(files[0]).read_bytes().startswith(b"\x89PNG")
    assert error_of(bench("plot", result, "--format", "gif", "--json"))["exit_code"] == 2


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


def test_all_runs_each_in_its_own_process(bench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def stand_in(job: every.Job, work: Path, command: Any, progress: Any) -> every.Outcome:
        asked.append(job.arguments)
        work.mkdir(parents=True, exist_ok=True)
        (work / f"{job.name}.json").write_text("{}")
        code = 60 if job.name == "route" else 0
        verdict, reason = (every.FAILS, "it costs too much") if code else (every.HOLDS, None)
        return every.Outcome(job.name, verdict, code, 30.0, reason, f"{job.name}.json")

    monkeypatch.setattr(every, "_run", stand_in)
    done = bench("all", "--small", "--work", tmp_path / "work", "--json")
    assert error_of(done)["message"] == "route: it costs too much"
    result = record(done)
    parts = {part["name"]: part for part in result["parts"]}
    assert set(parts) == {one.name for one in BENCHMARKS}
    assert parts["aime"]["verdict"] == "skipped"
    assert "--problems FILE" in parts["aime"]["reason"]
    assert ("exactness", "--small", "--model", "fake") in asked
    assert result["seconds"] == 30.0 * len(asked)
    asked.clear()
    again = bench("all", "--small", "--work", tmp_path / "work")
    assert asked == [], "all is finished"
    assert again.exit_code == 60
    assert "it costs too much" in again.stdout
    chosen = bench("all", "--only", "route, integrity", "--work", tmp_path / "work", "--threads", "2")
    assert chosen.exit_code == 60
    assert asked == [("integrity",), ("route", "--model", "fake", "--threads", "2")]
    assert error_of(bench("all", "--only", "nothing", "--json"))["exit_code"] == 2


def test_two_real_ones_in_turn(bench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [every.Job("one", CATALOGUE), every.Job("two", ("nothing",))]
    monkeypatch.setattr("tests.benchmarks.commands.all_.jobs", lambda *_, **__: short)
    done = bench("all", "--work", tmp_path / "work", "--json")
    assert error_of(done)["exit_code"] == 61
    assert [(part["verdict"], part["code"]) for part in record(done)["parts"]] == [("holds", 0), ("broken", 2)]
    assert orjson.loads((tmp_path / "work" / "full" / "one.json").read_bytes())["benchmark"] == "catalogue"


def test_the_module_runs_in_a_checkout() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "needles" in done.stdout
    assert "exactness" in done.stdout


def test_hard_problems_that_are_not_here_are_skipped_with_the_reason(bench: Run, tmp_path: Path) -> None:
    where = ("--store", tmp_path / "s", "--ledger", tmp_path / "l")
    result = bench("aime", tmp_path / "none.jsonl", *where)
    assert result.exit_code == 0
    assert result.stdout.startswith("skipped: ")
    assert "none.jsonl" in record(bench("aime", tmp_path / "none.jsonl", *where, "--json"))["skipped"]


def test_variants_of_hard_problems(bench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benchmarks import recording
    from tests.benchmarks.flywheel.variants import ORIGINS

    (variant,) = ORIGINS[0].variants(1)

    def opened(store: Any, model: str, embedder: Any = None, **settings: Any) -> AgentMemory:
        reply = json.dumps(variant.parameters)
        return AgentMemory(store, FakeEngine(window=1 << 14, replies=lambda prompt: reply, keeps_grammar=True))

    monkeypatch.setattr(recording, "AgentMemory", opened)
    monkeypatch.setattr(options, "fetch_model", lambda name: None)
    out, ledger = tmp_path / "out.json", tmp_path / "ledger"
    how = ("variants", "--model", "scripted", "--origins", ORIGINS[0].problem, "--ledger", ledger)
    result = record(bench(*how, "--out", out, "--json"))
    assert (result["settings"]["origins"], result["summary"]["variants"]) == ([ORIGINS[0].problem], 1)
    assert result["summary"]["answered_given"]["fill"]["k"] == 1
    assert json.loads(out.read_text())["raw"][0]["expected"]["answer"] == variant.answer
    assert "given the right block" in bench(*how).stdout
    assert bench("evidence", "score", "last", "--ledger", ledger).exit_code == 0
    wrong = error_of(bench("variants", "--origins", "nothing", "--json"))
    assert "no such origin: nothing" in wrong["message"]
