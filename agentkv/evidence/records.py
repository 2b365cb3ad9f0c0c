"""The records of a ledger: what one line holds, its digest, and the anchor that says where the ledger ended.

A line is the canonical JSON of an :class:`Entry`, so every byte of it is either covered by the digest or is the digest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError

from agentkv.errors import UsageError
from agentkv.io.hashing import canonical_json, tagged_digest
from agentkv.records import Count, Record, Sha256
from agentkv.signing.keys import Signature
from agentkv.store.format import Malformed

EntryType = Literal["ledger", "plan", "run", "item", "verdict", "scores", "end", "torn"]
LedgerId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Time = Annotated[str, Field(max_length=40)]

NOTHING = "0" * 64
"""In place of the digest before the first entry."""


class Entry(Record):
    """One line. ``seq`` counts from 0; ``previous`` is the digest of the entry before.

    ``type``: ``ledger`` (the first), ``plan`` (a plan's digest, before its runs), ``run`` (a run begins), ``item``
    (a raw generation), ``verdict``, ``scores``, ``end`` (of a run), ``torn`` (an unfinished line was moved aside).
    ``time`` (UTC) is informational.
    """

    format: Literal[1] = 1
    seq: Count
    previous: Sha256
    run: RunId | None
    type: EntryType
    time: Time
    body: dict[str, Any]
    digest: Sha256

    def computed_digest(self) -> str:
        """The digest that the other fields give."""
        return tagged_digest("ledger-entry/1", self.seq, self.previous, self.run, self.type, self.time, self.body)


class Anchor(Record):
    """Where a ledger was at one time: ``count`` entries, the last with the digest ``head``."""

    format: Literal[1] = 1
    ledger: LedgerId
    count: Count
    head: Sha256
    time: Time

    @property
    def text(self) -> str:
        """One line to publish: ``agentkv-ledger:<id>:<count>:<digest>``."""
        return f"{ANCHOR_PREFIX}{self.ledger}:{self.count}:{self.head}"


class SignedAnchor(Record):
    """An anchor and, if it was signed, the Ed25519 signature over its canonical JSON."""

    anchor: Anchor
    signature: Signature | None = None


class Inline(Record):
    """A value that is in its line."""

    value: Any


class Kept(Record):
    """A value of which the line has the SHA-256; ``kept``: it was written to a file of its own."""

    sha256: Sha256
    bytes: Count
    kept: bool


class Code(Record):
    """The package's version and source tree; ``files``: POSIX path within the package -> SHA-256."""

    version: str
    tree_sha256: Sha256
    files: dict[str, Sha256]


class RunBody(Record):
    """How a run began. ``kind`` and ``version`` name its scorer; ``plan``: the digest of the plan that it carries out.

    ``inputs``: name -> SHA-256. ``fingerprints``: name -> :class:`agentkv.records.Fingerprint` as JSON.
    """

    kind: Annotated[str, Field(min_length=1, max_length=128)]
    version: Annotated[int, Field(ge=1)]
    settings: dict[str, Any]
    inputs: dict[str, Sha256]
    fingerprints: dict[str, Any]
    code: Code
    machine: dict[str, Any]
    plan: Sha256 | None = None


class ItemBody(Record):
    """An :class:`Item` as the ledger has it."""

    key: str
    raw: Inline | Kept
    expected: Inline | Kept
    tokens: dict[str, Count] | None
    figures: dict[str, Any] | None


class VerdictBody(Record):
    """A decision within a run."""

    name: str
    passed: bool
    detail: Any = None


class ScoresBody(Record):
    """The scores that the run reported."""

    scores: dict[str, Any]


class EndBody(Record):
    """How a run ended; ``items`` and ``verdicts`` are how many there were, so that a run is known to be complete."""

    status: Literal["finished", "failed"]
    items: Count
    verdicts: Count
    error: str | None = None


class PlanBody(Record):
    """A plan's digest, entered before its runs."""

    plan: Sha256
    name: str


class LedgerBody(Record):
    """The first entry: the ledger's own id."""

    ledger: LedgerId


class TornBody(Record):
    """An unfinished line that a crash left, moved aside: its size, SHA-256 and file."""

    bytes: Count
    sha256: Sha256
    file: Annotated[str, Field(pattern=r"^torn/[0-9]{12,18}-[0-9a-f]{16}\.part$")]


BODIES: dict[EntryType, type[Record]] = {
    "ledger": LedgerBody,
    "plan": PlanBody,
    "run": RunBody,
    "item": ItemBody,
    "verdict": VerdictBody,
    "scores": ScoresBody,
    "end": EndBody,
    "torn": TornBody,
}
_OF_A_RUN = {"run", "item", "verdict", "scores", "end"}

ANCHOR_PREFIX = "agentkv-ledger:"
ANCHOR_MAGIC = "agentkv-ledger-anchor 1"


@dataclass(frozen=True)
class Item:
    """One raw generation: ``key`` names it within its run, ``expected`` is what it is scored against.

    ``raw``, ``expected`` and ``figures`` are JSON. ``tokens``: restored, prefilled, generated, as counted at the decode
    call. ``figures``: what was measured (ms, sizes); never left out, so nothing private belongs there or in the key.
    """

    key: str
    raw: Any
    expected: Any = None
    tokens: dict[str, int] | None = None
    figures: dict[str, Any] | None = None


def sealed_entry(
    seq: int, previous: str, run: str | None, kind: EntryType, time: str, body: dict[str, Any]
) -> tuple[Entry, bytes]:
    """The entry with its digest, and its line with the newline."""
    open_entry = Entry(seq=seq, previous=previous, run=run, type=kind, time=time, body=body, digest=NOTHING)
    entry = open_entry.model_copy(update={"digest": open_entry.computed_digest()})
    return entry, line_of(entry)


def line_of(entry: Entry) -> bytes:
    """The line of an entry, newline included."""
    return canonical_json(entry.model_dump()) + b"\n"


def parse_line(line: bytes) -> Entry:
    """The entry of a line with its newline. Raises Malformed for bytes that :func:`sealed_entry` does not make."""
    try:
        entry = Entry.model_validate(orjson.loads(line))
        BODIES[entry.type].model_validate(entry.body)
    except orjson.JSONDecodeError as error:
        raise Malformed("it is not JSON") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Malformed(f"{'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}") from error
    if (entry.run is not None) != (entry.type in _OF_A_RUN):
        raise Malformed(f"an entry of type {entry.type} {'has' if entry.run else 'lacks'} a run")
    if line_of(entry) != line:
        raise Malformed("it is not written as a ledger writes it")
    if entry.computed_digest() != entry.digest:
        raise Malformed("its content does not give its digest")
    return entry


def plain(value: Any, what: str) -> Any:
    """``value`` after a round trip through JSON. Raises UsageError for NaN, sets, lone surrogates and the like."""
    try:
        data = canonical_json(value)
    except TypeError as error:
        raise UsageError(f"{what} cannot be recorded as JSON: {error}") from error
    if b"null" in data and not _is_finite(value):
        raise UsageError(f"{what} holds a number that is not finite; JSON has none")
    return orjson.loads(data)


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(_is_finite(item) for item in value.values())
        case list() | tuple():
            return all(_is_finite(item) for item in value)
        case _:
            return True
