"""``agentkv skills``: list, validate, deposit, watch, test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from .conftest import FEES, Run, error_of, manual, record


def states(result: Any) -> dict[str, str]:
    return {entry["name"]: entry["state"] for entry in record(result)["skills"]}


def broken(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ncolour: red\ndescription: x\n---\ntext")
    return folder / name


# --- validate -----------------------------------------------------------------------------------------


def test_validate_says_valid_and_what_is_broken(run: Run, skills: Path, store: Path) -> None:
    result = run("skills", "validate", skills)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["fees: valid", "release: valid", "", "2 skills: 2 valid, 0 broken"]
    folder = broken(skills, "bad")
    result = run("skills", "validate", skills, "--json")
    error = error_of(result)
    assert (error["exit_code"], error["line"]) == (50, 3)
    (fault,) = record(result)["broken"]
    assert (fault["path"], fault["line"]) == (str(folder / "SKILL.md"), 3)
    assert fault["reason"].startswith("unknown frontmatter field colour")
    assert (record(result)["found"], len(record(result)["valid"])) == (3, 2)
    assert not store.exists()


def test_validate_notes(run: Run, tmp_path: Path) -> None:
    folder = manual(tmp_path / "s", "long", "line\n" * 501 + "See references/more.md and scripts/run.py.", "not json\n")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "run.py").touch()
    (valid,) = record(run("skills", "validate", folder / "SKILL.md", "--json"))["valid"]
    lines, missing, routes = valid["notes"]
    assert "fewer than 500" in lines
    assert missing == "it names references/more.md, which is not there"
    assert "not a line of JSON" in routes
    assert "    note: it names references/more.md" in run("skills", "validate", folder).stdout


def test_a_folder_that_is_none_or_holds_nothing(run: Run, skills: Path, tmp_path: Path) -> None:
    assert run("skills", "validate", skills / "nothing").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert run("skills", "validate", tmp_path / "empty").exit_code == 50
    assert run("skills", "list", tmp_path / "empty").stdout == "no skills there\n"


# --- deposit and list ---------------------------------------------------------------------------------


def test_deposit_adds_changes_and_removes(run: Run, skills: Path) -> None:
    first = record(run("skills", "deposit", skills, "--json"))
    assert (first["added"], first["found"]) == (["fees", "release"], 2)
    shutil.rmtree(skills / "release")
    (skills / "fees" / "SKILL.md").write_text("---\nname: fees\ndescription: d\n---\nOther.")
    manual(skills, "more", "text")
    assert record(run("skills", "deposit", skills, "--keep", "--json"))["removed"] == []
    result = run("skills", "deposit", skills)
    assert "2 skills: 2 unchanged; 1 removed" in result.stdout
    assert {entry["name"] for entry in record(run("list", "--json"))["blocks"]} == {"fees", "more"}


def test_deposit_table(run: Run, skills: Path) -> None:
    header, fees, release, _, total = run("skills", "deposit", skills).stdout.splitlines()
    assert header.split() == ["name", "blocks", "tokens", "seconds"]
    assert fees.split()[:3] == ["fees", "added", "1"]
    assert release.split()[:2] == ["release", "added"]
    assert total == "2 skills: 2 added"
    assert run("skills", "deposit", skills).stdout == "2 skills: 2 unchanged\n"


def test_deposit_with_a_broken_one_keeps_its_old_version(run: Run, skills: Path) -> None:
    run("skills", "deposit", skills)
    (skills / "fees" / "SKILL.md").write_text("---\nname: fees\n")
    result = run("skills", "deposit", skills, "--json")
    assert error_of(result)["exit_code"] == 50
    assert record(result)["broken"][0]["kept"] == ["fees"]
    assert "its earlier version stays (fees)" in run("skills", "deposit", skills).stderr
    assert record(run("ask", "restocking fee?", "--skill", "fees", "--json"))["text"]


def test_list_before_and_after(run: Run, skills: Path, store: Path) -> None:
    assert states(run("skills", "list", skills, "--json")) == {"fees": "new", "release": "new"}
    assert not store.exists()
    run("skills", "deposit", skills)
    (skills / "fees" / "SKILL.md").write_text("---\nname: fees\ndescription: All about fees.\n---\nOther.")
    manual(skills, "more", "text")
    folder = broken(skills, "bad")
    shutil.rmtree(skills / "release")
    result = run("skills", "list", skills, "--json")
    assert states(result) == {"fees": "changed", "more": "new", "release": "gone"}
    assert result.exit_code == 50
    assert record(result)["found"] == 3
    entry = next(entry for entry in record(result)["skills"] if entry["name"] == "fees")
    assert (entry["model"], entry["blocks"], entry["tokens"] > 0) == ("fake", 1, True)
    shown = run("skills", "list", skills)
    assert "BROKEN" in shown.stdout
    assert "4 skills: 1 broken, 1 changed, 1 gone, 1 new" in shown.stdout
    assert str(folder) in shown.stderr


def test_parts_and_references(run: Run, skills: Path) -> None:
    folder = manual(skills, "long", "\n\n".join(f"## Part {i}\n\n{'word ' * 40}" for i in range(6)))
    (folder / "references").mkdir()
    (folder / "references" / "r.md").write_text("Reference text.")
    result = run("skills", "deposit", skills, "--max-tokens", "600", "--references", "--json")
    events = {event["name"]: event["pieces"] for event in record(result)["events"]}
    assert events == {"fees": 1, "long": 4, "release": 1}
    listed = record(run("skills", "list", skills, "--json"))["skills"]
    assert {(e["name"], e["state"], e["blocks"]) for e in listed} >= {("long", "stored", 4), ("fees", "stored", 1)}
    assert next(e for e in listed if e["name"] == "long")["resources"] == ["references/r.md"]
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text().replace("Part 5", "Part five"))
    assert states(run("skills", "list", skills, "--json"))["long"] == "changed"
    turn = record(run("ask", "what is in part 3?", "--skill", "long", "--json"))
    assert turn["decision"]["classifier"] != "caller/1"


# --- test ---------------------------------------------------------------------------------------------


def test_test_routes_and_answers(run: Run, skills: Path) -> None:
    result = run("skills", "test", skills, "--json")
    assert result.exit_code == 0
    rows = record(result)["rows"]
    assert [(row["skill"], row["expected"]) for row in rows] == [("fees", "fees"), ("release", "release")]
    assert all(row["routed"] == (row["pick"] == row["expected"]) for row in rows)
    assert record(result)["total"]["answered"] == 2
    assert {entry["name"] for entry in record(run("list", "--json"))["blocks"]} == {"fees", "release"}


def test_test_fails_on_request_and_shows_which(run: Run, skills: Path) -> None:
    with (skills / "fees" / "routes.jsonl").open("a") as out:
        out.write('{"query": "what is the restocking fee of a reader", "skill": "release", "answer": ["x"]}\n')
        out.write('{"query": "qqq zzz", "skill": null}\n')
    result = run("skills", "test", skills, "--no-answers", "--min-routed", "0.9", "--json")
    assert error_of(result)["exit_code"] == 60
    total = record(result)["total"]
    assert (total["questions"], total["answered"]) == (4, 0)
    assert total["routed"] < 4
    shown = run("skills", "test", skills, "--no-answers")
    assert shown.exit_code == 0
    assert "  fees: what is the restocking fee of a reader" in shown.stdout
    assert ", not to release" in shown.stdout
    failing = run("skills", "test", skills, "--min-right", "1", "--json")
    assert error_of(failing)["exit_code"] == 60
    assert run("skills", "test", skills, "--no-answers", "--min-right", "1").exit_code == 2


def test_test_without_questions(run: Run, tmp_path: Path) -> None:
    manual(tmp_path / "s", "plain", FEES)
    assert run("skills", "test", tmp_path / "s").exit_code == 2


# --- watch --------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for a child there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_tells_each_event_and_ends_cleanly(run: Run, skills: Path, store: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "agentkv.cli", "skills", "watch", str(skills), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = [orjson.loads(process.stdout.readline()) for _ in range(2)]
        assert [(event["kind"], event["name"]) for event in said] == [("added", "fees"), ("added", "release")]
        (skills / "fees" / "SKILL.md").write_text("---\nname: fees\ndescription: d\n---\nOther.")
        event = orjson.loads(process.stdout.readline())
        assert (event["kind"], event["name"], event["path"]) == ("changed", "fees", str(skills / "fees"))
        shutil.rmtree(skills / "release")
        assert orjson.loads(process.stdout.readline())["kind"] == "removed"
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert errors.splitlines()[-1] == "ended; what was stored stays"
    assert [entry["name"] for entry in record(run("list", "--json"))["blocks"]] == ["fees"]
