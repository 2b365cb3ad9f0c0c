"""Checks that a ledger is the one that was written: every fault, each with its place.

What each thing shows:
- the lines alone: a changed byte, a dropped, moved, doubled or inserted record, unless everything after it was
  rewritten too, digests included;
- with ``head.json`` (written by every append): also a cut or rewritten end, unless that file was rewritten too;
- with an anchor that is elsewhere, or signed by a key that is elsewhere: also that, up to the record that the anchor
  covers. Of records after the last such anchor, only that they follow each other.
None of it shows that what was recorded was true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.errors import LedgerDamaged, StoreError
from agentkv.evidence.anchors import Given, kept_anchors
from agentkv.evidence.files import FILE, HEAD, Absent, PayloadFiles, read_head
from agentkv.evidence.records import NOTHING, Entry, ItemBody, parse_line
from agentkv.io import fsio
from agentkv.io.hashing import sha256
from agentkv.store.format import Malformed

LINE_LIMIT = 256 << 20


@dataclass(frozen=True)
class Finding:
    """One fault. ``problem``: changed, missing, duplicate, order, forged, cut, rewritten, anchor, payload, run.

    ``line`` counts from 1; ``seq`` is the record's own number, where it has one.
    """

    problem: str
    what: str
    line: int | None = None
    seq: int | None = None

    @property
    def text(self) -> str:
        """The finding with its place."""
        return f"{FILE}:{self.line}: {self.what}" if self.line is not None else self.what


@dataclass
class VerifyReport:
    """The result of checking a whole ledger. ``torn``: bytes of an unfinished last line, as a crash leaves one.

    ``beyond``: records after the last that any anchor covers. ``absent``: payloads of which only the digest is
    here.
    """

    folder: Path
    entries: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    anchors: list[dict[str, Any]] = field(default_factory=list)
    torn: int = 0
    beyond: int = 0
    absent: int = 0

    @property
    def head(self) -> str:
        """Digest of the last record."""
        return self.entries[-1].digest if self.entries else NOTHING

    def require_sound(self) -> None:
        """Raise LedgerDamaged if anything was found."""
        if self.findings:
            raise LedgerDamaged(self.folder, [finding.text for finding in self.findings])


def verify(folder: Path, given: Sequence[Given] = (), *, payloads: bool = True) -> VerifyReport:
    """Check every byte of the ledger in ``folder``; ``given`` are anchors from elsewhere.

    ``payloads=False`` leaves the payload files unread. Faults are in the report; StoreReadError is raised only if the
    ledger cannot be read.
    """
    report = VerifyReport(folder)
    own = _own_anchors(report)  # before the lines: another process may append meanwhile
    place, unreadable = _check_lines(report)
    _check_anchors(report, [*own, *given], place, unreadable)
    if not report.findings:  # else what is missing would be reported twice
        _check_runs(report)
    if payloads:
        _check_payloads(report)
    return report


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbers from 1 and bytes of the lines of a ledger's file; an unfinished one has no newline."""
    with fsio.open_regular(path) as opened:
        if opened is None:
            return
        file, info = opened
        rest, number = b"", 0
        left = info.st_size
        while left > 0:
            block = bytearray(min(left, 1 << 20))
            got = fsio.read_fully(file, memoryview(block))
            if not got:
                break
            left -= got
            *lines, rest = (rest + bytes(block[:got])).split(b"\n")
            for line in lines:
                number += 1
                yield number, line + b"\n"
        if rest:
            yield number + 1, rest


def _check_lines(report: VerifyReport) -> tuple[dict[int, int], set[int]]:
    """Fill entries and findings; the line of each record by its number, and the numbers of unreadable ones."""
    digests: dict[int, str] = {}
    place: dict[int, int] = {}
    expected, after = 0, 0
    unreadable: set[int] = set()
    for number, line in whole_lines(report.folder / FILE):
        if not line.endswith(b"\n"):
            report.torn = len(line)
            break
        try:
            entry = parse_line(line)
        except Malformed as error:
            report.findings.append(Finding("changed", f"a record was changed: {error}", number))
            unreadable.add(expected)
            expected += 1
            after = number
            continue
        report.findings += _place_faults(entry, number, expected, after, digests)
        if entry.seq in digests:
            after = number
            continue
        digests[entry.seq], place[entry.seq] = entry.digest, number
        report.entries.append(entry)
        expected, after = max(expected, entry.seq + 1), number
    return place, unreadable


def _place_faults(entry: Entry, number: int, expected: int, after: int, digests: dict[int, str]) -> list[Finding]:
    """What is wrong with the position of a record that is valid itself."""
    seq = entry.seq
    if seq in digests:
        if digests[seq] == entry.digest:
            return [Finding("duplicate", f"record {seq} is there twice", number, seq)]
        return [Finding("forged", f"another record with the number {seq}", number, seq)]
    if seq < expected:
        return [Finding("order", f"record {seq} comes after record {expected - 1}", number, seq)]
    if seq > expected:
        span = f"record {expected} is" if seq == expected + 1 else f"records {expected} to {seq - 1} are"
        return [Finding("missing", f"{span} missing after line {after}", number, seq)]
    before = NOTHING if seq == 0 else digests.get(seq - 1)
    if before is not None and entry.previous != before:
        return [Finding("forged", f"record {seq} does not follow from the record before it", number, seq)]
    if (entry.type == "ledger") != (seq == 0):
        return [Finding("forged", f"record {seq} of type {entry.type} cannot stand here", number, seq)]
    return []


def _own_anchors(report: VerifyReport) -> list[Given]:
    found: list[Given] = []
    try:
        head = read_head(report.folder)
        if head is not None:
            found.append(Given(HEAD, head, None))
        elif (report.folder / FILE).exists():
            report.findings.append(Finding("anchor", f"{HEAD} is missing, so a cut end would not show"))
        found += kept_anchors(report.folder)
    except LedgerDamaged as error:
        report.findings += [Finding("anchor", text) for text in error.findings]
    return found


def _check_anchors(report: VerifyReport, anchors: Sequence[Given], place: dict[int, int], unreadable: set[int]) -> None:
    first = report.entries[0] if report.entries else None
    ledger = first.body.get("ledger") if first is not None and first.type == "ledger" else None
    digests = {entry.seq: entry.digest for entry in report.entries}
    covered = 0
    for known in anchors:
        what, last = None, known.anchor.count - 1
        if last < 0:
            pass
        elif ledger is not None and known.anchor.ledger != ledger:
            what = Finding("rewritten", f"{known.source} is the anchor of another ledger ({known.anchor.ledger})")
        elif last in unreadable:
            what = Finding("rewritten", f"record {last}, which {known.source} covers, was changed", seq=last)
        elif last not in digests:
            have = f"{len(digests):,} are here" + (", and an unfinished line" if report.torn else "")
            text = f"{known.source} covers {known.anchor.count:,} records; {have}: the end is missing"
            what = Finding("cut", text)
        elif digests[last] != known.anchor.head:
            text = f"record {last} is not the one that {known.source} covers: all up to it may have been rewritten"
            what = Finding("rewritten", text, place[last], last)
        report.findings += [] if what is None else [what]
        covered = max(covered, known.anchor.count)
        signed_by, count = known.signed_by, known.anchor.count
        report.anchors.append({"from": known.source, "count": count, "signed_by": signed_by, "holds": what is None})
    report.beyond = max(0, len(report.entries) - covered)


def _check_runs(report: VerifyReport) -> None:
    """Records of a run are between its beginning and its end, and as many as the end says."""
    started: dict[str, dict[str, int]] = {}
    ended: set[str] = set()
    for entry in report.entries:
        if entry.run is None:
            continue
        if entry.type == "run":
            if entry.run in started:
                report.findings.append(Finding("run", f"run {entry.run} begins twice", seq=entry.seq))
            started[entry.run] = {"item": 0, "verdict": 0, "scores": 0}
            continue
        counts = started.get(entry.run)
        if counts is None or entry.run in ended:
            when = "after its end" if entry.run in ended else "without its beginning"
            report.findings.append(Finding("run", f"record {entry.seq} of run {entry.run} {when}", seq=entry.seq))
        elif entry.type == "end":
            ended.add(entry.run)
            if (entry.body["items"], entry.body["verdicts"]) != (counts["item"], counts["verdict"]):
                what = f"run {entry.run} ends with {entry.body['items']} items; {counts['item']} are here"
                report.findings.append(Finding("run", what, seq=entry.seq))
        else:
            counts[entry.type] += 1


def _check_payloads(report: VerifyReport) -> None:
    files = PayloadFiles(report.folder)
    for entry in report.entries:
        if entry.type == "torn":
            _check_torn(report, entry)
        if entry.type != "item":
            continue
        body = ItemBody.model_validate(entry.body)
        for reference in (body.raw, body.expected):
            try:
                report.absent += isinstance(files.get(reference), Absent)
            except (Malformed, StoreError) as error:
                what = f"the payload of record {entry.seq} ({files.path(reference.sha256).name}): {error}"  # type: ignore[union-attr]
                report.findings.append(Finding("payload", what, seq=entry.seq))


def _check_torn(report: VerifyReport, entry: Entry) -> None:
    path = report.folder / entry.body["file"]
    try:
        fsio.refuse_links(report.folder, path)
        data = fsio.read_regular(path, LINE_LIMIT)
    except (StoreError, ValueError) as error:
        report.findings.append(Finding("payload", f"the unfinished line of record {entry.seq}: {error}", seq=entry.seq))
        return
    if data is None:
        report.absent += 1
    elif sha256(data) != entry.body["sha256"]:
        report.findings.append(Finding("payload", f"{entry.body['file']} was changed", seq=entry.seq))
