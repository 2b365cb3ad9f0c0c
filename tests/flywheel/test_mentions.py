"""Mentions: numbers, words by shape, quotations, lists."""

from __future__ import annotations

import pytest

from agentkv.flywheel.mentions import Mentions, replaced, shape


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
    ("text", "wanted"), [("2024-03-05", "9-9-9"), ("14:30", "9:9"), ("Anna", "Aa"), ("n12", "a9"), ("é", "a"), ("", "")]
)
def test_shapes(text: str, wanted: str) -> None:
    assert shape(text) == wanted


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
