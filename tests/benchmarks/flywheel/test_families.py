"""The families: two implementations agree, every value can be quoted, nothing of the held-out part is shared."""

from __future__ import annotations

import json

import pytest

from agentkv.flywheel.program import call, examine
from agentkv.flywheel.slots import Mentions, offers, slots_of
from agentkv.flywheel.solution import Program
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel import grading
from tests.benchmarks.flywheel.families import FAMILIES, Family

each = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


def test_there_are_enough_of_them() -> None:
    assert len(FAMILIES) >= 20
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


@each
def test_the_program_and_the_second_implementation_agree(family: Family, box: Sandbox) -> None:
    instance = family.instances("held-out", 10)[7]
    outcome = call(box, Program(source=family.program), instance.parameters)
    assert outcome.answered, outcome.reason
    assert grading.is_same(outcome.value, instance.answer)


@each
def test_the_library_s_program_is_found_to_be_a_method(family: Family, box: Sandbox) -> None:
    task = family.instances("library", 1)[0].task(checked=True)
    found = examine(box, Program(source=family.program), task)
    assert found.transferable, found


@each
def test_held_out_instances_share_neither_words_nor_numbers_with_the_library(family: Family) -> None:
    (library,) = family.instances("library", 1)
    held_out = family.instances("held-out", 10)
    assert held_out == family.instances("held-out", 10)
    assert {item.wording for item in held_out} == {2, 3}
    assert {item.wording for item in family.instances("dev", 4)} == {1}
    assert len({item.prompt for item in [library, *held_out]}) == 11
    assert all(item.parameters != library.parameters for item in held_out)
    assert len(set(family.wordings)) == 4


@each
def test_every_value_is_quoted_and_offered_among_others(family: Family) -> None:
    (library,) = family.instances("library", 1)
    slots = slots_of(library.prompt, library.parameters)
    assert all(slot.kind != "typed" for slot in slots)
    for instance in family.instances("held-out", 10):
        text = Mentions(instance.prompt)
        for slot in slots:
            found = [json.loads(offer.json) for offer in offers(slot, text)]
            assert instance.parameters[slot.name] in found, (slot, instance.prompt)


@pytest.mark.parametrize(
    ("reply", "expected", "right"),
    [
        ("6 * 7 = 42.\nAnswer: 42 dollars", 42, True),
        ("**Answer:** $1,250.50", 1250.5, True),
        ("The answer is 41, not 42", 42, False),
        ("It is 42", 42, True),
        ("42 or 43", 42, False),
        ("The answer is not 42 but 43", 42, False),
        ("The answer is not 42 but 43", 43, True),
        ("Answer: not Tuesday, Monday", "Tuesday", False),
        ("It is 43, no longer 42", 42, False),
        ("nothing", 42, False),
        ("Answer: 2024-03-05.", "2024-03-05", True),
        ("Answer: Monday", "Tuesday", False),
        ("so it is a tuesday", "Tuesday", True),
        ("Answer: INV-2024-00311", "INV-2024-0031", False),
    ],
)
def test_a_reply_in_words_is_read_generously_but_not_wrongly(reply: str, expected: object, right: bool) -> None:
    assert grading.said_rightly(reply, expected) is right
