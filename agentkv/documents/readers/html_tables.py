"""Cells of HTML tables: how many bars go before each, so that an empty one keeps its place, and which rows are headers.

A table whose cells hold headings, other tables or ``<pre>`` is page layout. Header rows are those of ``<thead>``, or of
``<th>`` alone, at the table's beginning; of plain cells a first row that is bold, or is above numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkv.documents.readers.tables import Table, has_number_below_a_name

_MOST_EMPTY, _MOST_ROWS, _MOST_NESTED = 64, 10_000, 50
"""``_MOST_EMPTY``: most places of a row that spanning cells take."""
BAR = " | "


@dataclass
class _Row:
    """``start``: its first character and piece; ``columns``: places taken; ``bars``: how many were written; ``spare``:
    empty places that may still come.
    """

    start: tuple[int, int]
    columns: int = 0
    bars: int = 0
    spare: int = _MOST_EMPTY
    n_cells: int = 0
    n_bold: int = 0
    n_names: int = 0
    named_only: bool = True
    is_layout: bool = False


@dataclass
class _OpenTable:
    """``number``: of the row; ``spans``: up to which one a cell takes a column; ``header``: first rows, if names."""

    number: int = 0
    spans: dict[int, int] = field(default_factory=dict)
    in_head: bool = False
    is_layout: bool = False
    row: _Row | None = None
    n_rows: int = 0
    start: int | None = None
    stop: int = 0
    header: list[str] = field(default_factory=list)
    has_header: bool = False
    is_header_open: bool = True


class Cells:
    """The tables that are open. ``pieces``: the text so far, which the reader goes on writing."""

    def __init__(self, pieces: list[str]) -> None:
        self.found: list[Table] = []
        self._pieces = pieces
        self._tables: list[_OpenTable] = []
        self._in_cell = False
        self._cell: tuple[str, int, int] | None = None  # tag, character and piece at which its text begins
        self._put_off: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a table is open."""
        return bool(self._tables)

    @property
    def is_in_row(self) -> bool:
        """Whether the current text is in a cell whose row is one line."""
        return self._in_cell and self._cell is not None and self._row is not None and not self._row.is_layout

    # --- breaks ---

    def puts_off(self, level: int, position: int, at: int) -> bool:
        """Whether a break is put off until more text of its cell comes; one before any text is dropped."""
        if not self.is_in_row:
            return False
        if self._cell is not None and at > self._cell[1]:
            self._put_off = min(level, self._put_off[0] if self._put_off else level), position
        return True

    def take_break(self) -> tuple[int, int] | None:
        """The break that was put off, if any: its level and its place in the source."""
        put_off, self._put_off = self._put_off, None
        return put_off

    def is_layout(self) -> None:
        """What comes now makes the row around it page layout."""
        if self._tables and self._in_cell:
            self._tables[-1].is_layout = True
            if self._row is not None:
                self._row.is_layout = True

    # --- rows and cells ---

    @property
    def _row(self) -> _Row | None:
        return self._tables[-1].row if self._tables else None

    def begin_table(self) -> None:
        """A ``<table>``."""
        if len(self._tables) < _MOST_NESTED:
            self._tables.append(_OpenTable())
        self._in_cell, self._cell, self._put_off = False, None, None

    def group(self, at: int, *, is_head: bool) -> None:
        """A ``<thead>``, ``<tbody>`` or ``<tfoot>``, or the end of one; ``at``: characters so far."""
        self.end_row(at)
        if self._tables:
            self._tables[-1].in_head = is_head

    def bold(self) -> None:
        """A ``<b>``: where it begins a cell, the cell may be a name."""
        if self._row is not None and self._in_cell and self._cell is not None and len(self._pieces) == self._cell[2]:
            self._row.n_bold += 1

    def begin_row(self, at: int) -> None:
        """A ``<tr>``; its text begins with character ``at``."""
        if self._tables:
            self._tables[-1].row = _Row((at, len(self._pieces)))

    def begin_cell(self, tag: str, attributes: Mapping[str, str | None], at: int) -> tuple[int, bool]:
        """How many bars to write before a cell, and whether its row is page layout instead."""
        self.end_cell()
        if not self._tables:
            return 0, False
        table = self._tables[-1]
        if table.row is None:
            self.begin_row(at)
        row = table.row
        assert row is not None
        while table.spans.get(row.columns, 0) > table.number and row.spare:
            row.columns, row.spare = row.columns + 1, row.spare - 1
        column = row.columns
        width, height = _number(attributes, "colspan", row.spare + 1), _number(attributes, "rowspan", _MOST_ROWS)
        row.columns, row.spare = column + width, row.spare - (width - 1)
        if height > 1:
            table.spans.update(dict.fromkeys(range(column, row.columns), table.number + height))
        bars, row.bars = column - row.bars, column
        row.n_cells += 1
        self._in_cell, self._cell = True, (tag, at, len(self._pieces))
        return bars, row.is_layout and row.n_cells > 1

    def begin_text(self, at: int) -> None:
        """The cell's text begins with character ``at``, after its bars."""
        if self._cell is not None:
            self._cell = (self._cell[0], at, len(self._pieces))

    def end_cell(self) -> None:
        """A cell's end, written or not."""
        row = self._row
        if self._in_cell and self._cell is not None and row is not None:
            tag, _, first = self._cell
            has_text = bool("".join(self._pieces[first:]).strip())
            row.n_names += tag == "th"
            row.named_only &= tag == "th" or not has_text
        self._in_cell, self._cell, self._put_off = False, None, None

    def end_row(self, at: int) -> None:
        """A row's end, written or not; ``at``: characters so far."""
        self.end_cell()
        if not self._tables or self._tables[-1].row is None:
            return
        table, row = self._tables[-1], self._tables[-1].row
        table.row = None
        table.number += 1
        text = "".join(self._pieces[row.start[1] :]).rstrip("\n")
        if not text.strip(" |\n"):
            return
        table.n_rows += 1
        table.stop = at
        table.start = row.start[0] if table.start is None else table.start
        if not table.is_header_open:
            return
        if table.in_head or (row.named_only and row.n_names):
            table.header.append(text)
            table.has_header = True
            return
        if table.n_rows == 1:  # plain cells: the next row shows what it is
            table.header.append(text)
            table.has_header = row.n_cells > 1 and row.n_bold >= row.n_cells
            table.is_header_open = not table.has_header
            return
        if not table.has_header and table.n_rows == 2 and table.header:
            table.has_header = has_number_below_a_name(table.header[0].split(BAR), text.split(BAR))
        table.is_header_open = False

    def end_table(self, at: int) -> None:
        """A table's end; ``at``: characters so far."""
        self.end_row(at)
        if self._tables:
            table = self._tables.pop()
            if (
                table.has_header
                and not table.is_layout
                and table.start is not None
                and table.n_rows > len(table.header)
            ):
                self.found.append(Table(table.start, table.stop, "\n".join(table.header)))
        self._in_cell, self._cell = self._row is not None, None


def _number(attributes: Mapping[str, str | None], name: str, most: int) -> int:
    written = (attributes.get(name) or "").strip()
    return (
        min(int(written), most)
        if written.isascii() and written.isdecimal() and len(written) < 9 and int(written)
        else 1
    )
