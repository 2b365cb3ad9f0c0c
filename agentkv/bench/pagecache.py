"""The page cache: clocks, files put out of it, and what the kernel then fetched.

Cold means: fsync, ``posix_fadvise(DONTNEED)``, and then ``mincore`` says that no page is left. Not guaranteed: that a
hypervisor or the disk itself holds nothing; cold is cold for this kernel only.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SETTLE_S = 0.15
"""A file younger than 100 ms is checked at every read; see ``fsio.is_settled``."""
_PIECE = 4 << 20


def times(
    work: Callable[[], object],
    repeats: int,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
) -> list[float]:
    """Milliseconds of each repeat; ``before`` and ``after`` each are not timed.

    One run goes first untimed, unless ``before`` sets the scene. What ``work`` gives is freed outside the clock.
    """
    if before is None:
        work()
    taken = []
    for _ in range(repeats):
        if before is not None:
            before()
        start = time.perf_counter()
        kept = work()
        taken.append((time.perf_counter() - start) * 1e3)
        del kept
        if after is not None:
            after()
    return taken


def disk_speed(path: Path, data: NDArray[np.uint8], repeats: int) -> dict[str, list[float] | None]:
    """Milliseconds to read a file of ``data`` sequentially, ``warm`` and ``cold``; None where it does not get cold."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data.data)
        file.flush()
        os.fsync(file.fileno())
    target = np.zeros(data.size, np.uint8)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            for at in range(0, target.size, _PIECE):
                file.readinto(target[at : at + _PIECE].data)

    warm = times(read, repeats)
    cold = times(read, repeats, lambda: evict([path])) if evict([path]) == 0 else None
    path.unlink()
    return {"warm": warm, "cold": cold}


def evict(paths: Sequence[Path]) -> float:
    """Put files out of the page cache; the share of their pages that is still there, 1 if it cannot be known."""
    if not hasattr(os, "posix_fadvise"):
        return 1.0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    resident, pages = map(sum, zip(*(resident_pages(path) for path in paths), strict=True))
    return resident / pages if resident >= 0 else 1.0


def resident_pages(path: Path) -> tuple[float, int]:
    """How many pages of a file the page cache holds, and how many it has; minus infinity where nobody says."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        data = np.frombuffer(view, np.uint8)
        pages = -(-data.size // mmap.PAGESIZE)
        flags = np.zeros(pages, np.uint8)
        try:
            mincore = ctypes.CDLL(None).mincore
        except (AttributeError, OSError):
            mincore = None
        place, size, into = map(ctypes.c_void_p, (data.ctypes.data, data.size, flags.ctypes.data))
        failed = mincore is None or mincore(place, size, into) != 0
        del data, place  # the mapping cannot be closed while an array lies over it
    return (-math.inf if failed else float((flags & 1).sum())), pages


class Files:
    """A state's files: put out of the page cache before a read, and what was then fetched, as a share of them."""

    def __init__(self, paths: Sequence[Path], n_bytes: int) -> None:
        self.paths, self.left, self.shares = paths, 0.0, list[float]()
        self._n_bytes, self._seen = n_bytes, 0

    def evict(self) -> float:
        """The share of pages that stayed in spite of it; ``left`` keeps the largest."""
        left = evict(self.paths)
        self.left, self._seen = max(self.left, left), _fetched()
        return left

    def note(self) -> None:
        """After a read: what the kernel fetched for it."""
        self.shares.append((_fetched() - self._seen) / self._n_bytes)


def _fetched() -> int:
    """Bytes that storage was asked for on behalf of this process; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), 0)
