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
from tests.benchmarks import agent as bench
from tests.benchmarks.agent import arms, conversation, script, secrets, threads
from tests.benchmarks.agent.deep import SKILL, begun
from tests.benchmarks.commands import agent as command
from tests.benchmarks.commands import app
from tests.benchmarks.scorers import agent as scored

TEXTS = ["Refunds take 7 days.\n" * 30, "Parcels take 3 days.\n" * 30]
PLAN = conversation.Plan(turns=4, manual=300, answer=3)


# --- the script ---------------------------------------------------------------------------------------


def test_every_turn_calls_a_tool_and_begins_as_the_turn_before() -> None:
    said = script.exchanges(20)
    assert len({turn.user for turn in said}) == 20
    assert {turn.tool for turn in said} == {tool["function"]["name"] for tool in script.TOOLS}
    for number in range(1, 20):
        before, now = script.messages("manual", said[:number]), script.messages("manual", said[: number + 1])
        assert now[: len(before)] == before
        answer, _, call, result = now[len(before) :]
        assert answer == AIMessage(said[number - 1].answer)
        assert isinstance(result, ToolMessage)
        assert result.tool_call_id == call.tool_calls[0]["id"]


def test_a_call_has_the_arguments_of_its_schema() -> None:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in script.TOOLS}
    for turn in script.exchanges(5):
        assert list(turn.arguments) == schemas[turn.tool]["required"]


def test_an_earlier_conversation_is_a_greeting_behind_the_manual() -> None:
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
    folder = tmp_path_factory.mktemp("agent")
    return conversation.run(arms.FAKE, TEXTS, PLAN, folder / "states", work=folder / "work")


@pytest.fixture
def ours(result: dict[str, Any]) -> dict[str, Any]:
    return result["arms"][arms.AGENTKV]  # type: ignore[no-any-return]


def test_a_killed_agent_goes_on_with_its_new_tokens(result: dict[str, Any], ours: dict[str, Any]) -> None:
    conversation.check(result)
    assert [row["turn"] for row in ours["rows"]] == [1, 2, 3, 4]
    assert len(ours["opened"]) == 2
    for before, row in zip(ours["rows"], ours["rows"][1:], strict=False):
        assert row["evaluated"] == row["prompt"] - before["prompt"]
    assert ours["restarted"]["turn"] == 3
    assert ours["rows"][0]["evaluated"] < ours["prepare"]["evaluated"]


def test_reading_everything_gives_the_same_logits_in_the_turns_that_were_measured(
    result: dict[str, Any], ours: dict[str, Any]
) -> None:
    read = result["arms"][arms.REREAD]
    assert [row["turn"] for row in read["rows"]] == [1, 3, 4]
    assert not read["all_turns"]
    assert "whole_ms" not in read
    for row in read["rows"]:
        same = ours["rows"][row["turn"] - 1]
        assert row["evaluated"] == row["prompt"] == same["prompt"]
        assert row["logits_sha256"] == same["logits_sha256"]
    assert result["against"][arms.REREAD]["answers_equal"] == {"k": 3, "n": 3}


def test_deepagents_reads_the_manual_behind_the_first_message_and_only_once(result: dict[str, Any]) -> None:
    deep = result["arms"][arms.DEEP]
    manual = result["manual_tokens"]
    first, *later = deep["rows"]
    assert first["evaluated"] > manual  # its prompt and tools are restored, the manual is read in the turn
    assert deep["prepare"]["prompt"] < first["prompt"] - manual
    for before, row in zip(deep["rows"], later, strict=False):
        assert row["evaluated"] == row["prompt"] - before["prompt"]


def test_what_deepagents_sends_is_its_own(tmp_path: Path) -> None:
    sent = begun("RF-DUP is the code.\n", tmp_path)
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
        (arms.REREAD, "logits_sha256", "0" * 64, "logits"),
    ):
        wrong = copy.deepcopy(result)
        wrong["arms"][name]["rows"][1][key] = value
        with pytest.raises(GuaranteeViolated, match=words):
            conversation.check(wrong)


def test_a_finished_arm_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = conversation.Plan(turns=2, manual=100, answer=2)

    def run(plan: conversation.Plan) -> dict[str, Any]:
        return conversation.run(arms.FAKE, TEXTS, plan, tmp_path / "a", (arms.AGENTKV,), tmp_path / "work")

    first = run(plan)["arms"][arms.AGENTKV]
    monkeypatch.setattr(conversation, "_arm", lambda *_: pytest.fail("it was run again"))
    second = run(plan)["arms"][arms.AGENTKV]
    assert second["resumed"]
    assert second["rows"] == first["rows"]
    with pytest.raises(pytest.fail.Exception, match="run again"):
        run(conversation.Plan(turns=2, manual=100, answer=3))


def test_a_process_that_fails_says_its_code_and_one_that_is_killed_was_killed(tmp_path: Path) -> None:
    payload = {"model": arms.FAKE, "manual": "m", "turns": 2, "window": 512, "threads": 1, "folder": str(tmp_path)}
    with pytest.raises(WorkerFailed) as failed:
        conversation._Process({**payload, "arm": "nobody"})
    assert failed.value.code == UsageError.exit_code
    process = conversation._Process({**payload, "arm": arms.AGENTKV})
    assert process.ask(1, 2)["generated"] <= 2
    process.kill()
    assert process._process.returncode != 0


def test_a_rival_that_fails_is_skipped_and_our_own_arm_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "why_skipped", lambda *_: None)
    plan = conversation.Plan(turns=2, manual=100, answer=2)
    found = conversation.run(arms.FAKE, TEXTS, plan, tmp_path, (arms.PLAIN,))
    assert "it failed" in found["arms"][arms.PLAIN]["skipped"]
    monkeypatch.setattr(conversation, "_measured", lambda *_: (_ for _ in ()).throw(WorkerFailed("x", 3)))
    with pytest.raises(WorkerFailed):
        conversation.run(arms.FAKE, TEXTS, plan, tmp_path, (arms.AGENTKV,))


def test_an_arm_that_takes_more_than_the_trained_window_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arms, "ROOM", {arms.PLAIN: 1 << 20})
    monkeypatch.setattr(arms, "why_skipped", lambda *_: None)
    plan = conversation.Plan(turns=2, manual=100, answer=2)
    found = conversation.run(arms.FAKE, TEXTS, plan, tmp_path, (arms.PLAIN,))
    assert "the model was trained on 65,536" in found["arms"][arms.PLAIN]["skipped"]


def row(turn: int, first: float, generate: float, generated: int, keep: float = 0.0) -> dict[str, Any]:
    times = {"first_ms": first, "generate_ms": generate, "keep_ms": keep, "total_ms": first + generate + keep}
    return {"turn": turn, "evaluated": 10, "generated": generated, "answer": f"a  b{turn}", **times}


def test_longer_answers_are_computed_from_the_milliseconds_a_token() -> None:
    plan = conversation.Plan(turns=2)
    slow = {"prepare": None, "rows": [row(1, 1000, 40, 5), row(2, 3000, 40, 5)], "all_turns": True}
    fast = {
        "prepare": {"total_ms": 900.0},
        "rows": [row(1, 90, 40, 5, 10), row(2, 90, 40, 5, 10)],
        "all_turns": True,
    }
    told = {name: {**arm, **scored.summary(arm, plan.before)} for name, arm in (("agentkv", fast), ("x", slow))}
    assert told["x"]["token_ms"] == 10
    assert told["x"]["whole_ms"] == {"measured": 4080, "1": 4000, "500": 4000 + 2 * 499 * 10}
    assert told["agentkv"]["whole_with_prepare_ms"]["1"] == 1100
    against = scored.compared(told, arms.AGENTKV)["against"]["x"]
    assert against["first_after_restart"] == pytest.approx(3000 / 90)
    assert against["whole_ms"]["1"] == 20
    assert against["answers_equal"] == {"k": 2, "n": 2}


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("langchain_community") is None, reason="langchain-community")
def test_the_rival_counts_what_llama_cpp_counts_and_its_disk_cache_outlives_it(tmp_path: Path) -> None:
    plan = conversation.Plan(turns=2, manual=100, answer=4)
    found = conversation.run("smollm2-135m", TEXTS, plan, tmp_path, (arms.PLAIN, arms.DISK))["arms"]
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


def test_no_answer_holds_another_blocks_secret(tmp_path: Path) -> None:
    plan = secrets.Plan(turns=40, answer=20)
    found = secrets.on(FakeEngine(replies=quoting), arms.FAKE, plan, tmp_path)
    secrets.check(found)
    assert found["own_secret"] == found["asked"] == 40
    assert found["distinct_answers"] > 12


@pytest.mark.parametrize(("key", "value"), [("leaks", [3]), ("unequal", [4]), ("once_each", False)])
def test_the_check_of_secrets_refuses(key: str, value: Any) -> None:
    with pytest.raises(GuaranteeViolated):
        secrets.check({"leaks": [], "unequal": [], "once_each": True, "asked": 2, key: value})


def test_an_engine_that_mixes_blocks_up_is_found_out(tmp_path: Path) -> None:
    calls = iter(range(10**6))

    def mixing(prompt: str) -> str:
        return f"It is {secrets.secret(next(calls) % 12)}."

    found = secrets.on(FakeEngine(replies=mixing), arms.FAKE, secrets.Plan(turns=20, answer=20), tmp_path)
    assert found["unequal"]
    with pytest.raises(GuaranteeViolated):
        secrets.check(found)


def test_a_forked_and_rewound_thread_says_what_fresh_conversations_say(tmp_path: Path) -> None:
    found = threads.on(FakeEngine(), arms.FAKE, threads.SMALL, tmp_path)
    threads.check(found)
    assert found["compared"] == {"k": 13, "n": 13}
    first = {
        branch: [r["logits_sha256"] for r in found["rows"] if r["branch"] == branch] for branch in ("fork", "main")
    }
    assert first["fork"][0] not in first["main"], "the fork goes on with another question"


def test_the_check_of_threads_refuses(tmp_path: Path) -> None:
    engine = FakeEngine(diverge_after=3)
    found = threads.on(engine, arms.FAKE, threads.Plan(turns=3, fork=1, rewind=2, after=1, every=1), tmp_path)
    with pytest.raises(GuaranteeViolated):
        threads.check(found)
    with pytest.raises(GuaranteeViolated, match="changed the thread"):
        threads.check({"rows": [], "original_untouched": False})


# --- the whole ----------------------------------------------------------------------------------------


def test_the_command_shows_each_part(result: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for part, words in (("secrets", "another block's secret: 0"), ("threads", "13 of 13 turns compared")):
        shown = CliRunner().invoke(app, ["agent", "--model", "fake", "--part", part, "--small"])
        assert shown.exit_code == 0
        assert words in shown.stdout
    command._show_conversation(result)
    out = capsys.readouterr().out
    assert "killed after turn 2" in out
    assert "3 of 3" in out
    assert "only turns 1, 3, 4 were measured" in out
    assert "ChatLlamaCpp, LlamaDiskCache: skipped" in out
    assert CliRunner().invoke(app, ["agent", "--part", "nothing"]).exit_code == UsageError.exit_code


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no part"):
        bench.run("nothing")
    with pytest.raises(UsageError, match="no arm"):
        bench.run("conversation", arms.FAKE, chosen=["nobody"])
    with pytest.raises(UsageError, match="no manual"):
        bench.run("secrets", arms.FAKE, manual=100)
    with pytest.raises(UsageError, match="two turns"):
        bench.run("threads", arms.FAKE, turns=1)
