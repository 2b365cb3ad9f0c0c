"""``agentkv evidence verify``: is the ledger the one that was written?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import count, finish, say


def verify(
    ledger: common.LedgerFolder = None,
    anchor: common.Anchors = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Demand an anchor signed by this public key (text or file)."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Find every changed, missing, doubled, moved or forged record, with its place. Exit code 100 if there is one.

    Without --anchor, someone who can write to the folder and re-makes the whole ledger is not found out.
    """
    from agentkv.errors import LedgerDamaged
    from agentkv.evidence import verify as check
    from agentkv.evidence.anchors import kept_anchors, require_signed
    from agentkv.signing.keys import parse_public_key

    opened = common.open_ledger(ledger)
    given = common.anchors(anchor)
    report = check(opened.folder, given)
    if key is not None and not report.findings:
        require_signed([*given, *kept_anchors(opened.folder)], parse_public_key(key))
    outside = [known for known in report.anchors if known["from"] != "head.json"]
    result = {
        "ledger": opened.folder,
        "records": len(report.entries),
        "head": report.head,
        "findings": [asdict(finding) for finding in report.findings],
        "anchors": report.anchors,
        "unfinished_bytes": report.torn,
        "records_beyond_anchors": report.beyond,
        "payloads_absent": report.absent,
    }

    def show() -> None:
        for finding in report.findings:
            say(f"{finding.problem}: {finding.text}")
        state = f"{count(len(report.findings), 'fault')}" if report.findings else "every byte is as it was written"
        say(f"{count(len(report.entries), 'record')}: {state}")
        for known in report.anchors:
            by = f", signed by {known['signed_by']}" if known["signed_by"] else ""
            say(f"anchor {known['from']}: {known['count']:,} records, {'holds' if known['holds'] else 'BROKEN'}{by}")
        if report.torn:
            say(f"an unfinished last line of {report.torn:,} bytes, as a crash leaves one; the next run sets it aside")
        if report.absent:
            say(f"{count(report.absent, 'payload')} kept out; the digests are here")
        if not outside:
            say("no anchor from elsewhere: a ledger that was re-made as a whole would not show", dim=True)

    damaged = [LedgerDamaged(opened.folder, [finding.text for finding in report.findings])] if report.findings else []
    finish(result, as_json, show, damaged)
