"""Origins and variants: two programs agree on each, every value can be quoted, nothing is the original's."""

from __future__ import annotations

import dataclasses
import json

import pytest

from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.flywheel.program import call, examine
from agentkv.flywheel.slots import Mentions, can_be_filled, offers, slots_of, substituted
from agentkv.flywheel.solution import Program
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel import adaptation, grading
from tests.benchmarks.flywheel.variants import ORIGINS, Origin, written_programs
from tests.benchmarks.flywheel.variants.base import source
from tests.benchmarks.flywheel.variants.programs import PROGRAMS

each = pytest.mark.parametrize("one", ORIGINS, ids=[origin.name for origin in ORIGINS])


def test_there_are_enough_of_them() -> None:
    assert len(ORIGINS) >= 12
    assert len({one.name for one in ORIGINS}) == len({one.problem for one in ORIGINS}) == len(ORIGINS)
    assert len(written_programs()) == len(ORIGINS) + len(PROGRAMS) >= 16


@each
def test_both_programs_agree_on_the_original_and_on_its_variants(one: Origin, box: Sandbox) -> None:
    outcome = call(box, Program(source=one.source), {})
    assert outcome.answered, outcome.reason
    assert grading.is_same(outcome.value, one.answer)
    adaptation.cross_check([one], one.variants(2), box)


@each
def test_the_program_is_found_to_be_a_method(one: Origin, box: Sandbox) -> None:
    found = examine(box, Program(source=one.source), one.task())
    assert found.transferable, found


@each
def test_variants_have_other_words_numbers_and_answers(one: Origin) -> None:
    variants = one.variants(2)
    assert variants == one.variants(2)
    assert len({variant.answer for variant in variants} | {one.answer}) == 3
    for variant in variants:
        assert variant.parameters != one.parameters
        assert one.truth(**variant.parameters) == variant.answer
        assert variant.prompt != one.wording.format(**variant.parameters)
        assert variant.task().check is None
        assert variant.task().parameters == {}


@each
def test_every_value_is_quoted_and_offered(one: Origin) -> None:
    task = one.task()
    slots = slots_of(task.prompt, task.parameters)
    assert all(slot.kind == "number" for slot in slots)
    for variant in one.variants(2):
        assert can_be_filled(slots, Mentions(variant.prompt))
        for slot in slots:
            found = [json.loads(offer.json) for offer in offers(slot, Mentions(variant.prompt))]
            assert variant.parameters[slot.name] in found
        assert substituted(task.prompt, slots, variant.prompt) is not None


@pytest.mark.parametrize("problem", PROGRAMS)
def test_the_other_programs_run_on_their_own_numbers(problem: str, box: Sandbox) -> None:
    outcome = call(box, Program(source=source(*PROGRAMS[problem])), {})
    assert outcome.answered, outcome.reason
    assert type(outcome.value) is int
    assert 0 <= outcome.value < 1000


def test_a_disagreement_is_found(box: Sandbox) -> None:
    one = ORIGINS[2]
    wrong = dataclasses.replace(one, truth=lambda players, modulus: players + modulus)
    with pytest.raises(GuaranteeViolated, match="one program says"):
        adaptation.cross_check([wrong], wrong.variants(1), box)
    (variant,) = one.variants(1)
    same = dataclasses.replace(one, parameters=variant.parameters)
    with pytest.raises(GuaranteeViolated, match="answer of its original"):
        adaptation.cross_check([same], [variant], box)


def test_origins_are_chosen_by_name_or_problem() -> None:
    assert adaptation.chosen([]) == list(ORIGINS)
    assert [one.problem for one in adaptation.chosen(["aime25-2", "bases-that-divide"])] == ["aime25-0", "aime25-2"]
    with pytest.raises(UsageError, match="no-such"):
        adaptation.chosen(["no-such"])


def test_variants_that_cannot_be_drawn_are_an_error() -> None:
    with pytest.raises(ValueError, match="there are no"):
        dataclasses.replace(ORIGINS[0], draw=lambda draw: {"floor": 9, "divisor": 17, "number": 97}).variants(1)
