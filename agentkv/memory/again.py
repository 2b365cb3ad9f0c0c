"""Depositing for this engine what a store holds for others: each name once, from the text that the store keeps.

A change of engine costs time, never a text: all texts are read before anything is deposited, what has not had its turn
yet cannot be evicted for what has, and what does not fit is refused with what was there left as it was. A name that
stands behind another one (a reference behind its manual) comes after it. Refuses to know documents; see
:mod:`agentkv.documents.again`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv.blocks.blocks import Deposit
from agentkv.engine.base import Cancellation
from agentkv.errors import (
    AgentKVError,
    Cancelled,
    IncompatibleFingerprint,
    InexactBlock,
    OverBudget,
    SkillError,
    StoreError,
    StoreFull,
    UnknownBlock,
    UsageError,
    WindowOverflow,
)
from agentkv.records import NamedBlock
from agentkv.store.catalog import BlockStore

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory

_ONE_BAD_NAME = (SkillError, IncompatibleFingerprint, WindowOverflow, InexactBlock, UsageError, UnknownBlock)


@dataclass(frozen=True)
class Again:
    """What was deposited again, in order, and what could not be, with the reason."""

    done: tuple[tuple[NamedBlock, Deposit], ...]
    failed: tuple[tuple[NamedBlock, AgentKVError], ...]


@dataclass(frozen=True)
class _Work:
    named: NamedBlock
    text: str
    behind: str | None


def deposit_again(
    memory: AgentMemory,
    *,
    allow_inexact: bool,
    on_work: Callable[[NamedBlock], None],
    cancellation: Cancellation | None,
) -> Again:
    """Deposit what only other engines have; of a name that several have, the one written last.

    One bad name keeps no other out. Raises Cancelled, OverBudget, StoreFull; what was deposited by then stays.
    """
    wanted = lacking(memory.store, memory.blocks.fingerprint.id)
    works, failed = _works(memory.store, wanted)
    done: list[tuple[NamedBlock, Deposit]] = []
    for at, work in enumerate(works):
        if cancellation is not None and cancellation.requested:
            raise Cancelled("depositing again")
        on_work(work.named)
        waiting = [later.named.block_id for later in works[at:]]
        try:
            with memory.engine.lock, memory.store.holding([*waiting, *(one.manifest.block_id for _, one in done)]):
                deposit = memory.deposit_source(
                    work.named, work.text, behind=work.behind, allow_inexact=allow_inexact, cancellation=cancellation
                )
        except (OverBudget, StoreFull):
            raise
        except _ONE_BAD_NAME as error:
            failed.append((work.named, error))
        else:
            done.append((work.named, deposit))
    return Again(tuple(done), tuple(failed))


def lacking(store: BlockStore, fingerprint_id: str) -> list[NamedBlock]:
    """The names that other engines have and this one has not, by name; of several of one name the one written last."""
    names = store.names(on_error=lambda _: None)
    own = {named.name for named in names if named.fingerprint_id == fingerprint_id}
    newest: dict[str, NamedBlock] = {}
    for named in sorted(names, key=store.named_at):
        if named.name not in own:
            newest[named.name] = named
    return [newest[name] for name in sorted(newest)]


def _works(
    store: BlockStore, wanted: Sequence[NamedBlock]
) -> tuple[list[_Work], list[tuple[NamedBlock, AgentKVError]]]:
    """What is to be deposited, parents first, with its text; and those whose text is not there."""
    works: dict[str, _Work] = {}
    failed: list[tuple[NamedBlock, AgentKVError]] = []
    by_block = {(named.fingerprint_id, named.block_id): named.name for named in store.names(on_error=lambda _: None)}
    for named in wanted:
        try:
            text = store.text(named.source_sha256) if named.source_sha256 else None
            if text is None:
                where = f" It came from {named.source}: deposit that." if named.source else ""
                raise UnknownBlock(named.block_id, f"The text of {named.name!r} is not kept in the store.{where}")
            parent = store.ancestor(named.block_id)
            behind = by_block.get((named.fingerprint_id, (parent.parent_id if parent else None) or ""))
            works[named.name] = _Work(named, text, behind)
        except StoreError as error:
            failed.append((named, error))
    return _parents_first(works), failed


def _parents_first(works: dict[str, _Work]) -> list[_Work]:
    ordered: dict[str, _Work] = {}

    def add(work: _Work) -> None:
        if work.behind in works and work.behind not in ordered and work.behind != work.named.name:
            add(works[work.behind])
        ordered[work.named.name] = work

    for work in works.values():
        if work.named.name not in ordered:
            add(work)
    return list(ordered.values())
