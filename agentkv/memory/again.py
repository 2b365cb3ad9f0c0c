"""Depositing for this engine what a store holds for others: each name once, from the text that the store keeps.

A change of engine costs time, never a text: all texts are read from disk before anything is deposited, what has not had
its turn yet cannot be evicted for what has, and what does not fit leaves what was there as it was. A reference comes
after the manual that is its parent. For documents see :mod:`agentkv.documents.corpus`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from agentkv.blocks.blocks import Blocks, Deposit
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

_ONE_BAD_NAME = (SkillError, IncompatibleFingerprint, WindowOverflow, InexactBlock, UsageError, UnknownBlock)


@dataclass(frozen=True)
class Again:
    """What was deposited again, in order, and what could not be, with the reason."""

    done: tuple[tuple[NamedBlock, Deposit], ...]
    failed: tuple[tuple[NamedBlock, AgentKVError], ...]


class DepositSource(Protocol):
    """:meth:`agentkv.AgentMemory.deposit_source`."""

    def __call__(
        self,
        named: NamedBlock,
        text: str,
        *,
        parent: str | None,
        allow_inexact: bool,
        cancellation: Cancellation | None,
    ) -> Deposit:
        """Prefill a text and store it under its name."""
        ...


@dataclass(frozen=True)
class _Work:
    named: NamedBlock
    text: str
    parent: str | None


def deposit_again(
    blocks: Blocks,
    deposit_source: DepositSource,
    *,
    allow_inexact: bool,
    on_work: Callable[[NamedBlock], None],
    cancellation: Cancellation | None,
    holding: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Again:
    """Deposit what only other engines have; of a name that several have, the one written last.

    One bad name keeps no other out. ``holding``: entered for each deposit, to keep more from eviction than what has not
    had its turn. Raises Cancelled, OverBudget, StoreFull; what was deposited by then stays.
    """
    store = blocks.store
    works, failed = _works(store, lacking(store, blocks.fingerprint.id))
    done: list[tuple[NamedBlock, Deposit]] = []
    for at, work in enumerate(works):
        if cancellation is not None and cancellation.requested:
            raise Cancelled("depositing again")
        on_work(work.named)
        waiting = [later.named.block_id for later in works[at:]]
        try:
            kept = [*waiting, *(made.manifest.block_id for _, made in done)]
            with blocks.engine.lock, holding(), store.holding(kept):
                deposit = deposit_source(
                    work.named, work.text, parent=work.parent, allow_inexact=allow_inexact, cancellation=cancellation
                )
        except (OverBudget, StoreFull):
            raise
        except _ONE_BAD_NAME as error:
            failed.append((work.named, error))
        else:
            done.append((work.named, deposit))
    return Again(tuple(done), tuple(failed))


def lacking(store: BlockStore, fingerprint_id: str) -> list[NamedBlock]:
    """The names that other engines have and this one has not, by name; of several with one name the newest."""
    names = store.names(on_error=lambda _: None)
    own = {named.name for named in names if named.fingerprint_id == fingerprint_id}
    newest: dict[str, NamedBlock] = {}
    for named in sorted(names, key=store.named_at):
        if named.name not in own:
            newest[named.name] = named
    return [newest[name] for name in sorted(newest)]


def _works(store: BlockStore, names: Sequence[NamedBlock]) -> tuple[list[_Work], list[tuple[NamedBlock, AgentKVError]]]:
    """What is to be deposited, parents first, with its text; and those whose text is not there."""
    works: dict[str, _Work] = {}
    failed: list[tuple[NamedBlock, AgentKVError]] = []
    by_block = {(named.fingerprint_id, named.block_id): named.name for named in store.names(on_error=lambda _: None)}
    for named in names:
        try:
            text = store.text(named.source_sha256) if named.source_sha256 else None
            if text is None:
                where = f" It came from {named.source}: deposit that." if named.source else ""
                raise UnknownBlock(named.block_id, f"The text of {named.name!r} is not kept in the store.{where}")
            parent = store.ancestor(named.block_id)
            above = by_block.get((named.fingerprint_id, (parent.parent_id if parent else None) or ""))
            works[named.name] = _Work(named, text, above)
        except StoreError as error:
            failed.append((named, error))
    return _parents_first(works), failed


def _parents_first(works: dict[str, _Work]) -> list[_Work]:
    ordered: dict[str, _Work] = {}

    def add(work: _Work) -> None:
        if work.parent in works and work.parent not in ordered and work.parent != work.named.name:
            add(works[work.parent])
        ordered[work.named.name] = work

    for work in works.values():
        if work.named.name not in ordered:
            add(work)
    return list(ordered.values())
