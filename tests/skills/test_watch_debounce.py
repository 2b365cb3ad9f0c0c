from __future__ import annotations

import pytest

from agentkv.skills.watch import Debounce


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_is_due_after_a_quiet_moment_and_never_later_than_the_bound() -> None:
    clock = Clock()
    pending: Debounce[str] = Debounce(0.3, 1.0, clock)
    assert (pending.wait_s(), pending.take_due(), len(pending)) == (None, [], 0)
    pending.touch("once")
    while clock.now < 0.95:
        pending.touch("often")
        assert pending.wait_s() is not None
        clock.now += 0.1
    assert pending.take_due() == ["once"]
    assert list(pending) == ["often"]
    assert pending.wait_s() == pytest.approx(1.0 - clock.now)
    clock.now = 1.01
    assert pending.wait_s() == 0
    assert pending.take_due() == ["often"]
    pending.touch("often")
    assert pending.wait_s() == pytest.approx(0.3)
