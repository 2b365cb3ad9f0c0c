"""A block's text: what a model reads of a solved task."""

from __future__ import annotations

import json

import pytest

from agentkv.flywheel.library import block_text, other_values
from agentkv.flywheel.slots import slots_of
from agentkv.sandbox.sandbox import Sandbox

from .scripted import CRATES, MULTIPLY, crates, solution


def test_a_block_shows_program_task_answer_and_examples(strong: Sandbox) -> None:
    task = crates()
    text = block_text(task, task.parameters, solution(task, MULTIPLY, strong))
    assert MULTIPLY.strip() in text
    assert f'Task: {CRATES}\nParameters: {{"crates": 37, "kg": 46}}\nAnswer: 1702\n' in text
    assert text.count("Task: ") == text.count("Parameters: ") == 3
    assert text == block_text(task, task.parameters, solution(task, MULTIPLY, strong))


@pytest.mark.parametrize(
    ("prompt", "values"),
    [
        ("From 2024-02-27 to 2024-03-01, at 09:30, for $1,250.50 and 3.0 kg.", {"a": "2024-02-27", "t": "09:30"}),
        ("Cost $1,250.50 for 3.0 kg by 12 men", {"cost": 1250.5, "kg": 3.0, "men": 12}),
        ("Add 4, 7 and 19 to 5.", {"items": [4, 7, 19], "more": 5}),
        ("Two lots for three men", {"lots": 2, "men": 3}),
    ],
)
def test_an_example_says_in_its_text_what_its_values_are(prompt: str, values: dict[str, object]) -> None:
    slots = slots_of(prompt, values)
    examples = other_values(prompt, values, slots, 4)
    assert len(examples) == 4
    for text, other in examples:
        assert text != prompt
        assert other.keys() == values.keys()
        found = {slot.name: slot for slot in slots_of(text, other)}
        for slot in slots:
            assert found[slot.name].kind == slot.kind, (text, other)
            assert json.dumps(other[slot.name])


def test_words_stay_as_they_are() -> None:
    assert other_values("Ask Anna", {"who": "Anna"}, slots_of("Ask Anna", {"who": "Anna"}), 2) == []
