"""``agentkv ask``: the answer on stdout, the turn on stderr, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import FakeEngine
from agentkv.cli import ask as command
from agentkv.notices import AgentKVWarning
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
