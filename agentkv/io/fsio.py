"""File-system steps that the store is built from: durable, atomic, and nothing outside the given path.

Every write goes to a temporary name on the same file system, is flushed and synced, renamed into place, and the
target's directory synced. A crash before the rename leaves only a temporary file, which no reader ever looks at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from agentkv.errors import StoreError, StoreFull, StoreReadError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMP_SUFFIX = ".tmp"
_TEMPORARY = re.compile(r".+\.\d{1,10}\.[0-9a-f]{12}\.tmp", re.DOTALL)
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_RENAME_TRIES = 6
_LOCK_POLL_S, _LOCK_POLL_MAX_S = 0.0005, 0.02
_SETTLED_NS = 100_000_000
# Never through a link, never waiting on a FIFO, never with newline translation.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

Buffer = bytes | bytearray | memoryview
Identity = tuple[int, int, int, int]


def identity_of(info: os.stat_result) -> Identity:
    """Device, inode, size and mtime in nanoseconds: while they stay, the bytes are taken to stay."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def is_settled(identity: Identity) -> bool:
    """Whether the file is old enough for a later write to show in its mtime (clocks tick in milliseconds)."""
    return time.time_ns() - identity[3] > _SETTLED_NS


def translated(error: OSError, path: Path, needed: int = 0) -> StoreError:
    """The typed error for what the system said about ``path``; ``needed`` bytes were to be written."""
    if error.errno in _NO_SPACE:
        return StoreFull(path, needed, free_bytes(path.parent))
    return StoreReadError(path, error.strerror or str(error))


def sync_directory(path: Path) -> None:
    """Make renames inside ``path`` durable; a no-op where directories cannot be opened (Windows)."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(source: Path, target: Path) -> None:
    """Rename over ``target``, tried again for a moment where another process holds it open (Windows)."""
    for attempt in range(_RENAME_TRIES):
        try:
            source.replace(target)
            return
        except PermissionError:
            if attempt == _RENAME_TRIES - 1:
                raise
            time.sleep(0.01 * 2**attempt)


def make_directory(path: Path) -> None:
    """Create ``path`` and what is missing above it, each one's own entry durable. Raises ``OSError``."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_directory(path.parent)


def refuse_links(root: Path, path: Path) -> None:
    """Raise StoreReadError if a directory between ``root`` and ``path`` is a link or no directory.

    Guards against links that were left in a store, not against someone who swaps them while it runs.
    """
    place, inside = str(root), str(path).removeprefix(f"{root}{os.sep}")
    if inside == str(path):
        raise ValueError(f"{path} is not below {root}")
    for part in inside.split(os.sep)[:-1]:  # noqa: PTH206 - called for each file, and pathlib takes thrice as long
        place = f"{place}{os.sep}{part}"
        try:
            mode = os.lstat(place).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise translated(error, Path(place)) from error
        if not stat.S_ISDIR(mode):
            raise StoreReadError(Path(place), "not a directory of the store (a link or another kind of file)")


def is_temporary(path: Path) -> bool:
    """Whether it is called as :func:`temporary_beside` calls files: nobody else's are."""
    return _TEMPORARY.fullmatch(path.name) is not None


def temporary_beside(target: Path) -> Path:
    """A name for the unfinished file of ``target`` that no other writer has."""
    return target.with_name(f"{target.name}.{os.getpid()}.{secrets.token_hex(6)}{TEMP_SUFFIX}")


@contextlib.contextmanager
def removed_on_error(path: Path) -> Iterator[None]:
    """Unlink ``path`` if the body raises, whatever it raises, and let that go on."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def write_durably(
    target: Path,
    parts: Sequence[Buffer],
    *,
    sync_parent: bool = True,
    temporaries: Path | None = None,
    placing: contextlib.AbstractContextManager[None] | None = None,
) -> None:
    """Write ``parts`` to ``target``, atomically and durably.

    ``temporaries`` is a directory of the same file system for the unfinished file, instead of the target's own. With
    ``sync_parent=False`` the file's bytes are durable but its name is not until the caller has synced the directory:
    one sync then serves many files. ``placing`` is entered around the rename. Raises StoreFull or StoreReadError,
    with the temporary file removed and an earlier ``target`` untouched.
    """
    _write_and_replace(target, parts, temporaries, placing, sync=True, sync_parent=sync_parent)


def write_atomically(target: Path, parts: Sequence[Buffer], *, temporaries: Path | None = None) -> None:
    """As :func:`write_durably`, but not synced: for what a power failure may take or tear, and a reader checks."""
    _write_and_replace(target, parts, temporaries, None, sync=False, sync_parent=False)


def _write_and_replace(
    target: Path,
    parts: Sequence[Buffer],
    temporaries: Path | None,
    placing: contextlib.AbstractContextManager[None] | None,
    *,
    sync: bool,
    sync_parent: bool,
) -> None:
    needed = sum(memoryview(part).nbytes for part in parts)
    temporary = temporary_beside(target) if temporaries is None else temporaries / temporary_beside(target).name
    try:
        with removed_on_error(temporary):
            make_directory(target.parent)
            if temporaries is not None:
                make_directory(temporaries)
                refuse_links(temporaries.parent, temporary)
            _write_new(temporary, parts, sync=sync)
            with placing or contextlib.nullcontext():
                replace(temporary, target)
            if sync_parent:
                sync_directory(target.parent)
    except OSError as error:
        raise translated(error, target, needed) from error


def write_briefly(path: Path, data: bytes) -> None:
    """Write a new file that only the living need: not synced, so a power failure may lose it.

    Raises StoreFull, StoreReadError, with the file removed.
    """
    try:
        make_directory(path.parent)
        refuse_links(path.parent.parent, path)
        with removed_on_error(path):
            _write_new(path, [data], sync=False)
    except OSError as error:
        raise translated(error, path, len(data)) from error


def _write_new(path: Path, parts: Sequence[Buffer], *, sync: bool = True) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o644)
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def remove_file(path: Path, *, sync_parent: bool = False) -> bool:
    """Unlink ``path`` (never what it links to); False if there is none. Raises StoreReadError."""
    try:
        path.unlink()
        if sync_parent:
            sync_directory(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise translated(error, path) from error
    return True


def files_below(root: Path, min_age_s: float = 0.0) -> Iterator[tuple[Path, int]]:
    """Regular files in ``root`` and its directories one level down, with their sizes; links are left alone.

    Only those whose mtime is at least ``min_age_s`` ago. Raises StoreReadError.
    """
    yield from _files(root, min_age_s, below=True)


def files_in(root: Path, min_age_s: float = 0.0) -> Iterator[tuple[Path, int]]:
    """Like :func:`files_below`, without the directories."""
    yield from _files(root, min_age_s, below=False)


def _files(root: Path, min_age_s: float, *, below: bool) -> Iterator[tuple[Path, int]]:
    newest = time.time() - min_age_s
    try:
        for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
            inner: Iterable[os.DirEntry[str]] = [entry]
            if entry.is_dir(follow_symlinks=False):
                inner = os.scandir(entry.path) if below else []
            for file in sorted(inner, key=lambda file: file.name):
                with contextlib.suppress(FileNotFoundError):  # another process was quicker
                    info = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(info.st_mode) and info.st_mtime <= newest:
                        yield Path(file.path), info.st_size
    except FileNotFoundError:
        return
    except OSError as error:
        raise translated(error, root) from error


def free_bytes(directory: Path) -> int | None:
    """Free bytes of the file system that holds ``directory``; None where the system does not say."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result] | None]:
    """The regular file at ``path``, unbuffered, and its ``fstat``; None if there is no such file.

    Never follows a link in the last component and never waits on a FIFO. Raises StoreReadError if it is no
    regular file; an ``OSError`` inside the ``with`` becomes one too.
    """
    try:
        fd = os.open(path, os.O_RDONLY | _PLAIN)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    except OSError as error:
        raise translated(error, path) from error
    try:
        with os.fdopen(fd, "rb", buffering=0) as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise StoreReadError(path, "not a regular file")
            yield file, info
    except OSError as error:
        raise translated(error, path) from error


def read_fully(file: BinaryIO, into: memoryview) -> int:
    """Fill ``into`` from an unbuffered file; the number of bytes got, less than asked only at the end."""
    done = 0
    while done < into.nbytes and (got := file.readinto(into[done:])):  # type: ignore[attr-defined]
        done += got
    return done


def read_identified(path: Path, limit: int) -> tuple[bytes, Identity] | None:
    """The bytes of a regular file of at most ``limit`` bytes and its identity; None if there is none."""
    with open_regular(path) as opened:
        if opened is None:
            return None
        file, info = opened
        if info.st_size > limit:
            raise StoreReadError(path, f"{info.st_size:,} bytes, more than the limit of {limit:,}")
        data = bytearray(info.st_size)
        got = read_fully(file, memoryview(data))
        return bytes(data[:got]), identity_of(info)


def read_regular(path: Path, limit: int) -> bytes | None:
    """The bytes of a regular file, or None if there is no such file.

    Never follows a link in the last component and never waits on a FIFO. Raises StoreReadError if it is no
    regular file, is larger than ``limit`` bytes, or cannot be read.
    """
    found = read_identified(path, limit)
    return None if found is None else found[0]


@contextlib.contextmanager
def file_lock(path: Path, *, exclusive: bool, wait_s: float) -> Iterator[bool | None]:
    """Hold an advisory lock on ``path``, created empty; yields True if held, False if busy for ``wait_s``.

    Shared holders exclude an exclusive one, between threads and processes alike; the system drops the lock of
    a dead process. Yields None where there are no such locks (Windows, some network mounts, a read-only store
    without the file).
    """
    fd = None if fcntl is None else _open_lock(path)
    if fd is None:
        yield None
        return
    pid = os.getpid()
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StoreReadError(path, "not a regular file")
        yield _flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, wait_s)
    finally:
        if os.getpid() == pid:  # a child forked meanwhile has the same open file, and would go on holding the lock
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _open_lock(path: Path) -> int | None:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o644)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            return os.open(path, os.O_RDONLY | _PLAIN)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise translated(error, path) from error


def _flock(fd: int, kind: int, wait_s: float) -> bool | None:
    until = time.monotonic() + wait_s
    pause = _LOCK_POLL_S
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        except OSError:
            return None
        time.sleep(pause)
        pause = min(2 * pause, _LOCK_POLL_MAX_S)
