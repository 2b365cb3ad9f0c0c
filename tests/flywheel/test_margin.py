"""The gate by margin: one direct answer, right, wrong, confident or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agentkv.errors import UsageError
from agentkv.flywheel.gate import Gate, Judged
from agentkv.flywheel.margin import MarginGate, margin, say
from agentkv.flywheel.solvers import BestOfN
from agentkv.flywheel.task import Calls, Case, Task, TextTruth
from agentkv.sandbox.sandbox import Sandbox

from .scripted import MULTIPLY, crates, fenced, memory


def judged(folder: Path, box: Sandbox, task: Task, reply: str, least: float = 2.0) -> Judged:
    with memory(folder, lambda prompt: reply) as held:
        return MarginGate(BestOfN(held, n=2), box, samples=2, memory=held, margin=least).judge(task)


def test_a_right_direct_answer_is_nothing_to_gain(tmp_path: Path, strong: Sandbox) -> None:
    found = judged(tmp_path, strong, crates(), "1702")
    assert not found.lacks
    assert "nothing to gain" in found.reason
    assert (found.own.answer, found.own.tokens, found.own.first_right) == (1702, 5, True)


def test_confident_and_wrong_is_lacking(tmp_path: Path, strong: Sandbox) -> None:
    found = judged(tmp_path, strong, crates(), "83")
    assert found.lacks
    assert "which the check refuses" in found.reason
    assert judged(tmp_path / "b", strong, crates(), "no idea").reason.startswith("no direct answer")


def test_without_a_check_the_margin_decides(tmp_path: Path, strong: Sandbox) -> None:
    task = crates(check=None)
    assert not judged(tmp_path / "a", strong, task, "1702", least=2.0).lacks
    assert judged(tmp_path / "b", strong, task, "1702", least=50.0).lacks
    assert judged(tmp_path / "c", strong, task, "no idea", least=2.0).lacks


def test_a_text_is_judged_as_a_text(tmp_path: Path, strong: Sandbox) -> None:
    task = crates(parameters={}, check=TextTruth(answer="red tea"))
    assert not judged(tmp_path / "a", strong, task, '"red  tea"').lacks
    assert judged(tmp_path / "b", strong, task, '"tea"').lacks


def test_what_has_no_true_answer_is_left_to_agreement(tmp_path: Path, strong: Sandbox) -> None:
    cases = (Case(parameters={"crates": 2, "kg": 5}, answer=10), Case(parameters={"crates": 3, "kg": 5}, answer=15))
    task = crates(check=Calls(cases=cases))
    found = judged(tmp_path, strong, task, fenced(MULTIPLY))
    assert not found.lacks
    assert "first try" in found.reason


def test_the_margin_is_the_least_of_the_answers_tokens(tmp_path: Path) -> None:
    assert margin(np.array([1.0, 4.0, 2.5], np.float32), 1) == 1.5
    assert margin(np.array([1.0, 4.0, 2.5], np.float32), 0) == -3.0
    with memory(tmp_path, lambda prompt: "1702") as held:
        said = say(held, crates())
        # The fake's logits lie in [0, 1) and the scripted token's 8 above.
        assert 7 < said.margin < 9
        assert (said.text, said.value, said.is_value) == ("1702", 1702, True)


def test_it_needs_a_memory(strong: Sandbox, tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: "") as held, pytest.raises(UsageError):
        MarginGate(BestOfN(held), strong)
    assert issubclass(MarginGate, Gate)
