"""Conversations that outgrow the window: they go on, the record says what was left out, checkpoints still restore."""

from __future__ import annotations

import contextlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentKVWarning, AgentMemory, FakeEngine, Turn
from agentkv.errors import UsageError, WindowOverflow
from agentkv.memory.fitting import SUMMARISE
from agentkv.memory.options import WhenFull
from agentkv.memory.threads import Thread
from agentkv.store.catalog import BlockStore

WINDOW = 512


def reply(prompt: str) -> str:
    """The numbers of the questions that the model sees; of what it is to summarise, the first and the last."""
    seen = re.findall(r"nr (\d+)", prompt) or ["none"]
    if prompt.rpartition("user\n")[2].startswith(SUMMARISE):
        return f"From nr {seen[0]} to nr {seen[-1]}."
    return f"I see {seen[0]} to {seen[-1]}"


def opened(root: Path, when_full: WhenFull, window: int = WINDOW, reply: Any = reply) -> Thread:
    """The thread as a new process sees it."""
    return AgentMemory(root, FakeEngine(replies=reply, window=window), prefix="Be brief.\n").thread(
        "t", when_full=when_full
    )


def talk(root: Path, when_full: WhenFull, turns: int, first: int = 1, **how: Any) -> list[Turn]:
    done = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentKVWarning)
        for number in range(first, first + turns):
            if number % 25 == first % 25:
                thread = opened(root, when_full, **how)
            done.append(thread.ask(f"This is nr {number}", skill=None, max_new=40))
    return done


def test_refuse_is_the_default_and_refuses_for_ever(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=reply, window=WINDOW), prefix="Be brief.\n")
    thread = memory.thread("t")
    done = 0
    with contextlib.suppress(WindowOverflow):
        for done in range(40):
            thread.ask(f"This is nr {done}", skill=None, max_new=40)
    assert 3 < done == len(thread.turns) < 39
    with pytest.raises(WindowOverflow):
        memory.thread("t").ask("And now?", max_new=40)
    with pytest.raises(UsageError, match="keep-last"):
        memory.thread("t", when_full="forget")  # type: ignore[arg-type]


@pytest.mark.parametrize("when_full", ["keep-last", "summarise"])
def test_three_hundred_turns_in_a_small_window(tmp_path: Path, when_full: WhenFull) -> None:
    root = tmp_path / "store"
    turns = talk(root, when_full, 300)
    entries = opened(root, when_full).turns
    assert [entry.question for entry in entries] == [f"This is nr {n}" for n in range(1, 301)], "the log has all"
    assert all(sum(turn.tokens.model_dump().values()) <= WINDOW for turn in turns)
    # The answers show what the model saw: always the question itself and one turn before it at least.
    for number, (turn, entry) in enumerate(zip(turns, entries, strict=True), 1):
        first, last = map(int, re.findall(r"\d+", turn.text))
        assert last == number
        assert entry.left_out < number - 1 or number == 1
        assert first == (1 if entry.summary or not entry.left_out else entry.left_out + 1)
        assert bool(turn.notes) == bool(entry.left_out)
    # Cuts are few, and between them a turn goes on from its checkpoint.
    cuts = {entry.left_out for entry in entries} - {0}
    assert 20 < len(cuts) < 110
    restored = [turn.tokens.restored > turn.tokens.prefilled for turn in turns]
    assert sum(restored) > 0.6 * len(turns)
    assert all(turn.not_kept is None for turn in turns)
    assert not BlockStore(root).check().findings


def test_a_cut_leaves_half_of_the_room_and_lasts(tmp_path: Path) -> None:
    window = 1536
    turns = talk(tmp_path / "store", "keep-last", 60, window=window)
    entries = opened(tmp_path / "store", "keep-last").turns
    at = [n for n in range(1, 60) if entries[n].left_out != entries[n - 1].left_out]
    assert len(at) >= 2
    for n in at:
        assert turns[n].tokens.restored + turns[n].tokens.prefilled <= window / 2 + 40
    between = [turns[n] for n in range(1, 60) if n not in at]
    assert all(turn.tokens.prefilled < 80 for turn in between), "no turn but those of a cut is prefilled again"
    assert at[1] - at[0] > 8


def test_the_record_the_warning_and_the_log_say_what_was_left_out(tmp_path: Path) -> None:
    talk(tmp_path / "store", "keep-last", 30)
    thread = opened(tmp_path / "store", "keep-last")
    before = thread.turns
    with pytest.warns(AgentKVWarning, match=r"were not shown to the model.*512.*nothing was shown instead") as caught:
        turn = thread.ask("This is nr 31", max_new=40)
    assert turn.notes == (str(caught[0].message),)
    assert re.search(rf"the first {thread.turns[-1].left_out} turns", turn.notes[0])
    assert thread.turns[:-1] == before
    assert len(thread.messages) == 62


def test_a_summary_is_the_models_own_and_stands_for_the_turns_before(tmp_path: Path) -> None:
    talk(tmp_path / "store", "summarise", 30, window=1024)
    thread = opened(tmp_path / "store", "summarise", window=1024)
    with pytest.warns(AgentKVWarning, match="a summary was shown instead"):
        thread.ask("This is nr 31", max_new=40)
    last = thread.turns[-1]
    assert last.summary == f"From nr 1 to nr {last.left_out}."
    prompt = thread._shown("summarise").messages(thread.turns, thread.messages[0])
    assert [message.content for message in prompt[:3]] == [
        SUMMARISE,
        last.summary,
        f"This is nr {last.left_out + 1}",
    ]


@pytest.mark.parametrize(("window", "why"), [(1024, "the model wrote none"), (230, "there was no room for it")])
def test_where_there_is_no_summary_the_last_turns_are_kept_and_it_is_said(
    tmp_path: Path, window: int, why: str
) -> None:
    def mute(prompt: str) -> str:
        return "" if prompt.rpartition("user\n")[2].startswith(SUMMARISE) else "Yes."

    turns = talk(tmp_path / "store", "summarise", 30, reply=mute, window=window)
    entries = opened(tmp_path / "store", "summarise").turns
    cut = [n for n in range(1, 30) if entries[n].left_out != entries[n - 1].left_out]
    assert cut
    assert all(f"no summary of them was made: {why}" in turns[n].notes[0] for n in cut)
    assert not any(entry.summary for entry in entries)


@pytest.mark.parametrize("when_full", ["keep-last", "summarise"])
def test_a_turn_that_alone_is_larger_than_the_window_is_refused_and_costs_nothing(
    tmp_path: Path, when_full: WhenFull
) -> None:
    talk(tmp_path / "store", when_full, 3)
    thread = opened(tmp_path / "store", when_full)
    with pytest.raises(WindowOverflow) as caught:
        thread.ask("x" * 600, max_new=40)
    assert caught.value.n_turn > 600
    assert thread._memory.engine.counters.decoded == 0
    assert len(opened(tmp_path / "store", when_full).turns) == 3
    with pytest.raises(WindowOverflow):
        AgentMemory(tmp_path / "new", FakeEngine(window=WINDOW)).thread("t", when_full=when_full).ask("x" * 600)


def test_a_turn_that_fills_most_of_the_window_goes_on_alone(tmp_path: Path) -> None:
    talk(tmp_path / "store", "keep-last", 5)
    thread = opened(tmp_path / "store", "keep-last")
    with pytest.warns(AgentKVWarning, match="the first 5 turns"):
        turn = thread.ask(f"This is nr 6, {'x' * 380}", max_new=40)
    assert turn.text == "I see 6 to 6"
    assert thread.turns[-1].left_out == 5


def test_a_rewind_and_a_fork_see_what_the_turn_that_they_go_on_from_saw(tmp_path: Path) -> None:
    talk(tmp_path / "store", "keep-last", 30)
    thread = opened(tmp_path / "store", "keep-last")
    fork = thread.fork("fork", at=3)
    assert fork.turns[-1].left_out == 0
    assert fork.ask("This is nr 4", max_new=40).text == "I see 1 to 4"
    thread.rewind(3)
    again = opened(tmp_path / "store", "keep-last").ask("This is nr 4", max_new=40)
    assert again.text == "I see 1 to 4"
    assert again.tokens.restored > again.tokens.prefilled


def test_a_manual_that_leaves_less_room_makes_a_cut(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=reply, window=WINDOW), prefix="Be brief.\n")
    thread = memory.thread("t", when_full="keep-last")
    memory.deposit_text("shop", "The shop is open. " * 16)
    for number in range(1, 5):
        thread.ask(f"This is nr {number}", skill=None, max_new=40)
    assert not thread.turns[-1].left_out
    with pytest.warns(AgentKVWarning, match="were not shown|was not shown"):
        thread.ask("This is nr 5", skill="shop", max_new=40)
    assert thread.turns[-1].left_out > 0
