"""The decision log: every decision of every process, appended as one line of JSON, in files that rotate.

Knows records and lines. A line is written whole, under the file's lock, after the decision was made and before anything
is done about it. Refuses to stop a turn: a log that cannot be written counts what it lost. Not guaranteed: the last
lines after a power failure (nothing is synced), and lines older than ``keep`` files of ``max_bytes``.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from agentkv import fsio
from agentkv.errors import StoreError
from agentkv.hashing import canonical_json, sha256, tagged_digest
from agentkv.records import Decision, Record, Sha256
from agentkv.router.base import Candidate

CURRENT = "decisions.jsonl"
_ROTATED = re.compile(r"decisions-(\d{6})\.jsonl")
_WAIT_S = 2.0


class LoggedDecision(Record):
    """One line. ``time``: UTC, ISO 8601. ``question``: None where only its SHA-256 is to be kept.

    ``library_sha256``: over the labels, descriptions and texts that were the candidates; a decision can be made again
    and compared as long as the library has the same.
    """

    format: Literal[1] = 1
    time: Annotated[str, Field(max_length=40)]
    question: str | None
    question_sha256: Sha256
    library_sha256: Sha256
    decision: Decision


def library_sha256(candidates: Mapping[str, Candidate]) -> str:
    """Digest of what there was to pick from, in no order."""
    known = {label: [c.description, sha256(c.text.encode())] for label, c in candidates.items()}
    return tagged_digest("library/1", known)


class DecisionLog:
    """The log in ``folder``, made when the first line is written.

    ``keep`` older files of at most ``max_bytes`` stay beside the current one. ``questions=False`` keeps their digests
    only. ``lost`` counts decisions that could not be written, ``reason`` says why the last one was not.
    """

    def __init__(self, folder: Path, *, max_bytes: int = 4 << 20, keep: int = 8, questions: bool = True) -> None:
        self.folder, self.max_bytes, self.keep, self._questions = folder, max_bytes, keep, questions
        self.lost, self.reason = 0, ""
        self._lock = threading.Lock()
        self._library: tuple[Mapping[str, Candidate] | None, str] = (None, "")

    def append(self, question: str, candidates: Mapping[str, Candidate], decision: Decision) -> None:
        """Write one decision; never raises for what the file system says."""
        line = LoggedDecision(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            question=question.encode("utf-8", "replace").decode() if self._questions else None,
            question_sha256=sha256(question.encode("utf-8", "replace")),
            library_sha256=self._digest(candidates),
            decision=decision,
        )
        data = canonical_json(line.model_dump(mode="json")) + b"\n"
        try:
            with self._lock, fsio.file_lock(self._lock_path(), exclusive=True, wait_s=_WAIT_S) as held:
                if held is False:
                    raise TimeoutError("another process held the log for too long")
                self._append(data)
        except (OSError, StoreError) as error:
            self.lost, self.reason = self.lost + 1, str(error)

    def read(self) -> Iterator[LoggedDecision]:
        """All that is kept, oldest first; lines that a crash has cut short are left out. Raises StoreReadError."""
        for path in [*self._rotated(), self.folder / CURRENT]:
            data = fsio.read_regular(path, 2 * self.max_bytes + (1 << 20))
            for line in (data or b"").splitlines():
                with contextlib.suppress(ValidationError):
                    yield LoggedDecision.model_validate_json(line)

    def _digest(self, candidates: Mapping[str, Candidate]) -> str:
        """The library's digest, made anew for another object only: it is the same from turn to turn."""
        if self._library[0] is not candidates:
            self._library = (candidates, library_sha256(candidates))
        return self._library[1]

    def _lock_path(self) -> Path:
        fsio.make_directory(self.folder)
        return self.folder / "decisions.lock"

    def _append(self, data: bytes) -> None:
        path = self.folder / CURRENT
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(data) > self.max_bytes:
            self._rotate(path)
            size = 0
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # a crash in a line: the next begins anew
            os.write(fd, b"\n" + data if torn else data)
        finally:
            os.close(fd)

    def _rotate(self, path: Path) -> None:
        older = self._rotated()
        last = int(_ROTATED.fullmatch(older[-1].name)[1]) if older else 0  # type: ignore[index]
        path.replace(self.folder / f"decisions-{last + 1:06}.jsonl")
        for gone in self._rotated()[: -self.keep or None]:
            gone.unlink(missing_ok=True)

    def _rotated(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path for path in self.folder.iterdir() if _ROTATED.fullmatch(path.name))
        return []
