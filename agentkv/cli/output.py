"""What goes to the terminal: JSON, tables, numbers, questions before something goes, and the end of a command.

Results go to stdout, what is said about their making to stderr. Without a terminal there is no colour, and no table is
cut for the sake of a width that nobody set.

One rule for every command that removes: what was named, and can be had again, goes at once. Asked for is what goes by a
rule (a budget, ``--recursive``, ``--all``, a folder) and what exists nowhere else: on a terminal by a question, after
what would go was shown; elsewhere it takes ``--yes``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson
import typer

from agentkv.errors import AgentKVError, NotConfirmed
from agentkv.notices import AgentKVWarning

if TYPE_CHECKING:
    from rich.console import Console


_PIPED_WIDTH = 200


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no emoji, no guessing of what is a number."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _PIPED_WIDTH
    return made


def printable(text: str) -> str:
    """``text`` without what could steer a terminal: names and answers come from elsewhere."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def one_line(text: str, width: int) -> str:
    """``text`` with white space collapsed, cut to ``width`` characters."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    wraps: Sequence[str] = (),
    header: bool = True,
) -> None:
    """Print a table without lines. ``right`` columns are numbers; only ``wraps`` columns may be folded."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=header)
    for column in columns:
        justify: Any = "right" if column in right else "left"
        made.add_column(column, justify=justify, no_wrap=column not in wraps, overflow="fold")
    for row in rows:
        made.add_row(*(printable(cell) for cell in row))
    console().print(made)


@dataclass(frozen=True)
class Column:
    """One column of a table of rows.

    ``value``: what of a row is shown: a key of a dict, an attribute, or a function of the row. Numbers are written with
    thousands separators, None as nothing. ``right``: align at the right. ``wraps``: may be folded over several lines.
    ``optional``: left out where no row has anything to show.
    """

    title: str
    value: str | Callable[[Any], object]
    right: bool = False
    wraps: bool = False
    optional: bool = False

    def text(self, row: Any) -> str:
        """The cell of one row."""
        if callable(self.value):
            found = self.value(row)
        else:
            found = row[self.value] if isinstance(row, dict) else getattr(row, self.value)
        if found is None:
            return ""
        return f"{found:,}" if isinstance(found, int | float) and not isinstance(found, bool) else str(found)


def number(title: str, value: str | Callable[[Any], object] | None = None) -> Column:
    """A column of numbers; by default the title is the key."""
    return Column(title, title if value is None else value, right=True)


def cells(columns: Sequence[Column], rows: Iterable[Any]) -> tuple[list[Column], list[list[str]]]:
    """The columns that are shown, and the text of each row's cells: what a table is made of, here or in Markdown."""
    texts = [[column.text(row) for column in columns] for row in rows]
    shown = [i for i, column in enumerate(columns) if not column.optional or any(row[i] for row in texts)]
    return [columns[i] for i in shown], [[row[i] for i in shown] for row in texts]


def show_rows(columns: Sequence[Column], rows: Iterable[Any]) -> None:
    """Print rows as a table."""
    shown, texts = cells(columns, rows)
    table(
        [column.title for column in shown],
        texts,
        right=[column.title for column in shown if column.right],
        wraps=[column.title for column in shown if column.wraps],
    )


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and what is to be said of each, without a header."""
    table(("", " "), rows, wraps=(" ",), header=False)


def say(text: str = "", *, dim: bool = False) -> None:
    """A line of the result to stdout, folded at the terminal's width."""
    console().print(printable(text), style="dim" if dim else None)


def tell(text: str, *, dim: bool = False) -> None:
    """A line about the work to stderr."""
    console(stderr=True).print(printable(text), style="dim" if dim else None)


def cut(n_tokens: int) -> str:
    """The sign of an answer that was cut."""
    return f"… cut at {n_tokens:,} tokens (--max-new)"


class _Line:
    """Whether a line of an answer is on the terminal that is not ended yet."""

    is_open = False


def write(text: str) -> None:
    """A piece of an answer to stdout, at once; a warning that comes in between begins a line of its own."""
    sys.stdout.write(text)
    sys.stdout.flush()
    _Line.is_open = not text.endswith("\n") if text else _Line.is_open


def end_line() -> None:
    """End the answer's line, unless a warning has."""
    if _Line.is_open:
        write("\n")


def show_warnings() -> None:
    """From now on an AgentKVWarning is one line on stderr, each text once; other warnings are shown as by Python."""
    shown, by_python = set[str](), warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, AgentKVWarning):
            by_python(message, category, filename, lineno, file, line)
        elif str(message) not in shown:
            shown.add(str(message))
            if sys.stdout.isatty() and sys.stderr.isatty():
                end_line()
            typer.echo(f"warning: {printable(str(message))}", err=True)

    warnings.filterwarnings("always", category=AgentKVWarning)
    # Commands say it themselves, by :func:`cut`, with the name of their option.
    warnings.filterwarnings("ignore", r"the answer was cut at \d+ tokens; raise max_new", AgentKVWarning)
    warnings.showwarning = show


def print_json(value: object, *, indent: bool = True) -> None:
    """One JSON document and a newline to stdout."""
    options = orjson.OPT_INDENT_2 if indent else 0
    sys.stdout.write(orjson.dumps(_plain(value), option=options).decode() + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """``value`` in JSON's own types; a file name that is not UTF-8 does not end the command."""
    match value:
        case dict():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Path():
            return _plain(str(value))
        case object(model_dump=dump):  # a record
            return dump(mode="json")
        case str():
            return value.encode("utf-8", "replace").decode()
        case None | bool() | float() | int():
            return value
        case _:
            return _plain(str(value))


def error_record(error: AgentKVError) -> dict[str, Any]:
    """What a script needs to know of an error: type, message, exit code and the error's own attributes."""
    known = {"type": type(error).__name__, "message": error.message, "exit_code": error.exit_code}
    return known | {key: value for key, value in vars(error).items() if key not in known}


def picked(thing: object, *names: str) -> dict[str, Any]:
    """These attributes of a thing, for a script."""
    return {name: getattr(thing, name) for name in names}


def finish(
    record: dict[str, Any], as_json: bool, show: Callable[[], None], failures: Sequence[AgentKVError] = ()
) -> None:
    """Print a command's result, also where part of it failed, and end with the first failure's exit code.

    As JSON it is one document; the first failure is its member ``error``.
    """
    if as_json:
        print_json(record | {"error": error_record(failures[0])} if failures else record)
    else:
        show()
    for failure in failures:
        report(failure)
    if failures:
        raise typer.Exit(failures[0].exit_code)


def report(error: AgentKVError) -> None:
    """The one line that a person gets of an error."""
    sys.stdout.flush()
    typer.echo(f"error: {printable(error.message)}", err=True)


def size(n_bytes: float) -> str:
    """A number of bytes for people, in decimal units."""
    if n_bytes < 1e6:
        return f"{n_bytes / 1e3:,.0f} kB" if n_bytes >= 1e3 else f"{n_bytes:.0f} B"
    if n_bytes >= 1e10:
        return f"{n_bytes / 1e9:,.1f} GB"
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes < 1e7 else f"{n_bytes / 1e6:,.0f} MB"


def duration(ms: float) -> str:
    """Milliseconds for people: ``0.4 ms``, ``61 ms``, ``3.4 s``."""
    if ms < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1e3:.1f} s"


def count(number: int, noun: str) -> str:
    """``1 block``, ``2 blocks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# --- asking before something goes -----------------------------------------------------------------


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(what: str, *, yes: bool, as_json: bool, show: Callable[[], None] = lambda: None) -> None:
    """Return if ``what`` may be removed; ``show`` prints it in full. Raises NotConfirmed."""
    if yes:
        return
    if as_json or not is_terminal():
        raise NotConfirmed(what, asked=False)
    show()
    try:
        agreed = typer.confirm(printable(f"Remove {what}?"), default=False, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise NotConfirmed(what, asked=True)
