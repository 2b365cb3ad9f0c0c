"""A few thousand unsound packs; ``python -m tests.packs.fuzz`` does it in earnest."""

from __future__ import annotations

from .fuzz import run


def test_nothing_but_typed_errors_comes_out() -> None:
    outcomes = run(3000, seed=2).fuzzer.outcomes
    results = {result for _, _, result in outcomes}
    assert {"accepted", "InvalidPack", "Malformed"} <= results
    assert sum(outcomes.values()) == 3000
    assert len({(target, kind) for target, kind, _ in outcomes}) > 40
