"""``agentkv gc``: what would go is what goes; sizes; the store's budget; the quarantine.

``agentkv rm``: with its names, never without its children's consent, never what is pinned.

``agentkv pin`` and ``unpin``.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.cli import app, output
from agentkv.cli.care import parse_size
from agentkv.errors import StoreReadError, UsageError
from agentkv.store.budget import stored_bytes
from tests.store.faults import refused

from .conftest import Run, damage, error_of, record


def in_use(store: Path) -> int:
    with BlockStore(store) as opened:
        return stored_bytes(opened.files)


def everything(root: Path) -> dict[Path, bytes]:
    """Uses are written when they are counted, so their file is left out."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "uses" not in path.name}


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("500MB", 500_000_000),
        ("20GB", 20_000_000_000),
        ("20GiB", 20 << 30),
        ("20 gib", 20 << 30),
        ("1.5kB", 1500),
        ("1KiB", 1024),
        ("2TB", 2 * 10**12),
        ("12345B", 12345),
        ("7 b", 7),
        ("0B", 0),
    ],
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    "text",
    ["", "10", "0", "12345", "GB", "-1GB", "1,5GB", "20G", "1e9", "10 GB more", "1.5", "0x10", "٣GB", "99999TB", "inf"],
)
def test_what_is_no_size(filled: Run, store: Path, text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)
    before = everything(store)
    for option in ("--budget", "--set-budget"):
        assert filled("gc", f"{option}={text}").exit_code == 2
    assert everything(store) == before


def test_nothing_to_do(filled: Run, store: Path) -> None:
    before = everything(store)
    result = filled("gc")
    assert result.exit_code == 0
    assert "nothing to remove" in result.stdout
    assert "there is no budget" in result.stdout
    assert everything(store) == before


def test_what_would_go_is_what_goes(filled: Run, store: Path) -> None:
    orphan = store / "segments" / "ab" / f"{'ab' * 32}.seg"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(bytes(3000))
    budget = in_use(store) * 2 // 3
    before = everything(store)
    limit = f"{budget}B"
    planned = record(filled("gc", "--budget", limit, "--dry-run", "--json"))
    assert everything(store) == before
    done = record(filled("gc", "--budget", limit, "--yes", "--json"))
    assert planned | {"dry_run": False} == done
    assert (planned["dry_run"], done["fits"], done["budget_bytes"]) == (True, True, budget)
    assert done["leftovers"]["segments"] == 1
    assert done["leftovers"]["texts"] == sum(bool(victim["names"]) for victim in done["evicted"]) > 0
    removed = sum(map(len, before.values())) - sum(map(len, everything(store).values()))
    names = sum(len(data) for path, data in before.items() if path.parent.name == "names" and not path.exists())
    assert removed - names == done["freed_bytes"]
    assert done["stored_bytes"] == in_use(store) <= budget
    again = record(filled("gc", "--budget", limit, "--json"))
    assert (again["evicted"], again["freed_bytes"]) == ([], 0)


def test_the_screen_of_a_collection(filled: Run, store: Path) -> None:
    filled("ask", "what is the restocking fee", "--skill", "fees")
    text = filled("gc", "--budget", "0B", "--dry-run").stdout
    lines = text.splitlines()
    assert lines[0] == "would be evicted, in this order:"
    assert lines[1].split() == ["name", "block", "last", "use", "hits", "frees"]
    (release,) = [line for line in lines if line.startswith("release")]
    assert "never" in release
    (fees,) = [line for line in lines if line.startswith("fees")]
    assert "just now" in fees
    assert lines.index(release) < lines.index(fees)
    assert "nothing was changed" in text
    assert filled("gc", "--budget", "0B", "--yes").exit_code == 0
    assert "nothing is stored in" in filled("list").stdout


def test_the_stores_budget(filled: Run, store: Path) -> None:
    would = filled("gc", "--set-budget", "1kB", "--dry-run")
    assert "would be evicted" in would.stdout
    assert BlockStore(store).budget is None
    found = record(filled("gc", "--set-budget", "20GB", "--json"))
    assert (found["budget_bytes"], found["evicted"]) == (20_000_000_000, [])
    assert BlockStore(store).budget == 20_000_000_000
    assert "of a budget of 20.0 GB are in use" in filled("gc").stdout
    assert filled("gc", "--set-budget", "off").exit_code == 0
    assert BlockStore(store).budget is None
    assert filled("gc", "--set-budget", "0B").exit_code == 2
    assert filled("gc", "--set-budget", "1GB", "--budget", "1GB").exit_code == 2


def test_a_budget_that_pins_do_not_allow(filled: Run, store: Path) -> None:
    filled("pin", "fees")
    result = filled("gc", "--budget", "1B", "--yes")
    assert result.exit_code == 0
    assert "STILL OVER" in result.stdout
    assert record(filled("gc", "--budget", "1B", "--json"))["fits"] is False
    assert filled("verify", "fees").exit_code == 0
    assert filled("show", "release").exit_code == 44


def test_leftovers_that_cannot_be_removed_keep_no_block_and_hide_none(filled: Run, store: Path) -> None:
    left = store / "segments" / "ff" / ("f" * 64 + ".seg")
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(bytes(500))
    with refused(errno.EACCES, left.name, calls=("unlink",)):
        result = filled("gc", "--set-budget", "1kB", "--yes")
    assert result.exit_code == StoreReadError.exit_code
    assert "evicted, in this order:" in result.stdout
    assert "fees" in result.stdout
    assert result.stderr.count("error: ") == 1
    assert filled("show", "fees").exit_code == 44


def test_the_quarantine(filled: Run, store: Path) -> None:
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    moved = record(filled("check", "--repair", "--json"))["repair"]
    filled("gc")
    assert "`agentkv gc --quarantine` deletes them" in filled("gc").stdout
    would = record(filled("gc", "--quarantine", "--dry-run", "--json"))["quarantine"]
    assert would == {"files": len(moved["moved"]), "bytes": moved["bytes"], "emptied": False}
    assert record(filled("gc", "--quarantine", "--yes", "--json"))["quarantine"] == would | {"emptied": True}
    assert list((store / "quarantine").iterdir()) == []
    assert "quarantine" not in filled("gc", "--quarantine").stdout


def test_what_would_be_evicted_is_asked_for(filled: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(store)
    for size in (("--set-budget", "10kB"), ("--budget", "10kB")):
        error = error_of(filled("gc", *size, "--json"))
        assert error["exit_code"] == 56
        assert "--yes" in error["message"]
        assert "2 of them with a name" in error["message"]
        assert "--yes" in filled("gc", *size).stderr
    assert BlockStore(store).budget is None
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    for answer in ("n\n", "", "\n"):
        refused = CliRunner().invoke(app, ["gc", "--set-budget", "10kB"], input=answer)
        assert refused.exit_code == 56
        assert "would be evicted, in this order:" in refused.stdout
        assert "Remove 6 blocks" in refused.stderr
    assert everything(store) == before
    assert CliRunner().invoke(app, ["gc", "--set-budget", "10kB"], input="y\n").exit_code == 0
    assert BlockStore(store).budget == 10_000
    assert in_use(store) <= 10_000


def test_a_damaged_store_is_left_alone(filled: Run, store: Path) -> None:
    file = next(path for path in (store / "manifests").rglob("*.json"))
    file.write_bytes(b"damaged")
    before = everything(store)
    assert error_of(filled("gc", "--budget", "0B", "--yes", "--json"))["exit_code"] == 42
    assert everything(store) == before


# --- rm -------------------------------------------------------------------------------------------


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


def test_the_screen_of_a_removal(filled: Run) -> None:
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


# --- pin ------------------------------------------------------------------------------------------


def test_pin_and_unpin(filled: Run, store: Path) -> None:
    assert filled("pin", "fees").stdout == "pinned fees\n"
    assert filled("pin", "fees").stdout == "fees was pinned already\n"
    block_id = record(filled("show", "fees", "--json"))["block_id"]
    assert BlockStore(store).pinned() == {block_id}
    assert [block["pinned"] for block in record(filled("list", "--json"))["blocks"]] == [True, False]
    assert "fees (pinned)" in filled("list").stdout
    assert "never evicted" in filled("show", "fees").stdout
    assert filled("unpin", block_id[:8]).stdout == "unpinned fees\n"
    assert filled("unpin", "fees").stdout == "fees was not pinned\n"
    assert BlockStore(store).pinned() == set()


def test_json(filled: Run, store: Path) -> None:
    found = record(filled("pin", "fees", "release", "fees", "--json"))
    assert [(block["name"], block["pinned"], block["changed"]) for block in found["blocks"]] == [
        ("fees", True, True),
        ("release", True, True),
    ]
    found = record(filled("unpin", "fees", "--json"))
    assert [(block["name"], block["pinned"], block["changed"]) for block in found["blocks"]] == [("fees", False, True)]


def test_unknown(filled: Run, store: Path) -> None:
    assert filled("pin", "fees", "nothing").exit_code == 44
    assert BlockStore(store).pinned() == set(), "all or nothing"
    assert filled("unpin", "nothing").exit_code == 44
