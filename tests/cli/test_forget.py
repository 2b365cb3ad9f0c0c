"""``agentkv forget``: asks first, removes, and says what could still be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from agentkv.cli import app
from agentkv.errors import NotConfirmed, StillReadable, UsageError

from .conftest import Run, error_of, record


def talk(filled: Run, *questions: str) -> None:
    text = "".join(f"{question}\n" for question in questions)
    assert CliRunner().invoke(app, ["chat", "--no-skill"], input=text, catch_exceptions=False).exit_code == 0


def questions(filled: Run) -> list[str]:
    return [turn["question"] for turn in record(filled("threads", "show", "chat", "--json"))["turns"]]


def test_without_a_terminal_nothing_goes_unless_yes_is_said(filled: Run, store: Path) -> None:
    talk(filled, "I am Ada Lovelace", "and you?")
    refused = filled("forget", "ada lovelace")
    assert refused.exit_code == NotConfirmed.exit_code
    assert "would be removed" in refused.stdout
    assert "--yes" in refused.stderr
    assert error_of(filled("forget", "ada lovelace", "--json"))["exit_code"] == NotConfirmed.exit_code
    looked = record(filled("forget", "ada lovelace", "--dry-run", "--json"))
    assert (looked["dry_run"], looked["removed"]["turns"]) == (True, 1)
    assert questions(filled) == ["I am Ada Lovelace", "and you?"]

    done = filled("forget", "ada lovelace", "--yes", "--model", "fake")
    assert done.exit_code == 0
    assert "found no more" in done.stdout
    assert questions(filled) == ["[forgotten]", "and you?"]
    assert not any(b"ada lovelace" in path.read_bytes().lower() for path in store.rglob("*") if path.is_file())
    again = record(filled("forget", "ada lovelace", "--json"))
    assert (again["removed"], again["remaining"]) == ({}, [])
    assert again["files"] > 0


def test_a_terminal_is_asked(filled: Run, monkeypatch: Any) -> None:
    talk(filled, "I am Ada Lovelace")
    monkeypatch.setattr("agentkv.cli.forget.sys.stdin", _Terminal())
    for answer, left in ((False, ["I am Ada Lovelace"]), (True, ["[forgotten]"])):
        monkeypatch.setattr("agentkv.cli.forget.typer.confirm", lambda *_, answer=answer, **__: answer)
        _call("Ada Lovelace")
        assert questions(filled) == left


class _Terminal:
    def isatty(self) -> bool:
        return True


def _call(text: str) -> None:
    from agentkv.cli.forget import forget
    from agentkv.cli.options import StoreOptions

    forget(text=text, store=StoreOptions(Path(os.environ["AGENTKV_STORE"])), as_json=False)


def test_what_can_still_be_read_is_an_error_that_says_where(filled: Run, store: Path) -> None:
    talk(filled, "I am Ada Lovelace")
    (store / "copy.txt").write_text("Ada Lovelace")
    failed = filled("forget", "Ada Lovelace", "--yes", "--json")
    assert error_of(failed)["exit_code"] == StillReadable.exit_code
    assert record(failed)["remaining"] == [str(store / "copy.txt")]


def test_one_thing_at_a_time_and_dates_are_dates(filled: Run) -> None:
    for wrong in ((), ("x", "--user", "y"), ("--before", "yesterday"), ("   ",)):
        assert error_of(filled("forget", *wrong, "--json"))["exit_code"] == UsageError.exit_code


def test_a_thread_and_a_time(filled: Run) -> None:
    talk(filled, "I am Ada Lovelace")
    assert record(filled("forget", "--before", "2020-01-01", "--yes", "--json"))["removed"] == {}
    assert record(filled("forget", "--thread", "chat", "--yes", "--json"))["removed"]["threads"] == 1
    assert record(filled("threads", "list", "--json"))["threads"] == []
