"""``peers`` on the fake engine: agentkv's own arms, and arms with the faults that it has to find."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv.bench import measured
from agentkv.bench.results import Result
from agentkv.errors import GuaranteeViolated, InvalidResult, UsageError
from tests.benchmarks.commands import app
from tests.benchmarks.peers import environments
from tests.benchmarks.peers.arm import ARMS, SPECS, Outcome, Spec, Task
from tests.benchmarks.peers.peers import Peers, Settings
from tests.benchmarks.peers.running import Launch
from tests.benchmarks.peers.standins import here, spec
from tests.benchmarks.tables import TABLES

TEXTS = ("Refunds take 7 days.\n" * 30, "Parcels take 3 days.\n" * 30)
OURS = tuple(one for one in SPECS if one.name.startswith("agentkv"))
NAIVE = spec("naive", "Naive")


def measure(*specs: Spec, arms: tuple[str, ...] = ()) -> dict[str, Any]:
    given = Settings(
        model="fake", texts=TEXTS, lengths=(256,), asks=2, steps=8, turns=4, launch=here, specs=specs, arms=arms
    )
    return Peers(given).run()


def quick(*lengths: int, work: Path | None = None, launch: Launch = here) -> dict[str, Any]:
    """Speed only, of the naive arm."""
    given = Settings(
        model="fake", texts=TEXTS, lengths=lengths, asks=1, steps=4, no_faults=True, work=work, launch=launch
    )
    return Peers(dataclasses.replace(given, specs=(NAIVE,))).run()


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return measure(
        *OURS,
        NAIVE,
        spec("forgetful", "Forgetful", keeps_turns=True, least_asks=3),
        spec("spoiling", "Spoiling", ARMS["agentkv"].files),
    )


def fault(result: dict[str, Any], arm: str, name: str) -> dict[str, Any]:
    return next(row for row in result["faults"] if row["arm"] == arm and row["fault"] == name)


def outcomes(result: dict[str, Any], arm: str, name: str) -> dict[str, str]:
    return {case["case"]: case["outcome"] for case in fault(result, arm, name)["cases"]}


def table(name: str, result: dict[str, Any]) -> list[str]:
    found = next(one for one in TABLES if one.name == name)
    return found.markdown([Result(result, "peers.json")]).splitlines()[2:]


# --- agentkv ------------------------------------------------------------------------------------------


def test_agentkv_is_exact_and_passes_every_fault(result: dict[str, Any]) -> None:
    Peers.check(result)
    own = [row for row in result["rows"] if row["arm"].startswith("agentkv")]
    assert {(row["arm"], row["home"]) for row in own} == {
        ("agentkv-ram", "RAM"),
        ("agentkv", "warm"),
        ("agentkv", "cold"),
    }
    for row in own:
        assert (row["steps_equal"], row["steps"]) == (8, 8)
        assert row["evaluated"] == row["turn_tokens"]
    faults = [row for row in result["faults"] if row["arm"] == "agentkv"]
    assert [row["outcome"] for row in faults] == ["refused"] * 4 + ["exact", "refused", "exact"]
    assert len(outcomes(result, "agentkv", "one flipped byte")) == 4
    fields = {case["detail"].split(":")[0] for case in fault(result, "agentkv", "another model")["cases"]}
    assert fields == {"IncompatibleFingerprint"}


def test_its_aims_are_of_save_state_and_not_made_up(result: dict[str, Any]) -> None:
    assert [aim["aim"] for aim in result["aims"]] == ["fault arms that agentkv passes"]
    assert result["aims"][0]["met"]


def test_figures_follow_from_the_records(result: dict[str, Any]) -> None:
    assert measured.rescore(result) == []
    forged = copy.deepcopy(result)
    forged["rows"][0]["steps_equal"] = 7
    assert measured.rescore(forged)


def test_the_result_names_no_path_of_this_machine(result: dict[str, Any], tmp_path: Path) -> None:
    shown = str({key: value for key, value in result.items() if key != "raw"})
    assert "/tmp" not in shown
    assert str(Path.home()) not in shown


# --- arms with faults ---------------------------------------------------------------------------------


def test_an_arm_that_checks_nothing_serves_something_else(result: dict[str, Any]) -> None:
    for name in ("one flipped byte", "another model", "changed settings"):
        row = fault(result, "naive", name)
        assert not row["passed"]
        assert "something else" in row["outcome"]
    assert outcomes(result, "naive", "a truncated file") == {"half": "refused", "16 bytes less": "refused"}
    assert fault(result, "naive", "20 turns from one block")["passed"]


def test_an_arm_that_deletes_what_it_reads_has_lost_it(result: dict[str, Any]) -> None:
    assert outcomes(result, "forgetful", "a second read") == {
        "after a whole turn": "exact",
        "after one broken off": "lost",
    }
    assert outcomes(result, "forgetful", "20 turns from one block") == {"the last, and its hash": "changed"}
    row = next(row for row in result["rows"] if row["arm"] == "forgetful" and row["home"] == "warm")
    assert len(row["evaluated_each"]) == 3


def test_an_arm_that_refuses_and_answers_wrongly_after_it_is_spoiled(result: dict[str, Any]) -> None:
    assert set(outcomes(result, "spoiling", "one flipped byte").values()) == {"spoiled"}
    assert not fault(result, "spoiling", "one flipped byte")["passed"]


def test_an_arm_that_has_lost_its_server_has_no_figures() -> None:
    result = measure(*OURS, spec("orphaned", "Orphaned"))
    assert {row["reason"] for row in result["failed"]} == {"the server ended with signal 6"}
    assert fault(result, "orphaned", "one flipped byte")["outcome"] == "crash"
    assert not any(row["arm"] == "orphaned" for row in result["rows"])
    Peers.check(result)


def test_what_is_better_than_agentkv_is_listed(result: dict[str, Any]) -> None:
    assert {one["arm"] for one in result["slower"]} & {"naive", "forgetful"}
    for one in result["slower"]:
        assert one["theirs"] < one["agentkv"]


@pytest.mark.parametrize(
    ("path", "value"),
    [(("rows", 0, "steps_equal"), 7), (("rows", 0, "evaluated"), 300), (("faults", 0, "passed"), False)],
)
def test_check_refuses(result: dict[str, Any], path: tuple[Any, ...], value: object) -> None:
    forged = copy.deepcopy(result)
    forged[path[0]][path[1]][path[2]] = value
    with pytest.raises(GuaranteeViolated):
        Peers.check(forged)


def test_check_refuses_where_agentkv_has_no_figures(result: dict[str, Any]) -> None:
    gone = {
        "evidence": "bits",
        "arm": "agentkv",
        "label": "agentkv, disk",
        "n": 256,
        "home": "warm",
        "reason": "refused: no",
    }
    with pytest.raises(GuaranteeViolated, match="refused: no"):
        Peers.check({**result, "failed": [gone]})


# --- arms that cannot be had, runs that are broken off ------------------------------------------------


def test_an_arm_without_its_packages_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = environments.Environment(None, [], "pip cannot install nowhere==1: no such package")
    monkeypatch.setattr(environments, "environment", lambda packages, folder: missing)
    result = measure(spec("far", "Naive", packages=("nowhere==1",)))
    assert result["environments"]["far"]["unavailable"] == missing.unavailable
    assert result["rows"] == []


def test_a_run_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    left = 3

    def breaking(task: Task) -> Outcome:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return here(task)

    with pytest.raises(KeyboardInterrupt):
        quick(64, 128, work=tmp_path, launch=breaking)
    assert [path for path in tmp_path.iterdir() if path.name.startswith("agentkv-peers")] == []
    done = []

    def counting(task: Task) -> Outcome:
        done.append(task.step.phase)
        return here(task)

    result = quick(64, 128, work=tmp_path, launch=counting)
    # The reference of the first length was kept; its store, which was not finished, is made again.
    assert done == ["store", "ask", "ask", "uninterrupted", "store", "ask", "ask"]
    assert quick(64, 128, work=tmp_path, launch=breaking)["rows"] == result["rows"]


def test_lengths_and_arms_are_checked_first() -> None:
    with pytest.raises(UsageError, match="is not an arm"):
        measure(*SPECS, arms=("lmcache",))
    with pytest.raises(UsageError, match="64 tokens"):
        quick(8)


def test_a_length_over_the_models_window_is_left_out() -> None:
    result = quick(64, 70_000)
    assert list(result["left_out"]) == ["70000"]
    assert {row["n"] for row in result["rows"]} == {64}


def test_every_arm_of_the_issue_is_there() -> None:
    required = {"agentkv-ram", "agentkv", "save-state", "ram-cache", "disk-cache", "slots", "stillwarm", "hearth"}
    assert required <= set(ARMS)
    for one in SPECS:
        assert all("==" in package for package in one.packages)


# --- the command --------------------------------------------------------------------------------------


def test_the_command_runs_agentkv_in_processes_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "peers.json"
    arguments = ["peers", "--model", "fake", "--arm", "agentkv", "--small", "--lengths", "64", "--no-faults"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "48/48" in done.stdout
    assert out.exists()
    assert CliRunner().invoke(app, ["peers", "--model", "fake", "--arm", "no"]).exit_code == UsageError.exit_code


def test_the_notes_say_what_failed_and_what_is_better(result: dict[str, Any]) -> None:
    notes = "\n".join(Peers.notes(result))
    assert "Naive: one flipped byte, at 25%: something else" in notes
    assert "better than agentkv: Naive" in notes
    assert "aim, 256 tokens: fault arms that agentkv passes at least 9, is 9.0: met" in notes


# --- the README's tables ------------------------------------------------------------------------------


def test_the_table_has_a_row_an_arm_and_place_with_a_time_each_length(result: dict[str, Any]) -> None:
    rows = [row.split(" | ") for row in table("peers", result)]
    assert [row[1:3] for row in rows if row[1].startswith("agentkv")] == [
        ["agentkv, RAM", "RAM"],
        ["agentkv, disk", "warm"],
        ["agentkv, disk", "cold"],
    ]
    assert {len(row) for row in rows} == {13}
    longer = copy.deepcopy(result)
    longer["rows"] += [{**row, "n": 512, "bytes": 2_500_000} for row in result["rows"] if row["arm"] == "agentkv"]
    disk = next(row for row in table("peers", longer) if "agentkv, disk | warm" in row).split(" | ")
    assert disk[3].count(" / ") == 1
    assert "–" not in disk[3]
    assert disk[7] == "2.5 MB"
    ram = next(row for row in table("peers", longer) if "agentkv, RAM" in row).split(" | ")
    assert ram[3].endswith("/ – ms")


def test_an_arm_without_figures_says_why(result: dict[str, Any]) -> None:
    failed = {"arm": "x", "label": "Broken", "home": "warm", "n": 256, "reason": "it died"}
    rows = table("peers", {**result, "failed": [failed]})
    assert "| fake | Broken | warm | 256 tokens: it died |" in rows[-1]


def test_results_of_other_lengths_are_not_put_into_one_table(result: dict[str, Any]) -> None:
    other = {**result, "rows": [{**row, "n": 512} for row in result["rows"]]}
    found = next(one for one in TABLES if one.name == "peers")
    with pytest.raises(InvalidResult, match="other lengths"):
        found.markdown([Result(result, "a.json"), Result(other, "b.json")])


def test_the_table_of_faults_counts_the_cases(result: dict[str, Any]) -> None:
    rows = {row.split(" | ")[1]: row for row in table("faults", result)}
    assert "**fail**" not in rows["agentkv, disk"]
    assert "in memory only" in rows["agentkv, RAM"]
    assert "**fail**: " in rows["Naive"]
    cases = fault(result, "naive", "one flipped byte")["cases"]
    passed = sum(case["passed"] for case in cases)
    assert f"**fail**: {passed} of {len(cases)}: " in rows["Naive"]
