"""The logs of threads: what was said in conversations, so that they outlive the process.

    threads/<key>/<8 digits>.json    one entry: a turn, or a rewind      sealed JSON, never changed, but see redact

``key`` is a digest of the thread's name. An entry is written under a temporary name, synced, and linked to the number
after the head that its writer knows: of two writers who know the same head one is refused, and none replaces another's.
No block depends
on a log, nor a log on a block: a checkpoint that is gone is prefilled again.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from agentkv.errors import CorruptThread, StoreReadError, ThreadChanged, UsageError
from agentkv.io import fsio
from agentkv.records import ThreadEntry
from agentkv.store import format as formats
from agentkv.store.files import StoreFiles
from agentkv.store.format import Malformed, is_digest
from agentkv.store.marker import require_marker
from agentkv.store.registry import Found

THREADS = "threads"
REDACTED = "[forgotten]"
_FILE = re.compile(r"(\d{8})\.json")
_MAX = 99_999_999
_PROBE_BYTES = 4096

Head = tuple[int, fsio.Identity | None]
"""The number of a log's newest entry and the identity of its file; of an empty log :data:`EMPTY`."""
EMPTY: Head = (0, None)


class ThreadLog:
    """The entries of one thread, in a store's files. Reading costs a file an entry; they are not kept in RAM."""

    def __init__(self, files: StoreFiles, thread_id: str) -> None:
        try:
            self.key = formats.thread_key(thread_id)
        except TypeError as error:
            raise UsageError(f"{thread_id!r} cannot be a thread's name: {error}") from error
        self.thread_id = thread_id
        self._files = files
        self.folder = files.root / THREADS / self.key

    def numbers(self) -> list[int]:
        """The numbers of the entries that are there, in order; nothing is opened. Raises StoreReadError."""
        fsio.refuse_links(self._files.root, self.folder / "x")
        found = (_FILE.fullmatch(path.name) for path, _ in fsio.files_in(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def read(self, seq: int) -> ThreadEntry:
        """One entry. Raises CorruptThread if it is damaged or not there, StoreReadError."""
        path = self.path(seq)
        fsio.refuse_links(self._files.root, path)
        data = fsio.read_regular(path, self._files.limits.text_bytes)
        if data is None:
            raise CorruptThread(self.thread_id, path, f"entry {seq} is missing")
        try:
            return formats.decode_entry(data, self.key, seq, self._files.limits)
        except Malformed as error:
            raise CorruptThread(self.thread_id, path, str(error)) from error

    def way_to(self, seq: int) -> list[ThreadEntry]:
        """The turns that lead to an entry, that one included, from the first on; of 0 there are none."""
        turns: list[ThreadEntry] = []
        while seq:
            entry = self.read(seq)
            if entry.question is not None:
                turns.append(entry)
            seq = entry.after
        return turns[::-1]

    def head(self) -> Head:
        """The newest entry: whoever appends says after which one. Raises StoreReadError."""
        numbers = self.numbers()
        if not numbers:
            return EMPTY
        path = self.path(numbers[-1])
        try:
            return numbers[-1], fsio.identity_of(path.lstat())
        except FileNotFoundError:  # removed just now
            return EMPTY
        except OSError as error:
            raise fsio.translated(error, path) from error

    def append(self, entry: ThreadEntry, head: Head) -> tuple[ThreadEntry, Head]:
        """Write an entry under the number after ``head``'s, durably; what was written, and the new head.

        Raises ThreadChanged if the log has another head by now, UsageError, StoreFull, StoreReadError; then nothing
        was written.
        """
        with self._files.lock.shared():
            if head[0] >= _MAX:
                raise UsageError(f"thread {self.thread_id!r} is full")
            if self.head() != head:
                raise ThreadChanged(self.thread_id)
            numbered = entry.model_copy(update={"seq": head[0] + 1})
            return numbered, (numbered.seq, self._place(numbered))

    def require_writable(self) -> None:
        """Try now what :meth:`append` needs, so that no answer is made in vain. Raises StoreFull, StoreReadError."""
        require_marker(self._files.root)
        fsio.refuse_links(self._files.root, self.folder / "x")
        place = next(path for path in (self.folder, *self.folder.parents) if path.is_dir())
        if not os.access(place, os.W_OK | os.X_OK):
            raise StoreReadError(place, "it cannot be written, so no turn could be kept")
        probe = self._files.temporaries / fsio.temporary_beside(self.folder).name
        fsio.write_briefly(probe, bytes(_PROBE_BYTES))
        fsio.remove_file(probe)

    def redact(self, seq: int) -> None:
        """Take the words out of an entry, for good: what came after it still follows it. Raises CorruptThread."""
        entry = self.read(seq)
        words = dict.fromkeys(("question", "answer"), REDACTED if entry.question is not None else None)
        bare = entry.model_copy(update={**words, "checkpoint": None, "summary": entry.summary and REDACTED})
        with self._files.lock.shared():
            data = formats.encode_entry(bare, self._files.limits)
            fsio.write_durably(self.path(seq), [data], temporaries=self._files.temporaries)

    def remove(self) -> int:
        """Delete the whole log; how many entries. The last goes first: cut short, it leaves a shorter thread."""
        numbers = self.numbers()
        for seq in reversed(numbers):
            fsio.remove_file(self.path(seq))
        with contextlib.suppress(OSError):  # another has begun it again, or there was none
            self.folder.rmdir()
            fsio.sync_directory(self.folder.parent)
        return len(numbers)

    def path(self, seq: int) -> Path:
        """Where an entry is, or would be."""
        return self.folder / f"{seq:08}.json"

    def _place(self, entry: ThreadEntry) -> fsio.Identity:
        """Link a finished file into its place; its identity. Raises ThreadChanged if another was quicker."""
        try:
            data = formats.encode_entry(entry, self._files.limits)
        except Malformed as error:
            raise UsageError(f"the turn cannot be kept: {error}") from error
        path = self.path(entry.seq)
        temporary = self._files.temporaries / fsio.temporary_beside(path).name
        try:
            fsio.make_directory(self.folder)
            fsio.refuse_links(self._files.root, path)
            fsio.write_durably(temporary, [data], temporaries=self._files.temporaries, sync_parent=False)
            try:
                identity = fsio.identity_of(temporary.lstat())
                os.link(temporary, path)
            finally:
                fsio.remove_file(temporary)
            fsio.sync_directory(self.folder)
        except FileExistsError:
            raise ThreadChanged(self.thread_id) from None
        except OSError as error:
            raise fsio.translated(error, path, len(data)) from error
        return identity


def thread_names(files: StoreFiles) -> list[str]:
    """The names of all threads whose first entry reads, sorted. Raises StoreReadError."""
    names = []
    for folder in _folders(files.root):
        for seq in (1, 2):  # the first, or the next one where that is corrupt
            data = fsio.read_regular(folder / f"{seq:08}.json", files.limits.text_bytes)
            with contextlib.suppress(Malformed):
                if data is not None:
                    names.append(formats.decode_entry(data, folder.name, seq, files.limits).thread_id)
                    break
    return sorted(names)


def entries(root: Path) -> Iterator[Found]:
    """Everything below the folder of threads: path, bytes, whether it is an entry. Raises StoreReadError."""
    for folder in _listed(root / THREADS):
        if not (is_digest(folder.name) and _is(folder, stat.S_ISDIR)):
            yield folder, 0, False
            continue
        for path in _listed(folder):
            own = _FILE.fullmatch(path.name) is not None and _is(path, stat.S_ISREG)
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                yield path, path.lstat().st_size, own


def fault(files: StoreFiles, path: Path) -> str | None:
    """Why a file is not the entry that it should be; None if it is, or is gone. Raises StoreReadError."""
    match = _FILE.fullmatch(path.name)
    data = fsio.read_regular(path, files.limits.text_bytes)
    if match is None or data is None:
        return None
    try:
        formats.decode_entry(data, path.parent.name, int(match[1]), files.limits)
    except Malformed as error:
        return str(error)
    return None


def _folders(root: Path) -> list[Path]:
    return [path for path in _listed(root / THREADS) if is_digest(path.name) and _is(path, stat.S_ISDIR)]


def _listed(folder: Path) -> list[Path]:
    fsio.refuse_links(folder.parent, folder / "x")
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreReadError(folder, error.strerror or str(error)) from error


def _is(path: Path, kind: object) -> bool:
    try:
        return bool(kind(path.lstat().st_mode))  # type: ignore[operator]
    except OSError:
        return False
