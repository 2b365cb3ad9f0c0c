"""What a model proposes, in what it says. Text only: nothing is run here.

A program is the last fenced block with a ``solve``, or the text from the first line of code on. Small models also write
a script that prints, or answer in words; both count as what they answer, so that a model is not held to lack what it
said in another form. Either becomes a program of its own kind, which no other task can be answered by.
"""

from __future__ import annotations

import ast
import re

from pydantic import ValidationError

from agentkv.flywheel.solution import Program

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.S)
_SCRIPT = re.compile(r"```(?:python|py)[ \t]*\n(.*?)\n```", re.S)
_CODE = re.compile(r"^(?:def |import |from |PARAMETERS\b|[A-Z_]+ *=)", re.M)
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})+)\}")
_ANSWER = re.compile(
    r"^[^\w\n]*(?:the )?(?:final )?answer[^\w\n]*?(?::|is:?)[ *$`]*([^\s*$`].{0,199}?)[ \r*.$]{0,20}$", re.I | re.M
)
_LATEX = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MOST = 200
_RUNS = '''
def solve(**given):
    """What the script prints last."""
    import ast, contextlib, io, pathlib, runpy

    pathlib.Path("script.py").write_text(SCRIPT, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path("script.py", run_name="__main__")
    line = printed.getvalue().strip().splitlines()[-1]
    for text in (line, line.split()[-1]):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
    return line
'''


def candidate_in(text: str) -> Program | None:
    """The program that a reply holds; else its script, as a program; else one that returns what it says; or None."""
    return program_in(text) or script_in(text) or said_in(text)


def program_in(text: str) -> Program | None:
    """The program that a reply holds: the last fenced block with a ``solve``, else what looks like code; or None."""
    blocks = [found for found in _FENCED.findall(text) if "def solve" in found]
    if blocks:
        return _program(blocks[-1])
    start = _CODE.search(text)
    return _program(text[start.start() :]) if start is not None and "def solve" in text else None


def script_in(text: str) -> Program | None:
    """The last whole fenced script that prints, as a program that runs it and returns what it prints last; or None."""
    scripts = [found for found in _SCRIPT.findall(text) if "print(" in found]
    return _program(f"SCRIPT = {scripts[-1]!r}\n{_RUNS}") if scripts else None


def said_in(text: str) -> Program | None:
    r"""A program that returns the answer that a reply gives in words, the last ``\boxed{…}`` or ``Answer: …``; or None.

    >>> said_in("So there are \\boxed{1,024} of them.").source
    'def solve(**given):\n    return 1024\n'
    """
    boxed = _BOXED.findall(text)
    found = boxed or _ANSWER.findall(text)
    if not found:
        return None
    said = _LATEX.sub(r"\1", found[-1]).strip().strip("$*`").strip()
    if _THOUSANDS.fullmatch(said):
        said = said.replace(",", "")
    if not said or len(said) > _MOST:
        return None
    return _program(f"def solve(**given):\n    return {_value(said)!r}")


def _value(text: str) -> int | float | str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if type(value) in (int, float) else text


def _program(source: str) -> Program | None:
    try:
        return Program(source=source.strip("\n") + "\n")
    except ValidationError:
        return None
