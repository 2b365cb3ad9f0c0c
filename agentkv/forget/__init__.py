"""Forgetting: a person's words removed from every file of a store, and every file read to show that they are gone.

    selection.py   what is to be forgotten, and how words are matched
    databases.py   rows of the adapters' SQLite files
    forgetting.py  finds, removes, checks

Whole things are removed: a turn, an item, a document, a solution, a log line, a block with its descendants. What cannot
be removed is reported: a line of a hash-chained ledger, a pack outside the store. Not guaranteed: the same said in
other words, copies outside the store, a disk's worn-out sectors and snapshots.
"""

from __future__ import annotations

from agentkv.forget.forgetting import ForgetReport, forget
from agentkv.forget.selection import Selection

__all__ = ["ForgetReport", "Selection", "forget"]
