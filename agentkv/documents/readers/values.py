"""Separated values (CSV, TSV): one table, whose records are the places to cut."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

from agentkv.documents.readers.decoding import decode
from agentkv.documents.readers.document import ITEM, Break, Readable, document_of, lines_of
from agentkv.documents.readers.tables import Lines, Table, is_header, is_number
from agentkv.documents.records import Kind


def read(path: Path, data: bytes, kind: Kind, encoding: str | None) -> Readable:
    """See :class:`agentkv.documents.readers.Reader`."""
    source = decode(path, data, kind, encoding)
    text = source.text
    found, records = separated(text, lines_of(text))
    return document_of(source, kind, [], [Break(at, ITEM) for at in records if 0 < at < len(text)], found)


_SEPARATORS = ",;\t|"
_MOST_LOOKED_AT = 50
"""Records by which it is seen how many cells a row has: titles and comments above the table have others."""
_LONGEST_RECORD = 64
"""Lines of one record; a quotation mark that opens more than these is a mark like any other."""


def separated(text: str, lines: Lines) -> tuple[list[Table], list[int]]:
    """The table that a file of separated values is, and where each record begins."""
    starts = _records(lines)
    ends = [*starts[1:], len(text)]
    head = [(at, text[starts[at] : ends[at]].rstrip("\r\n")) for at in range(min(len(starts), _MOST_LOOKED_AT))]
    rows = [(at, row) for at, row in head if _holds_values(row)]
    separator = max(_SEPARATORS, key=lambda mark: sum(mark in row for _, row in rows))
    counts = Counter(len(cells(row, separator)) for _, row in rows)
    usual = max(counts, key=lambda n: (counts[n], n), default=0)
    table = [n for n, (_, row) in enumerate(rows) if len(cells(row, separator)) == usual]
    if len(table) < 2:
        return [], starts
    names = table[0]
    if (
        names
        and len(cells(rows[names - 1][1], separator)) == usual - 1 > 1
        and any(map(is_number, cells(rows[names][1], separator)))
    ):
        names -= 1  # rows have names too, and their column none, as R writes it
    (first, header), (_, second) = rows[names], rows[names + 1]
    if not second.strip() or not is_header(cells(header, separator), cells(second, separator)):
        return [], starts
    return [Table(starts[first], len(text), header)], starts


def _holds_values(record: str) -> bool:
    """Whether a record is of the table: not empty, no comment, not Excel's ``sep=;``."""
    plain = record.lstrip("\ufeff")
    return bool(plain.strip()) and not plain.startswith("# ") and not re.fullmatch(r"sep=.", plain)


def _records(lines: Lines) -> list[int]:
    """Where records begin: at lines that do not lie between quotation marks."""
    starts: list[int] = []
    index = 0
    while index < len(lines):
        starts.append(lines[index][0])
        index = _next_record(lines, index)
    return starts


def _next_record(lines: Lines, index: int) -> int:
    marks = 0
    for at in range(index, min(index + _LONGEST_RECORD, len(lines))):
        marks += lines[at][1].count('"')
        if marks % 2 == 0:
            return at + 1
    return index + 1


def cells(record: str, separator: str) -> list[str]:
    """The cells of one record."""
    try:
        return next(csv.reader([record], delimiter=separator), [])
    except csv.Error:
        return record.split(separator)
