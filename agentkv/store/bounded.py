"""The part of ``BlockStore`` that keeps to a byte budget: eviction at deposits, blocks that are held together, uses.

Which blocks go is decided in ``budget.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentkv.errors import CorruptBlock, OverBudget, StoreError, StoreReadError, UsageError
from agentkv.notices import warn
from agentkv.records import EngineChoice, StoreSettings
from agentkv.store import budget as budgets
from agentkv.store.budget import Eviction, Victim
from agentkv.store.files import StoreFiles
from agentkv.store.recordfiles import StateCache
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

    def pass_over(self, error: StoreError) -> None:
        """Warn, once, of what cannot be read."""
        raise NotImplementedError

    def tell_once(self, error: StoreError, remedy: str = "") -> None:
        """Warn, once for this object and place, of something that is passed over."""
        raise NotImplementedError

    def _bind(self, budget_bytes: int | None) -> None:
        self._budget = budget_bytes
        self._held: list[str] | None = None
        self._created: list[str] = []
        self.evicted: list[Victim] = []

    @property
    def budget(self) -> int | None:
        """Bytes on disk that the blocks may take, or None: this object's own limit, else the store's."""
        return self._budget if self._budget is not None else self._settings().budget_bytes

    def _settings(self) -> StoreSettings:
        try:
            return self.files.read_settings()
        except StoreError as error:
            self.pass_over(error)
            return StoreSettings()

    def set_budget(self, budget_bytes: int | None) -> None:
        """Change the store's own budget, for every process from its next deposit on; nothing goes now."""
        check_budget(budget_bytes)
        self._set(budget_bytes=budget_bytes)

    @property
    def engine_choice(self) -> EngineChoice:
        """The engine that opens the store where its caller names none. Corrupt settings count as none, with a warning.

        Raises StoreReadError.
        """
        try:
            return self.files.read_settings().engine or EngineChoice()
        except CorruptBlock as error:
            warn(f"{error.message} They were ignored; set them again with `agentkv settings`.")
            return EngineChoice()

    def set_engine_choice(self, choice: EngineChoice) -> None:
        """Change that for every process that opens the store from now on."""
        self._set(engine=None if choice == EngineChoice() else choice)

    @property
    def superseded(self) -> frozenset[str]:
        """The fingerprints whose blocks were migrated to another one: they are evicted before all others."""
        return frozenset(self._settings().superseded)

    def set_superseded(self, fingerprint_ids: Iterable[str]) -> None:
        """Change that for every process, from its next deposit on."""
        self._set(superseded=tuple(sorted(fingerprint_ids)))

    def _set(self, **values: Any) -> None:
        """Change some of the settings; corrupt ones are replaced."""
        settings = StoreSettings()
        with contextlib.suppress(CorruptBlock):
            settings = self.files.read_settings()
        self.files.write_settings(settings.model_copy(update=values))

    @contextlib.contextmanager
    def holding(self, keep: Iterable[str] = (), *, whole: bool = False) -> Iterator[None]:
        """For blocks that belong together: none that is put in here, or is one of ``keep``, makes room for another.

        Nothing is evicted before all of them are there, so what cannot fit is refused with nothing gone. If the store
        refuses one of them (OverBudget, StoreFull and so on), what was created in here is removed again; with ``whole``
        so it is whatever is raised.
        """
        if self._held is not None:  # inside another such block
            yield
            return
        created: list[str] = []
        self._held, self._created, held = list(keep), created, []
        try:
            yield
            held, self._held = self._held, None
            if held:
                self._keep_to_budget(held, bool(created))
        except BaseException as error:
            if not whole and not isinstance(error, StoreError):
                raise
            with contextlib.suppress(StoreError), self.files.lock.exclusive():
                budgets.take_away(self.files, list(reversed(created)), self.pass_over)
            raise
        finally:
            self._held, self._created = None, []

    def require_room(self, n_bytes: int) -> None:
        """Raise OverBudget if that many bytes cannot be had, whatever else goes; nothing goes now."""
        budget = self.budget
        if budget is not None:
            kept = budgets.plan(self.files, self._uses, 0, on_error=self.pass_over).kept
            if kept + n_bytes > budget:
                raise OverBudget(n_bytes, budget, kept)

    def evict(self, budget_bytes: int | None = None, *, dry_run: bool = False) -> Eviction:
        """Evict down to a budget in bytes (default: the store's); what went, or would with ``dry_run``.

        Raises UsageError without a budget, CorruptBlock, StoreReadError.
        """
        budget = self.budget if budget_bytes is None else budget_bytes
        if budget is None or budget < 0:
            raise UsageError("there is no budget. Pass one, or set one with `agentkv gc --set-budget SIZE`.")
        with self.files.lock.exclusive():
            if dry_run:
                return budgets.plan(self.files, self._uses, budget, on_error=self.pass_over)
            refused: list[StoreError] = []
            eviction = self._make_room(budget, [], refused)[0]
            of_system = [error for error in refused if isinstance(error, StoreReadError)]
            if of_system and not eviction.victims and not eviction.fits:
                raise of_system[0]
            self._warn_of_refused(refused)
            return eviction

    def _keep_to_budget(self, block_ids: Sequence[str], created: bool) -> None:
        """Make room for blocks just committed, or raise OverBudget with nothing gone; the caller takes them back.

        Between two of a group nothing goes yet: it is only seen whether it could.
        """
        try:
            budget = self.budget
            if budget is None:
                return
            stored = budgets.stored_bytes(self.files)
            self.files.images.trim(budget - stored)
            if stored <= budget:
                return
            with self.files.lock.exclusive():
                refused: list[StoreError] = []
                if self._held is None:
                    budgets.sweep_unneeded(self.files, refused.append)
                eviction, stuck = self._plan(budget, block_ids), set[str]()
                if eviction.fits or not created:
                    if self._held is None:
                        eviction, stuck = self._make_room(budget, block_ids, refused)
                        self._warn_of_refused(refused)
                    if eviction.fits or not created:
                        return
                without = self._plan(budget, sorted(stuck))
        except StoreReadError as error:  # others hold the lock, or the store cannot be looked at
            self.tell_once(error, "The block is stored, and the store may be over its budget: run `agentkv gc`.")
            return
        raise OverBudget(max(0, eviction.kept - without.kept), budget, without.kept)

    def _warn_of_refused(self, errors: Iterable[StoreError]) -> None:
        for error in errors:
            if not isinstance(error, StoreReadError):
                self.pass_over(error)
                continue
            self.tell_once(error, "It cannot be removed, so others go for the budget in its place; check permissions.")

    def _plan(self, budget: int, protected: Sequence[str]) -> Eviction:
        swept = self._held is None and self.files.lock.is_exclusive
        return budgets.plan(self.files, self._uses, budget, protected, swept=swept, on_error=self.pass_over)

    def _make_room(self, budget: int, protected: Sequence[str], refused: list[StoreError]) -> tuple[Eviction, set[str]]:
        """Evict until the budget holds; what went, and which cannot be removed, with the errors in ``refused``."""
        budgets.sweep_unneeded(self.files, refused.append)
        stuck, gone, stored = set[str](), list[Victim](), None
        while True:
            eviction = self._plan(budget, [*protected, *stuck])
            stored = eviction.stored if stored is None else stored
            if not eviction.victims:
                break
            left = budgets.evict(self.files, self._uses, eviction, refused.append)
            went = [victim for victim in eviction.victims if victim.block_id not in left]
            for victim in went:
                self.cache.drop(victim.block_id)
            gone, stuck = gone + went, stuck | left
        self.evicted += gone
        return Eviction(tuple(gone), stored, budget, eviction.kept), stuck

    def _room_for_images(self) -> int:
        """Bytes that restore images may take: their own limit, and what the budget leaves over."""
        limit, budget = self.files.images.limit, self.budget
        return limit if budget is None else min(limit, budget - budgets.stored_bytes(self.files))

    def used(self, block_id: str) -> None:
        """Note that a block was grafted."""
        self._uses.add(block_id)

    def uses(self) -> dict[str, Use]:
        """Hits and last use by block id; blocks never used are absent."""
        return self._uses.all()
