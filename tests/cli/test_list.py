"""``agentkv list``: what is stored, for every model, without loading one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine

from .conftest import Run, error_of, manifest_files, record


def test_table(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTKV_MODEL")
    header, first, second, _, total, _ = filled("list").stdout.splitlines()
    assert header.split() == ["name", "kind", "model", "made", "by", "tokens", "own", "shared", "proof"]
    assert (first.split()[:3], second.split()[0]) == (["fees", "skill", "fake"], "release")
    assert total.startswith("2 blocks and 4 unnamed ones in ")


def test_json(filled: Run, store: Path) -> None:
    found = record(filled("list", "--json"))
    assert (found["store"], found["other_blocks"]) == (str(store), 4)
    fees, _ = found["blocks"]
    assert (fees["name"], fees["exactness"], fees["selected"], fees["fault"]) == ("fees", "exact", True, None)
    assert fees["own_bytes"] > fees["shared_bytes"] > 0
    assert found["raw_bytes"] > found["stored_bytes"]


def test_marks_the_blocks_of_a_model(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("fees", "Other fees.")
    blocks = record(filled("list", "--json"))["blocks"]
    assert [(block["kind"], block["selected"]) for block in blocks] == [
        ("skill", True),
        ("skill", True),
        ("text", False),
    ]
    lines = filled("list").stdout.splitlines()
    assert [line.split()[2] for line in lines[1:4]] == ["fake*", "fake*", "fake"]
    other = record(filled("list", "--model", "smollm2-135m", "--json"))["blocks"]
    assert not any(block["selected"] for block in other)


def test_an_empty_store(filled: Run, tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "new", FakeEngine()):
        pass
    result = filled("list", "--store", tmp_path / "new")
    assert result.exit_code == 0
    assert "nothing is stored in" in result.stdout
    assert record(filled("list", "--store", tmp_path / "new", "--json"))["blocks"] == []


def test_a_damaged_block_does_not_hide_the_others(filled: Run, store: Path) -> None:
    fees, _ = record(filled("list", "--json"))["blocks"]
    (file,) = (path for path in manifest_files(store) if fees["block_id"] in path.name)
    file.chmod(0o644)
    file.write_bytes(b"damaged")
    result = filled("list")
    assert result.exit_code == 42
    assert "DAMAGED" in result.stdout.splitlines()[1]
    assert "exact" in result.stdout.splitlines()[2]
    found = filled("list", "--json")
    assert error_of(found)["type"] == "CorruptBlock"
    assert record(found)["stored_bytes"] is None


def test_a_name_whose_block_is_gone(filled: Run, store: Path) -> None:
    fees, _ = record(filled("list", "--json"))["blocks"]
    (file,) = (path for path in manifest_files(store) if fees["block_id"] in path.name)
    file.unlink()
    assert filled("list").exit_code == 44
