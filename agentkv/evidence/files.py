"""The files of a ledger: durable appends, one process at a time and never to a corrupt ledger; and payload files.

Write order, and what a crash after each step leaves:
1. the folder and ``head.json`` of a new ledger: a ledger of no entries;
2. an unfinished line that an earlier crash left goes to ``torn/``, is synced, and then cut off: nothing is lost;
3. the new lines, synced: before that, at most an unfinished line beyond what ``head.json`` covers;
4. ``head.json``: before that, whole entries beyond it, which is valid.
An unfinished line that ``head.json`` covers is therefore not a crash's, and nothing is appended then.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
from filelock import FileLock, Timeout

from agentkv.errors import LedgerDamaged, StoreReadError
from agentkv.evidence.records import (
    ANCHOR_MAGIC,
    NOTHING,
    Anchor,
    Entry,
    EntryType,
    Inline,
    Kept,
    LedgerBody,
    SignedAnchor,
    TornBody,
    parse_line,
    sealed_entry,
)
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from agentkv.records import Record
from agentkv.store.format import Malformed, decode_record, encode_record

FILE, HEAD, LOCK, TORN = "ledger.jsonl", "head.json", "ledger.lock", "torn"
HEAD_LIMIT = 64 << 10
_WAIT_S = 60.0
_POLL_S = 0.005
_BLOCK = 64 << 10

Draft = tuple[str | None, EntryType, Record]
"""Run id, type and body of an entry to append."""


def now() -> str:
    """The time for people: UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def append(folder: Path, draw: Callable[[], list[Draft]]) -> list[Entry]:
    """Append what ``draw`` gives, called under the ledger's lock; all of it is durable on return.

    Raises LedgerDamaged, StoreFull, StoreReadError, with the ledger as it was.
    """
    _make(folder)
    with _locked(folder):
        anchor = read_head(folder)
        if anchor is None:
            if (folder / FILE).exists():
                raise LedgerDamaged(folder, [f"{HEAD} is missing, so a cut end would not show"])
            anchor = Anchor(ledger=secrets.token_hex(16), count=0, head=NOTHING, time=now())
            write_head(folder, anchor)
        try:
            with _open(folder / FILE) as file:
                last = _last_entry(file, folder, anchor)
                drafts = draw()
                torn = _set_aside(file, folder)
                first: list[Draft] = [(None, "ledger", LedgerBody(ledger=anchor.ledger))] if last is None else []
                everything = [*first, *torn, *drafts]
                if not everything:
                    return []
                entries = _write(file, last, everything)
        except OSError as error:
            raise fsio.translated(error, folder / FILE) from error
        head = Anchor(ledger=anchor.ledger, count=entries[-1].seq + 1, head=entries[-1].digest, time=now())
        write_head(folder, head)
    return entries[len(entries) - len(drafts) :]


def read_head(folder: Path) -> Anchor | None:
    """The ledger's own anchor; None if there is none. Raises LedgerDamaged, StoreReadError."""
    data = fsio.read_regular(folder / HEAD, HEAD_LIMIT)
    if data is None:
        return None
    try:
        return decode_record(ANCHOR_MAGIC, data, SignedAnchor).anchor
    except Malformed as error:
        raise LedgerDamaged(folder, [f"{HEAD}: {error}"]) from error


def write_head(folder: Path, anchor: Anchor) -> None:
    """Write the ledger's own anchor; an older one does after a power failure, so the directory is not synced."""
    data = encode_record(ANCHOR_MAGIC, SignedAnchor(anchor=anchor))
    fsio.write_durably(folder / HEAD, [data], sync_parent=anchor.count == 0)


def _make(folder: Path) -> None:
    try:
        fsio.make_directory(folder)
    except OSError as error:
        raise fsio.translated(error, folder) from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / LOCK, timeout=_WAIT_S)
    try:
        lock.acquire(poll_interval=_POLL_S)
    except Timeout as error:
        raise StoreReadError(folder / LOCK, "another process is writing to this ledger; try again") from error
    except (OSError, NotImplementedError) as error:
        raise StoreReadError(folder / LOCK, f"it cannot be locked ({error})") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    is_new = not path.exists()
    with os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0) as file:
        if is_new:
            fsio.sync_directory(path.parent)
        yield file


def _last_line(file: BinaryIO) -> tuple[int, bytes, bytes]:
    """Where the last whole line begins, that line, and the bytes of an unfinished one after it."""
    start = file.seek(0, os.SEEK_END)
    data, step = b"", _BLOCK
    while start > 0 and data.count(b"\n") < 2:
        step = min(2 * step, start)
        start -= step
        file.seek(start)
        block = bytearray(step)
        fsio.read_fully(file, memoryview(block))
        data = bytes(block) + data
    whole, newline, torn = data.rpartition(b"\n")
    if not newline:
        return 0, b"", data
    begin = whole.rfind(b"\n") + 1
    return start + begin, whole[begin:] + b"\n", torn


def _last_entry(file: BinaryIO, folder: Path, anchor: Anchor) -> Entry | None:
    """The entry to append after; LedgerDamaged if it is not valid, or if entries are missing after it."""
    _, line, torn = _last_line(file)
    try:
        last = parse_line(line) if line else None
    except Malformed as error:
        raise LedgerDamaged(folder, [f"the last record: {error}"]) from error
    count = 0 if last is None else last.seq + 1
    if count < anchor.count:
        what = "its last line is unfinished" if torn else "its end is missing"
        raise LedgerDamaged(folder, [f"{what}: {count:,} records, and {HEAD} covers {anchor.count:,}"])
    if last is not None and count == anchor.count and last.digest != anchor.head:
        raise LedgerDamaged(folder, [f"the last record is not the one that {HEAD} covers"])
    return last


def _set_aside(file: BinaryIO, folder: Path) -> list[Draft]:
    """Move an unfinished last line to a file of its own; the draft of the entry that says so."""
    begin, line, torn = _last_line(file)
    if not torn:
        return []
    digest = sha256(torn)
    name = f"{TORN}/{begin + len(line):012}-{digest[:16]}.part"
    fsio.write_durably(folder / name, [torn])
    file.truncate(begin + len(line))
    os.fsync(file.fileno())
    return [(None, "torn", TornBody(bytes=len(torn), sha256=digest, file=name))]


def _write(file: BinaryIO, last: Entry | None, drafts: list[Draft]) -> list[Entry]:
    entries, lines = [], []
    seq, previous = (0, NOTHING) if last is None else (last.seq + 1, last.digest)
    for run, kind, body in drafts:
        entry, line = sealed_entry(seq, previous, run, kind, now(), body.model_dump(mode="json"))
        entries.append(entry)
        lines.append(line)
        seq, previous = seq + 1, entry.digest
    end = file.seek(0, os.SEEK_END)
    try:
        view = memoryview(b"".join(lines))
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            file.truncate(end)
            os.fsync(file.fileno())
        raise
    return entries


# --- payloads -------------------------------------------------------------------------------------
# `inline`: the value is in the ledger's line. `files`: in `payloads/ab/ab12….json`, named by the SHA-256 of its bytes,
# so that the ledger can be published without the folder. Each file has a random salt, so that a short answer cannot be
# guessed from its digest. `digests`: not kept at all; the digest is of the value's canonical JSON without salt, by
# which whoever has the text can show that it is the one, and short ones can be guessed. A missing file is reported as
# absent, one with other bytes as corrupt.

Payloads = Literal["inline", "files", "digests"]
MODES: tuple[Payloads, ...] = ("inline", "files", "digests")
PAYLOADS = "payloads"
PAYLOAD_LIMIT = 256 << 20


@dataclass(frozen=True)
class Absent:
    """A value that is not here, but its ``sha256`` is. ``kept``: whether it was written to a file."""

    sha256: str
    kept: bool


class PayloadFiles:
    """The payloads of the ledger in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._base = folder
        self.root = folder / PAYLOADS

    def put(self, value: Any, mode: Payloads) -> Inline | Kept:
        """What the ledger's line holds: the value or its digest. Raises StoreFull, StoreReadError."""
        if mode == "inline" or value is None:
            return Inline(value=value)
        if mode == "digests":
            data = canonical_json(value)
            return Kept(sha256=sha256(data), bytes=len(data), kept=False)
        data = canonical_json({"salt": secrets.token_hex(16), "value": value})
        digest = sha256(data)
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        fsio.write_durably(path, [data])
        return Kept(sha256=digest, bytes=len(data), kept=True)

    def get(self, reference: Inline | Kept) -> Any:
        """The value, or :class:`Absent`. Raises Malformed for a file with other bytes, StoreReadError."""
        if isinstance(reference, Inline):
            return reference.value
        if not reference.kept:
            return Absent(reference.sha256, kept=False)
        path = self.path(reference.sha256)
        fsio.refuse_links(self._base, path)
        data = fsio.read_regular(path, PAYLOAD_LIMIT)
        if data is None:
            return Absent(reference.sha256, kept=True)
        if sha256(data) != reference.sha256:
            raise Malformed("its bytes are not those of its name")
        return orjson.loads(data)["value"]

    def path(self, digest: str) -> Path:
        """The path of the payload with that digest."""
        return self.root / digest[:2] / f"{digest}.json"
