"""How much memory can be allocated now, so that a size read from a file is compared with it before it is allocated.

On Linux the least of what the machine, this process's control group and its own limit leave; elsewhere not known.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that could be allocated now without swapping; None where the system does not say."""
    found = [n_bytes for n_bytes in (_of_machine(), _of_group(), _of_process()) if n_bytes is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _of_group() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        limit, used = ((_GROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if limit == "max" else max(0, int(limit) - int(used))
    return None


def _of_process() -> int | None:
    """What the process's own limit on its address space leaves, if it has one."""
    with contextlib.suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            return max(0, limit - used)
    return None
