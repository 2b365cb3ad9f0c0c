"""``agentkv threads``: what a store's conversations are, and going back in them, without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.errors import CorruptThread, UnknownThread, UsageError

from .conftest import Run, error_of, record


@pytest.fixture
def talked(filled: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run``, with a conversation of three turns."""
    from typer.testing import CliRunner

    from agentkv.cli import app

    lines = "what is the restocking fee\nand a faulty reader\nwhat is the restocking fee again\n"
    done = CliRunner().invoke(app, ["chat", "--thread", "ann", "--skill", "fees"], input=lines, catch_exceptions=False)
    assert done.exit_code == 0
    return filled


def test_a_store_without_any_says_how_to_begin(filled: Run) -> None:
    assert record(filled("threads", "list", "--json"))["threads"] == []
    assert "agentkv chat" in filled("threads", "list").stdout


def test_list_and_show(talked: Run) -> None:
    (row,) = record(talked("threads", "list", "--json"))["threads"]
    assert (row["thread"], row["turns"], row["kept"], row["skill"]) == ("ann", 3, 3, "fees")
    assert row["last"] == "what is the restocking fee again"
    shown = record(talked("threads", "show", "ann", "--json"))["turns"]
    assert [turn["question"] for turn in shown][:2] == ["what is the restocking fee", "and a faulty reader"]
    assert "12%" in shown[0]["answer"]
    text = talked("threads", "show", "ann").stdout
    assert "turn 2, on top of fees, state kept" in text
    assert "ann" in talked("threads", "list").stdout


def test_fork_and_rewind_leave_what_was_there(talked: Run) -> None:
    assert talked("threads", "fork", "ann", "bob", "--at", 2).exit_code == 0
    assert record(talked("threads", "rewind", "ann", "--to", 1, "--json"))["rewound"] == 2
    rows = {row["thread"]: row["turns"] for row in record(talked("threads", "list", "--json"))["threads"]}
    assert rows == {"ann": 1, "bob": 2}
    assert len(record(talked("threads", "show", "ann", "--history", "--json"))["turns"]) == 3
    assert "entry 3, after 2" in talked("threads", "show", "ann", "--history").stdout
    assert error_of(talked("threads", "fork", "ann", "bob", "--json"))["exit_code"] == UsageError.exit_code
    assert error_of(talked("threads", "rewind", "ann", "--to", 9, "--json"))["exit_code"] == UsageError.exit_code


def test_rm_takes_the_conversation_and_its_states(talked: Run) -> None:
    assert record(talked("threads", "rm", "ann", "--yes", "--json"))["blocks"] == 3
    assert record(talked("threads", "list", "--json"))["threads"] == []
    assert talked("check").exit_code == 0
    error = error_of(talked("threads", "show", "ann", "--json"))
    assert (error["type"], error["exit_code"]) == ("UnknownThread", UnknownThread.exit_code)


def test_damage_is_told_and_the_others_are_listed(talked: Run, store: Path) -> None:
    talked("threads", "fork", "ann", "bob")
    path = sorted((store / "threads").rglob("00000002.json"))[0]
    path.write_bytes(b"{}")
    result = talked("threads", "list", "--json")
    assert result.exit_code == CorruptThread.exit_code
    assert len(record(result)["threads"]) == 1
    assert record(result)["error"]["type"] == "CorruptThread"


def test_a_conversation_is_nowhere_else_so_it_is_asked_for(talked: Run) -> None:
    result = talked("threads", "rm", "ann")
    assert (result.exit_code, "--yes" in result.stderr) == (56, True)
    assert talked("threads", "show", "ann").exit_code == 0
    assert talked("threads", "rm", "nobody").exit_code == 90
