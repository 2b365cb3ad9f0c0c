"""Tables drawn in text with pipes, grids or rules: where they are, and the lines that name their columns."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Characters ``start`` to ``stop`` of a text. ``columns``: the lines that name the columns."""

    start: int
    stop: int
    columns: str


def columns_at(tables: Sequence[Table], position: int) -> str:
    """The column names for a slice that begins at ``position``; "" outside tables and at a table's beginning.

    ``tables`` are sorted and do not overlap.

    >>> columns_at([Table(10, 90, "a | b")], 40), columns_at([Table(10, 90, "a | b")], 10)
    ('a | b', '')
    """
    at = bisect.bisect_left(tables, position, key=lambda table: table.start) - 1
    return tables[at].columns if at >= 0 and position < tables[at].stop else ""


_NUMBER = re.compile(r"[-+(]?[$€£¥]?\s*\d[\d.,'\s\u00a0]*(?:[eE][-+]?\d+)?\s*[%€$)]?")
_LONGEST_NUMBER = 60
_YEAR = re.compile(r"(?:1[89]|20)\d\d")


def is_header(first: Sequence[str], second: Sequence[str] | None) -> bool:
    """Whether a table's first row names its columns, judged by its cells and those of the next row.

    It does not if one of its cells is a number above a number and no year.

    >>> is_header(["name", "price"], ["tea", "3"]), is_header(["tea", "3"], ["milk", "2"])
    (True, False)
    """
    if not any(cell.strip() for cell in first):
        return False
    pairs = zip(first, second or [""] * len(first), strict=False)
    return not any(is_number(one) and not _YEAR.fullmatch(one.strip()) and is_number(other) for one, other in pairs)


def has_number_below_a_name(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether a first row of plain cells is names: none empty, none a number, and a number in the next row."""
    return all(cell.strip() and not is_number(cell) for cell in first) and any(map(is_number, second))


def is_number(cell: str) -> bool:
    return len(cell) < _LONGEST_NUMBER and _NUMBER.fullmatch(cell.strip()) is not None


def in_a_line(columns: str) -> str:
    """The column names on one line, without the rules drawn under them.

    >>> in_a_line("| a | b |\\n|---|---|")
    '| a | b |'
    """
    return " ".join(" ".join(line.split()) for line in columns.splitlines() if any(map(str.isalnum, line)))


# --- lines ----------------------------------------------------------------------------------------

Lines = Sequence[tuple[int, str]]
"""Each line of a text without its end, and the character at which it begins."""
_GRID = re.compile(r"\+(?:[-=]+\+)+")
_GRID_HEAD = re.compile(r"\+(?:=+\+)+")
_SIMPLE = re.compile(r"=+(?: +=+)+")
_PRINTED = re.compile(r"-{2,}(?:\+-{2,})+")
"""The rule under the names in what ``psql`` prints."""
_RULE = frozenset("|-:+ \t")
_MOST_HEADER_LINES = 12


def drawn(lines: Lines) -> list[Table]:
    """Tables of lines with ``|`` and a rule under the names, grids of ``+--+``, and those between ``===``."""
    found, index = [], 0
    while index < len(lines):
        stop = _end(lines, index)
        header = _rows_of_header(lines, index, stop) if stop - index >= 3 else 0
        if header:
            columns = "\n".join(line for _, line in lines[index : index + header])
            found.append(Table(lines[index][0], lines[stop - 1][0] + len(lines[stop - 1][1]), columns))
        index = max(stop, index + 1)
    return found


def _end(lines: Lines, index: int) -> int:
    """The line after the last of what may be a table from this line on; ``index`` itself if none can begin there."""
    if _SIMPLE.fullmatch(lines[index][1].strip()):
        stop, rules = index, 0
        while stop < len(lines) and rules < 3:
            rules += _SIMPLE.fullmatch(lines[stop][1].strip()) is not None
            stop += 1
            if rules == 2 and stop < len(lines) and not lines[stop][1].strip():  # which has no header
                return index
        return stop if rules == 3 else index
    stop = index
    while stop < len(lines) and _is_drawn(lines[stop][1]):
        stop += 1
    return stop


def _is_drawn(line: str) -> bool:
    return "|" in line or any(rule.fullmatch(line.strip()) for rule in (_GRID, _PRINTED))


def _rows_of_header(lines: Lines, index: int, stop: int) -> int:
    """How many of a table's first lines name its columns, the rule below them included; 0 for none."""
    first, head = lines[index][1].strip(), lines[index : min(stop, index + _MOST_HEADER_LINES)]
    for rule in (_GRID_HEAD, _SIMPLE):
        if (_GRID if rule is _GRID_HEAD else _SIMPLE).fullmatch(first):
            rows = (at + 1 for at, (_, line) in enumerate(head) if at and rule.fullmatch(line.strip()))
            return next(rows, 0) or _rows_of_printed(lines, index, stop)
    is_ruled_off = is_rule(lines[index + 1][1]) or _PRINTED.fullmatch(lines[index + 1][1].strip()) is not None
    return 2 if is_ruled_off and not _RULE.issuperset(first) else 0


def _rows_of_printed(lines: Lines, index: int, stop: int) -> int:
    """Of a table as databases print it: rules of dashes above and below the names, and one at its end."""
    rules = [at for at in range(index, stop) if _GRID.fullmatch(lines[at][1].strip())]
    return rules[1] - index + 1 if 2 <= len(rules) <= 3 and rules[1] > index + 1 and stop > rules[1] + 2 else 0


def is_rule(line: str) -> bool:
    """Whether a line is the rule under the names of a table's columns."""
    return "-" in line and "|" in line and _RULE.issuperset(line.lstrip("> \t"))


def is_ruled(names: str, rule: str) -> bool:
    """Whether a line and the rule under it have as many cells, as a table of Markdown has to."""
    marked, lined = (len(re.findall(r"(?<!\\)\|", line.lstrip("> \t").strip().strip("|"))) for line in (names, rule))
    return marked == lined
