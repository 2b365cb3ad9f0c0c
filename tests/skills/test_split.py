from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.errors import UsageError
from agentkv.skills.split import headings, split, titles

MANUAL = """\
Before any heading.

# Refunds

Intro.

## Card readers

Opened: 12%.

```sh
# not a heading

## nor this
```

## Fees ##

Under a title
=============

Text.
"""


def cut(text: str, n: int) -> list[str]:
    return split(text, lambda part: len(part.encode()) <= n)


lines = st.sampled_from(
    [
        "# A",
        "## B",
        "### C",
        "```",
        "~~~~",
        "````x",
        "",
        "",
        "Title",
        "===",
        "---",
        "- item",
        "  # D",
        "    # code",
        "ä🙂",
    ]
) | st.text(max_size=30)


@given(st.lists(lines, max_size=40).map("\n".join) | st.text(max_size=300), st.integers(4, 200))
@settings(max_examples=200, deadline=None)
def test_no_text_is_lost_and_every_part_is_within_the_budget(text: str, budget: int) -> None:
    parts = cut(text, budget)
    assert "".join(parts) == text
    assert all(len(part.encode()) <= budget for part in parts)
    assert all(parts) or text == ""
    assert len(titles(text, parts)) == len(parts)


def test_what_fits_is_not_split() -> None:
    assert cut(MANUAL, len(MANUAL)) == [MANUAL]


def test_headings_are_those_outside_of_fences() -> None:
    found = [(heading.level, heading.title) for heading in headings(MANUAL)]
    assert found == [(1, "Refunds"), (2, "Card readers"), (2, "Fees"), (1, "Under a title")]
    assert headings("a\n\n| a |\n---\n\n- x\n---\n\n#no\n\n    # code\n") == []
    assert headings("````\n```\n# a\n````\n# b")[0].title == "b"
    assert headings("~~~\n# never closed") == []


def test_sections_stay_whole_and_neighbours_share_a_part() -> None:
    parts = cut(MANUAL, 100)
    assert [part.split("\n")[0] for part in parts] == ["Before any heading.", "# Refunds", "## Fees ##"]
    assert titles(MANUAL, parts) == [
        ("Before any heading.",),
        ("Refunds", "Card readers"),
        ("Refunds", "Fees", "Under a title"),
    ]


def test_a_long_section_is_cut_at_paragraphs_and_never_between_those_of_a_fence() -> None:
    text = "# A\n\none\n\n```\n# two\n\nthree\n```\n\nfour five six\n"
    assert cut(text, 24) == ["# A\n\none\n\n", "```\n# two\n\nthree\n```\n\n", "four five six\n"]
    assert titles(text, cut(text, 24)) == [("A",), ("A",), ("A",)]
    assert cut("```\naaaa\nbbbb\n```\n", 10) == ["```\naaaa\n", "bbbb\n```\n"]


def test_without_any_break_it_is_cut_at_characters_and_quickly() -> None:
    asked = 0

    def fits(part: str) -> bool:
        nonlocal asked
        asked += 1
        return len(part.encode()) <= 1000

    for text in ("a" * 100_000, "\n" * 5000, "ä" * 3001 + "🙂" * 997 + "日本語" * 800, "x\0y" * 1000):
        asked = 0
        parts = split(text, fits)
        assert "".join(parts) == text
        assert len(parts) <= len(text.encode()) // 990 + 2
        assert asked < 60 * len(parts)


def test_a_budget_for_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="one character"):
        cut("🙂", 3)
    assert cut("", 0) == [""]


def test_a_text_without_headings_is_known_by_its_first_words() -> None:
    assert titles("one two\n\nthree", ["one two\n\n", "three"]) == [("one two",), ("three",)]
