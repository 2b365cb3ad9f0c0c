"""The flywheel as a whole: learning, solving, what is recorded, going on after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory
from agentkv.evidence import Ledger, score
from agentkv.flywheel.gate import Gate
from agentkv.flywheel.journal import LEARN, learned
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.loop import Flywheel
from agentkv.flywheel.solution import Program, Provenance, Verdict
from agentkv.flywheel.solvers import Attempt, BestOfN, SelfRepair, Tried
from agentkv.flywheel.task import Task
from agentkv.io.hashing import sha256
from agentkv.sandbox.sandbox import Sandbox

from .scripted import BOXES, MULTIPLY, crates, fenced, memory

WRONG = "def solve(crates, kg):\n    return crates + kg\n"


class Helper:
    """A solver that has programs."""

    def __init__(self, *sources: str) -> None:
        self.sources, self.name = sources, "helper"

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Any = None) -> Attempt | None:
        if len(earlier) >= len(self.sources):
            return None
        program = Program(source=self.sources[len(earlier)])
        return Attempt(program, Provenance(solver=self.name, tokens=5), "asked", "said")


class Recorded:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def record(self, key: str, raw: Any, **_: Any) -> None:
        self.items.setdefault(key, raw)


def wheel(held: AgentMemory, box: Sandbox, *solvers: Any, recorder: Any = None) -> Flywheel:
    gate = Gate(BestOfN(held, n=2), box, samples=2)
    return Flywheel(SolutionLibrary(held), box, gate, solvers, recorder=recorder or Recorded())


def always(text: str) -> Callable[[str], str]:
    return lambda prompt: text


def test_what_the_model_lacks_is_solved_by_another_proven_and_kept(tmp_path: Path, strong: Sandbox) -> None:
    records = Recorded()
    with memory(tmp_path, always(fenced(WRONG))) as held:
        made = wheel(held, strong, Helper(WRONG, MULTIPLY), recorder=records)
        found = made.learn(crates())
        assert (found.state, found.solver, found.attempts) == ("deposited", "helper", 4)
        assert found.parametric is not None
        assert found.parametric.transferable
        assert made.learn(crates()).state == "known"
    keys = list(records.items)
    assert keys[:2] == ["attempt/lorry/own/1", "attempt/lorry/own/2"]
    assert keys[2:4] == ["attempt/lorry/solver-0/3", "attempt/lorry/solver-0/4"]
    proven = records.items["attempt/lorry/solver-0/4"]
    assert (proven["verdict"], proven["answer"], proven["program"]) == ("verified", 1702, MULTIPLY)
    assert proven["sha256"]["program"] == sha256(MULTIPLY.encode())
    assert proven["sha256"]["output"] == sha256(b"1702")


def test_what_the_model_can_do_is_not_kept(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, always(fenced(MULTIPLY))) as held:
        made = wheel(held, strong, Helper(MULTIPLY))
        found = made.learn(crates())
        assert (found.state, found.attempts) == ("not lacking", 1)
        assert "first try" in found.reason
        assert list(made.library.live()) == []


@pytest.mark.parametrize("sources", [(), (WRONG,), (WRONG, "def solve(:"), ("def solve(**_):\n    return 1702\n",)])
def test_what_nobody_proves_is_not_kept_and_the_reason_is_reported(
    tmp_path: Path, strong: Sandbox, sources: tuple[str, ...]
) -> None:
    with memory(tmp_path, always("no idea")) as held:
        made = wheel(held, strong, Helper(*sources))
        found = made.learn(crates())
        if sources and "1702" in sources[0]:  # it answers, though it only restates: kept for its own task, marked
            assert found.state == "deposited"
            assert found.parametric is not None
            assert not found.parametric.transferable
            return
        assert found.state == "not solved"
        assert found.reason
        assert list(made.library.live()) == []


def test_without_a_check_nothing_is_tried(tmp_path: Path, box: Sandbox) -> None:
    with memory(tmp_path, always("x")) as held:
        found = wheel(held, box, Helper(MULTIPLY)).learn(crates(check=None))
        assert (found.state, found.attempts) == ("unchecked", 0)


def test_self_repair_is_a_solver_like_others(tmp_path: Path, strong: Sandbox) -> None:
    def replies(prompt: str) -> str:
        return fenced(MULTIPLY if "This program is wrong" in prompt else WRONG)

    with memory(tmp_path, replies) as held:
        found = wheel(held, strong, SelfRepair(held, n=3)).learn(crates())
        assert (found.state, found.attempts) == ("deposited", 4)


def test_solving_recalls_then_transfers_then_tries_by_itself(tmp_path: Path, strong: Sandbox) -> None:
    def replies(prompt: str) -> str:
        question = prompt.rpartition("user\n")[2]
        if question.rstrip().endswith("Answer:assistant"):
            return "1702"
        if question.rstrip().endswith("Parameters:assistant"):
            return '{"crates": 12, "kg": 31}'
        return fenced("def solve():\n    return 5\n" if "five" in question else WRONG)

    with memory(tmp_path, replies) as held:
        made = wheel(held, strong, Helper(MULTIPLY))
        assert made.learn(crates()).state == "deposited"
        recalled = made.solve(crates(id="again", check=None))
        assert (recalled.by, recalled.answer, recalled.verdict) == ("recurrence", 1702, Verdict.VERIFIED)
        transferred = made.solve(Task(id="van", prompt=BOXES))
        assert (transferred.by, transferred.answer, transferred.verdict) == ("transfer", 372, Verdict.UNVERIFIED)
        assert transferred.plain()["parameters"] == {"crates": 12, "kg": 31}
        own = made.solve(Task(id="own", prompt="zzz qqq five yyy vvv ppp"))
        assert (own.by, own.answer, own.verdict) == ("own", 5, Verdict.UNVERIFIED)
        none = made.solve(Task(id="none", prompt="zzz qqq six yyy vvv ppp"), own=False)
        assert (none.by, none.answered, none.answer) == ("none", False, None)


def test_a_ledger_has_every_attempt_and_scores_them_again(tmp_path: Path, strong: Sandbox) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with memory(tmp_path, always(fenced(WRONG))) as held, ledger.run(LEARN) as run:
        found = wheel(held, strong, Helper(MULTIPLY), recorder=run).learn(crates())
        run.scores(learned([found.plain()]))
    (recorded,) = ledger.runs()
    assert [item.key for item in ledger.items(recorded)] == [
        "attempt/lorry/own/1",
        "attempt/lorry/own/2",
        "attempt/lorry/solver-0/3",
        "outcome/lorry",
    ]
    result = score(ledger, recorded)
    result.require_equal()
    assert result.computed["states"] == {"deposited": 1}
