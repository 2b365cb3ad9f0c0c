"""The README's tables, each from result files of one benchmark. Pure; every share and ratio is one of a single run.

A table takes the results of its benchmark in the order in which rows shall stand and gives Markdown. Knows what each
benchmark calls its figures; refuses to compute any from two results.

base.py   what a table is                    routing.py   routers
agent.py  a conversation beside other ways   peers.py     what people use today
"""

from __future__ import annotations

from tests.benchmarks.declared import declared
from tests.benchmarks.tables import agent, peers, routing
from tests.benchmarks.tables.base import Table

TABLES = (
    *(Table.of(one, kind.kind) for kind in declared() for one in kind.tables if one.name is not None),
    Table("route-evaluate", "route evaluate", routing.route_evaluate),
    Table("agent", "agent", agent.agent),
    Table("peers", "peers", peers.speed),
    Table("faults", "peers", peers.faults),
)

__all__ = ["TABLES", "Table"]
