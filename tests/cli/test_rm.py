"""``agentkv rm``: with its names, never without its children's consent, never what is pinned."""

from __future__ import annotations

from pathlib import Path

from agentkv import AgentMemory, BlockStore, FakeEngine

from .conftest import Run, error_of, record


def total(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file() and "uses" not in path.name)


def test_by_name(filled: Run, store: Path) -> None:
    before = total(store)
    names = sum(path.stat().st_size for path in (store / "names").iterdir())
    found = record(filled("rm", "fees", "--json"))
    assert [block["name"] for block in found["removed"]] == ["fees"]
    left = sum(path.stat().st_size for path in (store / "names").iterdir())
    assert before - total(store) - (names - left) == found["freed_bytes"] > 0
    assert filled("show", "fees").exit_code == 44
    assert filled("verify").exit_code == 0
    assert record(filled("check", "--json"))["findings"] == []


def test_the_screen(filled: Run) -> None:
    lines = filled("rm", "fees", "release").stdout.splitlines()
    assert {line.split()[-1] for line in lines[1:3]} == {"release", "fees"}
    assert lines[-1].startswith("2 blocks removed, ")


def test_children_are_named_and_kept(filled: Run, store: Path) -> None:
    parent = record(filled("show", "fees", "--json"))["chain"][0]["block_id"]
    before = total(store)
    error = error_of(filled("rm", parent, "--json"))
    assert error["exit_code"] == 2
    assert "fees" in error["message"]
    assert "release" in error["message"]
    assert "--recursive" in error["message"]
    assert total(store) == before


def test_recursive_takes_the_children_first(filled: Run, store: Path) -> None:
    chain = record(filled("show", "fees", "--json"))["chain"]
    found = record(filled("rm", chain[0]["block_id"], "--recursive", "--yes", "--json"))
    removed = [block["block_id"] for block in found["removed"]]
    assert removed[-1] == chain[0]["block_id"]
    assert chain[1]["block_id"] in removed
    assert record(filled("check", "--json"))["findings"] == []


def test_a_parent_named_with_all_its_children_needs_no_flag(filled: Run, store: Path) -> None:
    with BlockStore(store) as opened:
        parent = record(filled("show", "fees", "--json"))["chain"][0]["block_id"]
        children = opened.children(parent)
    assert filled("rm", parent, *children).exit_code == 0
    assert record(filled("check", "--json"))["ok"] is True


def test_pinned_blocks_are_kept(filled: Run) -> None:
    filled("pin", "fees")
    error = error_of(filled("rm", "release", "fees", "--json"))
    assert "agentkv unpin" in error["message"]
    assert "Nothing was removed" in error["message"]
    assert filled("show", "release").exit_code == 0
    parent = record(filled("show", "fees", "--json"))["chain"][0]["block_id"]
    assert filled("rm", parent, "--recursive").exit_code == 2
    assert filled("unpin", error["message"].split("`agentkv unpin ")[1].split("`")[0]).exit_code == 0
    assert filled("rm", "fees").exit_code == 0


def test_unknown_and_ambiguous(filled: Run, store: Path) -> None:
    assert filled("rm", "fees", "nothing").exit_code == 44
    assert filled("show", "fees").exit_code == 0, "all or nothing"
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("fees", "Other fees.")
    assert filled("rm", "fees", "--model", "smollm2-135m").exit_code == 2
    assert filled("rm", "fees", "--model", "fake").exit_code == 0
    assert [block["kind"] for block in record(filled("list", "--json"))["blocks"]] == ["skill", "text"]


def test_no_keys(filled: Run) -> None:
    assert filled("rm").exit_code == 2


def test_what_was_not_named_or_is_nowhere_else_is_asked_for(filled: Run, store: Path, skills: Path) -> None:
    parent = record(filled("show", "fees", "--json"))["chain"][0]["block_id"]
    error = error_of(filled("rm", parent, "--recursive", "--json"))
    assert (error["exit_code"], "--yes" in error["message"]) == (56, True)
    assert "more than you name" in error["message"]
    (skills / "fees" / "SKILL.md").unlink()
    (skills / "fees" / "routes.jsonl").unlink()
    (skills / "fees").rmdir()
    before = total(store)
    error = error_of(filled("rm", "fees", "--json"))
    assert error["exit_code"] == 56
    assert "the only copy of a text (not where it came from any more): fees" in error["message"]
    assert total(store) == before
    assert filled("rm", "release").exit_code == 0, "its file is still there"
    assert filled("rm", "fees", "--yes").exit_code == 0
