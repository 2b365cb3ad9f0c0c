"""Forgetting: a person's words removed from every file of a store, and the files read through to show that they are.

    words.py       what is looked for, in text, JSON and bytes of files
    selection.py   what is meant: a text, a time, a thread, a user
    databases.py   rows of the adapters' SQLite files
    forgetting.py  finds, removes, proves

What is removed is whole: a turn, an item, a document, a solution, a log line; a block with all that stand on it. What
cannot be removed is said: a line of a hash-chained ledger, a pack outside the store. Not guaranteed: words that say the
same otherwise, copies outside the store, blocks on a disk's worn-out sectors and in its snapshots.
"""

from __future__ import annotations

from agentkv.forget.forgetting import ForgetReport, forget
from agentkv.forget.selection import Selection

__all__ = ["ForgetReport", "Selection", "forget"]
