"""What a byte budget does to a store: eviction at deposits, blocks that are held together, uses.

``BlockStore`` is this and the blocks. Knows plans and locks; which blocks go is decided in ``budget.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from agentkv.errors import CorruptBlock, OverBudget, StoreError, StoreReadError, UsageError
from agentkv.records import StoreSettings
from agentkv.store import budget as budgets
from agentkv.store.budget import Eviction, Victim
from agentkv.store.cache import StateCache
from agentkv.store.files import StoreFiles
from agentkv.store.uses import Use, Uses


def check_budget(budget_bytes: object) -> None:
    """Raise UsageError unless it is None or a whole number of bytes."""
    if budget_bytes is not None and (type(budget_bytes) is not int or budget_bytes < 0):
        raise UsageError(f"a budget of {budget_bytes!r}: it takes a whole number of bytes, 0 or more")


class Bounded:
    """The budget of the store in ``files``."""

    files: StoreFiles
    cache: StateCache[Any]
    _uses: Uses

    def _bind(self, budget_bytes: int | None) -> None:
        self._budget = budget_bytes
        self._held: list[str] | None = None
        self._created: list[str] = []
        self.evicted: list[Victim] = []

    @property
    def budget(self) -> int | None:
        """Bytes on disk that the blocks may take, or None: as this object was told, else as the store was."""
        return self._budget if self._budget is not None else self.files.read_settings().budget_bytes

    def set_budget(self, budget_bytes: int | None) -> None:
        """Change the store's own budget, for every process from its next deposit on; nothing goes now."""
        check_budget(budget_bytes)
        self.files.write_settings(StoreSettings(budget_bytes=budget_bytes))

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """For blocks that belong together: none that is put in here makes room for another that is.

        If the budget cannot hold them all, the OverBudget of the one that did not fit takes those before it along:
        what was created in here is removed again. What was evicted for them stays evicted: ask
        :meth:`require_room` first where the size is known.
        """
        if self._held is not None:  # part of a larger piece of work
            yield
            return
        created: list[str] = []
        self._held, self._created = [], created
        try:
            yield
        except OverBudget:
            with contextlib.suppress(StoreError), self.files.lock.alone():
                budgets.take_away(self.files, list(reversed(created)))
            raise
        finally:
            self._held, self._created = None, []

    def require_room(self, n_bytes: int) -> None:
        """Raise OverBudget if that many bytes cannot be had, whatever else goes; nothing goes now."""
        budget = self.budget
        if budget is not None:
            kept = budgets.plan(self.files, self._uses, 0).kept
            if kept + n_bytes > budget:
                raise OverBudget(n_bytes, budget, kept)

    def evict(self, budget_bytes: int | None = None, *, dry_run: bool = False) -> Eviction:
        """Get within a budget (default: the store's) and say what went, or would with ``dry_run``.

        Raises UsageError without a budget, CorruptBlock, StoreReadError.
        """
        budget = self.budget if budget_bytes is None else budget_bytes
        if budget is None or budget < 0:
            raise UsageError("there is no budget. Pass one, or set one with `agentkv gc --set-budget SIZE`.")
        with self.files.lock.alone():
            eviction = budgets.plan(self.files, self._uses, budget)
            if not dry_run:
                self._carry_out(eviction)
            return eviction

    def _keep_to_budget(self, block_id: str, created: bool) -> None:
        """Make room for a block just committed, or take it back. Raises OverBudget.

        A store that cannot be read whole, or in which others stay, is left over its budget: the block is stored, and
        `agentkv gc` says what is wrong.
        """
        with contextlib.suppress(CorruptBlock, StoreReadError):
            budget = self.budget
            if budget is None or budgets.stored_bytes(self.files) <= budget:
                return
            with self.files.lock.alone():
                eviction = budgets.plan(self.files, self._uses, budget, [block_id, *(self._held or ())])
                if eviction.fits or not created:
                    self._carry_out(eviction)
                    return
                without = budgets.plan(self.files, self._uses, budget)
                budgets.take_away(self.files, [block_id])
            raise OverBudget(max(0, eviction.kept - without.kept), budget, without.kept)

    def _carry_out(self, eviction: Eviction) -> None:
        budgets.evict(self.files, self._uses, eviction)
        for victim in eviction.victims:
            self.cache.drop(victim.block_id)
        self.evicted += eviction.victims

    def used(self, block_id: str) -> None:
        """Note that a block was grafted."""
        self._uses.add(block_id)

    def uses(self) -> dict[str, Use]:
        """Hits and last use by block id; blocks never used are absent."""
        return self._uses.all()
