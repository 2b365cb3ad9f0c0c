"""``agentkv pin`` and ``unpin``."""

from __future__ import annotations

from pathlib import Path

from agentkv import BlockStore

from .conftest import Run, record


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
