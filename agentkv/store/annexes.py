"""The parts that keep sealed files beside the blocks, in one list for check and repair.

Adapters' databases are not among them: only SQLite can tell whether one is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentkv.store import corpora, solutions, threadlog
from agentkv.store.beside import Found
from agentkv.store.files import StoreFiles


@dataclass(frozen=True)
class Annex:
    """One part: its folder's name, its files, and why one is not what was written (None: it is, or it is gone).

    Both functions raise StoreReadError. What is damaged is moved aside by a repair: a source or record of documents is
    made anew by `agentkv docs add`, a thread can be rewound to the turns before, a task is solved again.
    """

    folder: str
    entries: Callable[[Path], Iterator[Found]]
    fault: Callable[[StoreFiles, Path], str | None]


ANNEXES = (
    Annex(corpora.DOCUMENTS, corpora.entries, lambda files, path: corpora.fault(files.root, path)),
    Annex(threadlog.THREADS, threadlog.entries, threadlog.fault),
    Annex(solutions.FLYWHEEL, solutions.entries, lambda files, path: solutions.fault(files.root, path)),
)
