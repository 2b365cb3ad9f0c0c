"""A file written piece by piece, atomically and durably: temporary file, fsync, rename, fsync of the directory.

Knows bytes only. A crash, an error or Ctrl-C before the rename leaves the target as it was; only a crash leaves a
temporary file beside it. Does not guarantee that nobody else puts a file there between the check and the rename.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from agentkv.errors import UsageError
from agentkv.io import fsio

Write = Callable[[fsio.Buffer], None]


@contextlib.contextmanager
def writing(target: Path, *, replace: bool) -> Iterator[Write]:
    """A function that appends bytes to what becomes ``target`` when the ``with`` ends without an error.

    Raises UsageError if something is there and ``replace`` is not asked for, StoreFull, StoreReadError.
    """
    refuse_target(target, replace=replace)
    temporary = fsio.temporary_beside(target)
    written = 0

    def write(data: fsio.Buffer) -> None:
        nonlocal written
        view = memoryview(data).cast("B")
        written += view.nbytes
        while view:
            view = view[os.write(fd, view) :]

    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(temporary, flags, 0o644)
        with fsio.removed_on_error(temporary):
            try:
                yield write
                os.fsync(fd)
            finally:
                os.close(fd)
            fsio.replace(temporary, target)
            fsio.sync_directory(target.parent)
    except OSError as error:
        raise fsio.translated(error, target, written) from error


def refuse_target(target: Path, *, replace: bool) -> None:
    """Raise UsageError unless a file may be written at ``target``."""
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}")
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_file():
        raise UsageError(f"{target} is no plain file; choose another path")
    if not replace:
        raise UsageError(f"{target} is there already. Choose another path, or add --force (replace=True).")
