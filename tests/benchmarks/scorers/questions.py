"""The figures of ``questions``: one record a question, graded here from what was found and said.

An answer is right if it holds an accepted string as a word of its own; see :func:`is_right`. A quote is right if it
stands in the source and shares a byte with a passage that answers. A window is right if it holds such a passage whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import share, spread
from agentkv.skills.questions import contains_answer

PREFILL_AIM = 60
"""Tokens read a question and window that was tried, at most."""

Record = Mapping[str, Any]


@measured("questions")
def figures(raw: Raw) -> dict[str, Any]:
    """``tuned``, ``kept_out`` and ``all``: shares; then tokens and times over all questions that have an answer."""
    records = list(raw.values())
    covered = [record for record in records if record["passages"]]
    return {
        "halves": {
            "tuned": _half([record for record in records if not record["kept_out"]]),
            "kept out": _half([record for record in records if record["kept_out"]]),
            "all": _half(records),
        },
        "tokens": _tokens(records),
        "ms": _times(covered),
        "quotes_not_in_the_source": [
            key for key, record in raw.items() if (quote := record["asked"]["quote"]) and not quote["verified"]
        ],
    }


def _half(records: Sequence[Record]) -> dict[str, Any]:
    covered = [record for record in records if record["passages"]]
    uncovered = [record for record in records if not record["passages"]]
    plain = [record for record in covered if record["plain"] is not None]

    def of(group: Sequence[Record], holds: Callable[[Record], bool]) -> dict[str, Any]:
        return share(sum(map(holds, group)), len(group))

    found = [record for record in covered if is_found(record, "found", 1)]
    return {
        "window_first": of(covered, lambda record: is_found(record, "found", 1)),
        "window_in_5": of(covered, lambda record: is_found(record, "found", 5)),
        "words_window_first": of(covered, lambda record: is_found(record, "found_by_words", 1)),
        "words_window_in_5": of(covered, lambda record: is_found(record, "found_by_words", 5)),
        "plain_window_first": of(covered, lambda record: is_found(record, "plainly_found", 1)),
        "plain_window_in_5": of(covered, lambda record: is_found(record, "plainly_found", 5)),
        "quote": of(covered, is_quoted),
        "answer": of(covered, lambda record: is_right(record["asked"]["answer"], record["answers"])),
        "draft": of(covered, lambda record: is_right(draft_of(record), record["answers"])),
        "plain_answer": of(plain, lambda record: is_right(record["plain"]["answer"], record["answers"])),
        "quote_when_first": of(found, is_quoted),
        "answer_when_first": of(found, lambda record: is_right(record["asked"]["answer"], record["answers"])),
        "not_stated_wrongly": of(covered, lambda record: record["asked"]["answer"] is None),
        "not_stated_rightly": of(uncovered, lambda record: record["asked"]["answer"] is None),
        "plain_not_stated_rightly": of(
            [record for record in uncovered if record["plain"] is not None],
            lambda record: record["plain"]["answer"] is None,
        ),
    }


def is_right(answer: str | None, accepted: Sequence[str]) -> bool:
    """Whether an answer holds an accepted string that is no part of a longer word or number.

    >>> is_right("It uses jsonb.", ["jsonb"]), is_right("jsonbx", ["jsonb"]), is_right(None, ["jsonb"])
    (True, False, False)
    """
    if answer is None:
        return False
    flat = " ".join(answer.split())
    return any(
        contains_answer(flat, [text]) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", flat, re.I) is not None
        for text in accepted
    )


def draft_of(record: Record) -> str | None:
    """The answer as it stood before it was said again from the quote alone; None where none was given."""
    drafts = [attempt["draft"] for attempt in record["asked"]["attempts"] if attempt["answer"] is not None]
    return None if record["asked"]["answer"] is None else drafts[-1]


def is_found(record: Record, way: str, top: int) -> bool:
    """Whether one of the first ``top`` windows holds a passage whole."""
    return any(
        path == found and start <= first and last <= stop
        for path, start, stop in record[way][:top]
        for found, first, last in record["passages"]
    )


def is_quoted(record: Record) -> bool:
    """Whether the quote was read again in the source and touches a passage."""
    quote = record["asked"]["quote"]
    return (
        bool(quote)
        and quote["verified"]
        and any(
            quote["path"] == path and quote["start"] < last and first < quote["stop"]
            for path, first, last in record["passages"]
        )
    )


def _tokens(records: Sequence[Record]) -> dict[str, Any]:
    attempts = [attempt for record in records for attempt in record["asked"]["attempts"]]
    plain = [record["plain"]["prefilled"] for record in records if record["plain"] is not None]
    prefilled = spread([attempt["tokens"]["prefilled"] for attempt in attempts])
    return {
        "windows_tried": spread([len(record["asked"]["attempts"]) for record in records]),
        "prefilled_a_window": prefilled,
        "prefilled_aim_met": prefilled["max"] <= PREFILL_AIM,
        "prefilled_a_question": spread(
            [sum(attempt["tokens"]["prefilled"] for attempt in record["asked"]["attempts"]) for record in records]
        ),
        "restored_a_window": spread([attempt["tokens"]["restored"] for attempt in attempts]),
        "generated_a_window": spread([attempt["tokens"]["generated"] for attempt in attempts]),
        "plain_prefilled": spread(plain),
    }


def _times(records: Sequence[Record]) -> dict[str, Any]:
    attempts = [attempt for record in records for attempt in record["asked"]["attempts"]]
    plain = [record["plain"] for record in records if record["plain"] is not None]
    return {
        "find": spread([record["find_ms"] for record in records]),
        "restore": spread([attempt["restore_ms"] for attempt in attempts]),
        "answer_a_window": spread([attempt["answer_ms"] for attempt in attempts]),
        "question": spread([_whole(record) for record in records]),
        "plain_read": spread([answered["read_ms"] for answered in plain]),
        "plain_question": spread(
            [
                record["find_ms"] + record["plain"]["read_ms"] + record["plain"]["answer_ms"]
                for record in records
                if record["plain"] is not None
            ]
        ),
    }


def _whole(record: Record) -> float:
    attempts = record["asked"]["attempts"]
    total: float = record["find_ms"] + sum(attempt["restore_ms"] + attempt["answer_ms"] for attempt in attempts)
    return total
