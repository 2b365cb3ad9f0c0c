"""The decision log: every decision of every process, appended as one line of JSON, in files that rotate.

Knows records; how lines are kept is ``io/lines.py``'s. A line is written after the decision was made and before
anything is done about it. Refuses to stop a turn: a log that cannot be written counts what it lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from agentkv.io.hashing import canonical_json, sha256, tagged_digest
from agentkv.io.lines import LineLog, is_on
from agentkv.records import Decision, Record, Sha256
from agentkv.router.base import Candidate

CURRENT = "decisions.jsonl"
SWITCH, DIGESTS = "AGENTKV_DECISION_LOG", "digests"
"""Environment variable: ``0`` keeps no log of decisions, ``digests`` keeps it without the questions."""


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

    ``within``: a folder above it that has to be there. ``keep`` older files of at most ``max_bytes`` stay beside the
    current one. ``questions=False`` keeps their digests only; None goes by ``AGENTKV_DECISION_LOG``: ``0`` keeps no
    log, ``digests`` keeps it without the questions. ``lost`` counts decisions that could not be written, ``reason``
    says why the last one was not.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = 4 << 20,
        keep: int = 8,
        questions: bool | None = None,
        within: Path | None = None,
    ) -> None:
        switched = is_on(SWITCH, "log of decisions", DIGESTS)
        self.folder, self.on = folder, questions is not None or switched is not False
        self._questions = switched != DIGESTS if questions is None else questions
        self._lines = LineLog(folder, CURRENT.removesuffix(".jsonl"), max_bytes=max_bytes, keep=keep, within=within)
        self._library: tuple[Mapping[str, Candidate] | None, str] = (None, "")

    @property
    def lost(self) -> int:
        """How many decisions could not be written."""
        return self._lines.lost

    @property
    def reason(self) -> str:
        """Why the last of them could not."""
        return self._lines.reason

    def append(self, question: str, candidates: Mapping[str, Candidate], decision: Decision) -> None:
        """Write one decision; never raises for what the file system says."""
        if not self.on:
            return
        line = LoggedDecision(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            question=question.encode("utf-8", "replace").decode() if self._questions else None,
            question_sha256=sha256(question.encode("utf-8", "replace")),
            library_sha256=self._digest(candidates),
            decision=decision.model_copy(update={"notes": ()}),  # left_out says it
        )
        self._lines.append(canonical_json(line.model_dump(mode="json")))

    def rewrite(self, keep: Callable[[bytes], bool], *, dry_run: bool = False) -> int:
        """Leave out lines, see :meth:`agentkv.io.lines.LineLog.rewrite`."""
        return self._lines.rewrite(keep, dry_run=dry_run)

    def read(self) -> Iterator[LoggedDecision]:
        """All that is kept, oldest first; lines that a crash has cut short are left out. Raises StoreReadError."""
        for line in self._lines.lines():
            with contextlib.suppress(ValidationError):
                yield LoggedDecision.model_validate_json(line)

    def _digest(self, candidates: Mapping[str, Candidate]) -> str:
        """The library's digest, made again for another object only: it is the same from turn to turn."""
        if self._library[0] is not candidates:
            self._library = (candidates, library_sha256(candidates))
        return self._library[1]
