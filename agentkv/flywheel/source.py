"""Programs in what a model says: the fenced block, or the text from the first line of code on. Text only."""

from __future__ import annotations

import re

from pydantic import ValidationError

from agentkv.flywheel.solution import Program

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.S)
_CODE = re.compile(r"^(?:def |import |from |PARAMETERS\b|[A-Z_]+ *=)", re.M)


def program_in(text: str) -> Program | None:
    """The program that a reply holds: the last fenced block with a ``solve``, else what looks like code; or None."""
    blocks = [found for found in _FENCED.findall(text) if "def solve" in found]
    if blocks:
        return _program(blocks[-1])
    start = _CODE.search(text)
    return _program(text[start.start() :]) if start is not None and "def solve" in text else None


def _program(source: str) -> Program | None:
    try:
        return Program(source=source.strip("\n") + "\n")
    except ValidationError:
        return None
