"""``SkillWatch``: keeps a library in step with its folders while they change, on a thread of its own.

    file system ──events──> places to read again ──quiet 0.3 s, at most 1.5 s──> worker: read, compare, deposit

A skill that changed again while the others were compared is left to the next round, but never for longer than 1.5 s.

What happened is never trusted, only where: the place is read again and compared by content, so an atomic save, vim's
way of saving, a move and a plain write are one case, and a change that changes nothing costs a hash. Reading raises no
event: the system is asked for changes only. What happens inside the memory's store is left out by its path, so that a
store inside a watched folder does not feed the loop.

**The net below.** Events can be lost (a queue that overflows, a network file system, a linked folder) or not be had at
all. So every ``rescan_s`` the files' signatures are compared, and every second it is looked whether a root was
removed, moved or made again. Where the system gives no events (no watches left), signatures are compared every
POLL_S.

A store's own write order makes it safe to kill the process at any moment: what is committed is whole.

Not guaranteed: that :meth:`SkillWatch.stop` returns within its time limit if another thread never lets go of the
engine; a thread that holds an unfinished stream should not wait here.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from agentkv.engine.base import Cancellation
from agentkv.errors import Cancelled, StoreError
from agentkv.io.forks import Owner
from agentkv.skills.inventory import Inventory, place_of
from agentkv.skills.report import Broken, Plan, SkillEvent, SyncReport
from agentkv.store.catalog import BlockStore

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver

Key = TypeVar("Key", bound=Hashable)


class Debounce(Generic[Key]):
    """Each key is due ``quiet_s`` after it was touched last, or ``longest_s`` after it was touched first."""

    def __init__(self, quiet_s: float, longest_s: float, clock: Callable[[], float]) -> None:
        self._quiet, self._longest, self._clock = quiet_s, longest_s, clock
        self._touched: dict[Key, tuple[float, float]] = {}

    def touch(self, key: Key) -> None:
        """Something happened at ``key``."""
        now = self._clock()
        first, _ = self._touched.get(key, (now, now))
        self._touched[key] = (first, now)

    def take_due(self) -> list[Key]:
        """The keys that are due, which are forgotten by that."""
        now = self._clock()
        due = [key for key in self._touched if self._due(key) <= now]
        for key in due:
            del self._touched[key]
        return due

    def wait_s(self) -> float | None:
        """How long until the next key is due; None if none is waiting."""
        due: Iterable[float] = [self._due(key) for key in self._touched]
        return max(0.0, min(due) - self._clock()) if self._touched else None

    def __iter__(self) -> Iterator[Key]:
        """What is waiting."""
        return iter(list(self._touched))

    def __len__(self) -> int:
        return len(self._touched)

    def _due(self, key: Key) -> float:
        first, last = self._touched[key]
        return min(last + self._quiet, first + self._longest)


POLL_S = 2.0
_TICK_S = 1.0
_STOP_S = 10.0
_MOVES = {"created", "moved", "deleted"}


class _HasStore(Protocol):
    @property
    def store(self) -> BlockStore: ...


class Watched(Protocol):
    """What a watch asks of a library; :class:`~agentkv.SkillLibrary` is one."""

    inventory: Inventory

    @property
    def memory(self) -> _HasStore: ...

    def locked(self) -> AbstractContextManager[None]: ...

    def plan(self, *, read: bool = True) -> Plan: ...

    def announce(self, plan: Plan, *, clashes: bool = False) -> None: ...

    def carry_out(
        self,
        plan: Plan,
        cancellation: Cancellation | None = None,
        *,
        on_event: Callable[[SkillEvent], None],
        leave: Callable[[Path], bool],
    ) -> SyncReport: ...


class SkillWatch:
    """A running watch; made by :meth:`SkillLibrary.watch`, which is also where to read of its parameters.

    ``on_event`` is called on the worker's thread. An exception that it raises, or any that is not an AgentKVError,
    ends the watch and is raised by ``wait_idle``, ``stop`` and the end of a ``with``.
    """

    def __init__(
        self,
        library: Watched,
        on_event: Callable[[SkillEvent], None],
        *,
        quiet_s: float,
        longest_s: float,
        rescan_s: float,
    ) -> None:
        self._library, self._on_event, self._rescan_s, self._longest_s = library, on_event, rescan_s, longest_s
        self._stores = set(_as_seen(library.memory.store.root, library.inventory.roots))
        self._pending: Debounce[Path] = Debounce(quiet_s, longest_s, time.monotonic)
        self._changed = threading.Condition()
        self._owner = Owner("skill watch")
        self._cancellation = Cancellation()
        self._stopping = False
        self._asked, self._answered, self._busy = 0, 0, True
        self._failure: BaseException | None = None
        self._reported: dict[Path, str] = {}
        self._left: dict[Path, float] = {}
        self._roots = {root: _Root(root, self._notice) for root in library.inventory.roots}
        for watched in self._roots.values():
            watched.renew()
        self._thread = threading.Thread(target=self._run, name="agentkv-skills", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self._owner.is_here:
            return
        self._end(_STOP_S)
        if kind is None:
            self._raise_failure()

    # --- from outside ---------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether it still works."""
        return self._thread.is_alive()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until whatever was written before this call is dealt with; False if the time was up first."""
        self._owner.require()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._changed.notify_all()
            while self.is_alive and not (self._answered >= mine and not self._busy and not len(self._pending)):
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(_TICK_S if left is None else min(left, _TICK_S))
        self._raise_failure()
        return True

    def stop(self, timeout_s: float = _STOP_S) -> bool:
        """End it; a deposit under way is cancelled within a token. False if it has not ended within the time."""
        self._owner.require()
        ended = self._end(timeout_s)
        self._raise_failure()
        return ended

    def _end(self, timeout_s: float) -> bool:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._cancellation.cancel()
        for watched in self._roots.values():
            watched.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self.is_alive

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- events ---------------------------------------------------------------------------------------

    def _notice(self, root: Path, event: FileSystemEvent) -> None:
        """On the observer's thread: note the places; nothing is opened here."""
        if event.is_directory and event.event_type not in _MOVES:
            return
        for path in (Path(os.fsdecode(raw)) for raw in (event.src_path, event.dest_path) if raw):
            if path.is_relative_to(root) and not any(path.is_relative_to(store) for store in self._stores):
                place = place_of(path, root, event.is_directory)
                self._touch([] if place is None else [place])

    def _touch(self, places: Iterable[Path]) -> None:
        with self._changed:
            for place in places:
                self._pending.touch(place)
            self._changed.notify_all()

    # --- the worker -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work(None)
            while True:
                places = self._next()
                if places is None:
                    return
                self._work(places)
        except Cancelled:
            pass
        except BaseException as error:  # noqa: BLE001 - a thread's end: kept, and raised where it is asked for
            self._failure = error
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> list[Path] | None:
        """The places that are due, or None at the end. Between them, once a second, a look at the roots."""
        rescan_at = time.monotonic() + self._period()
        while True:
            self._renew_roots()
            with self._changed:
                self._busy = False
                asked = self._asked
                self._changed.notify_all()
                if self._stopping:
                    return None
                due = self._pending.take_due()
                if due:
                    self._busy = True
                    return due
                wait = self._pending.wait_s()
                if self._answered == asked and time.monotonic() < rescan_at:
                    self._changed.wait(_TICK_S if wait is None else min(wait, _TICK_S))
                    continue
                self._busy = True
            with self._library.locked():
                places = self._library.inventory.places_changed()
            self._touch(places)
            self._answered, rescan_at = asked, time.monotonic() + self._period()

    def _period(self) -> float:
        has_events = all(watched.has_events for watched in self._roots.values())
        return self._rescan_s if has_events else min(self._rescan_s, POLL_S)

    def _renew_roots(self) -> None:
        for root, watched in self._roots.items():
            if watched.is_stale() and not self._stopping:
                watched.renew()
                self._touch([root])

    def _work(self, places: list[Path] | None) -> None:
        """Read the places again and bring the store in step; what the store refused is tried again at a rescan."""
        library = self._library
        with library.locked():
            if not library.inventory.read(places):
                return
            plan = library.plan(read=False)
            library.announce(plan)
            report = library.carry_out(plan, self._cancellation, on_event=self._say, leave=self._is_left)
        self._say_faults(report.broken, [manual.path for manual, _ in plan.unchanged])
        for entry in report.broken:
            if isinstance(entry.error, StoreError):
                library.inventory.forget(entry.path)

    def _is_left(self, folder: Path) -> bool:
        """Whether a skill is passed over, since it has changed again and is to be read soon.

        Not for longer than ``longest_s`` after the first time: a file that is saved all the time, in a library that
        takes longer to compare than its saves are apart, would never be deposited.
        """
        with self._changed:
            is_waiting = any(folder.is_relative_to(place) for place in self._pending)
        now = time.monotonic()
        if is_waiting and now - self._left.setdefault(folder, now) < self._longest_s:
            return True
        self._left.pop(folder, None)
        return False

    def _say(self, event: SkillEvent) -> None:
        if event.kind != "evicted" and event.path is not None:
            self._reported.pop(event.path, None)
        self._on_event(event)

    def _say_faults(self, broken: Iterable[Broken], valid: Iterable[Path]) -> None:
        """Tell of each fault once, and of its end where that took no deposit."""
        faults = {entry.folder: entry for entry in broken}
        for folder, entry in faults.items():
            if self._reported.get(folder) != entry.message:
                self._reported[folder] = entry.message
                self._on_event(SkillEvent("broken", folder.name, folder, reason=entry.message))
        for folder in set(valid) & set(self._reported):
            self._on_event(SkillEvent("mended", folder.name, folder))
        self._reported = {folder: message for folder, message in self._reported.items() if folder in faults}


def _as_seen(store: Path, roots: Iterable[Path]) -> Iterator[Path]:
    """The store's path, and what it is called below a root that is reached through links."""
    yield store
    for root in roots:
        if store.is_relative_to(root.resolve()):
            yield root / store.relative_to(root.resolve())


class _Root:
    """One watched root: its observer, as long as the folder is the one that it was set on."""

    def __init__(self, path: Path, notice: Callable[[Path, FileSystemEvent], None]) -> None:
        self._path, self._notice = path, notice
        self._observer: BaseObserver | None = None
        self._identity: tuple[int, int] | None = None
        self.has_events = True

    def is_stale(self) -> bool:
        """Whether the folder is not the one that is watched: gone, back, or another one."""
        return self._identity != self._now()

    def renew(self) -> None:
        """Watch what is there now."""
        self.close()
        self._identity = self._now()
        if self._identity is not None:
            self._observer = self._observe()
            self.has_events = self._observer is not None

    def close(self) -> None:
        """Watch no more."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            with contextlib.suppress(RuntimeError):  # it never started
                observer.join()

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _observe(self) -> BaseObserver | None:
        from watchdog import events
        from watchdog.observers import Observer

        handler = events.FileSystemEventHandler()
        handler.dispatch = lambda event: self._notice(self._path, event)  # type: ignore[method-assign]
        kinds = [
            *(events.FileCreatedEvent, events.FileModifiedEvent, events.FileClosedEvent),
            *(events.FileMovedEvent, events.FileDeletedEvent),
            *(events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent),
        ]
        # watchdog may notice a folder twice that is made while it adds the one above; it warns and goes on rightly. A
        # warning that is turned into an error would end its thread.
        warnings.filterwarnings("ignore", "Callback with id .* already exists", RuntimeWarning)
        observer = Observer()
        try:
            observer.schedule(handler, str(self._path), recursive=True, event_filter=kinds)
            observer.start()
        except OSError:  # no watches left, or the folder went just now
            return None
        return observer
