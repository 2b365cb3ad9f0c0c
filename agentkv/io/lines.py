"""A log of lines in a folder: appended by any number of threads and processes, in files that rotate.

    <stem>.jsonl            the newest lines
    <stem>-000001.jsonl     older ones, ``keep`` files of at most ``max_bytes``
    <stem>.lock             who may append now

A line is written whole, under the log's lock. A log never stops the work that it is about: what cannot be written is
counted. Not guaranteed: the last lines after a power failure (nothing is synced), and lines older than what is kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from agentkv.errors import StoreError, StoreReadError, UsageError
from agentkv.io import fsio
from agentkv.io.forks import RenewedLock

_SLACK_BYTES = 1 << 20
_ON, _OFF = {"", "1", "on", "true", "yes"}, {"0", "off", "false", "no"}


def is_on(switch: str, what: str, *others: str) -> bool | str:
    """Whether the environment variable ``switch`` keeps a log (unless it is 0), or which of ``others`` is its value.

    Raises UsageError for any other value.
    """
    value = os.environ.get(switch, "").strip().casefold()
    if value in others:
        return value
    if value not in _ON | _OFF:
        more = "".join(f", {other}" for other in others)
        raise UsageError(f"{switch} is {value!r}; 0 keeps no {what}, 1 keeps one{more}")
    return value not in _OFF


class LineLog:
    """The log called ``stem`` in ``folder``, made when the first line is written.

    ``within``: a directory above it, between which and the log no link is followed; a log does not make it.
    ``lost`` counts lines that could not be written, because the file system would not or another process held the log
    for ``wait_s`` seconds; ``reason`` says why the last one was not.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        *,
        max_bytes: int,
        keep: int,
        wait_s: float = 2.0,
        within: Path | None = None,
    ) -> None:
        self.folder, self.max_bytes, self.keep, self._within = folder, max_bytes, keep, within
        self.lost, self.reason = 0, ""
        self._stem, self._wait_s = stem, wait_s
        self._form = re.compile(re.escape(stem) + r"-(\d{6})\.jsonl")
        self._lock = RenewedLock()

    @property
    def current(self) -> Path:
        """The file that is appended to."""
        return self.folder / f"{self._stem}.jsonl"

    def append(self, line: bytes) -> None:
        """Write one line, without its end; never raises for what the file system says."""
        try:
            with self._lock, fsio.file_lock(self._lock_path(), exclusive=True, wait_s=self._wait_s) as held:
                if held is False:
                    raise TimeoutError("another process held the log for too long")
                self._append(line + b"\n")
        except (OSError, StoreError) as error:
            self.lost, self.reason = self.lost + 1, str(error)

    def lines(self) -> Iterator[bytes]:
        """All that is kept, oldest first, each line once, though the files rotate meanwhile. Raises StoreReadError.

        A line that a crash has cut short is among them.
        """
        self._refuse_links()
        limit = 2 * self.max_bytes + _SLACK_BYTES
        newest = fsio.read_identified(self.current, limit)
        for path in self._rotated():
            older = fsio.read_identified(path, limit)
            if older is not None and (newest is None or older[1][:2] != newest[1][:2]):
                yield from older[0].splitlines()
        if newest is not None:
            yield from newest[0].splitlines()

    def rewrite(self, keep: Callable[[bytes], bool], *, dry_run: bool = False) -> int:
        """Leave out every line that is not to be kept; how many. Raises StoreReadError, StoreFull."""
        if not self.folder.is_dir():
            return 0
        gone = 0
        with self._lock, fsio.file_lock(self._lock_path(), exclusive=True, wait_s=max(self._wait_s, 10.0)) as held:
            if held is False:
                raise StoreReadError(self.current, "another process held the log for too long")
            for path in (*self._rotated(), self.current):
                lines = (fsio.read_regular(path, 2 * self.max_bytes + _SLACK_BYTES) or b"").splitlines()
                kept = [line for line in lines if keep(line)]
                gone += len(lines) - len(kept)
                if len(kept) < len(lines) and not dry_run:
                    fsio.write_durably(path, [b"".join(line + b"\n" for line in kept)])
        return gone

    def _refuse_links(self) -> None:
        if self._within is not None:
            fsio.refuse_links(self._within, self.current)

    def _lock_path(self) -> Path:
        self._refuse_links()
        if self._within is not None and not self._within.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._within))
        fsio.make_directory(self.folder)
        return self.folder / f"{self._stem}.lock"

    def _append(self, data: bytes) -> None:
        path = self.current
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(data) > self.max_bytes:
            self._rotate(path)
            size = 0
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            if size:
                os.lseek(fd, size - 1, os.SEEK_SET)
                if os.read(fd, 1) != b"\n":  # a crash in a line: the next starts a new one
                    data = b"\n" + data
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)

    def _rotate(self, path: Path) -> None:
        older = self._rotated()
        last = int(self._form.fullmatch(older[-1].name)[1]) if older else 0  # type: ignore[index]
        path.replace(self.folder / f"{self._stem}-{last + 1:06}.jsonl")
        for gone in self._rotated()[: -self.keep or None]:
            gone.unlink(missing_ok=True)

    def _rotated(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path for path in self.folder.iterdir() if self._form.fullmatch(path.name))
        return []
