"""``agentkv chat``: lines in, answers out, and the next process goes on."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import app, output
from agentkv.errors import UsageError, WindowOverflow
from agentkv.memory.threads import Thread
from agentkv.notices import warn

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
    filled("gc", "--set-budget", "1000B", "--yes")
    result = chat("what is the restocking fee, once more\n")
    assert result.exit_code == 0
    assert FEE in result.stdout
    assert "takes a cold prefill of the conversation" in result.stderr


def test_an_answer_that_was_cut_says_so(filled: Run) -> None:
    cut = chat("what is the restocking fee\n", "--skill", "fees", "--max-new", "3")
    assert "… cut at 3 tokens (--max-new)" in cut.stderr
    assert "cut at" not in chat("what is the restocking fee\n", "--skill", "fees").stderr


def test_a_conversation_that_fills_the_window_goes_on_and_says_so(filled: Run) -> None:
    asked = "".join(f"what is the restocking fee, number {n}\n" for n in range(40))
    small = ("--window", "1024", "--max-new", "64", "--no-skill")
    result = chat(asked, *small)
    assert result.exit_code == 0
    assert "were not shown to the model, whose window of 1,024 tokens is full" in result.stderr
    turns = record(filled("threads", "show", "chat", "--json"))["turns"]
    assert len(turns) == 40
    assert turns[-1]["left_out"] > 0
    again = record(chat("once more\n", *small, "--json"))["turns"][0]
    assert "were not shown" in again["notes"][0]
    assert chat(asked, *small, "--when-full", "refuse").exit_code == WindowOverflow.exit_code
    assert error_of(chat("x\n", "--when-full", "forget", "--json"))["exit_code"] == UsageError.exit_code


@pytest.mark.parametrize("in_hand", [True, False])
def test_a_conversation_that_goes_on_elsewhere_is_opened_again(
    filled: Run, store: Path, monkeypatch: pytest.MonkeyPatch, in_hand: bool
) -> None:
    ask = Thread.stream

    def elsewhere(self: Thread, text: str, **how: Any) -> Any:
        """Another process answers, before this one begins or after its first piece."""
        monkeypatch.setattr(Thread, "stream", ask)
        stream = ask(self, text, **how)
        if in_hand:
            yield next(stream)
        AgentMemory(store, FakeEngine(window=4096)).thread("chat").ask("Elsewhere?", skill=None, max_new=4)
        yield from stream

    monkeypatch.setattr(Thread, "stream", elsewhere)
    result = chat("what is the restocking fee\nwhat is the restocking fee\n", "--skill", "fees")
    assert result.exit_code == 0
    assert result.stdout == f"{FEE}\n{FEE}\n"
    assert "gone on elsewhere and has 1 turn now" in result.stderr
    assert ("is not kept" in result.stderr) == in_hand
    turns = record(filled("threads", "show", "chat", "--json"))["turns"]
    assert [turn["question"] for turn in turns][: 3 - in_hand] == ["Elsewhere?", *["what is the restocking fee"] * 2][
        : 3 - in_hand
    ]
    assert len(turns) == 3 - in_hand


def test_two_ways_to_say_which_skill_exclude_each_other(filled: Run) -> None:
    assert error_of(filled("chat", "--skill", "fees", "--no-skill", "--json"))["exit_code"] == UsageError.exit_code


def test_the_end_of_the_input_ends_it(filled: Run) -> None:
    assert record(chat("", "--json")) == {"thread": "chat", "turns": []}


def test_a_warning_begins_a_line_of_its_own_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        output.show_warnings()
        for is_terminal in (False, True):
            for stream in (sys.stdout, sys.stderr):
                monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
            output.write("an answer")
            warn(f"left out, {is_terminal}")
            before = capsys.readouterr()
            assert before.out == ("an answer\n" if is_terminal else "an answer")
            assert before.err == f"warning: left out, {is_terminal}\n"
            output.end_line()
            assert before.out + capsys.readouterr().out == "an answer\n"
