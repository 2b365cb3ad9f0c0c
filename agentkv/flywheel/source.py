"""What a model proposes, in what it says. Text only: nothing is run here.

A program is the last piece of code (``code.py``) that compiles and defines ``solve``; what a model only thought comes
after what it said. Small models also write a script that prints, or answer in words; both count as what they answer, so
that a model is not held to lack what it said in another form. Either becomes a program of its own kind, which no other
task can be answered by. A program that does not compile is proposed too where there is no other, so that its error is
on record and can be repaired.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from agentkv.flywheel.code import Code, blocks, compiled, parts_of, unmarked
from agentkv.flywheel.solution import Program

WANTED = "solve"
_BROKEN = re.compile(r"^(?:def |import |from |PARAMETERS\b|[A-Z_]+ *=)", re.M)
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
    for part in parts_of(text):
        found = _compiled_in(part)
        if found is None and f"def {WANTED}" not in part:
            found = script_in(part) or said_in(part)
        if found is not None:
            return found
    return _broken_in(text)


def program_in(text: str) -> Program | None:
    """The program in a reply: the last code that compiles and defines ``solve``, else what was meant as it; or None."""
    found = (_compiled_in(part) for part in parts_of(text))
    return next((program for program in found if program is not None), None) or _broken_in(text)


def script_in(text: str) -> Program | None:
    """The last whole fenced script that prints, as a program that runs it and returns what it prints last; or None.

    The last that compiles, if one does.
    """
    scripts = [code for code in blocks(text) if code.is_python and code.closed and "print(" in code.source]
    good = [found[0] for code in scripts if (found := compiled(code)) is not None]
    source = good[-1] if good else scripts[-1].source if scripts else None
    return None if source is None else _program(f"SCRIPT = {source.rstrip()!r}\n{_RUNS}")


def _compiled_in(text: str) -> Program | None:
    marked = list(_defining(blocks(text)))
    return _program(marked[-1]) if marked else next(map(_program, _defining(unmarked(text))), None)


def _defining(codes: Iterable[Code]) -> Iterator[str]:
    """Of those that compile and define what is wanted, the sources."""
    for code in codes:
        found = compiled(code) if WANTED in code.source else None
        if found is not None and WANTED in _defined(found[1].body):
            yield found[0]


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """The names of functions, and of what is assigned, that a module has; those of branches too."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _defined([inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt)])


def _broken_in(text: str) -> Program | None:
    """What was meant as a program and does not compile: the last marked one, else the text from its first code on."""
    whole = parts_of(text)[-1]
    marked = [code.source for code in blocks(whole) if f"def {WANTED}" in code.source]
    if marked:
        return _program(marked[-1])
    start = _BROKEN.search(whole)
    return _program(whole[start.start() :]) if start is not None and f"def {WANTED}" in whole else None


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
