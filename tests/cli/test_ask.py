"""``agentkv ask``: the answer on stdout, the turn on stderr, and what it refuses.

``agentkv chat``: lines in, answers out, and the next process goes on.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import app, output
from agentkv.cli import ask as command
from agentkv.errors import UsageError, WindowOverflow
from agentkv.memory.threads import Thread
from agentkv.notices import AgentKVWarning, warn
from agentkv.records import Turn

from .conftest import Run, damage, error_of, record

QUESTION = "what is the restocking fee"

ANSWER = "The restocking fee of an opened reader is 12%."


def test_answer_and_record(filled: Run) -> None:
    result = filled("ask", QUESTION, "--skill", "fees")
    assert result.stdout == f"{ANSWER}\n"
    assert result.stderr.startswith("[fees → fees, exact | tokens: ")
    assert result.stderr.count("\n") == 1


def test_json_is_the_turn(filled: Run) -> None:
    result = filled("ask", QUESTION, "--skill", "fees", "--json")
    turn = Turn.model_validate_json(result.stdout)
    assert (turn.text, turn.finish, result.stderr) == (ANSWER, "stop", "")
    assert turn.tokens.restored > turn.tokens.prefilled > 0


@pytest.mark.parametrize("option", ["--no-graft", "--reread"])
def test_a_cold_prefill_is_the_same_computation(filled: Run, option: str) -> None:
    graft = record(filled("ask", QUESTION, "--skill", "fees", "--json"))
    cold = record(filled("ask", QUESTION, "--skill", "fees", option, "--json"))
    assert cold["tokens"]["restored"] == 0
    assert cold["tokens"]["prefilled"] == graft["tokens"]["restored"] + graft["tokens"]["prefilled"]
    assert (cold["logits_sha256"], cold["text"]) == (graft["logits_sha256"], graft["text"])
    assert option == "--no-graft" or option not in filled("ask", "--help").stdout


def test_the_router_is_asked_unless_the_skill_is_named_or_none_is_meant(filled: Run) -> None:
    routed = record(filled("ask", QUESTION, "--json"))["decision"]
    assert set(routed["scores"]) == {"fees", "release", "none of these"}
    none = record(filled("ask", QUESTION, "--no-skill", "--json"))["decision"]
    assert (none["pick"], none["scores"]) == (None, {})


def test_nothing_stored_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("without a description it is not routed")
    run("deposit", tmp_path / "text.txt")
    result = run("ask", QUESTION)
    assert "none of these → no block (fallback: no skill is stored: no block)" in result.stderr


def test_length_and_stop(filled: Run) -> None:
    assert filled("ask", QUESTION, "--skill", "fees", "--max-new", "3").stdout == "The\n"
    assert filled("ask", QUESTION, "--skill", "fees", "--stop", " fee", "--stop", "x").stdout == "The restocking\n"


def test_an_answer_that_was_cut_says_so(filled: Run) -> None:
    cut = filled("ask", QUESTION, "--skill", "fees", "--max-new", "3")
    assert cut.stderr.splitlines()[0] == "… cut at 3 tokens (--max-new)"
    turn = Turn.model_validate_json(filled("ask", QUESTION, "--skill", "fees", "--max-new", "3", "--json").stdout)
    assert turn.notes == ("the answer was cut at 3 tokens; raise max_new for a longer one",)
    whole = filled("ask", QUESTION, "--skill", "fees")
    assert "cut" not in whole.stderr


def test_sampling_is_seeded(filled: Run) -> None:
    def sampled(seed: int) -> str:
        result = filled("ask", QUESTION, "--skill", "fees", "--temperature", "9", "--seed", seed, "--json")
        return str(record(result)["token_ids"])

    assert sampled(1) == sampled(1) != sampled(2)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--skill", "fees", "--no-skill"], 2),
        (["--skill", "fee"], 51),
        (["--skill", "fees", "--window", "256"], 20),
        (["--json-schema", "absent.json"], 2),
        (["--json-schema", __file__], 23),
        (["--json-schema", __file__, "--grammar", __file__], 2),
        (["--skill", "fees", "--grammar", __file__], 23),
        (["--stop", ""], 2),
    ],
)
def test_refusals(filled: Run, arguments: list[str], code: int) -> None:
    error = error_of(filled("ask", QUESTION, *arguments, "--json"))
    assert error["exit_code"] == code


def test_an_empty_question(filled: Run) -> None:
    assert filled("ask", " ").exit_code == 2


def test_an_unknown_skill_names_the_nearest(filled: Run) -> None:
    assert error_of(filled("ask", QUESTION, "--skill", "fee", "--json"))["near"] == ["fees"]


def test_a_damaged_block_is_read_instead_with_a_warning_and_a_deposit_mends_it(filled: Run, store: Path) -> None:
    whole = record(filled("ask", QUESTION, "--skill", "fees", "--json"))
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    result = filled("ask", QUESTION, "--skill", "fees", "--json")
    turn = record(result)
    assert (turn["text"], turn["logits_sha256"]) == (whole["text"], whole["logits_sha256"])
    assert turn["tokens"]["restored"] < whole["tokens"]["restored"]
    assert "passed over" in turn["not_restored"]
    assert "warning: a stored block could not be restored" in result.stderr
    assert filled("check").exit_code == 47
    assert filled("ask", QUESTION, "--skill", "release").exit_code == 0


def test_white_space_around_an_answer_is_not_shown(capsys: pytest.CaptureFixture[str], filled: Run) -> None:
    turn = Turn.model_validate_json(filled("ask", QUESTION, "--skill", "fees", "--json").stdout)
    command.show(iter(["\n ", " a", " ", "\n", "b \x1b[2J", "  ", turn]))
    assert capsys.readouterr().out == "a \nb �[2J\n"


def test_what_a_grammar_leaves_out_of_a_schema_is_a_warning() -> None:
    engine = FakeEngine(keeps_grammar=True)
    with pytest.warns(AgentKVWarning, match="cannot hold an answer to minimum"):
        grammar = command._schema_grammar(engine, '{"type": "integer", "minimum": 3}')
    assert "answer-root" in grammar


# --- chat -----------------------------------------------------------------------------------------


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


def test_an_answer_of_a_conversation_that_was_cut_says_so(filled: Run) -> None:
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
