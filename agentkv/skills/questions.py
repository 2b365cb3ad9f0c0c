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

_FAR = 120
"""Characters before and after that are looked at."""
_MARKS = r"[\s\"'“”‘’«»`*_(\[:$€£-]*"
_NEGATION = (
    r"\b(?:not|never|neither|nor|cannot|\w+n['’]t|nicht|kein(?:e[mnrs]?)?|niemals|weder|noch|pas|jamais|niet|geen|ikke|inte"
    r"|não|nunca|non|no\s+(?:es|son|está)|nie|не|ні|ليس|לא|不是|并非|並非|而非)"
)
_SMALL = (
    r"(?:\s+(?:the|a|an|it|is|é|è|es|est|ist|jest|are|be|been|at|in|on|to|for|by|of|as|with|called|named|der|die|das|den|dem|ein|eine|im|am"
    r"|um|bei|le|la|les|un|une|à|el|los|il|lo|de|het|een|really|actually|code|number|value|answer))"
)
_USE = r"(?:\s+(?:use|dial|enter|type|choose|pick|take|call|say|try))"
_INSTEAD = (
    r"\b(?:instead\s+of|rather\s+than|other\s+than|as\s+opposed\s+to|anything\s+but|all\s+but|except(?:\s+for)?|unlike"
    r"|no\s+longer|not\s+any\s+more|used\s+to\s+be|formerly|previously|replac(?:es|ed|ing)(?!\s+(?:by|with)\b)|avoid|forget|ignore|disregard|contrary\s+to|statt|anstatt|anstelle\s+von"
    r"|nicht\s+mehr|au\s+lieu\s+de|plutôt\s+que|en\s+lugar\s+de|invece\s+di|in\s+plaats\s+van"
    r"|(?:wrong|incorrect|false|falsch)(?=\s*:)|entgegen"
    r"|(?:changed|raised|lowered|increased|reduced|moved|updated|switched)\s+from)"
)
_UNTRUE = (
    r"\b(?:(?:not|n['’]t)\s+(?:true|correct|right|the\s+case|sure|certain|clear)|untrue|false|wrong|incorrect|deny|denies"
    r"|(?<!\bno\s)(?<!not\s)(?<!n['’]t\s)doubt|(?:not|n['’]t|cannot)\s+(?:say|state|mention|tell))\s+(?:that|if|whether|to\s+say)\b[^.;!?]{0,60}"
)
_BEFORE = re.compile(
    rf"(?:{_NEGATION}(?:,[^,.;!?]{{1,40}},)?{_USE}?{_SMALL}{{0,4}}|{_INSTEAD}{_SMALL}{{0,3}}:?|{_UNTRUE}){_MARKS}$",
    re.I,
)
_AFTER = re.compile(
    r"[\s\"'“”‘’«»`*_)\]]*(?:"
    r"[,;:]?\s*(?:which\s+|that\s+|this\s+)?(?:is|are|was|were|would\s+be|ist|war|est|es)"
    r"(?:n['’]t|\s+(?:not|never|no\s+longer|wrong|incorrect|false|untrue|outdated|obsolete|nicht|falsch|faux))\b"
    r"|\s+(?:is|was)\s+the\s+(?:old|former|previous|wrong)\b"
    r"|\s+(?:was|were|has\s+been|have\s+been)\s+(?:replaced|superseded|changed|withdrawn|abolished)\b"
    r"|\s+(?:does|do|did)(?:n['’]t|\s+not)\s+(?:work|apply|count)\b|\s+(?:non\s+è|não\s+é|no\s+es|n['’]est\s+pas)\b"
    r"|[,;]?\s*but\s+(?:that|this|it|he|she|they)\s*(?:is|was|are|were|['’]s|['’]re)\s+(?:not|wrong|false|incorrect|mistaken)\b"
    r"|\s*\(\s*(?:wrong|false|incorrect|outdated|obsolete|old|no\s+longer)\b"
    r"|(?:ではなく|ではない|じゃな|は誤り|不对|是错)|(?:이|가)?\s*아니"
    r"|\?\s*(?:no|nein|non|wrong|i\s+(?:do\s+not|don['’]t|doubt))\b"
    r"|\s*[,.;:…—–-]+\s*(?:(?:no|nein|non)\s*[,.:;!—–-]|no,?\s+wait\b|wait\b|sorry\b|correction\b|scratch\s+that|i\s+mean\b"
    r"|or\s+rather\b)"
    r"|[,;]?\s*(?:but|and|which)?\s*(?:it\s+is|it['’]s|is)?\s*now\s+\S*\d"
    r")",
    re.I,
)
_NO_BEFORE = re.compile(rf"\bno{_SMALL}{{0,3}}{_MARKS}$", re.I)
_BUT_AFTER = re.compile(r"[^.;!?]{0,40}?\b(?:but|sino|mas|sondern|mais|ma|maar|men|utan)\b", re.I)


def is_denied(text: str, start: int, stop: int) -> bool:
    """Whether ``text``, in one line, says of what stands from ``start`` to ``stop`` that it is not so.

    >>> is_denied("not 48213 but 99999", 4, 9), is_denied("not later than 21 days", 15, 22)
    (True, False)
    """
    before, after = text[max(0, start - _FAR) : start], text[stop : stop + _FAR]
    is_struck = before.endswith("~~") and after.startswith("~~")
    if is_struck or _BEFORE.search(before) or _AFTER.match(after):
        return True
    return bool(_NO_BEFORE.search(before) and _BUT_AFTER.match(after))


# --- is a string that stands in an answer denied there? --------------------------------------------

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
        raise UsageError(f"{where}: `query` is not text")
    if skill is not None and not _is_text(skill):
        raise UsageError(f"{where}: `skill` is neither a name nor null")
    if not isinstance(answers, list) or not all(_is_text(answer) for answer in answers):
        raise UsageError(f"{where}: `answer` is not a list of texts")
    if skill is not None and not answers:
        raise UsageError(f"{where}: a question with a skill needs an `answer`")
    return Route(query, skill, tuple(answers))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
