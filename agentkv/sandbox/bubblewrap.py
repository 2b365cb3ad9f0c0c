"""The command line that has ``bwrap`` make the same world as :mod:`agentkv.sandbox.namespaces` does.

Knows bubblewrap's options, of version 0.8 and later. Refuses to know what is run in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkv.sandbox.namespaces import NOBODY, WORK


def command(bwrap: str, readable: Sequence[str], disk_bytes: int, filter_fd: int | None) -> list[str]:
    """The words that come before the candidate's own. ``filter_fd``: where the seccomp filter is read from."""
    words = [bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    words += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--cap-drop", "ALL"]
    words += ["--dev", "/dev", "--proc", "/proc"]
    for folder in ("/dev/shm", "/tmp"):
        words += ["--size", str(disk_bytes), "--tmpfs", folder]
    for path in readable:
        place = Path(path)
        words += ["--symlink", str(place.readlink()), path] if place.is_symlink() else ["--ro-bind", path, path]
    words += ["--dir", WORK, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    # The filter refuses new user namespaces; `--disable-userns` makes bwrap 0.8 forget that it is to die with us.
    words += ["--disable-userns"] if filter_fd is None else ["--seccomp", str(filter_fd)]
    return [*words, "--"]
