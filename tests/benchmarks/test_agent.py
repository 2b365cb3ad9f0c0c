"""``agent`` on the fake engine: its script, its arms and processes, its parts, and what checks refuse."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from typer.testing import CliRunner

from agentkv import FakeEngine
from agentkv.errors import GuaranteeViolated, UsageError, WorkerFailed
from tests.benchmarks.agent import arms, conversation, script, secrets
from tests.benchmarks.agent.agent import Agent
from tests.benchmarks.agent.arms import Task, TurnRow
from tests.benchmarks.agent.conversation import Against, Seen, Summary
from tests.benchmarks.agent.deep import SKILL, opening
from tests.benchmarks.agent.part import Settings
from tests.benchmarks.commands import app

TEXTS = ("Refunds take 7 days.\n" * 30, "Parcels take 3 days.\n" * 30)


def conversed(turns: int, manual: int, answer: int, *chosen: str, work: Path | None = None) -> dict[str, Any]:
    lengths = Settings(model=arms.FAKE, texts=TEXTS, turns=turns, manual=manual, answer=answer, arms=chosen, work=work)
    return Agent(lengths).run()


# --- the script ---------------------------------------------------------------------------------------


def test_every_turn_calls_a_tool_and_begins_as_the_turn_before() -> None:
    turns = script.exchanges(20)
    assert len({turn.user for turn in turns}) == 20
    assert {turn.tool for turn in turns} == {tool["function"]["name"] for tool in script.TOOLS}
    for number in range(1, 20):
        before, now = script.messages("manual", turns[:number]), script.messages("manual", turns[: number + 1])
        assert now[: len(before)] == before
        answer, _, call, result = now[len(before) :]
        assert answer == AIMessage(turns[number - 1].answer)
        assert isinstance(result, ToolMessage)
        assert result.tool_call_id == call.tool_calls[0]["id"]


def test_a_call_has_the_arguments_of_its_schema() -> None:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in script.TOOLS}
    for turn in script.exchanges(5):
        assert list(turn.arguments) == schemas[turn.tool]["required"]


def test_an_earlier_conversation_is_a_greeting_after_the_manual() -> None:
    system, greeting = script.messages("the manual", [])
    assert isinstance(system, SystemMessage)
    assert system.text.endswith("the manual")
    assert greeting.text == "Hello."


def test_a_manual_is_whole_lines_up_to_its_length() -> None:
    text = script.cut_manual(["one two\nthree\n", "four five six\n"], 12, len)
    assert text == "one two\n"
    assert script.cut_manual(["a\n", "b\n"], 100, len) == "a\n\nb\n"


# --- the conversation ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return conversed(4, 300, 3, work=tmp_path_factory.mktemp("work"))


@pytest.fixture
def ours(result: dict[str, Any]) -> dict[str, Any]:
    return result["arms"][arms.AGENTKV]  # type: ignore[no-any-return]


def test_a_killed_agent_goes_on_with_its_new_tokens(result: dict[str, Any], ours: dict[str, Any]) -> None:
    Agent.check(result)
    assert [row["turn"] for row in ours["rows"]] == [1, 2, 3, 4]
    assert len(ours["opened"]) == 2
    for before, row in zip(ours["rows"], ours["rows"][1:], strict=False):
        assert row["evaluated"] == row["prompt"] - before["prompt"]
    assert ours["restarted"]["turn"] == 3
    assert ours["rows"][0]["evaluated"] < ours["prepare"]["evaluated"]


def test_reading_everything_gives_the_same_logits_in_the_turns_that_were_measured(
    result: dict[str, Any], ours: dict[str, Any]
) -> None:
    read = result["arms"][arms.PREFILLED]
    assert [row["turn"] for row in read["rows"]] == [1, 3, 4]
    assert not read["all_turns"]
    assert "whole_ms" not in read
    for row in read["rows"]:
        same = ours["rows"][row["turn"] - 1]
        assert row["evaluated"] == row["prompt"] == same["prompt"]
        assert row["logits_sha256"] == same["logits_sha256"]
    assert result["against"][arms.PREFILLED]["answers_equal"] == {"k": 3, "n": 3}


def test_deepagents_prefills_the_manual_after_the_first_message_and_only_once(result: dict[str, Any]) -> None:
    deep = result["arms"][arms.DEEP]
    manual = result["manual_tokens"]
    first, *later = deep["rows"]
    assert first["evaluated"] > manual  # its prompt and tools are restored, the manual is prefilled in the turn
    assert deep["prepare"]["prompt"] < first["prompt"] - manual
    for before, row in zip(deep["rows"], later, strict=False):
        assert row["evaluated"] == row["prompt"] - before["prompt"]


def test_what_deepagents_sends_is_its_own(tmp_path: Path) -> None:
    sent = opening("RF-DUP is the code.\n", tmp_path)
    names = [tool["function"]["name"] for tool in sent.tools]
    assert {"read_file", "get_order"} <= set(names)
    assert f"/skills/{SKILL}/SKILL.md" in sent.system.text
    call, read = sent.read
    assert call.tool_calls[0]["name"] == "read_file"
    assert "RF-DUP is the code." in read.text
    messages = script.messages("RF-DUP is the code.\n", script.exchanges(1))
    assert sent.messages(messages) == [sent.system, messages[1], call, read, *messages[2:]]
    assert sent.messages(script.messages("m", [])) == [sent.system, script.messages("m", [])[1]]


def test_an_arm_that_cannot_run_says_why(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fake engine" in result["arms"][arms.PLAIN]["skipped"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "not installed" in str(arms.why_skipped(arms.DISK, "smollm2-135m"))
    assert "not installed" in str(arms.why_skipped(arms.DEEP, arms.FAKE))
    assert arms.why_skipped(arms.AGENTKV, "smollm2-135m") is None


def test_the_check_refuses_tokens_read_twice_other_logits_and_a_turn_not_kept(result: dict[str, Any]) -> None:
    for name, key, value, words in (
        (arms.AGENTKV, "evaluated", 5000, "are new"),
        (arms.AGENTKV, "not_kept", "no room", "no room"),
        (arms.PREFILLED, "logits_sha256", "0" * 64, "logits"),
    ):
        wrong = copy.deepcopy(result)
        wrong["arms"][name]["rows"][1][key] = value
        with pytest.raises(GuaranteeViolated, match=words):
            Agent.check(wrong)


def test_a_finished_arm_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = conversed(2, 100, 2, arms.AGENTKV, work=tmp_path)["arms"][arms.AGENTKV]
    monkeypatch.setattr(conversation, "_measured", lambda *_: pytest.fail("it was run again"))
    second = conversed(2, 100, 2, arms.AGENTKV, work=tmp_path)["arms"][arms.AGENTKV]
    assert second["resumed"]
    assert second["rows"] == first["rows"]
    with pytest.raises(pytest.fail.Exception, match="run again"):
        conversed(2, 100, 3, arms.AGENTKV, work=tmp_path)


def test_a_process_that_fails_says_its_code_and_one_that_is_killed_was_killed(tmp_path: Path) -> None:
    task = Task(arm="nobody", model=arms.FAKE, manual="m", turns=2, window=512, threads=1, folder=tmp_path)
    with pytest.raises(WorkerFailed) as failed:
        conversation._Process(task)
    assert failed.value.code == UsageError.exit_code
    process = conversation._Process(task.model_copy(update={"arm": arms.AGENTKV}))
    assert process.ask(1, 2).generated <= 2
    process.kill()
    assert process._process.returncode != 0


def test_a_rival_that_fails_is_skipped_and_our_own_arm_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "why_skipped", lambda *_: None)
    found = conversed(2, 100, 2, arms.PLAIN)
    assert "it failed" in found["arms"][arms.PLAIN]["skipped"]
    monkeypatch.setattr(conversation, "_measured", lambda *_: (_ for _ in ()).throw(WorkerFailed("x", 3)))
    with pytest.raises(WorkerFailed):
        conversed(2, 100, 2, arms.AGENTKV)


def test_an_arm_that_takes_more_than_the_trained_window_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "ROOM", {arms.PLAIN: 1 << 20})
    monkeypatch.setattr(arms, "why_skipped", lambda *_: None)
    found = conversed(2, 100, 2, arms.PLAIN)
    assert "the model was trained on 65,536" in found["arms"][arms.PLAIN]["skipped"]


def row(turn: int, first: float, keep: float = 0.0) -> TurnRow:
    return TurnRow(
        turn=turn,
        prompt=20,
        evaluated=10,
        generated=5,
        first_ms=first,
        generate_ms=40.0,
        keep_ms=keep,
        total_ms=first + 40.0 + keep,
        answer=f"a  b{turn}",
    )


def test_longer_answers_are_computed_from_the_milliseconds_a_token() -> None:
    slow = Seen(rows=[row(1, 1000), row(2, 3000)], all_turns=True)
    fast = Seen(prepare=row(0, 860), rows=[row(1, 90, 10), row(2, 90, 10)], all_turns=True)
    summary = Summary.of(slow, 1)
    assert summary.token_ms == 10
    assert summary.whole_ms == {"measured": 4080, "1": 4000, "500": 4000 + 2 * 499 * 10}
    with_prepare = Summary.of(fast, 1).whole_with_prepare_ms
    assert with_prepare is not None
    assert with_prepare["1"] == 1100
    against = Against.of(slow, fast, 1)
    assert against.first_after_restart == pytest.approx(3000 / 90)
    assert against.whole_ms is not None
    assert against.whole_ms["1"] == 20
    assert against.answers_equal == {"k": 2, "n": 2}


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("langchain_community") is None, reason="langchain-community")
def test_the_rival_counts_what_llama_cpp_counts_and_its_disk_cache_outlives_it() -> None:
    settings = Settings(model="smollm2-135m", texts=TEXTS, turns=2, manual=100, answer=4, arms=(arms.PLAIN, arms.DISK))
    found = Agent(settings).run()["arms"]
    for arm in found.values():
        assert all(row["evaluated"] == row["native"] for row in arm["rows"])
    plain, disk = (found[name]["rows"] for name in (arms.PLAIN, arms.DISK))
    assert [row["evaluated"] == row["prompt"] for row in plain] == [True, True], "each process begins with nothing"
    assert all(row["evaluated"] < row["prompt"] for row in disk)


# --- secrets and threads ------------------------------------------------------------------------------


def quoting(prompt: str) -> str:
    """The password that stands in the prompt."""
    return next((f"It is {secrets.secret(n)}." for n in range(12) if secrets.secret(n) in prompt), "none")


def test_no_secret_is_a_part_of_another() -> None:
    found = [secrets.secret(n) for n in range(12)]
    assert all(a not in b for a in found for b in found if a != b)


def on(engine: FakeEngine, part: str, turns: int | None = None, answer: int | None = None) -> dict[str, Any]:
    settings = Settings(part=part, model=arms.FAKE, engine=engine, small=True, turns=turns, answer=answer)
    return Agent(settings).run()


def test_no_answer_holds_another_blocks_secret() -> None:
    found = on(FakeEngine(replies=quoting), "secrets", turns=40, answer=20)
    Agent.check(found)
    assert found["own_secret"] == found["asked"] == 40
    assert found["distinct_answers"] > 12


@pytest.mark.parametrize(("key", "value"), [("leaks", [3]), ("unequal", [4]), ("once_each", False)])
def test_the_check_of_secrets_refuses(key: str, value: Any) -> None:
    fine = {"settings": {"part": "secrets"}, "leaks": [], "unequal": [], "once_each": True, "asked": 2}
    Agent.check(fine)
    with pytest.raises(GuaranteeViolated):
        Agent.check({**fine, key: value})


def test_an_engine_that_mixes_blocks_up_is_found_out() -> None:
    calls = iter(range(10**6))

    def mixing(prompt: str) -> str:
        return f"It is {secrets.secret(next(calls) % 12)}."

    found = on(FakeEngine(replies=mixing), "secrets", turns=20, answer=20)
    assert found["unequal"]
    with pytest.raises(GuaranteeViolated):
        Agent.check(found)


def test_a_forked_and_rewound_thread_says_what_fresh_conversations_say() -> None:
    found = on(FakeEngine(), "threads")
    Agent.check(found)
    assert found["compared"] == {"k": 13, "n": 13}
    first = {
        branch: [r["logits_sha256"] for r in found["rows"] if r["branch"] == branch] for branch in ("fork", "main")
    }
    assert first["fork"][0] not in first["main"], "the fork goes on with another question"


def test_the_check_of_threads_refuses() -> None:
    with pytest.raises(GuaranteeViolated):
        Agent.check(on(FakeEngine(diverge_after=3), "threads"))
    with pytest.raises(GuaranteeViolated, match="changed the thread"):
        Agent.check({"settings": {"part": "threads"}, "rows": [], "original_untouched": False})


# --- the whole ----------------------------------------------------------------------------------------


def test_the_command_shows_each_part(result: dict[str, Any]) -> None:
    for part, words in (("secrets", "another block's secret: 0"), ("threads", "13 of 13 turns")):
        shown = CliRunner().invoke(app, ["agent", "--model", "fake", "--part", part, "--small"])
        assert shown.exit_code == 0
        assert words in shown.stdout
    notes = "\n".join(Agent.notes(result))
    assert "killed after turn 2" in notes
    assert "only turns 1, 3, 4 were measured" in notes
    assert "ChatLlamaCpp, LlamaDiskCache: skipped" in notes
    (table,) = Agent.tables
    assert [cells[0] for cells in table.cells(result)] == [arms.LABELS[n] for n in (*arms.OWN[:2], arms.PREFILLED)]
    assert table.cells(result)[-1][-1] == "3 of 3"
    assert CliRunner().invoke(app, ["agent", "--part", "nothing"]).exit_code == UsageError.exit_code


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings(part="nothing"), "not a part"),
        (Settings(arms=("nobody",)), "not an arm"),
        (Settings(part="secrets", manual=100), "no manual"),
        (Settings(part="threads", turns=1), "two turns"),
    ],
)
def test_unknown_parts_arms_and_lengths_are_refused(settings: Settings, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Agent(settings).run()
