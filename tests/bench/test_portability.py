"""The benchmark on the fake engine, and that it can fail."""

from __future__ import annotations

import copy

import pytest

from agentkv.bench.portability import Portability
from agentkv.errors import GuaranteeViolated
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def result() -> dict[str, object]:
    return Portability(model="fake", skills=REPOSITORY / "skills", manuals=2).run()


def test_elsewhere_the_states_are_the_same(result: dict[str, object]) -> None:
    Portability.check(result)
    here, there = result["here"], result["there"]
    assert isinstance(here, dict)
    assert isinstance(there, dict)
    assert len(here["probes"]) == 3, "two manuals on top of one prefix"
    assert len(here["segments"]) > 3
    assert all(digest == found for digest, found in there["segments"].items())


@pytest.mark.parametrize("part", ["segments", "probes", "states", "pack_sha256", "prove", "recompute"])
def test_a_difference_is_reported(result: dict[str, object], part: str) -> None:
    changed = copy.deepcopy(result)
    there = changed["there"]
    assert isinstance(there, dict)
    if isinstance(there[part], dict):
        there[part][next(iter(there[part]))] = "0" * 64
    else:
        there[part] = 0
    with pytest.raises(GuaranteeViolated):
        Portability.check(changed)
