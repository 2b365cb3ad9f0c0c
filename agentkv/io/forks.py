"""Open models and stores across forks and copies: refused in a forked child, shared by copies, never pickled.

In a forked child the threads of the parent are missing and its locks may be held, so that a child would wait for ever.
The check compares a pid at each entry; it holds for ``os.fork``, multiprocessing's ``fork`` and servers that load
before they fork. Not guaranteed: what the child does with native memory by other ways than this package.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, NoReturn, Self, SupportsIndex

from agentkv.errors import NotPicklable, OpenedBeforeFork


class Owner:
    """The process in which something was opened. ``what``: its name in the error."""

    def __init__(self, what: str) -> None:
        self.what, self._pid = what, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return self._pid == os.getpid()

    def require(self) -> None:
        """Raise OpenedBeforeFork in any other process."""
        if self._pid != os.getpid():
            raise OpenedBeforeFork(self.what)


class OwnedLock:
    """A lock that a forked child is refused, where a plain one might keep it waiting for ever."""

    def __init__(self, what: str, *, reentrant: bool = False) -> None:
        self.owner = Owner(what)
        self._lock: Any = threading.RLock() if reentrant else threading.Lock()

    def __enter__(self) -> bool:
        self.owner.require()
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class RenewedLock:
    """A lock that is free again in a forked child, for what a child may go on with: an appended line, a digest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        if not _renewed and hasattr(os, "register_at_fork"):
            _register()
        _renewed.add(self)

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget who held it."""
        self._lock = threading.Lock()


_renewed: weakref.WeakSet[RenewedLock] = weakref.WeakSet()
_registered = threading.Event()


def _register() -> None:
    if not _registered.is_set():
        _registered.set()
        os.register_at_fork(after_in_child=_renew_all)


def _renew_all() -> None:
    for lock in list(_renewed):
        lock.renew()


class Shared:
    """Mixed into what holds an open model or store: ``copy`` and ``deepcopy`` give the object itself.

    Frameworks copy what they hold (``copy.deepcopy`` of a chat model, ``model_copy(deep=True)``). Two copies of a
    loaded model, its locks and its context would be two models, or fail somewhere below. Pickling raises NotPicklable.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklable(type(self).__name__)
