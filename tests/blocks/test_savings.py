"""Savings: the arithmetic, on lines whose sums are known."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.blocks.turnlog import LoggedTurn, Rate, savings

A, B = "aa" * 32, "bb" * 32
BLOCK = "cc" * 32


def turn(day: int = 1, **fields: Any) -> LoggedTurn:
    time = f"2026-10-{day:02}T12:00:00.000+00:00"
    return LoggedTurn(**{"time": time, "kind": "turn", "fingerprint_id": A, "model_sha256": "m"} | fields)


def deposit(read: int, ms: float, **fields: Any) -> LoggedTurn:
    return turn(kind="deposit", read=read, read_ms=ms, **fields)


def test_tokens_are_counted_and_seconds_follow_from_what_reading_took() -> None:
    found = savings(
        [
            deposit(100, 200.0),
            turn(1, skill="a", block_id=BLOCK, restored=500, read=10, read_ms=90.0, restore_ms=30.0, generated=4),
            turn(2, skill="a", restored=0, read=300, read_ms=600.0, restore_ms=1.0, graft=False, route_ms=7.0),
            turn(2, skill=None, block_id=BLOCK, restored=50, read=10, read_ms=90.0, restore_ms=5.0, keep_ms=3.0),
        ],
        lambda line: line.day,
    )
    first, second = found.rows["2026-10-01"], found.rows["2026-10-02"]
    assert (first.turns, first.hits, first.hit_rate) == (1, 1, 1)
    assert (first.restored, first.read, first.generated) == (500, 10, 4)
    assert first.saved_ms == 500 * 2.0 - 30
    assert (second.turns, second.hits, second.hit_rate, second.ungrafted) == (2, 1, 0.5, 1)
    assert second.saved_ms == 50 * 2.0 - 5 - 1
    assert (second.route_ms, second.keep_ms) == (7, 3)
    total = found.total
    assert (total.turns, total.hits, total.restored, total.saved_ms) == (3, 2, 550, 970 + 94)
    assert (found.oldest, found.deposits, found.deposited, found.deposit_ms) == (turn(1).time, 1, 100, 200.0)


def test_what_reading_takes_is_the_median_by_tokens_of_long_readings() -> None:
    lines = [deposit(100, 100.0), deposit(1000, 2000.0), deposit(200, 1000.0), turn(read=10, read_ms=500.0)]
    assert savings(lines, lambda _: 0).rates == {A: Rate("m", 2.0, 3, 1300, 100)}
    assert savings(lines[-1:], lambda _: 0).rates == {A: Rate("m", 50.0, 1, 10, 10)}, "short ones for want of others"
    halves = [deposit(100, 100.0), deposit(100, 300.0)]
    assert savings(halves, lambda _: 0).rates[A].ms == 1.0, "the cautious one of two"


def test_each_model_has_its_own_rate() -> None:
    lines = [deposit(100, 100.0), deposit(100, 1000.0, fingerprint_id=B), turn(restored=10)]
    lines += [turn(restored=10, fingerprint_id=B)]
    found = savings(lines, lambda line: line.fingerprint_id)
    assert (found.rows[A].saved_ms, found.rows[B].saved_ms, found.total.saved_ms) == (10.0, 100.0, 110.0)


def test_without_a_reading_seconds_are_not_known() -> None:
    found = savings([turn(restored=10, restore_ms=1.0), turn(restored=20)], lambda _: 0)
    assert (found.total.saved_ms, found.total.unknown, found.total.restored) == (None, 2, 30)
    partly = savings([deposit(100, 100.0), turn(restored=10), turn(restored=20, fingerprint_id=B)], lambda _: 0)
    assert (partly.total.saved_ms, partly.total.unknown) == (10.0, 1)


def test_days_before_are_left_out_but_tell_what_reading_takes() -> None:
    lines = [deposit(100, 300.0), turn(1, restored=7), turn(3, restored=10), turn(4, restored=20)]
    found = savings(lines, lambda line: line.day, "2026-10-03")
    assert sorted(found.rows) == ["2026-10-03", "2026-10-04"]
    assert (found.total.restored, found.total.saved_ms) == (30, 90.0)
    assert (found.deposits, found.oldest) == (0, turn(1).time)


@pytest.mark.parametrize("lines", [[], [deposit(100, 100.0)]])
def test_no_turns(lines: list[LoggedTurn]) -> None:
    found = savings(lines, lambda line: line.day)
    assert (found.rows, found.oldest) == ({}, None)
    assert (found.total.turns, found.total.hit_rate, found.total.saved_ms) == (0, None, 0)
