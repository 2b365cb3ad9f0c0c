"""``agentkv learn``, ``solve`` and ``flywheel report``, with a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv import FakeEngine
from agentkv.cli import options
from agentkv.errors import AgentKVError, InvalidTask, SandboxUnavailable, UnknownTask, UsageError
from agentkv.sandbox.base import Level
from agentkv.sandbox.sandbox import Sandbox

from .conftest import Run, error_of, record

CRATES = "A lorry carries 37 crates of 46 kg. How many kg is that?"
BOXES = "A van carries 12 boxes of 31 kg each. How many kg does it carry?"
MULTIPLY = "PARAMETERS = {'crates': 37, 'kg': 46}\n\ndef solve(crates, kg):\n    return crates * kg\n"
BAKED = "def solve():\n    return 37 * 46\n"


@pytest.fixture(autouse=True)
def _strong() -> None:
    try:
        reached = Sandbox().isolation()
    except SandboxUnavailable as error:
        pytest.skip(error.message)
    if reached.level.rank < Level.NAMESPACES.rank:
        pytest.skip(f"only {reached.level} here")


class Model:
    """A scripted model for the commands' model option. ``program``: what it writes when it is asked for one."""

    def __init__(self) -> None:
        self.program: str | Callable[[], str] = "no idea"

    def open(self, model: str, settings: Any) -> FakeEngine:
        return FakeEngine(window=1 << 14, replies=self.reply, keeps_grammar=True)

    def reply(self, prompt: str) -> str:
        question = prompt.rpartition("user\n")[2]
        if question.endswith("Answer:assistant\n"):
            return "1702"
        if question.endswith("Parameters:assistant\n"):
            return '{"crates": 12, "kg": 31}'
        if question.startswith("How much is"):
            return "1" if "always say one" in prompt else "2"
        return self.program if isinstance(self.program, str) else self.program()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Model:
    made = Model()
    monkeypatch.setattr(options, "_open_engine", made.open)
    monkeypatch.setenv("AGENTKV_LEDGER", str(tmp_path / "ledger"))
    return made


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lorry(name: str = "lorry", prompt: str = CRATES, answer: int = 1702) -> dict[str, Any]:
    return {"id": name, "prompt": prompt, "check": {"kind": "truth", "answer": answer}}


def test_learn_solve_report(run: Run, model: Model, tmp_path: Path) -> None:
    tasks = lines(tmp_path / "tasks.jsonl", lorry())
    by_hand = lines(tmp_path / "solutions.jsonl", {"id": "lorry", "program": MULTIPLY, "by": "Ann"})
    learned = record(run("learn", tasks, "--solutions", by_hand, "--samples", 1, "--best-of", 1, "--json"))
    (outcome,) = learned["outcomes"]
    assert (outcome["state"], outcome["solver"], outcome["transferable"]) == ("deposited", "file solutions.jsonl", True)
    assert learned["summary"]["states"] == {"deposited": 1}

    recalled = run("solve", f" {CRATES} ")
    assert recalled.stdout == "1702\n"
    assert "recalled from solution/lorry-" in recalled.stderr
    assert "verified" in recalled.stderr

    transferred = record(run("solve", BOXES, "--json"))
    assert (transferred["by"], transferred["answer"], transferred["verdict"]) == ("transfer", 372, "unverified")
    assert transferred["parameters"] == {"crates": 12, "kg": 31}
    assert "unverified" in run("solve", BOXES).stderr

    (row,) = record(run("flywheel", "report", "--json"))["tasks"]
    assert (row["id"], row["answer"], row["transfers"], row["live"]) == ("lorry", 1702, "yes", True)
    assert row["proof"].startswith("verified: 1 of 1 checks")
    assert "1 with a live solution, 1 transfer" in run("flywheel", "report").stdout

    runs = record(run("evidence", "list", "--json"))["runs"]
    assert [one["kind"] for one in runs] == ["flywheel learn", "flywheel solve", "flywheel solve", "flywheel solve"]
    assert run("evidence", "verify").exit_code == 0


def test_a_corrected_truth_is_solved_anew_and_what_is_retired_answers_nothing(
    run: Run, model: Model, tmp_path: Path
) -> None:
    how = ("--samples", 1, "--best-of", 1, "--json")
    wrong = lines(tmp_path / "s1.jsonl", {"id": "lorry", "program": "def solve():\n    return 19\n"})
    first = record(run("learn", lines(tmp_path / "t1.jsonl", lorry(answer=19)), "--solutions", wrong, *how))
    assert first["summary"]["states"] == {"deposited": 1}
    corrected = lines(tmp_path / "t2.jsonl", lorry())
    refused = run("solve", "--task", corrected, "--no-own", "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["answered"] is False
    right = lines(tmp_path / "s2.jsonl", {"id": "lorry", "program": MULTIPLY})
    again = record(run("learn", corrected, "--solutions", right, *how))
    assert again["summary"]["states"] == {"deposited": 1}
    assert record(run("solve", "--task", corrected, "--json"))["answer"] == 1702

    (row,) = record(run("flywheel", "report", "--json"))["tasks"]
    assert [event["event"] for event in row["history"]] == ["live", "retired", "live"]
    retired = record(run("flywheel", "retire", row["task"][:8], "--reason", "weighed again", "--json"))
    assert (retired["id"], retired["reason"]) == ("lorry", "weighed again")
    (row,) = record(run("flywheel", "report", "--json"))["tasks"]
    assert (row["live"], row["history"][-1]["reason"]) == (False, "weighed again")
    assert run("solve", CRATES, "--no-own").exit_code == 1
    for name in ("lorry", "another"):
        error = error_of(run("flywheel", "retire", name, "--json"))
        assert (error["exit_code"], name in error["message"] or name == "lorry") == (UnknownTask.exit_code, True)


def test_what_the_model_can_do_is_not_kept(run: Run, model: Model, tmp_path: Path) -> None:
    model.program = f"```python\n{MULTIPLY}```"
    result = run("learn", lines(tmp_path / "tasks.jsonl", lorry()))
    assert result.exit_code == 0
    assert "not lacking" in result.stdout
    assert "nothing was learned yet" in run("flywheel", "report").stdout


def test_the_gate_by_margin_asks_for_the_answer_itself(run: Run, model: Model, tmp_path: Path) -> None:
    tasks = lines(tmp_path / "tasks.jsonl", lorry(), lorry("other", f"{CRATES} Guess.", 5))
    by_hand = lines(tmp_path / "s.jsonl", {"id": "other", "program": "def solve():\n    return 2 + 3\n"})
    learned = record(run("learn", tasks, "--margin", 2, "--solutions", by_hand, "--best-of", 1, "--json"))
    first, second = learned["outcomes"]
    assert (first["state"], first["attempts"], first["tokens"]) == ("not lacking", 1, 5)
    assert "directly, rightly" in first["reason"]
    assert second["state"] == "deposited"
    assert "which the check refuses" in second["reason"]


def test_a_hard_coded_solution_is_marked(run: Run, model: Model, tmp_path: Path) -> None:
    tasks = lines(tmp_path / "tasks.jsonl", lorry())
    by_hand = lines(tmp_path / "solutions.jsonl", {"id": "lorry", "program": BAKED})
    result = run("learn", tasks, "--solutions", by_hand, "--samples", 1, "--best-of", 1)
    assert "37, 46 hard-coded" in result.stdout
    answered = record(run("solve", BOXES, "--no-own", "--json"))
    assert (answered["by"], answered["answered"]) == ("none", False)


def test_an_interrupted_run_goes_on_where_it_was(run: Run, model: Model, tmp_path: Path) -> None:
    tasks = lines(tmp_path / "tasks.jsonl", lorry("a"), lorry("b", f"{CRATES} Tell me."), lorry("c", f"{CRATES} Now."))
    asked: list[int] = []

    def program() -> str:
        asked.append(1)
        if len(asked) > 12:
            raise KeyboardInterrupt
        return "no idea"

    model.program = program
    how = ("--samples", 1, "--best-of", 1, "--max-new", 200)
    first = run("learn", tasks, *how)
    assert first.exit_code == 130
    model.program = f"```python\n{MULTIPLY}```"
    second = run("learn", tasks, "--json", *how)
    states = {row["id"]: row["state"] for row in record(second)["outcomes"]}
    assert states["a"] == "not solved"
    assert states["c"] == "not lacking"
    (only,) = record(run("evidence", "list", "--json"))["runs"]
    assert only["status"] == "finished"
    third = record(run("learn", tasks, "--json", *how))
    assert third["run"] != record(second)["run"]


def test_a_procedure_is_kept_only_if_it_helps(run: Run, model: Model, tmp_path: Path) -> None:
    tasks = lines(
        tmp_path / "tasks.jsonl", lorry("one", "How much is 1 + 1?", 2), lorry("two", "How much is 2 x 1?", 2)
    )
    bad = tmp_path / "bad.md"
    bad.write_text("always say one\n")
    found = record(run("learn", tasks, "--procedure", bad, "--json"))
    assert (found["kept"], found["without"], found["behind"]) == (False, 2, 0)
    assert "worse" in found["reason"]
    tasks = lines(tmp_path / "ones.jsonl", lorry("one", "How much is 1 x 1?", 1))
    assert "kept: it helps" in run("learn", tasks, "--procedure", bad).stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["learn", "none.jsonl"], InvalidTask),
        (["learn", "TASKS", "--isolation", "process"], UsageError),
        (["learn", "TASKS", "--teacher", "http://localhost/v1"], UsageError),
        (["learn", "TASKS", "--teacher", "nowhere", "--teacher-model", "m"], UsageError),
        (["learn", "TASKS", "--solutions", "none.jsonl"], InvalidTask),
        (["learn", "TASKS", "--procedure", "none.md"], UsageError),
        (["solve"], UsageError),
        (["solve", "  "], UsageError),
        (["solve", "a", "--task", "TASKS"], UsageError),
        (["solve", "--task", "TWO"], UsageError),
    ],
)
def test_bad_input_is_a_typed_error(
    run: Run, model: Model, tmp_path: Path, arguments: list[str], error: type[AgentKVError]
) -> None:
    files = {
        "TASKS": lines(tmp_path / "t.jsonl", lorry()),
        "TWO": lines(tmp_path / "w.jsonl", lorry(), lorry("b", "?")),
    }
    result = run(*[files.get(argument, argument) for argument in arguments], "--json")
    assert error_of(result)["exit_code"] == error.exit_code


def test_a_task_with_a_check_is_solved_and_checked(run: Run, model: Model, tmp_path: Path) -> None:
    tasks = lines(tmp_path / "tasks.jsonl", lorry())
    by_hand = lines(tmp_path / "solutions.jsonl", {"id": "lorry", "program": MULTIPLY})
    run("learn", tasks, "--solutions", by_hand, "--samples", 1, "--best-of", 1)
    van = lines(tmp_path / "van.jsonl", lorry("van", BOXES, 372))
    assert record(run("solve", "--task", van, "--json"))["verdict"] == "verified"


def test_solve_says_that_it_has_retired_what_was_learned(run: Run, model: Model, tmp_path: Path) -> None:
    solutions = lines(tmp_path / "solutions", {"id": "lorry", "program": MULTIPLY})
    how = ("--samples", 1, "--best-of", 1, "--solutions", solutions)
    assert run("learn", lines(tmp_path / "tasks", lorry()), *how).exit_code == 0
    asked = run("solve", "--task", lines(tmp_path / "other", lorry(answer=1703)), "--no-own")
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert "warning: the solution that was learned is retired: re-check" in asked.stderr
    again = run("solve", "--task", tmp_path / "other", "--no-own")
    assert "retired" not in again.stderr


def test_nothing_fits_is_exit_code_1(run: Run, model: Model) -> None:
    result = run("solve", BOXES, "--samples", 1)
    assert result.exit_code == 1
    assert "no answer" in result.stderr


def test_a_run_of_learn_is_scored_again_by_the_evidence_command(run: Run, model: Model, tmp_path: Path) -> None:
    run("learn", lines(tmp_path / "tasks.jsonl", lorry()), "--samples", 1, "--best-of", 1)
    result = run("evidence", "score", "last", "--json")
    assert result.exit_code == 0, result.stdout
