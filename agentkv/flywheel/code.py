"""The code in a reply: as Markdown marks it, else as Python has it. Text only: nothing is run here.

Fences are found by a Markdown parser: either sign, any language after it, within lists and quotations. Models do not
keep to Markdown where a program holds a fence of its own (a docstring with an example) or leaves the indentation of its
list: such a block is taken further, to the next line that could close it, until it compiles. Refuses to know which code
is wanted.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

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
    """A piece of code. ``language``: of its fence, in small letters, without a version; ``closed``: it has an end."""

    source: str
    language: str = ""
    closed: bool = True

    @property
    def is_python(self) -> bool:
        """Whether it is marked as Python."""
        return self.language in _PYTHON


def parts_of(text: str) -> list[str]:
    """What follows a model's thinking, if there is an end of it; then all that it said, without the marks of thought;
    then as it stands, since a program may hold such a mark in a text of its own.

    >>> parts_of("<think>5?</think>It is 6.")
    ['It is 6.', '\\n5?\\nIt is 6.', '<think>5?</think>It is 6.']
    """
    text = text[-_MOST_CHARS:]
    marks = list(_THOUGHT.finditer(text))
    after = [text[marks[-1].end() :]] if marks and marks[-1][0].startswith("</") else []
    return list(dict.fromkeys([*after, _THOUGHT.sub("\n", text), text]))


def blocks(text: str) -> list[Code]:
    """Fenced and indented blocks and code between backticks, in the order of the text; twice where fences are indented
    so far that Markdown has them as text."""
    found = list(_blocks(text))
    flat = _INDENTED_FENCE.sub("", text)
    return found if flat == text else [*_blocks(flat), *found]


def unmarked(text: str) -> Iterator[Code]:
    """From each line that looks like code on, as far as it compiles."""
    for start in itertools.islice(_CODE.finditer(text), _TRIES):
        yield Code(text[start.start() :], closed=False)


def compiled(code: Code) -> tuple[str, ast.Module] | None:
    """The source that compiles, with its tree: as it stands, else without the indentation common to all its lines,
    with plain blanks for others, without the prompts of a session (``>>>``).

    Of code that has no end also without what follows at the margin and is no Python: prose, a mark, a cut statement.
    """
    for source in dict.fromkeys(_readings(code.source)):
        lines = source.splitlines(keepends=True)
        for _ in range(1 if code.closed else _TRIES):
            tree, wrong = _tree("".join(lines))
            if tree is not None:
                return "".join(lines), tree
            if not 1 < wrong <= len(lines) or lines[wrong - 1][:1].isspace():
                break
            lines = lines[: wrong - 1]
    return None


def _readings(source: str) -> Iterator[str]:
    yield source
    yield textwrap.dedent(source)
    plain = textwrap.dedent(_BLANK.sub(" ", source))
    yield plain
    if _PROMPT.search(plain):
        import doctest  # slow to import

        with contextlib.suppress(ValueError):  # of a prompt without a blank behind it
            yield doctest.script_from_examples(plain)


def _tree(source: str) -> tuple[ast.Module | None, int]:
    """The tree of what compiles, or the line that does not, 0 if there is none."""
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
    """The block from line ``start`` to the first line that could close it and with which it compiles, and the tries."""
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
