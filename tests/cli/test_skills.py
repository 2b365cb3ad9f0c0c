"""``agentkv skills``: list, validate, deposit, watch, test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import BlockStore
from agentkv.cli.skills_deposit import _tell as tell_event
from agentkv.skills.report import SkillEvent

from .conftest import FEES, Run, error_of, manual, record


def states(result: Any) -> dict[str, str]:
    return {entry["name"]: entry["state"] for entry in record(result)["skills"]}


def broken(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ncolour: red\n---\ntext")
    return folder / name


def loose(folder: Path, name: str) -> Path:
    """A skill that loads although the format does not know one of its fields."""
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
    assert (error["exit_code"], error["line"]) == (50, 2)
    (fault,) = record(result)["broken"]
    assert (fault["path"], fault["line"]) == (str(folder / "SKILL.md"), 2)
    assert fault["reason"] == "the frontmatter has no `description` text"
    assert (record(result)["found"], len(record(result)["valid"])) == (3, 2)
    assert not store.exists()


def test_validate_has_two_levels(run: Run, skills: Path, store: Path) -> None:
    folder = loose(skills, "bad")
    result = run("skills", "validate", skills)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == [
        "bad: loads, and breaks the format",
        "    note: line 3: unknown frontmatter field colour; put your own under `metadata`",
    ]
    assert result.stdout.splitlines()[-1] == "3 skills: 2 valid, 1 loaded with a warning, 0 broken"
    (warned,) = record(run("skills", "validate", skills, "--json"))["warned"]
    assert warned["name"] == "bad"

    result = run("skills", "validate", skills, "--strict", "--json")
    error = error_of(result)
    assert (error["exit_code"], error["line"]) == (50, 3)
    (fault,) = record(result)["broken"]
    assert (fault["path"], fault["line"]) == (str(folder / "SKILL.md"), 3)
    assert fault["reason"].startswith("unknown frontmatter field colour")
    assert (record(result)["found"], len(record(result)["valid"]), record(result)["warned"]) == (3, 2, [])
    assert run("skills", "validate", skills, "--strict").stdout.splitlines()[-1] == "3 skills: 2 valid, 1 broken"
    assert not store.exists()


def test_what_loads_with_a_warning_is_deposited_and_said(run: Run, skills: Path) -> None:
    folder = loose(skills, "Bad One")
    for command in (("skills", "deposit"), ("deposit",)):
        result = run(*command, skills)
        assert result.exit_code == 0
        assert f"warning: the skill 'Bad One' of {folder} was loaded, but: line 3: unknown" in result.stderr
        assert "`agentkv skills validate --strict` checks the format" in result.stderr
    assert states(run("skills", "list", skills, "--json"))["Bad One"] == "stored"


def test_thousands_of_warnings_are_summed_up(run: Run, skills: Path) -> None:
    for i in range(25):
        loose(skills, f"bad-{i}")
    lines = [line for line in run("skills", "deposit", skills).stderr.splitlines() if line.startswith("warning: ")]
    assert len(lines) == 21
    assert lines[-1] == "warning: 5 more warnings of this kind; `agentkv skills validate FOLDER` lists them all"


def test_dry_run_needs_no_store_and_makes_none(run: Run, skills: Path, store: Path) -> None:
    manual(skills, "long", "A line about the long skill.\n" * 400)
    asked = ("skills", "deposit", skills, "--max-tokens", "4000", "--json")
    forecast = record(run(*asked, "--dry-run"))
    assert not store.exists()
    assert (forecast["dry_run"], forecast["store"]) == (True, str(store))
    done = record(run(*asked))
    assert (forecast["added"], forecast["found"]) == (done["added"], 3)
    blocks = [event["pieces"] for event in done["events"]]
    tokens = sum(event["own_tokens"] for event in done["events"])
    assert (forecast["blocks"], forecast["tokens"]) == (sum(blocks), tokens)
    assert max(blocks) > 1
    n_bytes = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    assert 0.5 < forecast["estimate"]["n_bytes"] / n_bytes < 2
    assert forecast["estimate"]["seconds"] > 0

    (skills / "fees" / "SKILL.md").write_text("---\nname: fees\ndescription: All about fees.\n---\nOther.")
    shutil.rmtree(skills / "release")
    before = {file: file.stat().st_mtime_ns for file in store.rglob("*")}
    forecast = record(run(*asked, "--dry-run"))
    assert {file: file.stat().st_mtime_ns for file in store.rglob("*")} == before
    assert (forecast["changed"], forecast["unchanged"], forecast["removed"]) == (["fees"], ["long"], ["release"])
    assert (forecast["blocks"], record(run(*asked, "--dry-run", "--keep"))["removed"]) == (1, [])


def test_dry_run_is_shown_and_fails_for_what_is_broken(run: Run, skills: Path, store: Path) -> None:
    result = run("skills", "deposit", skills, "--dry-run")
    *_, cost, end = result.stdout.splitlines()
    assert re.fullmatch(r"to prefill: 2 blocks, \d+ tokens; about \d+ kB on disk and [\d.]+ s, by a block of .*", cost)
    assert end == "nothing was changed (--dry-run)"
    broken(skills, "bad")
    result = run("skills", "deposit", skills, "--dry-run")
    assert (result.exit_code, "3 skills: 2 added, 1 broken" in result.stdout) == (50, True)
    assert not store.exists()


def test_a_skill_that_asks_for_it_is_not_routed_and_is_used_by_its_name(run: Run, skills: Path, store: Path) -> None:
    folder = manual(skills, "secret", "The code of the zebra is 7001.")
    text = (folder / "SKILL.md").read_text()
    run("skills", "deposit", skills)
    asked = ("ask", "What is the code of the zebra?", "--json")
    assert record(run(*asked))["decision"]["pick"] == "secret"
    (folder / "SKILL.md").write_text(text.replace("---\n", "---\ndisable-model-invocation: true\n", 1))
    result = run("skills", "deposit", skills)
    assert "no question is routed to it" in result.stderr
    turn = record(run(*asked))
    assert (turn["decision"]["pick"] == "secret", "secret" in turn["decision"]["scores"]) == (False, False)
    turn = record(run(*asked, "--skill", "secret"))
    assert (turn["decision"]["pick"], turn["text"]) == ("secret", "The code of the zebra is 7001.")
    assert states(run("skills", "list", skills, "--json"))["secret"] == "stored"


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


@pytest.mark.parametrize(
    "command", [("list",), ("validate",), ("deposit", "--dry-run", "--model", "fake")], ids=lambda command: command[0]
)
def test_what_lies_too_deep_is_told_by_every_command(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    deep = tmp_path.joinpath("nested", *["d"] * 20)
    deep.mkdir(parents=True)
    loose(deep, "too-deep")
    result = run("skills", *command, tmp_path / "nested")
    assert "more than 16 folders below" in result.stderr
    assert "pass it by itself" in result.stderr
    assert run("skills", *command, deep).exit_code == 0


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
    assert header.split() == ["name", "blocks", "tokens", "prefilled", "seconds"]
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


def test_tokens_are_one_number_everywhere(run: Run, skills: Path) -> None:
    events = {event["name"]: event for event in record(run("skills", "deposit", skills, "--json"))["events"]}
    listed = {entry["name"]: entry["tokens"] for entry in record(run("list", "--json"))["blocks"]}
    assert {name: event["tokens"] for name, event in events.items()} == listed
    for entry in record(run("skills", "list", skills, "--json"))["skills"]:
        event = events[entry["name"]]
        assert (entry["tokens"], entry["own_tokens"]) == (event["tokens"], event["own_tokens"])
        assert entry["own_tokens"] < entry["tokens"] < event["read"]
    header, fees, *_ = run("skills", "list", skills).stdout.splitlines()
    assert header.split() == ["name", "state", "model", "tokens", "own", "blocks", "files", "license"]
    assert fees.split()[3:5] == [f"{events['fees']['tokens']:,}", f"{events['fees']['own_tokens']:,}"]


def test_list_tells_parts(run: Run, skills: Path) -> None:
    manual(skills, "long", "\n\n".join(f"## Part {i}\n\n{'word ' * 40}" for i in range(6)))
    run("skills", "deposit", skills, "--max-tokens", "600")
    parts = {e["name"]: e["parts"] for e in record(run("skills", "list", skills, "--json"))["skills"]}
    assert parts == {"fees": [], "release": [], "long": ["long/long", "long/part-2", "long/part-4"]}
    shown = run("skills", "list", skills).stdout.splitlines()
    assert shown[-1] == "long is stored in 3 parts: long/long, long/part-2, long/part-4"


def one_segment(store: Path, name: str) -> Path:
    """A segment file of this name's block that no other block has."""
    with BlockStore(store) as opened:
        mine = next(named.block_id for named in opened.names() if named.name == name)
        digests = {i: {ref.sha256 for ref in opened.verify(i).segments} for i in opened.block_ids()}
        own = digests.pop(mine) - set().union(*digests.values())
        return Path(opened.segments.where(sorted(own)[0]))


def test_damage_is_listed_and_mended(run: Run, skills: Path, store: Path) -> None:
    run("skills", "deposit", skills)
    file = one_segment(store, "fees")
    file.unlink()
    listed = run("skills", "list", skills, "--json")
    assert states(listed) == {"fees": "damaged", "release": "stored"}
    assert error_of(listed)["exit_code"] == 43
    assert file.name[:12] in record(listed)["skills"][0]["fault"]
    assert "2 skills: 1 damaged, 1 stored" in run("skills", "list", skills).stdout
    answered = run("ask", "restocking fee?", "--skill", "fees")
    assert (answered.exit_code, "could not be restored" in answered.stderr) == (0, True)

    result = run("skills", "deposit", skills)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "2 skills: 1 mended, 1 unchanged")
    assert states(run("skills", "list", skills, "--json")) == {"fees": "stored", "release": "stored"}
    assert run("ask", "restocking fee?", "--skill", "fees").exit_code == 0


def test_a_text_that_is_missing_is_damage(run: Run, skills: Path, store: Path) -> None:
    run("skills", "deposit", skills)
    for text in (store / "texts").rglob("*.txt"):
        text.unlink()
    assert states(run("skills", "list", skills, "--json")) == {"fees": "damaged", "release": "damaged"}
    first = record(run("skills", "deposit", skills, "--json"))
    assert (first["mended"], first["unchanged"], first["found"]) == (["fees", "release"], [], 2)
    assert states(run("skills", "list", skills, "--json")) == {"fees": "stored", "release": "stored"}


def test_what_cannot_be_read_is_no_damage(run: Run, skills: Path, store: Path) -> None:
    run("skills", "deposit", skills)
    file = one_segment(store, "fees")
    file.unlink()
    file.mkdir()
    listed = run("skills", "list", skills, "--json")
    assert states(listed) == {"fees": "unreadable", "release": "stored"}
    assert error_of(listed)["exit_code"] == 46
    deposited = run("skills", "deposit", skills, "--json")
    assert error_of(deposited)["exit_code"] == 46
    assert (record(deposited)["unchanged"], record(deposited)["broken"][0]["kept"]) == (["release"], ["fees"])


def test_a_replaced_skill_is_told(run: Run, skills: Path, tmp_path: Path) -> None:
    run("skills", "deposit", skills)
    manual(tmp_path / "other", "fees", "Other fees.")
    shown = run("skills", "deposit", tmp_path / "other").stdout
    assert f"replaced (was {skills / 'fees'})" in " ".join(shown.split())
    assert shown.splitlines()[-1] == "1 skill: 1 replaced"
    found = record(run("skills", "deposit", skills, "--json"))
    assert (found["replaced"], found["unchanged"], found["found"]) == (["fees"], ["release"], 2)
    assert found["events"][0]["was"] == str(tmp_path / "other" / "fees")


def test_a_budget_that_is_too_small_fails(run: Run, skills: Path, store: Path) -> None:
    run("skills", "deposit", skills / "fees")
    with BlockStore(store) as opened:
        used = sum(n_bytes for _, n_bytes in opened.segments.all())
        opened.set_budget(used * 2)
    for i in range(6):
        manual(skills, f"more-{i}", f"{i} word " * 40)
    result = run("skills", "deposit", skills, "--json")
    error, found = error_of(result), record(result)
    assert error["exit_code"] == 48
    there = {entry["name"] for entry in record(run("list", "--json"))["blocks"]}
    names = ["fees", *(f"more-{i}" for i in range(6)), "release"]
    assert sorted(found["evicted"]) == [name for name in names if name not in there]
    assert sorted(found["added"]) == [name for name in names if name in there and name != "fees"]
    assert (found["found"], sorted(found["evicted_names"])) == (8, sorted(found["evicted"]))
    assert (error["budget"], error["evicted"], error["needed"] > 0) == (used * 2, found["evicted"], True)
    assert "too small" in error["message"]
    assert found["evicted"][0] in error["message"]
    again = run("skills", "deposit", skills)
    assert again.exit_code == 48
    assert f"{len(found['evicted'])} evicted" in again.stdout.replace("\n", " ")
    assert "to keep to the store's budget: " in again.stdout


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


def held(store: Path) -> dict[str, bytes]:
    """Every file of the store that a deposit writes."""
    folders = ("manifests", "names", "segments", "texts")
    files = [path for folder in folders for path in (store / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def test_test_reads_the_questions_first(run: Run, skills: Path, store: Path) -> None:
    routes = skills / "release" / "routes.jsonl"
    routes.write_text("not json\n")
    result = run("skills", "test", skills, "--json")
    assert error_of(result)["exit_code"] == 2
    assert f"{routes}:1" in result.stderr
    assert not store.exists()
    run("skills", "deposit", skills)
    before = held(store)
    assert run("skills", "test", skills, "--max-tokens", "600").exit_code == 2
    assert held(store) == before


def test_test_leaves_what_is_stored_as_it_is(run: Run, skills: Path, store: Path, tmp_path: Path) -> None:
    route = '{"query": "what is in part 3", "skill": "long", "answer": ["word"]}\n'
    manual(skills, "long", "\n\n".join(f"## Part {i}\n\n{'word ' * 40}" for i in range(6)), route)
    run("skills", "deposit", skills, "--max-tokens", "600")
    fees = (skills / "fees" / "SKILL.md").read_text()
    (skills / "fees" / "SKILL.md").write_text(fees.replace("12%", "13%"))
    run("skills", "test", skills)  # cards and prefixes of routing aside, nothing is new
    before = held(store)
    result = run("skills", "test", skills, "--json")
    assert held(store) == before
    found = record(result)
    assert found["deposited"] == []
    assert found["as_stored"] == {
        "fees": "and its file has changed since; `agentkv skills deposit` takes it",
        "long": "in 3 blocks; `agentkv skills deposit` would cut it otherwise",
    }
    assert "long: tested as it is stored, in 3 blocks" in result.stderr
    assert {row["skill"]: row["answer"] for row in found["rows"]}["fees"].endswith("12%.")
    names = {entry["name"] for entry in record(run("list", "--json"))["blocks"]}
    assert names == {"fees", "release", "long/long", "long/part-2", "long/part-4"}

    manual(skills, "new", "New text.")
    one_segment(store, "release").unlink()
    result = run("skills", "test", skills, "--json")
    assert record(result)["deposited"] == ["new", "release"]
    assert "deposited first: new, release" in result.stderr
    manual(tmp_path / "other", "fees", "Other.", '{"query": "q", "skill": null}\n')
    found = record(run("skills", "test", tmp_path / "other", "--json"))
    assert found["as_stored"] == {"fees": f"from {skills / 'fees'}"}


def test_test_without_questions(run: Run, tmp_path: Path) -> None:
    manual(tmp_path / "s", "plain", FEES)
    assert run("skills", "test", tmp_path / "s").exit_code == 2


# --- watch --------------------------------------------------------------------------------------------


def test_help_says_how_watch_writes_json(run: Run) -> None:
    shown = " ".join(run("skills", "watch", "--help").stdout.replace("│", " ").split())
    assert "one JSON document a line, one an event" in shown
    assert "Print one JSON document on stdout" not in shown


def test_what_watch_says_of_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(event: SkillEvent) -> str:
        tell_event(event, False)
        return capsys.readouterr().out.strip().split("  ", 1)[1]

    home, other = Path("/s/fees"), Path("/t/fees")
    done = SkillEvent("mended", "fees", home, pieces=2, tokens=300, own_tokens=100, read=1400, seconds=2.04)
    reading = "(1,400 tokens prefilled in 2.0 s, cards and proofs included, 2 blocks)"
    assert shown(done) == f"mended  fees  {reading}"
    assert shown(replace(done, kind="replaced", was=other)) == f"replaced  fees  (was {other}) {reading}"
    assert shown(SkillEvent("mended", "fees", home)) == "mended  fees"
    reason = "to keep to the store's budget"
    assert shown(SkillEvent("evicted", "fees", None, reason=reason)) == f"evicted  fees  - {reason}"
    tell_event(SkillEvent("evicted", "fees", None, reason=reason), True)
    assert orjson.loads(capsys.readouterr().out)["path"] is None


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for a child there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_tells_each_event_and_ends_cleanly(run: Run, skills: Path, store: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "agentkv", "skills", "watch", str(skills), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        shown = [orjson.loads(process.stdout.readline()) for _ in range(2)]
        assert [(event["kind"], event["name"]) for event in shown] == [("added", "fees"), ("added", "release")]
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
