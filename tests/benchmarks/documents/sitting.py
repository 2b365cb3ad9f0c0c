"""One sitting of a long deposit: what it read and how long that took, on record also if it is ended by force.

The record is written beside the store every half a minute and at the end. Knows counts and seconds, no documents.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench.results import now
from agentkv.engine.base import Cancellation, Engine, Logits
from agentkv.errors import UsageError
from agentkv.io import fsio

FOLDER = "sittings"
_KEEP_S = 30.0
_MARK = 50


class Clocked:
    """An engine that counts seconds and tokens of its ``extend``: ``prefill`` (several tokens), ``steps`` (one)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds = {"prefill": 0.0, "steps": 0.0}
        self.decoded = {"prefill": 0, "steps": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        """See :class:`agentkv.engine.base.Engine`."""
        kind, begun = "steps" if len(tokens) == 1 else "prefill", time.perf_counter()
        logits = self._engine.extend(tokens, cancellation)
        self.seconds[kind] += time.perf_counter() - begun
        self.decoded[kind] += len(tokens)
        return logits


class Sitting:
    """Counts windows from its making on. ``ended``: why it was over; None while it goes on, or if it was killed.

    ``tokens``: of the blocks' own; ``own_tokens``: of the documents among them.
    """

    def __init__(self, folder: Path, engine: Clocked) -> None:
        fsio.make_directory(folder)
        numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]
        self._path = folder / f"{max(numbers, default=0) + 1:03}.json"
        self._engine = engine
        self._before = dict(engine.seconds), dict(engine.decoded)
        self.started, self._begun, self._kept = now(), time.perf_counter(), time.perf_counter()
        self.ended: str | None = None
        self.windows = self.tokens = self.own_tokens = 0
        self.marks: list[tuple[float, int]] = []

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self._begun

    def count(self, tokens: int, own_tokens: int) -> None:
        """A window is stored."""
        self.windows += 1
        self.tokens += tokens
        self.own_tokens += own_tokens
        if self.windows % _MARK == 0:
            self.marks.append((round(self.seconds, 2), self.own_tokens))
        if time.perf_counter() - self._kept > _KEEP_S:
            self.keep()

    def keep(self) -> None:
        """Write the record, unless there is nothing in it."""
        self._kept = time.perf_counter()
        if not self.windows:
            return
        seconds, decoded = self._before
        record = {
            "started": self.started,
            "finished": now(),
            "ended": self.ended,
            "windows": self.windows,
            "tokens": self.tokens,
            "own_tokens": self.own_tokens,
            "seconds": self.seconds,
            "marks": self.marks,
            "engine_seconds": {kind: self._engine.seconds[kind] - seconds[kind] for kind in seconds},
            "engine_tokens": {kind: self._engine.decoded[kind] - decoded[kind] for kind in decoded},
        }
        fsio.write_durably(self._path, [orjson.dumps(record, option=orjson.OPT_INDENT_2)])


def sittings(folder: Path) -> dict[str, Any]:
    """All records by ``sitting/NNN``, in order. Raises UsageError for one that cannot be read."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[f"sitting/{path.stem}"] = orjson.loads(path.read_bytes())
        except orjson.JSONDecodeError as error:
            raise UsageError(f"{path} cannot be read ({error})") from error
    return found
