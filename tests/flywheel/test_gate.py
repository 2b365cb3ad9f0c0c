"""The gate: what the model does by itself is not deposited; what harms is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agentkv import FakeEngine
from agentkv.engine.base import Cancellation
from agentkv.errors import UsageError
from agentkv.flywheel.gate import Compared, Gate, Judged, MarginGate, ProcedureTrial, ask_directly, is_right, margin
from agentkv.flywheel.solvers import Attempt, BestOfN
from agentkv.flywheel.task import Calls, Case, Task, TextTruth, Truth
from agentkv.sandbox.sandbox import Sandbox

from .scripted import MULTIPLY, crates, fenced, memory

WRONG = "def solve(crates, kg):\n    return crates + kg\n"


class Script:
    """Replies one after the other; the fake engine asks for the same one at every token of it."""

    def __init__(self, *replies: str) -> None:
        self._replies: Iterator[str] = iter(replies)
        self._prompt, self._reply, self.tokens = "", "", 0

    def next(self) -> None:
        self._reply = next(self._replies)

    def __call__(self, prompt: str) -> str:
        return self._reply


class Scripted(BestOfN):
    """Takes the next reply for each attempt."""

    def _ask(self, message: str, number: int, max_new: int, cancellation: Cancellation | None) -> Attempt:
        engine = self.memory.engine
        assert isinstance(engine, FakeEngine)
        assert isinstance(engine._replies, Script)
        engine._replies.next()
        return super()._ask(message, 0, max_new, cancellation)


def judged(folder: Path, box: Sandbox, task: Task, *replies: str, samples: int = 3) -> Judged:
    with memory(folder, Script(*replies)) as held:
        return Gate(Scripted(held, n=samples), box, samples=samples).judge(task)


def test_solved_at_the_first_try_lacks_nothing(tmp_path: Path, strong: Sandbox) -> None:
    found = judged(tmp_path, strong, crates(), fenced(MULTIPLY))
    assert not found.lacks
    assert "first try" in found.reason
    assert found.own.samples == 1


def test_solved_at_the_second_try_is_worth_keeping(tmp_path: Path, strong: Sandbox) -> None:
    found = judged(tmp_path, strong, crates(), fenced(WRONG), fenced(MULTIPLY))
    assert found.lacks
    assert not found.own.first_right
    assert found.own.proven is not None
    assert found.own.proven[1].verified


def test_confidently_wrong_is_lacking(tmp_path: Path, strong: Sandbox) -> None:
    found = judged(tmp_path, strong, crates(), *[fenced(WRONG)] * 3)
    assert found.lacks
    assert (found.own.agreeing, found.own.samples, found.own.answer) == (3, 3, 83)
    assert "the check refuses" in found.reason


def test_without_a_check_agreement_is_all_there_is(tmp_path: Path, strong: Sandbox) -> None:
    agreed = judged(tmp_path / "a", strong, crates(check=None), *[fenced(MULTIPLY)] * 3)
    assert not agreed.lacks
    assert agreed.own.proven is None
    split = judged(tmp_path / "b", strong, crates(check=None), fenced(MULTIPLY), fenced(WRONG), "no idea")
    assert split.lacks
    assert (split.own.agreeing, split.own.samples) == (1, 3)


def test_no_program_at_all_is_no_answer(tmp_path: Path, strong: Sandbox) -> None:
    found = judged(tmp_path, strong, crates(), "no", "no", "no")
    assert found.lacks
    assert (found.own.answered, found.own.agreement) == (False, 0.0)


# --- procedures ---------------------------------------------------------------------------------------


SUMS = [Task(id=f"{a}", prompt=f"{a} + 1 =", check=Truth(answer=a + 1)) for a in (2, 3, 4)]


def a_sum(prompt: str, *, right: bool) -> str:
    first = int(prompt.rpartition("user\n")[2].split(" + ")[0])
    return str(first + 1 if right else 2 * first + 1)


def test_a_procedure_that_harms_is_measured_and_refused(tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: a_sum(prompt, right="double" not in prompt)) as held:
        found = ProcedureTrial(held).try_text("adding", "double it first", SUMS)
        assert (found.without, found.with_text, found.n, found.keeps) == (3, 0, 3, False)
        assert "worse" in found.reason
        assert held.routing.find("adding") is None


def test_a_procedure_that_helps_is_kept_and_one_that_changes_nothing_is_not(tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: a_sum(prompt, right="count on" in prompt)) as held:
        trial = ProcedureTrial(held)
        assert trial.try_text("idle", "be careful", SUMS).reason.startswith("it changes nothing")
        assert held.routing.find("idle") is None
        assert trial.try_text("adding", "count on", SUMS).keeps
        assert held.routing.find("adding") is not None
        with pytest.raises(UsageError):
            trial.try_text("adding", "another", SUMS)


def test_a_procedure_is_tried_on_true_answers(tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: "") as held:
        for tasks in ([], [crates(check=None)], [crates(check=Calls(cases=()))]):
            with pytest.raises(UsageError):
                ProcedureTrial(held).try_text("a", "text", tasks)
        assert held.names() == []


def test_right_is_by_value_or_by_text() -> None:
    number = Task(id="a", prompt="?", check=Truth(answer=3))
    assert [is_right(number, text) for text in ("3", "3.0", '"3"', "three")] == [True, False, False, False]
    text = Task(id="a", prompt="?", check=TextTruth(answer="Red  tea", ignore_case=True))
    assert is_right(text, "red tea")
    assert not is_right(text, "tea")


def test_a_tie_is_no_reason_to_keep() -> None:
    assert not Compared(3, 2, 2).keeps


def by_margin(folder: Path, box: Sandbox, task: Task, reply: str, least: float = 2.0) -> Judged:
    with memory(folder, lambda prompt: reply) as held:
        return MarginGate(BestOfN(held, n=2), box, samples=2, memory=held, margin=least).judge(task)


def test_a_right_direct_answer_is_nothing_to_gain(tmp_path: Path, strong: Sandbox) -> None:
    found = by_margin(tmp_path, strong, crates(), "1702")
    assert not found.lacks
    assert "nothing to gain" in found.reason
    assert (found.own.answer, found.own.tokens, found.own.first_right) == (1702, 5, True)


def test_confident_and_wrong_is_lacking(tmp_path: Path, strong: Sandbox) -> None:
    found = by_margin(tmp_path, strong, crates(), "83")
    assert found.lacks
    assert "which the check refuses" in found.reason
    assert by_margin(tmp_path / "b", strong, crates(), "no idea").reason.startswith("no direct answer")


def test_without_a_check_the_margin_decides(tmp_path: Path, strong: Sandbox) -> None:
    task = crates(check=None)
    assert not by_margin(tmp_path / "a", strong, task, "1702", least=2.0).lacks
    assert by_margin(tmp_path / "b", strong, task, "1702", least=50.0).lacks
    assert by_margin(tmp_path / "c", strong, task, "no idea", least=2.0).lacks


def test_a_text_is_judged_as_a_text(tmp_path: Path, strong: Sandbox) -> None:
    task = crates(parameters={}, check=TextTruth(answer="red tea"))
    assert not by_margin(tmp_path / "a", strong, task, '"red  tea"').lacks
    assert by_margin(tmp_path / "b", strong, task, '"tea"').lacks


def test_what_has_no_true_answer_is_left_to_agreement(tmp_path: Path, strong: Sandbox) -> None:
    cases = (Case(parameters={"crates": 2, "kg": 5}, answer=10), Case(parameters={"crates": 3, "kg": 5}, answer=15))
    task = crates(check=Calls(cases=cases))
    found = by_margin(tmp_path, strong, task, fenced(MULTIPLY))
    assert not found.lacks
    assert "first try" in found.reason


def test_the_margin_is_the_least_of_the_answers_tokens(tmp_path: Path) -> None:
    assert margin(np.array([1.0, 4.0, 2.5], np.float32), 1) == 1.5
    assert margin(np.array([1.0, 4.0, 2.5], np.float32), 0) == -3.0
    with memory(tmp_path, lambda prompt: "1702") as held:
        direct = ask_directly(held, crates())
        # The fake's logits lie in [0, 1) and the scripted token's 8 above.
        assert 7 < direct.margin < 9
        assert (direct.text, direct.value, direct.is_value) == ("1702", 1702, True)


def test_it_needs_a_memory(strong: Sandbox, tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: "") as held, pytest.raises(UsageError):
        MarginGate(BestOfN(held), strong)
    assert issubclass(MarginGate, Gate)
