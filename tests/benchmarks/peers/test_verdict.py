"""What an outcome is called, and whether it passes; ratios, break-even lengths and aims from records made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.peers.arm import Report
from tests.benchmarks.peers.faults import PASSES, Case, verdict
from tests.benchmarks.peers.peers import Peers

RUN = {"evidence": ["a", "b", "c"], "evaluated": 10, "read_ms": 1000.0, "first_ms": 20.0, "memory": {"peak": 9}}
REPORT = Report.model_validate(RUN)
figures = Peers.figures


def case(result: Any, must_restore: bool = False, same: bool | None = None) -> Case:
    outcome = {"result": result, "code": -6, "stderr": "GGML_ASSERT(n > 0) failed"}
    return Case.model_validate({"outcome": outcome, "must_restore": must_restore, "same": same})


def done(evidence: str = "abc", evaluated: int = 10, refused: str | None = None, **more: Any) -> dict[str, Any]:
    return {"evidence": list(evidence), "evaluated": evaluated, "refused": refused, **more}


@pytest.mark.parametrize(
    ("tried", "kind", "part"),
    [
        (case(done()), "exact", "10 tokens"),
        (case(done(evaluated=500)), "exact, read again", "500 tokens"),
        (case(done(refused="EOFError: short")), "refused", "EOFError"),
        (case(done("abx", refused="EOFError: short")), "spoiled", "from step 3"),
        (case(done("", refused="E: x", after="HTTP 500")), "spoiled", "HTTP 500"),
        (case(done("axc")), "something else", "from step 2"),
        (case(done("")), "something else", "from step 1"),
        (case(None), "crash", "signal 6: GGML_ASSERT"),
        (case({"died": "the server ended with code 1"}), "crash", "code 1"),
        (case(done(evaluated=500), must_restore=True), "lost", "500"),
        (case(done(refused="gone"), must_restore=True), "lost", "gone"),
        (case(done(), must_restore=True, same=True), "exact", ""),
        (case(done(), must_restore=True, same=False), "changed", "gone"),
    ],
)
def test_verdicts(tried: Case, kind: str, part: str) -> None:
    found, detail = verdict(tried, [REPORT], 500)
    assert found == kind
    assert part in detail


def test_what_passes() -> None:
    assert set(PASSES) == {"exact", "exact, read again", "refused"}


def test_a_prefill_again_in_one_pass_is_exact_too() -> None:
    other = REPORT.model_copy(update={"evidence": ["x", "y", "z"]})
    assert verdict(case(done("xyz", evaluated=510)), [REPORT, other], 500)[0] == "exact, read again"
    assert verdict(case(done("xyz")), [REPORT], 500)[0] == "something else"


def test_without_a_run_to_compare_with_nothing_passes() -> None:
    kind, _ = verdict(case(done()), [], 500)
    assert kind not in PASSES


def speed(restore: float, size: int, **answer: Any) -> dict[str, Any]:
    report = {"ms": {"restore": restore}, "note": {}, "memory": {"peak": 50, "before": 20}, "first_ms": 30.0, **answer}
    asked = {"home": "warm", "turn": 0, "bytes": size, "outcome": {"result": {**done(), **report}}}
    stored = {"result": {"ms": {"read": 900.0, "save": 7.0}}}
    return {"family": "f", "store": stored, "bytes": size, "asks": [asked], "note": {}}


def records(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    return {
        "environment/agentkv": {"label": "agentkv", "evidence": "bits"},
        "environment/save-state": {"label": "state", "evidence": "bits"},
        "reference/f/500/own/0": {"result": RUN},
        "speed/agentkv/500": ours,
        "speed/save-state/500": theirs,
    }


def test_ratios_aims_and_what_is_better_than_agentkv() -> None:
    found = figures(records(speed(10.0, 100), speed(90.0, 600)))
    ours, theirs = found["rows"]
    assert ours["total_ms"]["median"] == 40.0
    assert ours["speed_up"] == pytest.approx(1020 / 40)
    assert ours["save_ms"] == 7.0
    # 10 ms more than the turn's own 20, at 2 ms a token of prefill.
    assert ours["break_even"] == 10
    assert theirs["of_agentkv"]["restore_ms"] == 9.0
    assert [(aim["value"], aim["met"]) for aim in found["aims"]] == [(9.0, False), (6.0, True)]
    assert found["slower"] == []
    swapped = figures(records(speed(90.0, 600), speed(10.0, 100)))
    assert {one["measure"] for one in swapped["slower"]} == {"restore_ms", "total_ms", "bytes"}


def test_an_arm_that_restores_within_its_request_is_not_counted_twice() -> None:
    within = speed(0.0, 600, ms={}, note={"steps": {"look up": 12.0, "set state": 3.0}, "keep_ms": 5.0})
    row = figures(records(speed(10.0, 100), within))["rows"][1]
    assert (row["restore_ms"]["median"], row["first_ms"]["median"], row["total_ms"]["median"]) == (15.0, 15.0, 30.0)
    assert row["keep_ms"] == 5.0


def test_prefill_and_probe_in_one_number_are_separated_by_the_cold_prefill() -> None:
    record = speed(10.0, 100)
    record["store"]["result"]["ms"] = {"read and probe": 1600.0, "slot_save": 4.0}
    assert figures(records(record, speed(90.0, 600)))["rows"][0]["save_ms"] == 604.0


def test_an_arm_that_refused_its_own_state_has_no_row() -> None:
    refusing = speed(10.0, 100, refused="RuntimeError: no")
    found = figures(records(speed(10.0, 100), refusing))
    assert [row["arm"] for row in found["rows"]] == ["agentkv"]
    assert found["failed"][0]["reason"] == "refused: RuntimeError: no"


@pytest.mark.parametrize("broken", [None, {"died": "gone"}])
def test_a_store_or_a_reference_that_failed_leaves_no_row(broken: Any) -> None:
    crashed = {"result": broken, "code": -11, "stderr": ""}
    without_store = speed(10.0, 100)
    without_store["store"] = crashed
    found = figures(records(without_store, speed(90.0, 600)))
    assert [row["arm"] for row in found["rows"]] == ["save-state"]
    without_reference = {**records(speed(10.0, 100), speed(90.0, 600)), "reference/f/500/own/0": crashed}
    found = figures(without_reference)
    assert (found["rows"], found["cold_prefill"]) == ([], [])
    assert {row["reason"] for row in found["failed"]} == {
        "the uninterrupted run failed, so there is nothing to compare with"
    }
