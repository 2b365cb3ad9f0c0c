"""The program in a model's reply. Text only: nothing is run here.

Code blocks are found by a Markdown parser: either fence, any language after it, within lists and quotations. Models do
not keep to Markdown where a program holds a fence of its own (a docstring with an example) or leaves the indentation of
its list: such a block is extended to the next line that could close it, until it compiles.

The program is the last code that compiles and defines ``solve``; text after the model's thinking is preferred to the
thinking. Small models also write a script that prints, or answer in prose; both count as what they answer, so that a
model does not count as lacking what it said in another form. Either becomes a program that no other task can be
answered by. A program that does not compile is proposed where there is no other, so that its error is on record and can
be repaired.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agentkv.flywheel.solution import Program

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MOST_CHARS = 1 << 20
_TRIES = 40
_TRIES_IN_ALL = 120
_THOUGHT = re.compile(r"</?(?:think|thinking|thought|reasoning)>", re.I)
_LANGUAGE = re.compile(r"[\s{.]*([^\W\d_]*)")
_PYTHON = frozenset({"python", "py", "ipython"})
_CLOSING = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*$")
_INDENTED_FENCE = re.compile(r"^[ \t]+(?=`{3}|~{3})", re.M)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_BLANK = re.compile(r"[^\S\n\t\r\f\v ]")
_PROMPT = re.compile(r"^>>> ", re.M)
_CODE = re.compile(r"^(?:def |class |import |from |@|PARAMETERS\b|[A-Za-z_]\w* *=)", re.M)


@dataclass(frozen=True)
class Code:
    """A piece of code. ``language``: of its fence, in lower case, without a version; ``closed``: its end is marked."""

    source: str
    language: str = ""
    closed: bool = True

    @property
    def is_python(self) -> bool:
        """Whether it is marked as Python."""
        return self.language in _PYTHON


def parts_of(text: str) -> list[str]:
    """The text after a model's thinking, if the thinking ends; then all of it without the thinking tags; then all of it
    unchanged, since a program may contain such a tag in a string.

    >>> parts_of("<think>5?</think>It is 6.")
    ['It is 6.', '\\n5?\\nIt is 6.', '<think>5?</think>It is 6.']
    """
    text = text[-_MOST_CHARS:]
    marks = list(_THOUGHT.finditer(text))
    after = [text[marks[-1].end() :]] if marks and marks[-1][0].startswith("</") else []
    return list(dict.fromkeys([*after, _THOUGHT.sub("\n", text), text]))


def blocks(text: str) -> list[Code]:
    """Fenced and indented blocks and code between backticks, in the order of the text; twice where fences are indented
    so far that Markdown treats them as text.
    """
    found = list(_blocks(text))
    flat = _INDENTED_FENCE.sub("", text)
    return found if flat == text else [*_blocks(flat), *found]


def unmarked(text: str) -> Iterator[Code]:
    """The text from each line that looks like code to the end, to be cut to what compiles."""
    for start in itertools.islice(_CODE.finditer(text), _TRIES):
        yield Code(text[start.start() :], closed=False)


def compiled(code: Code) -> tuple[str, ast.Module] | None:
    """The source that compiles, with its tree: unchanged, else without common indentation, with plain spaces for other
    blanks, without the prompts of a session (``>>>``).

    Code without a marked end is also cut before what follows at the margin and is not Python: prose, a mark, a cut
    statement.

    with plain blanks for others, without the prompts of a session (``>>>``).

    Of code that has no end also without what follows at the margin and is not Python: prose, a mark, a cut statement.
    """
    for source in dict.fromkeys(_variants(code.source)):
        lines = source.splitlines(keepends=True)
        for _ in range(1 if code.closed else _TRIES):
            tree, wrong = _tree("".join(lines))
            if tree is not None:
                return "".join(lines), tree
            if not 1 < wrong <= len(lines) or lines[wrong - 1][:1].isspace():
                break
            lines = lines[: wrong - 1]
    return None


def _variants(source: str) -> Iterator[str]:
    yield source
    yield textwrap.dedent(source)
    plain = textwrap.dedent(_BLANK.sub(" ", source))
    yield plain
    if _PROMPT.search(plain):
        import doctest  # slow to import

        with contextlib.suppress(ValueError):  # of a prompt without a blank after it
            yield doctest.script_from_examples(plain)


def _tree(source: str) -> tuple[ast.Module | None, int]:
    """The tree if it compiles; else the line of the error, 0 if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a program's odd escapes, which are its own matter
            tree = ast.parse(source)
            compile(tree, "<reply>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return None, error.lineno or 0
    except (ValueError, MemoryError, RecursionError):
        return None, 0
    return (tree, 0) if tree.body else (None, 0)


def _blocks(text: str) -> Iterator[Code]:
    lines, taken, left = text.splitlines(), 0, _TRIES_IN_ALL
    for token in _parser().parse(text):
        if token.map is None or token.map[0] < taken:
            continue
        if token.type == "fence":
            match = _LANGUAGE.match(token.info)
            language = match[1].casefold() if match else ""
            closed = token.map[1] - 1 > token.map[0] and bool(_CLOSING.match(lines[token.map[1] - 1]))
            code = Code(token.content, language, closed)
            if left and compiled(code) is None:
                longer, tried = _further(lines, token.map[0], token.markup, code.language, left)
                left -= tried
                if longer is not None:
                    code, taken = longer, token.map[0] + 2 + longer.source.count("\n")
            yield code
        elif token.type == "code_block":
            yield Code(token.content)
        elif token.type == "inline":
            yield from (Code(found) for found in _INLINE.findall(token.content))


def _further(lines: list[str], start: int, markup: str, language: str, most: int) -> tuple[Code | None, int]:
    """The block from line ``start`` to the first closing line with which it compiles, and the number of tries."""
    ends = (end for end in range(start + 2, len(lines)) if _closes(lines[end], markup))
    tried = 0
    for tried, end in enumerate(itertools.islice(ends, min(most, _TRIES)), 1):
        longer = Code("\n".join(lines[start + 1 : end]) + "\n", language)
        if compiled(longer) is not None:
            return longer, tried
    return None, tried


def _closes(line: str, markup: str) -> bool:
    match = _CLOSING.match(line)
    return match is not None and match[1].startswith(markup[:1]) and len(match[1]) >= len(markup)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).disable("inline")


# --- the program ----------------------------------------------------------------------------------

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
    """The program in a reply; else its script, as a program; else a program that returns its prose answer; or None."""
    for part in parts_of(text):
        found = _compiled_in(part)
        if found is None and f"def {WANTED}" not in part:
            found = script_in(part) or said_in(part)
        if found is not None:
            return found
    return _broken_in(text)


def program_in(text: str) -> Program | None:
    """The program in a reply: the last code that compiles and defines ``solve``, else the likeliest broken one, or
    None.
    """
    found = (_compiled_in(part) for part in parts_of(text))
    return next((program for program in found if program is not None), None) or _broken_in(text)


def script_in(text: str) -> Program | None:
    """The last closed fenced script that prints, as a program that runs it and returns the last line printed; or None.

    The last that compiles, if any does.
    """
    scripts = [code for code in blocks(text) if code.is_python and code.closed and "print(" in code.source]
    good = [found[0] for code in scripts if (found := compiled(code)) is not None]
    source = good[-1] if good else scripts[-1].source if scripts else None
    return None if source is None else _program(f"SCRIPT = {source.rstrip()!r}\n{_RUNS}")


def _compiled_in(text: str) -> Program | None:
    marked = list(_defining(blocks(text)))
    return _program(marked[-1]) if marked else next(map(_program, _defining(unmarked(text))), None)


def _defining(codes: Iterable[Code]) -> Iterator[str]:
    """The sources of those that compile and define ``solve``."""
    for code in codes:
        found = compiled(code) if WANTED in code.source else None
        if found is not None and WANTED in _defined(found[1].body):
            yield found[0]


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """The names of functions and assignments of a module, also inside branches."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _defined([inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt)])


def _broken_in(text: str) -> Program | None:
    """A program that does not compile: the last marked one, else the text from the first line that looks like code."""
    whole = parts_of(text)[-1]
    marked = [code.source for code in blocks(whole) if f"def {WANTED}" in code.source]
    if marked:
        return _program(marked[-1])
    start = _BROKEN.search(whole)
    return _program(whole[start.start() :]) if start is not None and f"def {WANTED}" in whole else None


def said_in(text: str) -> Program | None:
    r"""A program that returns the answer that a reply gives as prose, the last ``\boxed{…}`` or ``Answer: …``; or None.

    >>> said_in("So there are \\boxed{1,024} of them.").source
    'def solve(**given):\n    return 1024\n'
    """
    boxed = _BOXED.findall(text)
    found = boxed or _ANSWER.findall(text)
    if not found:
        return None
    answer = _LATEX.sub(r"\1", found[-1]).strip().strip("$*`").strip()
    if _THOUSANDS.fullmatch(answer):
        answer = answer.replace(",", "")
    if not answer or len(answer) > _MOST:
        return None
    return _program(f"def solve(**given):\n    return {_value(answer)!r}")


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
