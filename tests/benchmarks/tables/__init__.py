"""The README's tables, each from result files of one benchmark. Pure; every share and ratio is one of a single run.

A table takes the results of its benchmark in the order in which rows shall stand and gives Markdown. Knows what each
benchmark calls its figures; refuses to compute any from two results.

base.py        what a table is            engine.py     exactness, reading, bytes, faults
routing.py     routers                    documents.py  documents past the window
"""

from __future__ import annotations

from tests.benchmarks.declared import declared
from tests.benchmarks.tables import documents, routing
from tests.benchmarks.tables.base import Table

TABLES = (
    *(Table.of(one, kind.kind) for kind in declared() for one in kind.tables if one.name is not None),
    Table("route-evaluate", "route evaluate", routing.route_evaluate),
    Table("widen", "widen", documents.widen),
    Table("needles", "needles", documents.needles),
    Table("depth", "depth", documents.depth),
    Table("questions", "questions", documents.questions),
)

__all__ = ["TABLES", "Table"]
