"""``agentkv deposit``: folders, texts, broken ones beside good ones, and Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import AgentMemory
from agentkv.errors import OverBudget

from .conftest import Run, error_of, manual, record


def names(result: Any) -> list[tuple[str, bool]]:
    return [(row["name"], row["new"]) for row in record(result)["deposits"]]


def test_a_folder_of_skills_new_then_known(run: Run, skills: Path) -> None:
    assert names(run("deposit", skills, "--json")) == [("fees", True), ("release", True)]
    again = run("deposit", skills, "--json")
    assert names(again) == [("fees", False), ("release", False)]
    assert [row["read"] for row in record(again)["deposits"]] == [0, 0]


def test_table(run: Run, skills: Path) -> None:
    header, first, second, _, total = run("deposit", skills).stdout.splitlines()
    assert header.split() == ["name", "tokens", "seconds", "on", "disk", "exactness"]
    assert (first.split()[0], second.split()[0]) == ("fees", "release")
    assert first.split()[-1] == "exact"
    assert total.startswith("2 new: ")
    assert run("deposit", skills).stdout.splitlines()[-1] == "2 known, nothing to prefill"


def test_one_skill_by_folder_or_file(run: Run, skills: Path) -> None:
    assert names(run("deposit", skills / "fees", "--json")) == [("fees", True)]
    assert names(run("deposit", skills / "release" / "SKILL.md", "--json")) == [("release", True)]


def test_a_text_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "opening hours.md"
    file.write_text("We open at 9.")
    (row,) = record(run("deposit", file, "--json"))["deposits"]
    assert (row["name"], row["kind"], row["new"]) == ("opening hours", "text", True)
    assert names(run("deposit", file, "--name", "hours", "--description", "When?", "--json")) == [("hours", False)]
    (hours, _) = record(run("list", "--json"))["blocks"]
    assert (hours["name"], hours["description"], hours["source"]) == ("hours", "When?", str(file))


def test_name_goes_with_one_text_only(run: Run, skills: Path) -> None:
    assert run("deposit", skills, "--name", "x").exit_code == 2
    assert run("deposit", __file__, skills, "--description", "x").exit_code == 2


def test_a_path_that_is_not_there_stops_before_any_work(run: Run, skills: Path, store: Path) -> None:
    assert run("deposit", skills, skills / "absent").exit_code == 2
    assert not store.exists()


def test_broken_manuals_do_not_keep_the_good_ones_out(run: Run, skills: Path) -> None:
    (skills / "empty").mkdir()
    (skills / "empty" / "SKILL.md").write_bytes(b"")
    (skills / "wide").mkdir()
    (skills / "wide" / "SKILL.md").write_bytes("---\nname: wide\n---\ntext".encode("utf-16"))
    result = run("deposit", skills, "--json")
    assert names(result) == [("fees", True), ("release", True)]
    assert error_of(result)["exit_code"] == 50
    assert [Path(failed["path"]).parent.name for failed in record(result)["failed"]] == ["empty", "wide"]
    assert result.stderr.count("error: ") == 2
    assert len(record(run("list", "--json"))["blocks"]) == 2


def test_a_folder_without_manuals(run: Run, skills: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    result = run("deposit", tmp_path / "none", skills, "--json")
    assert result.exit_code == 50
    assert len(names(result)) == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (b"caf\xe9", "not UTF-8 at byte 3"),
        (b"x" * (10 * 1024 * 1024 + 1), "larger than"),
    ],
    ids=["empty", "blank", "utf-16", "binary", "latin-1", "huge"],
)
def test_texts_that_are_none(run: Run, tmp_path: Path, data: bytes, reason: str) -> None:
    file = tmp_path / "file.txt"
    file.write_bytes(data)
    error = error_of(run("deposit", file, "--json"))
    assert error["type"] == "InvalidManual"
    assert reason in error["message"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_fifo_does_not_hang(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert run("deposit", tmp_path / "fifo").exit_code == 50


def test_one_that_is_too_long_does_not_keep_the_others_out(run: Run, skills: Path) -> None:
    manual(skills, "long", "word " * 400)
    result = run("deposit", skills, "--window", "1024", "--json")
    assert names(result) == [("fees", True), ("release", True)]
    error = error_of(result)
    assert (error["type"], error["exit_code"], error["window"]) == ("WindowOverflow", 20, 1024)


def test_control_characters_of_a_name_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("text")
    result = run("deposit", tmp_path / "file.txt", "--name", "a\x1b[31mb")
    assert "\x1b" not in result.stdout
    assert "\x1b" not in run("list").stdout


def test_ctrl_c_keeps_what_is_done(run: Run, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deposit_skill = AgentMemory.deposit_skill

    def interrupted(self: AgentMemory, skill: Any, **options: Any) -> Any:
        if skill.name == "release":
            raise KeyboardInterrupt
        return deposit_skill(self, skill, **options)

    with monkeypatch.context() as patch:
        patch.setattr(AgentMemory, "deposit_skill", interrupted)
        result = run("deposit", skills, "--json")
    error = error_of(result)
    assert (error["type"], error["exit_code"], error["done"], error["total"]) == ("Interrupted", 130, 1, 2)
    assert "1 of 2 are stored and stay" in result.stderr
    assert names(run("deposit", skills, "--json")) == [("fees", False), ("release", True)]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_store_can_be_read(filled: Run, skills: Path, store: Path) -> None:
    folders = [store, *(path for path in store.rglob("*") if path.is_dir())]
    manual(skills, "more", "text")
    try:
        for folder in folders:
            folder.chmod(0o555)
        assert filled("list").exit_code == 0
        assert filled("ask", "fee?", "--skill", "fees").exit_code == 0
        assert filled("deposit", skills).exit_code == 46
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize(("codec", "number"), [("planes", 2), ("zstd:19", 1), ("raw", 0)])
def test_the_codec_of_new_segments_is_a_setting(
    run: Run, skills: Path, store: Path, monkeypatch: pytest.MonkeyPatch, codec: str, number: int
) -> None:
    monkeypatch.setenv("AGENTKV_CODEC", codec)
    assert run("deposit", skills).exit_code == 0
    used = {path.read_bytes()[10] for path in (store / "segments").rglob("*.seg")}
    assert used <= {0, 3} | {number}
    assert number in used
    monkeypatch.setenv("AGENTKV_CODEC", "planes:9")
    assert run("verify").exit_code == 0


@pytest.mark.parametrize("codec", ["lz4", "planes:fast", "planes:99"])
def test_a_codec_that_there_is_not_is_refused(
    run: Run, skills: Path, store: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    monkeypatch.setenv("AGENTKV_CODEC", codec)
    assert run("deposit", skills).exit_code == 2
    assert not store.exists() or not list(store.rglob("*.seg"))


def test_what_a_budget_makes_go_is_named_and_a_failure(run: Run, skills: Path, store: Path, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"note-{number}.txt").write_text(f"note number {number} " * 40)
    notes = sorted(tmp_path.glob("note-*.txt"))
    run("deposit", notes[0])
    one = orjson.loads(run("gc", "--dry-run", "--budget", "10GB", "--json").stdout)["stored_bytes"]
    run("gc", "--set-budget", f"{2 * one}B")
    second = run("deposit", notes[1])
    assert second.exit_code == 0
    many = run("deposit", *notes, "--json")
    record = orjson.loads(many.stdout)
    assert many.exit_code == OverBudget.exit_code
    gone = {name for item in record["evicted"] for name in item["names"]}
    listed = {block["name"] for block in orjson.loads(run("list", "--json").stdout)["blocks"]}
    assert listed
    assert {note.stem for note in notes} - listed <= gone, "whatever is missing was named"
    screen = run("deposit", *notes)
    assert "evicted to stay within the budget: note-" in screen.stdout
    assert "was stored and then evicted" in screen.stderr
