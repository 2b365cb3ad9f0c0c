"""Migrations that are really killed, on the fake engine; and that a loss is found."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from agentkv.bench import measured
from agentkv.errors import GuaranteeViolated
from tests.benchmarks.migration import Migration


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return Migration(model="fake", skills=3, conversations=1, chunks=8, kills=1).run()


def test_nothing_is_lost(result: dict[str, Any]) -> None:
    assert measured.rescore(result) == []
    Migration.check(result)
    assert (result["before"]["skills"], result["before"]["turns"]) == (3, [2])
    assert result["before"]["chunks"] >= 8
    assert result["after"]["equal"] == result["after"]["tried"] >= 8
    assert result["identical"]["k"] == result["same_answer"]["k"] == 4
    raw = {record["key"]: record["raw"] for record in result["raw"]}
    assert raw["asked/skill 2"]["after"] == "Tariff 2 costs 25 euros."
    assert next(iter(Migration.notes(result))).endswith("new blocks in the store")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: result.update(lost_after_a_kill=1), "1 blocks lost"),
        (lambda result: result.update(kills=0), "0 of 1 kills"),
        (lambda result: result["after"].update(turns=[1]), "1/2 turns"),
        (lambda result: result["after"].update(equal=0), "differ from a cold prefill"),
        (lambda result: result.update(left_to_do=2), "2 left to do"),
        (lambda result: result["identical"].update(k=1), "1/4"),
    ],
)
def test_a_loss_is_a_violated_guarantee(result: dict[str, Any], change: Any, message: str) -> None:
    changed = copy.deepcopy(result)
    change(changed)
    with pytest.raises(GuaranteeViolated, match=message):
        Migration.check(changed)
