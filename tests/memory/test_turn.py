"""An answer that was cut says so: in the record always, as a warning where nobody asked for so few tokens."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.engine.generate import MAX_NEW
from agentkv.errors import WindowOverflow


def talker(tmp_path: Path, window: int = 4096) -> AgentMemory:
    return AgentMemory(tmp_path / "store", FakeEngine(window=window, replies=lambda _: "on and on " * 200), prefix="")


def test_the_default_is_long_and_a_cut_is_told(tmp_path: Path) -> None:
    with pytest.warns(AgentKVWarning, match="the answer was cut at 512 tokens; raise max_new"):
        turn = talker(tmp_path).ask("?", skill=None)
    assert (turn.tokens.generated, turn.finish) == (MAX_NEW, "length")
    assert turn.notes == ("the answer was cut at 512 tokens; raise max_new for a longer one",)


def test_a_number_that_was_asked_for_is_told_in_the_record_alone(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        *_, turn = talker(tmp_path).stream("?", skill=None, max_new=20)
    assert not isinstance(turn, str)
    assert turn.notes == ("the answer was cut at 20 tokens; raise max_new for a longer one",)


def test_a_whole_answer_has_no_note(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path / "store", FakeEngine(replies=lambda _: "a" * 200), prefix="")
    assert (memory.ask("?", skill=None).finish, memory.ask("?", skill=None).notes) == ("stop", ())


def test_the_default_takes_no_room_from_the_prompt(tmp_path: Path) -> None:
    memory = talker(tmp_path, window=256)
    with pytest.warns(AgentKVWarning, match="no more fit into the window of 256: shorten the text or open a larger"):
        turn = memory.ask("x" * 150, skill=None)
    assert turn.tokens.restored + turn.tokens.prefilled + turn.tokens.generated == 256
    assert 48 <= turn.tokens.generated < MAX_NEW
    with pytest.raises(WindowOverflow):
        memory.ask("x" * 220, skill=None)
