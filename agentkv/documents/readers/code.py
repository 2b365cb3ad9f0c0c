"""Source code: functions and classes as headings, by Python's parser or by the form of their lines."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from agentkv.documents.readers.decoding import decode
from agentkv.documents.readers.document import MAX_DEPTH, Heading, Readable, document_of, lines_of, one_line, paragraphs
from agentkv.documents.records import Kind

_LOOKED_AT = 1000
"""Characters of a line in which a definition is looked for."""


def read(path: Path, data: bytes, kind: Kind, encoding: str | None) -> Readable:
    """See :class:`agentkv.documents.readers.Reader`."""
    source = decode(path, data, kind, encoding)
    return document_of(source, kind, _code(source.text), paragraphs(source.text))


_DEFINITION = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?:export|public|private|protected|static|final|abstract|async|pub(?:\([^)]*\))?|default|"
    r"inline|extern|virtual|override|unsafe|const)[ \t]+)*"
    r"(?:def|class|fn|func|function|struct|enum|union|trait|impl|interface|module|namespace|package|sub|type|macro_rules!|"
    r"typedef[ \t]+struct|CREATE[ \t]+(?:OR[ \t]+REPLACE[ \t]+)?\w+)[ \t]+(?P<name>[\w.:<>$~]+)",
    re.I,
)
_C_FUNCTION = re.compile(r"^[A-Za-z_][\w \t*&:<>,]*?[ \t*&](?P<name>[A-Za-z_~][\w:]*)[ \t]*\([^;]*$")
_C_KEYWORD = re.compile(r"^(?:if|for|while|switch|return|else|do|case|sizeof|goto)\b")
_SECTION = re.compile(r"^\[{1,2}([^\[\]]{1,80})\]{1,2}[ \t]*$")
_BELONGS = re.compile(r"^[ \t]*(?:[@#*]|//|/\*|--|\*/|\[[A-Za-z#])")


def _code(text: str) -> list[Heading]:
    lines = lines_of(text)
    parsed = _python(text, lines)
    return parsed if parsed is not None else list(_definitions(lines))


def _python(text: str, lines: list[tuple[int, str]]) -> list[Heading] | None:
    """Functions and classes by Python's parser; None for what it does not parse."""
    if not re.search(r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+[^\n]*:", text, re.M):
        return None
    if "\r" in text.replace("\r\n", "") or "\f" in text or len(text) > 4 << 20:  # Python counts lines otherwise there
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: list[Heading] = []

    def walk(node: ast.AST, depth: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)]) - 1
                found.append(Heading(lines[_with_comments(lines, first, 0)][0], min(depth, MAX_DEPTH), child.name))
                walk(child, depth + 1)

    walk(tree, 1)
    return sorted(found, key=lambda heading: heading.position)


def _definitions(lines: list[tuple[int, str]]) -> Iterator[Heading]:
    taken = -1
    for index, (_, whole) in enumerate(lines):
        line = whole[:_LOOKED_AT]
        match = _DEFINITION.match(line)
        name, depth = "", 1
        if match:
            indent = len(match["indent"].expandtabs(4))
            name, depth = match["name"], min(1 + indent // 4, MAX_DEPTH)
        elif not _C_KEYWORD.match(line) and (section := _SECTION.match(line)):
            name = section[1]
        elif not _C_KEYWORD.match(line) and (function := _C_FUNCTION.match(line)):
            name = function["name"]
        if name:
            first, taken = _with_comments(lines, index, taken + 1), index
            yield Heading(lines[first][0], depth, one_line(name))


def _with_comments(lines: list[tuple[int, str]], index: int, least: int) -> int:
    """The first line, from ``least`` on, of the comments and decorators right above a definition."""
    while index > least and _BELONGS.match(lines[index - 1][1]):
        index -= 1
    return index
