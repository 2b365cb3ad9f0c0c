"""``agentkv chat``: lines in, answers out, and the next process goes on."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from agentkv.cli import app
from agentkv.errors import UsageError

from .conftest import Run, error_of, record

FEE = "The restocking fee of an opened reader is 12%."


def chat(text: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["chat", *arguments], input=text, catch_exceptions=False)


def test_a_line_is_a_question_and_the_next_process_reads_what_is_new(filled: Run) -> None:
    first = chat("what is the restocking fee\n\n", "--skill", "fees")
    assert first.stdout == f"{FEE}\n"
    assert "so far" not in first.stderr
    second = chat("what is the restocking fee\n")
    assert second.stdout == f"{FEE}\n"
    assert "chat: 1 turn so far" in second.stderr
    assert "exact_by_config" in second.stderr
    turn = record(chat("what is the restocking fee\n", "--json"))["turns"][0]
    assert turn["tokens"]["restored"] > turn["tokens"]["prefilled"] > 0
    assert (turn["decision"]["pick"], turn["not_kept"]) == ("fees", None)


def test_conversations_by_name_do_not_mix(filled: Run) -> None:
    chat("what is the restocking fee\n", "--thread", "a", "--skill", "fees")
    other = record(chat("when does the release train leave\n", "--thread", "b", "--skill", "release", "--json"))
    assert "10:30" in other["turns"][0]["text"]
    assert [row["turns"] for row in record(filled("threads", "list", "--json"))["threads"]] == [1, 1]


def test_what_cannot_be_kept_is_said(filled: Run) -> None:
    chat("what is the restocking fee\n", "--skill", "fees")
    filled("pin", "fees")
    filled("gc", "--set-budget", "1000")
    result = chat("what is the restocking fee, once more\n")
    assert result.exit_code == 0
    assert FEE in result.stdout
    assert "anew" in result.stderr


def test_an_answer_that_was_cut_says_so(filled: Run) -> None:
    cut = chat("what is the restocking fee\n", "--skill", "fees", "--max-new", "3")
    assert "… cut at 3 tokens (--max-new)" in cut.stderr
    assert "cut at" not in chat("what is the restocking fee\n", "--skill", "fees").stderr


def test_two_ways_to_say_which_skill_exclude_each_other(filled: Run) -> None:
    assert error_of(filled("chat", "--skill", "fees", "--no-skill", "--json"))["exit_code"] == UsageError.exit_code


def test_the_end_of_the_input_ends_it(filled: Run) -> None:
    assert record(chat("", "--json")) == {"thread": "chat", "turns": []}
