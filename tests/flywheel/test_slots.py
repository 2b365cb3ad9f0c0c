"""What a text mentions; what is quoted of it, what the grammar offers, what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkv import Sampling
from agentkv.flywheel.slots import (
    Mentions,
    can_be_filled,
    grammar,
    render,
    replaced,
    shape,
    slots_of,
    substituted,
    typed_grammar,
)

from .gbnf import matches


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It costs $1,250.50 for 3 of them.", ["1250.5", "3"]),
        ("12.5% of 80, (7) and 9kg", ["12.5", "80", "7", "9"]),
        ("minus -5 and −6 degrees; UTC+3", ["-5", "-6", "3"]),
        ("a 5-minute call, at 50 Mbit/s, 3/km", ["5", "50", "3"]),
        ("two people and twenty eggs, one each", ["2", "20"]),
        ("on 2024-03-05 at 14:30, invoice INV-2024-0031, A-B:4, n12", []),
        ("version 1.2.3 has 1.5 stars.", ["1.5"]),
        ("(n + 9). Then (see 4.) and [.5],", ["9", "4"]),
    ],
)
def test_numbers(text: str, numbers: list[str]) -> None:
    assert [mention.number_json for mention in Mentions(text).numbers] == numbers


def test_a_mention_is_where_it_says() -> None:
    text = "It's the dog's bone, (see 1,250.5!) said \"Anna Lee\"."
    found = Mentions(text)
    for mention in [*found.words, *found.numbers, *found.quoted]:
        assert text[mention.start : mention.end] == mention.text
    assert "dog" in [mention.text for mention in found.words]
    assert [mention.text for mention in found.quoted] == ["Anna Lee"]


@pytest.mark.parametrize(
    ("text", "signs"), [("2024-03-05", "9-9-9"), ("14:30", "9:9"), ("Anna", "Aa"), ("n12", "a9"), ("é", "a"), ("", "")]
)
def test_shapes(text: str, signs: str) -> None:
    assert shape(text) == signs


def test_spans_are_of_one_shape_and_length() -> None:
    found = Mentions("Meet Anna Lee and Bob Ray at noon.").of_shape("Aa Aa", 2)
    assert [mention.text for mention in found] == ["Meet Anna", "Anna Lee", "Bob Ray"]


def test_lists_are_broken_by_words_but_not_by_and() -> None:
    found = Mentions("Of 3, 5, 8 and 13 those over 6; also 1 and 2.")
    assert [[item.text for item in run] for run in found.lists(found.numbers)] == [["3", "5", "8", "13"], ["1", "2"]]


def test_replacing_keeps_the_rest_whatever_the_lengths() -> None:
    found = Mentions("3 cats, 4 dogs")
    changes = [(found.numbers[0], "1000"), (found.numbers[1], "")]
    assert replaced(found.text, changes) == "1000 cats,  dogs"


PROMPT = 'Send 12 boxes of "red tea" at $3.50 to Anna on 2024-03-05, with 4, 7 and 9 as codes. Weigh them.'
VALUES = {"pieces": 12, "what": "red tea", "price": 3.5, "who": "Anna", "day": "2024-03-05", "codes": [4, 7, 9]}
OTHER = 'For Bob: codes 5 and 6; $20.00 each; "green tea", on 2025-11-30. Pieces: 8.'


def test_each_parameter_is_quoted_in_its_own_way() -> None:
    kinds = {slot.name: (slot.kind, slot.type) for slot in slots_of(PROMPT, VALUES)}
    assert kinds == {
        "pieces": ("number", "int"),
        "what": ("quoted", "str"),
        "price": ("number", "float"),
        "who": ("words", "str"),
        "day": ("words", "str"),
        "codes": ("list of numbers", "int"),
    }


def test_what_is_not_in_the_text_is_bound_by_type() -> None:
    slots = slots_of("Nothing here.", {"n": 5, "t": "x y", "f": True, "none": None, "items": [1], "d": {"a": 1}})
    assert [(slot.kind, slot.type) for slot in slots] == [
        ("typed", kind) for kind in ("int", "str", "bool", "null", "list", "dict")
    ]


def test_a_mention_serves_one_parameter_only() -> None:
    first, second = slots_of("3 by 3", {"a": 3, "b": 3})
    assert first.where != second.where
    only, none = slots_of("3 m", {"a": 3, "b": 3})
    assert (only.kind, none.kind) == ("number", "typed")


def test_the_grammar_offers_what_the_text_mentions_and_nothing_else() -> None:
    gbnf = grammar(slots_of(PROMPT, VALUES), OTHER)
    right = {"pieces": 8, "what": "green tea", "price": 20, "who": "Bob", "day": "2025-11-30", "codes": [5, 6]}
    assert matches(gbnf, json.dumps(right))
    for name, wrong in (("pieces", 12), ("what", "red tea"), ("who", "Anna"), ("day", "2024-03-05"), ("codes", [5])):
        assert not matches(gbnf, json.dumps({**right, name: wrong})), name


def test_a_mention_is_used_once_where_there_are_enough_and_more_often_where_not() -> None:
    slots = slots_of("3 by 4", {"a": 3, "b": 4})
    assert matches(grammar(slots, "5 by 6"), '{"a": 6, "b": 5}')
    assert not matches(grammar(slots, "5 by 6"), '{"a": 6, "b": 6}')
    assert matches(grammar(slots, "a square of 5"), '{"a": 5, "b": 5}')
    assert matches(grammar(slots, "no number"), '{"a": 17, "b": -3}')


def test_no_choice_is_offered_that_leaves_nothing_for_another_parameter() -> None:
    slots = slots_of("goods for 40.5 with a tax of 8", {"net": 40.5, "tax": 8})
    gbnf = grammar(slots, "a tax of 16 on goods for 737.25")
    assert matches(gbnf, '{"net": 737.25, "tax": 16}')
    assert not matches(gbnf, '{"net": 16, "tax": 16}')


def test_a_text_that_lacks_a_value_cannot_be_filled() -> None:
    slots = slots_of("3 by 4 on 2024-03-05", {"a": 3, "b": 4, "day": "2024-03-05"})
    assert can_be_filled(slots, Mentions("On 2025-01-01, 7 of 8"))
    assert not can_be_filled(slots, Mentions("On 2025-01-01, 7"))
    assert not can_be_filled(slots, Mentions("Today, 7 of 8"))
    assert can_be_filled(slots_of("x", {"a": 5}), Mentions("nothing"))


def test_without_quoting_only_types_bind() -> None:
    gbnf = grammar(slots_of(PROMPT, VALUES), OTHER, quote=False)
    anything = {"pieces": -1, "what": 'a "b"\\', "price": 0.25, "who": "", "day": "x", "codes": [1, 2]}
    assert matches(gbnf, json.dumps(anything))
    assert not matches(gbnf, json.dumps({**anything, "pieces": 1.5}))
    assert not matches(gbnf, json.dumps({**anything, "who": 3}))


def test_many_mentions_do_not_make_the_grammar_explode() -> None:
    text = " ".join(f"number {n}" for n in range(100, 160))
    slots = slots_of("1 2 3 4 5", {name: number for number, name in enumerate("abcde", 1)})
    assert len(grammar(slots, text)) < 400_000


def test_substitution_goes_by_position_and_refuses_other_counts() -> None:
    pens = "3 pens at $4.50 each"
    slots = slots_of(pens, {"n": 3, "price": 4.5})
    assert substituted(pens, slots, "9 lamps, $20.50 a piece") == {"n": 9, "price": 20.5}
    assert substituted(pens, slots, "9 lamps") is None
    assert substituted("3 pens", slots_of("3 pens", {"n": 8}), "9 lamps") is None


@pytest.mark.parametrize("value", [3, -2.5, "text", True, None, [1, "a"], {"k": [1]}])
def test_a_typed_grammar_takes_values_of_its_type(value: Any) -> None:
    gbnf = typed_grammar(value)
    assert matches(gbnf, json.dumps(value))
    assert not matches(gbnf, "certainly")


def test_rendering_is_what_the_grammar_takes() -> None:
    slots = slots_of(PROMPT, VALUES)
    assert matches(grammar(slots, PROMPT), render(VALUES, slots))


@pytest.mark.model
def test_llama_cpp_takes_these_grammars(smollm2: Any) -> None:
    for quote in (True, False):
        smollm2.sampler(Sampling(), grammar(slots_of(PROMPT, VALUES), OTHER, quote=quote)).close()
    for value in (3, 2.5, "x", True, None, [1], {"a": 1}):
        smollm2.sampler(Sampling(), typed_grammar(value)).close()
