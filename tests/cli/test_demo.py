"""``agentkv demo`` on the fake engine: two processes, one screen, one verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import demo as command
from agentkv.cli import options
from agentkv.cli.demo_screen import Answer, cells, compared, fresh_process, summed, times, totals
from agentkv.cli.inventory import Usage
from agentkv.engine.fake import quote

from .conftest import Run, error_of, record


def test_whole(run: Run, skills: Path, store: Path) -> None:
    found = record(run("demo", "--skills", skills, "--json"))
    assert [row["new"] for row in found["manuals"]] == [True, True]
    assert [question["skill"] for question in found["questions"]] == ["fees", "release"]
    for question in found["questions"]:
        graft, cold = question["grafted"], question["reread"]
        assert question["identical"]
        assert graft["logits_sha256"] == cold["logits_sha256"]
        assert (graft["tokens"]["restored"] > 0, cold["tokens"]["restored"]) == (True, 0)
        assert graft["decision"]["pick"] == cold["decision"]["pick"]
    assert (found["totals"]["questions"], found["totals"]["identical"]) == (2, 2)
    assert found["totals"]["raw_bytes"] > found["totals"]["stored_bytes"] > 0


def test_screen_of_the_second_run(filled: Run, skills: Path, store: Path) -> None:
    result = filled("demo", "--skills", skills, "--max-new", "8")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"2 manuals stored in {store}" in result.stdout
    assert "2 known, nothing to prefill" in result.stdout
    assert "2 of 2 that were answered both ways: every logit, to the last bit" in result.stdout


def test_the_last_screen(filled: Run, skills: Path, store: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "screen.html", tmp_path / "screen.png"
    result = filled("demo", "--skills", skills, "--picture", page)
    assert result.exit_code == 0
    last = result.stdout.partition("3. Asked, answered, proven")[2]
    for text in ("what is the restocking fee", "12%", "right", "= both", "tokens saved", "times sooner"):
        assert text in last, text
    assert "wrong" in filled("demo", "--skills", skills, "--max-new", 3).stdout.partition("3. Asked")[2]
    commands = [line.split(maxsplit=1) for line in last.partition("Now with your own:")[2].strip().splitlines()]
    assert [what for what, _ in commands] == ["skills", "documents", "agent"]
    assert commands[0][1].startswith("agentkv deposit --store ")
    done = subprocess.run(
        commands[2][1].replace("YOUR QUESTION", "the restocking fee?"), shell=True, capture_output=True
    )
    assert (done.returncode, b"12%" in done.stdout) == (0, True), done.stderr
    text = page.read_text()
    assert all(part in text for part in ("<td class=right>right</td>", "12%", "tokens saved", "agentkv docs add"))
    assert filled("demo", "--skills", skills, "--picture", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_could_not_be_written_is_refused_before_any_work(
    run: Run, skills: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("screen.gif", "absent/screen.html"):
        assert run("demo", "--skills", skills, "--picture", store.parent / name).exit_code == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused = run("demo", "--skills", skills, "--picture", store.parent / "screen.png")
    assert "pip install 'agentkv-sdk[plots]', or name a file that ends in .html" in refused.stderr
    assert not store.exists()


def test_an_answer_that_was_cut_says_so(filled: Run, skills: Path) -> None:
    assert "[…cut]" in filled("demo", "--skills", skills, "--max-new", 3).stdout


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


def test_of_many_questions_some_are_answered_both_ways_and_the_screen_says_so(lines: list[dict[str, Any]]) -> None:
    assert [sorted(compared(n)) for n in (1, 5, 6, 10)] == [[0], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 2, 4, 6, 8]]
    assert "the model answers twice:" in fresh_process(5)
    assert "from a graft, 5 of them twice:" in fresh_process(10)
    lines[1]["reread"] = None
    answers = [Answer.of(line) for line in lines]
    assert [answer.identical for answer in answers] == [True, None]
    sums = totals(answers, Usage(30, 20, 10))
    assert (sums["questions"], sums["compared"], sums["identical"]) == (2, 1, 1)
    assert sums["median_speed_up"] == answers[0].speed_up
    assert [row[-1].endswith(" = both") for row in cells(answers, 40)] == [True, False]
    assert dict(summed(sums))["the proof"].startswith("1 of 1 that were answered both ways")
    assert answers[1].record()["reread"] is None
