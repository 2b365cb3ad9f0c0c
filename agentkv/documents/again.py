"""Corpora that a store holds for another engine: said where one is missed, and cut anew for this one.

A corpus is of one engine, since its windows' ids are; its sources are the store's. So what is cut again is what was
added then, wherever the files are now. Windows are read when a question first needs them, or by ``docs add``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentkv.documents.corpus import Corpus
from agentkv.documents.elsewhere import lacking
from agentkv.engine.base import Cancellation
from agentkv.errors import AgentKVError, Cancelled, StoreFull
from agentkv.memory.memory import AgentMemory


@dataclass(frozen=True)
class Recut:
    """A corpus that was cut anew: its files and windows, and the files that could not be, with the reason."""

    name: str
    files: int
    windows: int
    failed: tuple[tuple[str, AgentKVError], ...]


def deposit_again(
    memory: AgentMemory,
    *,
    on_work: Callable[[str], None] = lambda _: None,
    cancellation: Cancellation | None = None,
) -> list[Recut]:
    """Cut for this engine the corpora that only others have, from the kept sources. Raises Cancelled, StoreFull.

    One bad file or corpus keeps no other out. Of several of one name the one that was written last is taken.
    """
    done = []
    for shelf, record in lacking(memory.store, memory.blocks.fingerprint.id):
        if cancellation is not None and cancellation.requested:
            raise Cancelled("cutting documents again")
        on_work(record.name)
        try:
            corpus = Corpus(
                memory, record.name, window=record.window, overlap=record.overlap, keep=record.keep, top=record.top
            )
            done.append(Recut(record.name, *corpus.take_over(shelf, cancellation)))
        except (Cancelled, StoreFull):
            raise
        except AgentKVError as error:
            done.append(Recut(record.name, 0, 0, ((record.name, error),)))
    return done
