"""``agentkv settings``, the environment, options: what a forgotten one of them leaves out is shown everywhere."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agentkv import AgentMemory, BlockStore
from agentkv.cli.docs import name_of_model
from agentkv.records import EngineChoice

from .conftest import Run, error_of, record

QUESTION = "what is the restocking fee of fees"
FLASH = "flash_attention = False, here True"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WINDOW", "KV_TYPE", "FLASH_ATTENTION", "GPU_LAYERS", "THREADS"):
        monkeypatch.delenv(f"AGENTKV_{name}", raising=False)


def test_set_once_for_a_store(run: Run, skills: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTKV_MODEL")
    assert record(run("settings", "--json"))["engine"]["model"]["value"] is None
    assert not store.exists()
    set_now = record(run("settings", "model=fake:mine", "kv-type=q8_0", "flash-attention=on", "--json"))["engine"]
    assert (set_now["kv_type"]["value"], set_now["kv_type"]["by"]) == ("q8_0", "the store")
    assert run("deposit", skills).exit_code == 0
    answer = run("ask", QUESTION, "--strict")
    assert (answer.exit_code, "12%" in answer.stdout) == (0, True)
    with AgentMemory(store) as memory:
        assert (memory.engine.info.name, len(memory.names())) == ("fake:mine", 2)
    assert run("settings", "--unset", "kv-type", "--unset", "flash-attention").exit_code == 0
    with BlockStore(store) as opened:
        assert opened.engine_choice == EngineChoice(model="fake:mine")
    screen = run("settings")
    assert "warning: of another engine than `agentkv ask` opens here (--model fake:mine)" in screen.stderr
    assert "kv_type = q8_0, here f16" in screen.stderr


def test_an_option_wins_over_the_environment_and_that_over_the_store(
    filled: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled("settings", "kv-type=f32")
    assert "kv_type = f16, here f32" in filled("ask", QUESTION).stderr
    monkeypatch.setenv("AGENTKV_KV_TYPE", "f16")
    assert filled("ask", QUESTION, "--strict").exit_code == 0
    rows = record(filled("settings", "--json"))["engine"]
    assert (rows["kv_type"]["value"], rows["kv_type"]["by"]) == ("f16", "$AGENTKV_KV_TYPE")
    assert "kv_type = f16, here f32" in filled("ask", QUESTION, "--kv-type", "f32").stderr
    monkeypatch.setenv("AGENTKV_FLASH_ATTENTION", "1")
    assert FLASH in filled("ask", QUESTION).stderr
    assert filled("ask", QUESTION, "--no-flash-attention", "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (("kv-type",), "write it like kv-type=q8_0"),
        (("speed=9",), "there are model, window, kv-type"),
        (("kv-type=q8_0",), "needs flash_attention"),
        (("window=ten",), "window is a whole number"),
        (("--unset", "speed"), "there is no setting"),
    ],
)
def test_what_is_no_setting(filled: Run, store: Path, values: tuple[str, ...], shown: str) -> None:
    result = filled("settings", *values)
    assert (result.exit_code, shown in result.stderr) == (2, True)
    with BlockStore(store) as opened:
        assert opened.engine_choice == EngineChoice()


def test_a_model_s_path_is_kept_whole(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("settings", "model=mine.gguf")
    assert record(run("settings", "--json"))["engine"]["model"]["stored"] == str(tmp_path / "mine.gguf")


@pytest.mark.parametrize(
    "options", [("--flash-attention",), ("--kv-type", "f32"), ("--model", "fake:b")], ids=lambda value: value[-1]
)
def test_every_path_that_answers_says_what_is_left_out(
    filled: Run, skills: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled("docs", "add", skills)
    for command in (("ask", QUESTION), ("route", "question", QUESTION)):
        result = filled(*command, *options)
        assert result.exit_code == 0
        assert "warning: 2 stored skills and texts are left out, since another engine" in result.stderr
        assert "agentkv migrate --store" in result.stderr
        assert error_of(filled(*command, *options, "--strict", "--json"))["exit_code"] == 55
    assert len(record(filled("ask", QUESTION, *options, "--json"))["notes"]) == 1
    for asked in (("docs", "ask", "fee?"), ("docs", "find", "fee?", "--rerank", "2")):
        error = error_of(filled(*asked, *options, "--json"))
        assert error["exit_code"] == 81
        assert "It exists, but another engine has made it" in error["message"]
        assert "agentkv migrate" in error["message"]
        assert "There are: documents" not in error["message"]
    assert filled("ask", QUESTION, "--skill", "fees", *options).exit_code == 30


def test_a_gpu_that_nothing_uses(filled: Run) -> None:
    assert error_of(filled("ask", QUESTION, "--gpu-layers", 99, "--json"))["exit_code"] == 15


def test_a_gpu_that_nothing_uses_is_not_set_for_a_store_and_no_listing_advises_it(
    filled: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error_of(filled("settings", "gpu-layers=99", "--json"))["exit_code"] == 15
    assert filled("ask", QUESTION).exit_code == 0
    monkeypatch.setenv("AGENTKV_GPU_LAYERS", "99")
    screen = filled("list").stdout
    assert "agentkv migrate" not in screen
    assert "is not known: gpu_layers = 99" in screen
    assert "fake*" not in screen
    assert {block["selected"] for block in record(filled("list", "--json"))["blocks"]} == {None}


def test_again_deposits_all_of_it_documents_too(filled: Run, skills: Path) -> None:
    filled("docs", "add", skills, "--tokens", 128, "--overlap", 0)
    done = record(filled("deposit", "--again", "--flash-attention", "--json"))
    assert [one["name"] for one in done["deposits"]] == ["fees", "release"]
    (corpus,) = done["corpora"]
    assert (corpus["name"], corpus["files"] > 0, corpus["windows"] > 0, done["failed"]) == ("documents", True, True, [])
    assert "12%" in filled("ask", QUESTION, "--flash-attention", "--strict").stdout
    answered = filled("docs", "ask", "restocking fee of an opened reader", "--flash-attention")
    assert (answered.exit_code, "12%" in answered.stdout) == (0, True)
    again = filled("deposit", "--again", "--flash-attention")
    assert (again.exit_code, "nothing to do" in again.stdout) == (0, True)
    assert filled("docs", "status").exit_code == 0, "of two engines the one that is opened is meant"
    assert record(filled("show", "fees", "--json"))["differs"] is None
    assert filled("deposit", "--again", skills).exit_code == 2
    assert filled("deposit").exit_code == 2


@pytest.mark.parametrize("command", [
    ("list",), ("skills", "list"), ("docs", "list"), ("docs", "status"), ("verify",), ("verify", "--prove"), ("check",),
    ("stats",),
], ids=" ".join)  # fmt: skip
def test_each_listing_shows_what_another_engine_has_made(filled: Run, skills: Path, command: tuple[str, ...]) -> None:
    filled("docs", "add", skills)
    arguments = (*command, skills) if command[0] == "skills" else command
    assert record(filled(*arguments, "--json"))["note"] is None if command != ("stats",) else True
    assert "another engine" not in filled(*arguments).stdout
    filled("settings", "flash-attention=on")
    screen = filled(*arguments)
    assert screen.exit_code == 0
    assert FLASH in screen.stdout
    assert "`agentkv migrate --store" in screen.stdout
    assert "--flash-attention` deposits them" in screen.stdout
    found = record(filled(*arguments, "--json"))
    assert FLASH in (found["other_engine"] if command == ("stats",) else found)["note"]


def test_a_model_s_listing_of_skills_says_which_other_ones_have(filled: Run, skills: Path) -> None:
    found = record(filled("skills", "list", skills, "--model", "fake:b", "--json"))
    assert {(skill["state"], skill["blocks"]) for skill in found["skills"]} == {("new", 0)}
    differs = [skill["differs"] for skill in found["skills"] if skill["differs"]]
    assert differs
    assert all(fields.keys() == {"model_sha256"} for fields in differs)
    assert "model_sha256 = fake, here fake:b" in found["note"]
    assert "model_sha256 = fake, here fake:b" in filled("skills", "list", skills, "--model", "fake:b").stdout


def test_show_names_the_field(filled: Run) -> None:
    filled("settings", "flash-attention=on")
    assert record(filled("show", "fees", "--json"))["differs"] == {"flash_attention": {"there": False, "here": True}}
    assert f"other engine  than `agentkv ask` opens here: {FLASH}" in filled("show", "fees").stdout


def test_a_user_s_own_model_has_its_name(filled: Run, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("A note.")
    filled("deposit", tmp_path / "note.txt", "--model", "fake:my-own")
    rows = {row["name"]: row["model"] for row in record(filled("list", "--json"))["blocks"]}
    assert rows == {"fees": "fake", "release": "fake", "note": "fake:my-own"}
    assert record(filled("show", "note", "--json"))["model"] == "fake:my-own"
    assert {row["model"] for row in record(filled("stats", "--json"))["models"]} == {"fake", "fake:my-own"}
    assert filled("check").exit_code == 0


def test_a_solved_task_is_not_lost(run: Run, store: Path) -> None:
    """Solutions are the book's, not an engine's: nothing of them is left out for another engine."""
    with AgentMemory(store, "fake") as memory:
        memory.deposit_text("solution/one-12345678", "def f(): return 1\n")
    result = run("ask", "what is one", "--flash-attention")
    assert (result.exit_code, "warning" in result.stderr) == (0, False)


def test_documents_are_found_whatever_model_would_be_opened(
    filled: Run, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled("docs", "add", skills, "--model", "fake:mine")
    for model in ("fake:mine", None):
        monkeypatch.delenv("AGENTKV_MODEL", raising=False)
        if model is not None:
            monkeypatch.setenv("AGENTKV_MODEL", model)
        assert record(filled("docs", "find", "restocking fee", "--json"))["hits"]
    error = error_of(filled("docs", "find", "restocking fee", "--model", "fake:b", "--json"))
    assert "It is there for fake:mine: pass that as --model" in error["message"]
    command = error["message"].partition("`")[2].partition("`")[0]
    assert filled(*shlex.split(command)[1:]).exit_code == 0
    assert record(filled("docs", "find", "restocking fee", "--model", "fake:b", "--json"))["hits"]
    assert name_of_model("/models/mine.Q4.gguf") == "mine.Q4"
    assert name_of_model("smollm2-135m") == "smollm2-135m"
