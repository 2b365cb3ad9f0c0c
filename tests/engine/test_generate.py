from __future__ import annotations

import pytest

from agentkv.engine.generate import LEAST_NEW, MAX_NEW, room
from agentkv.errors import WindowOverflow


def test_a_default_takes_the_room_that_is_there_and_overflows_only_where_an_answer_does_not_fit() -> None:
    assert MAX_NEW >= 512
    assert room(100, 100, None, 8192) == MAX_NEW
    assert room(1000, 900, None, 2048) == 148
    assert room(1000, 1000, None, 2048) == LEAST_NEW == 48
    with pytest.raises(WindowOverflow) as overflow:
        room(1000, 1001, None, 2048)
    assert overflow.value.max_new == LEAST_NEW


def test_a_number_that_was_asked_for_is_kept_to() -> None:
    assert room(1000, 900, 148, 2048) == 148
    assert room(1000, 1047, 1, 2048) == 1
    with pytest.raises(WindowOverflow):
        room(1000, 900, 149, 2048)
