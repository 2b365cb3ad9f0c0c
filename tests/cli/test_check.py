"""``agentkv check``: what it says, how it ends, and what is lost after ``--repair``."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agentkv import BlockStore

from .conftest import Run, damage, error_of, manifest_files, record


def block_of(run: Run, name: str) -> str:
    return str(record(run("show", name, "--json"))["block_id"])


def everything(root: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def test_sound(filled: Run, store: Path) -> None:
    before = everything(store)
    for options in ([], ["--quick"], ["--repair"]):
        result = filled("check", *options)
        assert result.exit_code == 0
        assert result.stdout.startswith("all sound (looked at 6 blocks and ")
    found = record(filled("check", "--json"))
    assert (found["ok"], found["deep"], found["blocks"], found["findings"], found["repair"]) == (
        True,
        True,
        6,
        [],
        None,
    )
    assert everything(store) == before


@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_damage_is_named_and_changes_nothing(filled: Run, store: Path, options: list[str]) -> None:
    damage(store, block_of(filled, "fees"))
    before = everything(store)
    result = filled("check", *options)
    assert result.exit_code == 47
    assert result.stdout.splitlines()[1].startswith("DAMAGED")
    assert "lost with it: fees" in result.stdout
    assert "agentkv check --repair" in result.stderr
    found = filled("check", *options, "--json")
    assert error_of(found)["type"] == "StoreDamaged"
    (finding,) = record(found)["findings"]
    assert (finding["kind"], finding["damage"], finding["names"]) == ("corrupt", True, ["fees"])
    assert Path(finding["path"]).exists()
    assert everything(store) == before


def test_repair_says_what_is_lost_and_the_command_that_brings_it_back(
    filled: Run, store: Path, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(store, block_of(filled, "fees"))
    monkeypatch.delenv("AGENTKV_STORE")
    monkeypatch.delenv("AGENTKV_MODEL")
    result = filled("check", "--repair", "--store", store)
    assert result.exit_code == 0
    assert "lost until it is deposited again:" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "agentkv deposit" in line]
    words = shlex.split(line)
    assert words == ["agentkv", "deposit", "--store", str(store), "--model", "fake", str(skills / "fees")]
    assert filled("check", "--store", store).exit_code == 0
    assert filled("show", "fees", "--store", store).exit_code == 44
    assert filled("verify", "release", "--store", store).exit_code == 0
    assert filled(*words[1:]).exit_code == 0
    assert filled("verify", "--store", store).exit_code == 0


def test_repair_as_json(filled: Run, store: Path) -> None:
    block_id = block_of(filled, "fees")
    damage(store, block_id)
    result = filled("check", "--repair", "--json")
    assert result.exit_code == 0
    done = record(result)["repair"]
    assert [block["block_id"] for block in done["blocks"]] == [block_id]
    assert [entry["name"] for entry in done["blocks"][0]["names"]] == ["fees"]
    assert len(done["moved"]) == 3
    assert all(Path(step["to"]).exists() and not Path(step["from"]).exists() for step in done["moved"])
    assert sum(Path(step["to"]).stat().st_size for step in done["moved"]) == done["bytes"]


def test_a_source_that_is_gone_is_not_in_the_command(filled: Run, store: Path, skills: Path) -> None:
    damage(store, block_of(filled, "fees"))
    (skills / "fees").rename(skills / "moved")
    text = filled("check", "--repair").stdout
    assert "agentkv deposit" not in text
    assert "deposit them from where they are now: fees" in text


def test_what_cannot_be_read_stays_and_ends_with_47(filled: Run, store: Path) -> None:
    shard = manifest_files(store)[0].parent
    away = store.parent / "away"
    shard.rename(away)
    shard.symlink_to(away)
    result = filled("check", "--repair")
    assert result.exit_code == 47
    assert "UNREADABLE" in result.stdout
    assert "could not be read and stayed" in result.stderr
    assert shard.is_symlink()


def test_leftovers_and_foreign_files_are_told_and_are_no_damage(filled: Run, store: Path) -> None:
    orphan = store / "segments" / "ab" / f"{'ab' * 32}.seg"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(bytes(2000))
    (store / "letter.txt").write_text("dear")
    result = filled("check")
    assert result.exit_code == 0
    assert "left over: 1 file that nothing needs, 2 kB; `agentkv gc` removes them" in result.stdout
    assert "letter.txt" in result.stdout
    assert {finding["kind"] for finding in record(filled("check", "--json"))["findings"]} == {"foreign", "orphan"}


def test_a_long_list_is_cut_and_the_json_is_not(filled: Run, store: Path) -> None:
    for number in range(40):
        (store / f"letter-{number}").write_text("dear")
    assert "… and 10 more" in filled("check").stdout
    assert len(record(filled("check", "--json"))["findings"]) == 40


def test_no_store(run: Run, store: Path) -> None:
    assert run("check").exit_code == 40
    assert not store.exists()


def test_ctrl_c_changes_nothing(filled: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(store)

    def interrupted(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentkv.store.segments.FileSegmentStore.check", interrupted)
    result = filled("check", "--repair")
    assert (result.exit_code, result.stdout) == (130, "")
    assert everything(store) == before
    with BlockStore(store) as opened:
        opened.collect()  # the lock is free
