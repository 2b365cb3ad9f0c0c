"""Orders fused by reciprocal ranks: what ties share, what weights do."""

from __future__ import annotations

import pytest

from agentkv.fusion import CONSTANT, ranked, reciprocal_rank_fusion


def test_equal_scores_share_a_rank_and_stay_in_order() -> None:
    assert ranked({"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0, "e": 0.5}) == [
        (0, "b"),
        (1, "a"),
        (1, "c"),
        (1, "d"),
        (4, "e"),
    ]
    assert ranked({}) == []


def test_an_order_that_tells_nothing_apart_changes_nothing() -> None:
    by_words = ranked({"a": 3.0, "b": 2.0, "c": 1.0})
    same = ranked(dict.fromkeys("cba", 0.7))
    assert [item for item, _ in reciprocal_rank_fusion([(1.0, same), (1.0, by_words)])] == ["a", "b", "c"]


def test_an_item_gets_its_share_of_each_order() -> None:
    found = dict(reciprocal_rank_fusion([(2.0, enumerate("ab")), ({"b": 0.5, "c": 0.0}, enumerate("cb"))]))
    assert found == {
        "a": pytest.approx(2 / CONSTANT),
        "b": pytest.approx(2.5 / (CONSTANT + 1)),
        "c": 0.0,
    }


def test_of_equals_the_first_stays_first() -> None:
    assert [item for item, _ in reciprocal_rank_fusion([(1.0, enumerate("ab")), (1.0, enumerate("ba"))])] == ["a", "b"]
