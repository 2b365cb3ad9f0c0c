"""``agentkv check``: what it says, how it ends, and what is lost after ``--repair``.

``agentkv verify``: every byte, then the proof; on past bad blocks, the first fault's code at the end.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.cli import options

from .conftest import Run, damage, error_of, manifest_files, manual, record


def block_of(run: Run, name: str) -> str:
    return str(record(run("show", name, "--json"))["block_id"])


def everything(root: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def test_a_valid_store(filled: Run, store: Path) -> None:
    before = everything(store)
    for flags in ([], ["--quick"], ["--repair"]):
        result = filled("check", *flags)
        assert result.exit_code == 0
        assert result.stdout.startswith("all valid (looked at 6 blocks and ")
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
    assert result.stdout.splitlines()[1].startswith("CORRUPT")
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
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("  agentkv deposit")]
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


def steps(result: Any) -> list[list[str]]:
    """The words of the commands that a repair prints, as the shell takes them."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("  agentkv ")]
    script = 'for word; do printf "%s\\0" "$word"; done'
    made = []
    for line in lines:
        command = ["bash", "-c", f"set -- {line}\n{script}"]
        made.append(subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")[1:-1])
    return made


def routed(run: Run) -> list[tuple[str, str, str, str]]:
    """What there is to be routed to, and from where it came."""
    blocks = record(run("list", "--json"))["blocks"]
    return [(b["name"], b["kind"], b["description"], b["block_id"]) for b in blocks]


def test_a_lost_text_comes_back_under_its_name_and_with_what_it_is_for(filled: Run, store: Path, skills: Path) -> None:
    names = {"my notes": "when it's late; $HOME", "plain": "", "odd\nname\x1b[31m": "50% é\\"}
    for number, (name, what) in enumerate(names.items()):
        file = skills / ("plain" if name == "plain" else f"file {number}")
        file.write_text(f"notes, the {number}th\n")
        assert filled("deposit", file, "--name", name, "--description", what).exit_code == 0
    before = routed(filled)
    for name in (*names, "fees"):
        damage(store, block_of(filled, name))
    result = filled("check", "--repair")
    assert result.exit_code == 0
    assert len(routed(filled)) == 1
    commands = steps(result)
    assert len(commands) == 3, "one for the manual and the text that is called by its file, one for each other text"
    for command in commands:
        assert filled(*command).exit_code == 0
    assert routed(filled) == before
    assert filled("check").exit_code == 0


@pytest.mark.parametrize("lost", ["a part", "a reference", "a manual with references"])
def test_lost_pieces_of_a_skill_come_back(filled: Run, store: Path, skills: Path, lost: str) -> None:
    long = manual(skills, "long", "\n\n".join(f"## Part {n}\n\n{'Words of it. ' * 12}" for n in "abc"))
    cut = ["--max-tokens", "300"] if lost == "a part" else []
    if not cut:
        (long / "references").mkdir()
        (long / "references" / "more.md").write_text("# More\n\nWhat else there is.\n")
    done = filled("skills", "deposit", skills, *cut, "--references")
    assert done.exit_code == 0
    before = routed(filled)
    names = [name for name, *_ in before if name.startswith("long/")]
    assert len(names) >= (2 if cut else 1)
    damage(store, block_of(filled, "long" if lost == "a manual with references" else names[-1]))
    result = filled("check", "--repair")
    assert len(routed(filled)) < len(before)
    (command,) = steps(result)
    assert command[:2] == ["skills", "deposit"]
    assert ("--references" in command) is not bool(cut)
    assert command[-1] == str(long)
    assert ("--max-tokens" in result.stdout) is bool(cut)
    assert filled(*command, *cut).exit_code == 0
    assert routed(filled) == before
    assert filled("check").exit_code == 0


def test_missing_source_texts(filled: Run, store: Path, skills: Path) -> None:
    (skills / "notes.txt").write_text("some notes\n")
    filled("deposit", skills / "notes.txt", "--name", "mine", "--description", "what for")
    before = routed(filled)
    shutil.rmtree(store / "texts")
    result = filled("check")
    assert result.exit_code == 47
    assert result.stdout.count("MISSING") == 3
    assert "source text of: fees" in " ".join(result.stdout.split())
    assert "lacks 3 source texts; the blocks themselves are whole" in result.stderr
    again = filled("check", "--repair", "--json")
    assert (error_of(again)["type"], record(again)["repair"]["moved"]) == ("StoreDamaged", [])
    assert [entry["name"] for entry in record(again)["repair"]["texts"]] == ["fees", "mine", "release"]
    result = filled("check", "--repair")
    assert result.exit_code == 47
    assert "nothing had to be moved" in result.stdout
    assert "3 names without a source text: fees, mine, release" in result.stderr
    for command in steps(result):
        assert filled(*command).exit_code == 0
    assert routed(filled) == before
    assert filled("check").exit_code == 0
    assert filled("pack", "create", store.parent / "p").exit_code == 0


def test_the_routers_files_are_no_findings(filled: Run, store: Path) -> None:
    filled("ask", "what is the restocking fee of an opened reader?")
    assert list((store / "decisions").iterdir())
    assert record(filled("check", "--json"))["findings"] == []


def test_a_pack_without_texts_is_no_damage(filled: Run, store: Path) -> None:
    filled("pack", "create", store.parent / "p", "--no-sources")
    other = ["--store", store.parent / "other"]
    assert filled("pack", "import", store.parent / "p", "--allow-unsigned", *other).exit_code == 0
    assert filled("check", *other).exit_code == 0


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


# --- verify ---------------------------------------------------------------------------------------


def test_every_block_is_valid(filled: Run) -> None:
    result = filled("verify", "--json")
    found = record(result)
    assert (result.exit_code, found["ok"], len(found["blocks"])) == (0, True, 6)
    assert all(block["ok"] and block["proof"] is None for block in found["blocks"])
    assert filled("verify").stdout.splitlines()[-1] == "6 blocks checked, none bad"


def test_named(filled: Run) -> None:
    block_id = record(filled("show", "release", "--json"))["block_id"]
    found = record(filled("verify", "fees", block_id[:10], "--json"))["blocks"]
    assert [block["name"] for block in found] == ["fees", "release"]


def test_goes_on_past_bad_ones(filled: Run, store: Path) -> None:
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    result = filled("verify", "absent", "fees", "release", "--json")
    assert error_of(result)["exit_code"] == 44
    types = [block["error"] and block["error"]["type"] for block in record(result)["blocks"]]
    assert types[0] == "UnknownBlock"
    assert types[1:] == ["CorruptBlock", None]
    assert filled("verify").exit_code == 42


def test_damaged_manifests_and_names(filled: Run, store: Path) -> None:
    for file in (manifest_files(store)[0], next(p for p in sorted((store / "names").rglob("*")) if p.is_file())):
        file.chmod(0o644)
        file.write_bytes(b"damaged")
    result = filled("verify", "--json")
    found = record(result)
    assert (result.exit_code, found["ok"], len(found["blocks"])) == (42, False, 6)
    assert sum(not block["ok"] for block in found["blocks"]) == 1
    assert result.stderr.count("error: ") == 2


def test_prove(filled: Run) -> None:
    found = record(filled("verify", "--prove", "--json"))
    proofs = Counter(block["proof"] for block in found["blocks"])
    # The agent prefix and the texts were proved one by one; the router's cards rest on the configuration.
    assert proofs == {"proved": 3, "by the configuration's self-test": 3}
    assert "proved" in filled("verify", "fees", "--prove").stdout


def test_prove_finds_another_computation(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_open_engine", lambda *_: FakeEngine(window=4096, diverge_after=3))
    result = filled("verify", "fees", "--prove", "--json")
    assert error_of(result)["type"] == "InexactBlock"
    assert result.exit_code == 31


def test_prove_leaves_other_models_alone(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("other", "Other fees.")
    (other,) = record(filled("verify", "other", "--prove", "--json"))["blocks"]
    assert (other["ok"], other["proof"]) == (True, "not repeated: other model or settings (model_sha256)")


def test_inexact_as_stored_is_no_fault(run: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(window=4096, diverge_after=3)) as memory:
        memory.deposit_text("loose", "text", allow_inexact=True)
    (loose,) = record(run("verify", "loose", "--json"))["blocks"]
    assert loose["ok"]


def test_an_empty_store(run: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine()):
        pass
    assert "nothing is stored" in run("verify").stdout
