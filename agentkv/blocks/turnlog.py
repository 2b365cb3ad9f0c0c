"""The turn log: what each turn restored and what it read, and how long that took, by which savings are counted.

    turns/turns.jsonl, turns/turns-000001.jsonl …    see ``lines.py``; 17 files of 4 MB, about 200,000 turns

Knows counts, milliseconds, block ids and the names of skills. Holds no question, no answer, no other text and no token.
No block depends on it: a line that is lost is a turn that is not counted. Not guaranteed: turns of a process that was
killed before their end, and those older than what is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from agentkv.io.hashing import canonical_json
from agentkv.io.lines import LineLog, is_on
from agentkv.records import Count, Record, Sha256
from agentkv.store.files import TURNS

STEM = "turns"
SWITCH = "AGENTKV_TURN_LOG"
"""Environment variable: ``0`` keeps no turn log."""
_MAX_BYTES, _KEEP, _WAIT_S = 4 << 20, 16, 0.5

Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LoggedTurn(Record):
    """One line. ``time``: UTC, ISO 8601, when it was written.

    ``kind``: a turn of a memory, a window of a document that was asked, or a deposit, which only tells what reading
    takes. ``restored``, ``read`` and ``generated`` are tokens; ``read_ms`` is what the read ones took, and nothing
    else. ``restore_ms`` is also what looking for a block took that was not there. ``graft``: False where the caller
    asked for no restore. ``keep_ms``: storing the conversation's state.
    """

    format: Literal[1] = 1
    time: Annotated[str, Field(min_length=10, max_length=40)]
    kind: Literal["turn", "window", "deposit"]
    fingerprint_id: Sha256
    model_sha256: Annotated[str, Field(max_length=128)] = ""
    skill: Annotated[str, Field(max_length=512)] | None = None
    block_id: Sha256 | None = None
    graft: bool = True
    restored: Count = 0
    read: Count = 0
    generated: Count = 0
    route_ms: Milliseconds = 0.0
    restore_ms: Milliseconds = 0.0
    read_ms: Milliseconds = 0.0
    generate_ms: Milliseconds = 0.0
    keep_ms: Milliseconds = 0.0

    @property
    def day(self) -> str:
        """The day of ``time``, in UTC: ``2026-10-14``."""
        return self.time[:10]


class TurnLog:
    """The log of the store in ``root``. ``on``: whether it is kept; None goes by ``AGENTKV_TURN_LOG``, which is yes.

    ``lost`` counts lines that could not be written. Raises UsageError for a variable that says neither.
    """

    def __init__(self, root: Path, on: bool | None = None) -> None:
        self.on = bool(is_on(SWITCH, "turn log")) if on is None else on
        self._lines = LineLog(root / TURNS, STEM, max_bytes=_MAX_BYTES, keep=_KEEP, wait_s=_WAIT_S, within=root)

    @property
    def lost(self) -> int:
        """How many lines could not be written."""
        return self._lines.lost

    def add(self, **said: Any) -> None:
        """Write one line, as :class:`LoggedTurn` has it; never raises for what the file system says."""
        if self.on:
            line = LoggedTurn(time=datetime.now(UTC).isoformat(timespec="milliseconds"), **said)
            record = line.model_dump(mode="json", exclude_defaults=True) | {"format": line.format}
            self._lines.append(canonical_json(record))

    def rewrite(self, keep: Callable[[bytes], bool], *, dry_run: bool = False) -> int:
        """Leave out lines, see :meth:`LineLog.rewrite`."""
        return self._lines.rewrite(keep, dry_run=dry_run)

    def read(self) -> Iterator[LoggedTurn]:
        """All that is kept, oldest first; lines that are cut short or of another format are left out.

        Raises StoreReadError.
        """
        for line in self._lines.lines():
            with contextlib.suppress(ValidationError):
                yield LoggedTurn.model_validate_json(line)
