"""Labelled questions and the grading of answers. Pure: files in, verdicts out; knows no model.

An answer is right if it holds one of the accepted strings as it stands. Not guaranteed: that a right answer
says nothing wrong besides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.errors import UsageError
from agentkv.skills.asserted import is_denied

ROUTES = "routes.jsonl"
_FIELDS = {"query", "skill", "answer"}


@dataclass(frozen=True)
class Route:
    """A question, the skill that answers it (None: no skill does), and the strings that count as right."""

    query: str
    skill: str | None
    answers: tuple[str, ...]


def contains_answer(text: str, accepted: Sequence[str]) -> bool:
    """Whether ``text`` says an accepted string; case and white space aside, and not within a longer number.

    One that it denies, anywhere, it does not say (``asserted.py``).

    >>> contains_answer("It is 12  days.", ["12 days"]), contains_answer("112 days", ["12 days"])
    (True, False)
    >>> contains_answer("Not 12 days but 14.", ["12 days"])
    False
    """
    flat = _flat(text)
    return any(_says(flat, _flat(answer)) for answer in accepted if answer.strip())


def _says(flat: str, answer: str) -> bool:
    found = list(_pattern(answer).finditer(flat))
    return bool(found) and not any(is_denied(flat, match.start(), match.end()) for match in found)


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


def _pattern(answer: str) -> re.Pattern[str]:
    """``12`` is in none of ``112``, ``4.12``, ``120``, ``12.5``, ``12,000``; ``12.`` may end a sentence."""
    before = r"(?<!\d)(?<!\d[.,:])" if answer[0].isdigit() else r"(?<!\d)"
    after = r"(?![.,:]?\d)" if answer[-1].isdigit() else ""
    return re.compile(before + re.escape(answer) + after)


def load_routes(path: Path) -> list[Route]:
    """The labelled questions of a skill folder (``routes.jsonl``; none there: none), or of a ``.jsonl`` file.

    Raises UsageError naming file and line.
    """
    file = path / ROUTES if path.is_dir() else path
    if path.is_dir() and not file.exists():
        return []
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from error
    return [_route(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _route(line: bytes, where: str) -> Route:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{where}: not a line of JSON ({error})") from error
    if not isinstance(value, dict) or not {"query", "skill"} <= set(value) <= _FIELDS:
        raise UsageError(f'{where}: expected {{"query": …, "skill": …, "answer": […]}} and no other fields')
    query, skill, answers = value["query"], value["skill"], value.get("answer", [])
    if not _is_text(query):
        raise UsageError(f"{where}: `query` is no text")
    if skill is not None and not _is_text(skill):
        raise UsageError(f"{where}: `skill` is neither a name nor null")
    if not isinstance(answers, list) or not all(_is_text(answer) for answer in answers):
        raise UsageError(f"{where}: `answer` is no list of texts")
    if skill is not None and not answers:
        raise UsageError(f"{where}: a question with a skill needs an `answer`")
    return Route(query, skill, tuple(answers))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
