"""The arms of llama-cpp-python on a tiny model with random weights: what they keep, and what they do not notice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.peers.arm import ARMS
from tests.benchmarks.peers.peers import Peers, Settings
from tests.benchmarks.peers.standins import here

pytestmark = pytest.mark.model

NAMES = ("agentkv", "save-state", "ram-cache", "disk-cache")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from tests.benchmarks.tiny import write_tiny

    model = write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", "llama")
    specs, texts = tuple(ARMS[name] for name in NAMES), ("Refunds take 7 days.\n",)
    given = Settings(
        model=str(model), texts=texts, lengths=(256,), small=True, steps=16, turns=4, launch=here, specs=specs
    )
    return Peers(given).run()


def test_undamaged_states_come_back_exactly(result: dict[str, Any]) -> None:
    Peers.check(result)
    assert {row["arm"] for row in result["rows"]} == set(NAMES)
    for row in result["rows"]:
        assert (row["steps_equal"], row["steps"]) == (16, 16), row["label"]


def test_what_they_count_is_the_turn_alone(result: dict[str, Any]) -> None:
    for row in result["rows"]:
        assert row["evaluated_each"][0] == row["turn_tokens"], row["label"]


def test_pickle_serves_another_models_state_and_the_disk_cache_loses_its_own(result: dict[str, Any]) -> None:
    found = {(row["arm"], row["fault"]): row for row in result["faults"]}
    assert found["save-state", "another model"]["outcome"] == "something else"
    assert found["save-state", "a second read"]["passed"]
    assert found["disk-cache", "a second read"]["outcome"] == "lost"
    assert found["disk-cache", "20 turns from one block"]["outcome"] == "changed"
    assert all(row["passed"] for (arm, _), row in found.items() if arm == "agentkv")


def test_pickles_state_is_larger(result: dict[str, Any]) -> None:
    sizes = {row["arm"]: row["bytes"] for row in result["rows"]}
    assert sizes["save-state"] > 2 * sizes["agentkv"]


def test_flipped_bytes_lie_in_the_state_and_pickle_serves_them(result: dict[str, Any]) -> None:
    found = {row["arm"]: row for row in result["faults"] if row["fault"] == "one flipped byte"}
    for arm in ("save-state", "disk-cache"):
        for case in found[arm]["cases"]:
            start, stop = case["state"]
            assert 512 * 4 * 2 < start <= case["offset"] < stop, "after the logits of a whole batch"
        assert "something else" in found[arm]["outcome"]
        assert not found[arm]["passed"]
    assert found["agentkv"]["outcome"] == "refused"
