"""``agentkv demo`` on the fake engine: two processes, one screen, one verdict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import demo as command
from agentkv.cli import options
from agentkv.cli.demo_screen import Answer, times, totals
from agentkv.cli.inventory import Usage
from agentkv.engine.fake import quote

from .conftest import Run, error_of, record


def test_whole(run: Run, skills: Path, store: Path) -> None:
    found = record(run("demo", "--skills", skills, "--json"))
    assert [row["new"] for row in found["manuals"]] == [True, True]
    assert [question["skill"] for question in found["questions"]] == ["fees", "release"]
    for question in found["questions"]:
        graft, reread = question["grafted"], question["reread"]
        assert question["identical"]
        assert graft["logits_sha256"] == reread["logits_sha256"]
        assert (graft["tokens"]["restored"] > 0, reread["tokens"]["restored"]) == (True, 0)
        assert graft["decision"]["pick"] == reread["decision"]["pick"]
    assert (found["totals"]["questions"], found["totals"]["identical"]) == (2, 2)
    assert found["totals"]["raw_bytes"] > found["totals"]["stored_bytes"] > 0


def test_screen_of_the_second_run(filled: Run, skills: Path, store: Path) -> None:
    result = filled("demo", "--skills", skills, "--max-new", "8")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"2 manuals stored in {store}" in result.stdout
    assert "2 known, nothing to read" in result.stdout
    assert "2 of 2: every logit of both ways, to the last bit" in result.stdout


def test_broken_manuals_are_left_out(run: Run, skills: Path) -> None:
    (skills / "empty").mkdir()
    (skills / "empty" / "SKILL.md").write_bytes(b"")
    result = run("demo", "--skills", skills, "--json")
    assert (result.exit_code, len(record(result)["questions"])) == (0, 2)
    assert "left out: " in result.stderr


def test_refusals(run: Run, skills: Path, tmp_path: Path) -> None:
    assert run("demo", "--skills", tmp_path / "absent").exit_code == 2
    (tmp_path / "none").mkdir()
    assert run("demo", "--skills", tmp_path / "none").exit_code == 50
    for file in skills.rglob("routes.jsonl"):
        file.write_text("{")
    assert run("demo", "--skills", skills).exit_code == 2
    for file in skills.rglob("routes.jsonl"):
        file.unlink()
    assert run("demo", "--skills", skills).exit_code == 2


def test_an_error_of_the_second_process_is_this_one_s(run: Run, skills: Path) -> None:
    result = run("demo", "--skills", skills, "--max-new", "70000", "--json")
    assert result.exit_code == record(result)["error"]["exit_code"] == 20


def test_a_second_process_that_dies(run: Run, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert run("demo", "--skills", skills).exit_code == 1


def test_the_second_process(filled: Run, skills: Path) -> None:
    lines = filled("_demo-ask", "--skills", skills, "--max-new", "8").stdout.splitlines()
    assert [orjson.loads(line)["skill"] for line in lines] == ["fees", "release"]


def test_a_difference_is_a_violated_guarantee(
    run: Run, skills: Path, monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]]
) -> None:
    lines[1]["reread"]["logits_sha256"] = "0" * 64
    monkeypatch.setattr(command, "_lines", lambda *_: iter(lines))
    result = run("demo", "--skills", skills, "--json")
    assert error_of(result)["type"] == "GuaranteeViolated"
    assert result.exit_code == 60
    assert record(result)["totals"]["identical"] == 1
    screen = run("demo", "--skills", skills)
    assert screen.exit_code == 60
    assert "DIFFERENT" in screen.stdout


@pytest.fixture
def lines(filled: Run, skills: Path) -> list[dict[str, Any]]:
    """What the second process says."""
    output = filled("_demo-ask", "--skills", skills, "--max-new", "60").stdout
    return [orjson.loads(line) for line in output.splitlines()]


def test_sums(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        line["grafted"]["decision"]["pick"] = "fees"
        line["grafted"]["text"] = "It is 12%."
        line["grafted"]["ms"] = {"route": 9.0, "restore": 2.0, "prefill": 3.0, "generate": 5.0}
        line["reread"]["ms"] = {"route": 0.0, "restore": 0.0, "prefill": 50.0, "generate": 5.0}
        line["reread"]["text"] = "no"
    sums = totals([Answer.of(line) for line in lines], Usage(30, 20, 10))
    assert (sums["routed_right"], sums["answered_right"], sums["reread_right"]) == (1, 1, 0)
    assert sums["median_first_token_ms"] == {"grafted": 5.0, "reread": 50.0}
    assert (sums["median_speed_up"], sums["identical"]) == (10.0, 0)
    assert (sums["raw_bytes"], sums["stored_bytes"]) == (30, 10)


def test_ratios() -> None:
    assert (times(1.26), times(9.99), times(54.4)) == ("1.3", "10.0", "54")


def test_the_packaged_skills_are_found() -> None:
    assert (options.skills_folder(None) / "refund-policy" / "SKILL.md").is_file()


def test_ctrl_c_in_the_second_process(run: Run, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(command, "_lines", interrupted)
    assert run("demo", "--skills", skills).exit_code == 130


def test_settings_reach_the_second_process() -> None:
    settings = options.engine_settings(512, 2, "q8_0", True, 1)
    assert command._as_options(settings) == [
        "--window",
        "512",
        "--threads",
        "2",
        "--kv-type",
        "q8_0",
        "--gpu-layers",
        "1",
        "--flash-attention",
    ]


class TestFake:
    def test_it_quotes_the_line_that_shares_most_words(self) -> None:
        prompt = "system\nThe fee is 12%.\nThe restocking fee of a reader is 12%.\nuser\nthe restocking fee?assistant\n"
        assert quote(prompt) == "The restocking fee of a reader is 12%."
        assert quote("system\nnothing\nuser\nanother matterassistant\n") == "I do not know."

    def test_its_window_is_the_option_s(self, store: Path, skills: Path) -> None:
        settings = options.engine_settings(512, None, "f16", False, 0)
        with options.open_memory(store, "fake", settings, create=True) as memory:
            assert isinstance(memory, AgentMemory)
            assert isinstance(memory.engine, FakeEngine)
            assert memory.engine.window == 512
