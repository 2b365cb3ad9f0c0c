"""``agentkv replay``: plan, run and verify from the command line, on a benchmark that needs no model."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from agentkv.evidence import environment, plan, replay
from agentkv.evidence import ledger as ledger_module
from agentkv.evidence.environment import source_code

from .conftest import Run, error_of, record

DRAFT = {
    "name": "catalogue",
    "title": "Names are found",
    "prediction": "The smallest catalogue has all of its names.",
    "steps": [
        {
            "name": "five",
            "arguments": ["bench", "catalogue", "--blocks", "20", "--processes", "1"],
            "criteria": [{"at": "exit_code", "must": "==", "value": 0}],
        }
    ],
}


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source tree as it is now, whoever edits it during the test."""
    code = source_code()
    for module in (plan, replay, ledger_module):
        monkeypatch.setattr(module, "source_code", lambda: code)


def draft(tmp_path: Path, **criterion: object) -> Path:
    step = DRAFT["steps"][0] | {}  # type: ignore[operator]
    step["criteria"] = [*step["criteria"], criterion] if criterion else step["criteria"]
    file = tmp_path / "draft.json"
    file.write_bytes(orjson.dumps(DRAFT | {"steps": [step]}))
    return file


def test_plan_run_verify(run: Run, tmp_path: Path) -> None:
    ledger, sealed = tmp_path / "ledger", tmp_path / "sealed.plan"
    made = record(run("replay", "plan", draft(tmp_path), "--out", sealed, "--ledger", ledger, "--json"))
    assert made["steps"][0]["name"] == "five"
    done = run("replay", "run", sealed, "--ledger", ledger, "--json")
    assert (done.exit_code, record(done)["passed"], record(done)["plan"]) == (0, True, made["digest"])
    assert "step 1 of 1, five: agentkv bench catalogue --blocks 20 --processes 1" in done.stderr
    judged = run("replay", "verify", sealed, "--ledger", ledger, "--anchor", made["anchor"], "--json")
    assert (record(judged)["passed"], record(judged)["anchored"]) == (True, True)
    assert "plan catalogue: PASS, 1 run" in run("replay", "verify", sealed, "--ledger", ledger).stdout
    assert record(run("evidence", "score", "last", "--ledger", ledger, "--json"))["equal"] is True
    assert run("evidence", "verify", "--ledger", ledger).exit_code == 0
    taken = run("replay", "plan", draft(tmp_path), "--out", sealed, "--ledger", ledger, "--json")
    assert error_of(taken)["exit_code"] == 2


def test_a_prediction_that_fails_ends_with_106(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = {"exit_code": 0, "result": {"benchmark": "catalogue"}}
    monkeypatch.setattr(replay, "run_command", lambda step: outcome)
    ledger, sealed = tmp_path / "ledger", tmp_path / "sealed.plan"
    file = draft(tmp_path, at="result.benchmark", must="==", value="another")
    run("replay", "plan", file, "--out", sealed, "--ledger", ledger)
    for command in (("run", sealed), ("verify", sealed)):
        failed = run("replay", *command, "--ledger", ledger, "--json")
        assert error_of(failed)["type"] == "ReplayFailed"
        assert record(failed)["passed"] is False
    assert "NOT MET" in run("replay", "verify", sealed, "--ledger", ledger).stdout


def test_a_plan_without_a_run(run: Run, tmp_path: Path) -> None:
    ledger, sealed = tmp_path / "ledger", tmp_path / "sealed.plan"
    run("replay", "plan", draft(tmp_path), "--out", sealed, "--ledger", ledger)
    assert error_of(run("replay", "verify", sealed, "--ledger", ledger, "--json"))["type"] == "PlanRefused"


def test_the_plan_that_comes_along_on_a_machine_without_cuda(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert record(run("replay", "plan", "--json"))["plans"][0]["name"] == "exactness-cuda"
    ledger, sealed = tmp_path / "ledger", tmp_path / "cuda.plan"
    made = record(run("replay", "plan", "exactness-cuda", "--out", sealed, "--ledger", ledger, "--json"))
    assert len(made["models"]) == 3
    monkeypatch.setattr(environment, "accelerator", lambda: {"gpu": False, "system": "CPU : AVX2 = 1"})
    refused = run("replay", "run", sealed, "--ledger", ledger, "--json")
    assert error_of(refused)["type"] == "MachineUnsuitable"
    assert "without CUDA" in refused.stderr
    assert record(run("evidence", "list", "--ledger", ledger, "--json"))["runs"] == []


def test_what_is_no_plan(run: Run, tmp_path: Path) -> None:
    assert error_of(run("replay", "plan", "nothing", "--ledger", tmp_path, "--json"))["exit_code"] == 104
    (tmp_path / "x.plan").write_text("{}")
    assert error_of(run("replay", "run", tmp_path / "x.plan", "--ledger", tmp_path, "--json"))["exit_code"] == 104
