"""Puts the tables of committed result files into Markdown files, between markers, and says where the two differ.

A table stands between ``<!-- results: NAME -->`` and ``<!-- end of results -->``; the text around it is written by
hand. Knows Markdown as lines; refuses to touch anything outside of the markers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from agentkv.bench.results import Result
from agentkv.errors import InvalidResult
from agentkv.io import fsio
from tests.benchmarks.tables import TABLES, Table

FOLDER = Path("tests/data/results")
"""Where a checkout keeps them. Not in the package: a file there would change the digest of
the source tree, which a recorded run names, so no result could ever be of the tree that it is committed with."""

FILES = ("agentkv/bench/RESULTS.md", "agentkv/engine/EXACTNESS.md")
"""The files of a checkout that have such tables."""

_PART = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- end of results -->)", re.DOTALL)


def rendered(text: str, results: Sequence[Result], tables: Sequence[Table] = TABLES) -> tuple[str, list[str]]:
    """The text with every table made again, and the names of those that were other before.

    Raises InvalidResult for a marker of no table, or a table without results.
    """
    by_name = {table.name: table for table in tables}
    changed: list[str] = []

    def replace(found: re.Match[str]) -> str:
        name = found[2]
        if name not in by_name:
            raise InvalidResult(f"<!-- results: {name} -->", f"there is no such table; there are {', '.join(by_name)}")
        table = f"\n{by_name[name].markdown(results)}\n\n"
        if table != found[3]:
            changed.append(name)
        return f"{found[1]}{table}{found[4]}"

    made = _PART.sub(replace, text)
    if made.count("<!-- results: ") != len(_PART.findall(made)):
        raise InvalidResult("the text", "a marker `<!-- results: NAME -->` has no `<!-- end of results -->` after it")
    return made, changed


def named(text: str) -> list[str]:
    """The tables that a text has, in order."""
    return [name for _, name, *_ in _PART.findall(text)]


def write(path: Path, text: str) -> None:
    """Replace a file, whole or not at all."""
    fsio.write_durably(path, [text.encode()])
