"""Turns that do not fit into the window: which part, which messages, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.engine.prompt import Message
from agentkv.errors import WindowOverflow
from agentkv.notices import AgentKVWarning
from agentkv.skills.library import SkillLibrary
from tests.skills.conftest import skill

WINDOW = 2048
LONG = "You are the agent of a shop. " * 40
"""About 1,160 tokens of the fake engine, which are bytes."""


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    return AgentMemory(tmp_path / "store", FakeEngine(window=WINDOW, replies=lambda _: "Yes."), prefix="Be brief.\n")


def sections(*lengths: int) -> str:
    words = ["apples", "pears", "plums", "grapes"]
    return "\n".join(f"# {word}\n\n" + f"All of {word}. " * (n // 15) for word, n in zip(words, lengths, strict=False))


def test_half_of_the_window_is_left_to_what_else_a_turn_holds(memory: AgentMemory, tmp_path: Path) -> None:
    skill(tmp_path / "skills", "fruit", sections(700, 700))
    skill(tmp_path / "skills", "small", "x" * 600)
    SkillLibrary(memory, tmp_path / "skills").sync()
    names = memory.names()
    assert {named.name for named in names} == {"fruit/apples", "fruit/pears", "small"}
    assert all(memory.store.verify(named.block_id).n_tokens <= WINDOW // 2 for named in names)
    turn = memory.ask("Are there pears?", skill="fruit", system="You are the agent of a shop. " * 30, max_new=20)
    assert (turn.decision.pick, turn.notes) == ("fruit/pears", ())


def test_a_prefix_over_half_of_the_window_leaves_room_for_parts_all_the_same(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "fruit", sections(700, 700))
    with AgentMemory(tmp_path / "store", FakeEngine(window=WINDOW), prefix="x" * 1100 + "\n") as memory:
        report = SkillLibrary(memory, tmp_path / "skills").sync()
        assert (report.broken, report.added) == ((), ("fruit",))


def test_what_was_stored_larger_than_that_still_works(memory: AgentMemory, tmp_path: Path) -> None:
    folder = skill(tmp_path / "skills", "fruit", sections(700, 700))
    memory.deposit_skill(folder)
    turn = memory.ask("Are there pears?", skill="fruit", max_new=20)
    assert (turn.decision.pick, turn.not_restored, turn.notes) == ("fruit", None, ())


def test_a_part_that_leaves_no_room_gives_way_to_a_smaller_one_of_the_skill(
    memory: AgentMemory, tmp_path: Path
) -> None:
    skill(tmp_path / "skills", "fruit", sections(900, 900, 300))
    SkillLibrary(memory, tmp_path / "skills", max_tokens=1100).sync()
    assert memory.ask("Are there pears?", max_new=20).decision.pick == "fruit/pears"
    for skill_name in ("fruit", "fruit/pears"):
        with pytest.warns(
            AgentKVWarning, match="'fruit/pears' leaves no room .* answered from 'fruit/plums'"
        ) as caught:
            turn = memory.ask("Are there pears?", skill=skill_name, system=LONG, max_new=20)
        assert (turn.decision.raw_pick, turn.decision.pick) == ("fruit/pears", "fruit/plums")
        assert (turn.decision.fallback, turn.notes) == (str(caught[0].message), (str(caught[0].message),))
        assert "--max-tokens" in turn.notes[0]
        assert turn.not_restored != "the manual is not stored on top of this prefix" or turn.tokens.prefilled > 300


def test_a_whole_manual_that_leaves_no_room_is_dropped_if_it_was_only_routed_to(
    memory: AgentMemory, tmp_path: Path
) -> None:
    memory.deposit_skill(skill(tmp_path / "skills", "fruit", sections(700, 700)))
    with pytest.warns(AgentKVWarning, match="'fruit' leaves no room .* answered without a manual. .*--max-tokens"):
        turn = memory.ask("Are there pears in fruit?", system=LONG, max_new=20)
    assert (turn.decision.raw_pick, turn.decision.pick, len(turn.notes)) == ("fruit", None, 1)
    with pytest.raises(WindowOverflow):
        memory.ask("Are there pears?", skill="fruit", system=LONG, max_new=20)
    with pytest.raises(WindowOverflow):
        memory.ask("Are there pears?", system=LONG * 2, max_new=20)


def talk(n: int) -> list[Message]:
    earlier = [Message(role, f"{role} {i} " + "x" * 80) for i in range(n) for role in ("user", "assistant")]
    return [*earlier, Message("user", f"user {n} " + "x" * 80)]


def test_the_oldest_turns_of_a_long_conversation_are_left_out_in_steps(memory: AgentMemory) -> None:
    left_out, restored = list[int](), 0
    for n in range(24):
        messages = talk(n)
        try:
            turn = memory.ask(messages, skill=None, max_new=20, keep=True, when_full="refuse")
            assert (turn.notes, left_out) == ((), [])
            continue
        except WindowOverflow:
            pass
        with pytest.warns(AgentKVWarning, match=f"of {len(messages)} messages were left out"):
            turn = memory.ask(messages, skill=None, max_new=20, keep=True)
        left_out.append(int(turn.notes[0].split()[2]))
        restored += turn.tokens.restored > 600
    assert len(left_out) > 10
    assert left_out == sorted(left_out)
    assert all(number % 2 == 0 for number in left_out)
    assert len(set(left_out)) < len(left_out) / 2
    assert restored > len(left_out) / 2


def test_a_caller_may_insist_on_the_whole_conversation(memory: AgentMemory) -> None:
    with pytest.raises(WindowOverflow):
        memory.ask(talk(20), skill=None, max_new=20, when_full="refuse")
    with pytest.raises(WindowOverflow):
        memory.ask([Message("user", "x" * 3000)], skill=None, max_new=20)


def test_results_of_tools_stay_with_their_question(memory: AgentMemory) -> None:
    earlier = talk(20)[:-1]
    messages = [*earlier, Message("user", "Look it up."), Message("assistant", "I will."), Message("user", "Well?")]
    with pytest.warns(AgentKVWarning, match="messages were left out"):
        turn = memory.ask(messages, skill=None, max_new=20)
    assert int(turn.notes[0].split()[2]) < len(earlier)


def test_the_manual_goes_before_the_history(memory: AgentMemory, tmp_path: Path) -> None:
    memory.deposit_skill(skill(tmp_path / "skills", "fruit", sections(600, 600)))
    messages = [*talk(8)[:-1], Message("user", "Are there pears in fruit?")]
    with pytest.warns(AgentKVWarning, match="messages were left out"):
        turn = memory.ask(messages, max_new=20)
    assert (turn.decision.pick, len(turn.notes)) == ("fruit", 1)
