"""``agentkv evidence``: the runs of a ledger (``list``, ``show``), whether it is the one that was written (``verify``),
a run's scores from its raw generations (``score``), and where it ends now, to be kept elsewhere (``head``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.output import Column, count, number, one_line, picked, say, show_rows, table
from agentkv.cli.pack import load_signer
from agentkv.errors import AgentKVError, UsageError

if TYPE_CHECKING:
    from agentkv.evidence import Ledger
    from agentkv.evidence.anchors import Given
    from agentkv.evidence.ledger import RecordedRun


app = App(help="A ledger of runs that anybody can check and score again.", no_args_is_help=True)

Anchors = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor",
        metavar="TEXT|FILE",
        help="What `agentkv evidence head` printed or wrote earlier, kept elsewhere; may be given several times.",
    ),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id or its first digits; `last`: the latest.")]


def ledger_path(folder: Path | None) -> Path:
    """The ledger's folder: as given, or the default."""
    if folder is not None:
        return folder
    import platformdirs

    return platformdirs.user_data_path("agentkv") / "ledger"


def open_ledger(folder: Path | None, *, there: bool = True) -> Ledger:
    """The ledger; with ``there`` it has to exist. Raises UsageError."""
    from agentkv.evidence.files import FILE, HEAD

    path = ledger_path(folder)
    if there and not ((path / FILE).exists() or (path / HEAD).exists()):
        raise UsageError(
            f"there is no ledger in {path}. A benchmark with --ledger DIR, or `agentkv replay`, makes one."
        )
    opened = options.open_ledger(path)
    assert opened is not None
    return opened


def anchors(given: list[str] | None) -> list[Given]:
    """The anchors that were given. Raises LedgerDamaged for one that was changed, UsageError."""
    from agentkv.evidence.anchors import parse

    return [parse(text) for text in given or []]


# --- list -----------------------------------------------------------------------------------------


@app.command("list")
def list_(*, ledger: options.LedgerFolder = None) -> Result:
    """Show the runs of a ledger: kind, when, how they ended, verdicts."""
    opened = open_ledger(ledger)
    runs = opened.runs()

    def show() -> None:
        if not runs:
            say("no run is recorded")
            return
        show_rows(_RUN, runs)

    return Result({"ledger": opened.folder, "runs": [record(run) for run in runs]}, show)


_RUN = (
    Column("run", "id"),
    Column("kind", lambda run: f"{run.kind}/{run.body.version}"),
    Column("began (UTC)", lambda run: run.time[:19]),
    Column("", "status"),
    number("items", lambda run: len(run.items)),
    Column("verdicts passed", lambda run: _passed(run.verdicts)),
)


def _passed(verdicts: Sequence[Any]) -> str:
    return f"{sum(verdict.passed for verdict in verdicts)} of {len(verdicts)}" if verdicts else ""


def record(run: RecordedRun) -> dict[str, Any]:
    """A run as JSON, its items left out."""
    body = run.body.model_dump(mode="json")
    body["code"] = {key: body["code"][key] for key in ("version", "tree_sha256")}
    return {
        "run": run.id,
        **picked(run, "seq", "time", "status", "error", "scores"),
        **body,
        "items": len(run.items),
        "verdicts": [verdict.model_dump(mode="json") for verdict in run.verdicts],
    }


# --- show -----------------------------------------------------------------------------------------


@app.command()
def show(
    *,
    run: RunId,
    ledger: options.LedgerFolder = None,
    items: Annotated[bool, typer.Option("--items", help="Also the raw generations that are in the ledger.")] = False,
) -> Result:
    """Show one run: settings, inputs, code, verdicts and scores."""
    opened = open_ledger(ledger)
    found = opened.find(run)
    whole = record(found)
    bodies = [body.model_dump(mode="json") for body in found.items]
    if items:
        whole["raw_items"] = bodies

    def screen() -> None:
        say(f"run {found.id}: {found.kind}/{found.body.version}, {found.status}, began {found.time}")
        if found.error:
            say(f"ended with {one_line(found.error, 160)}")
        code = found.body.code
        say(f"agentkv {code.version}, source tree {code.tree_sha256[:16]}…, {count(len(code.files), 'file')}")
        say(f"settings: {_json(found.body.settings)}")
        table(("input", "SHA-256"), sorted(found.body.inputs.items()))
        if found.verdicts:
            rows = [(verdict.name, "passed" if verdict.passed else "FAILED") for verdict in found.verdicts]
            table(("verdict", ""), rows, wraps=("verdict",))
        if found.scores is not None:
            say(f"scores as reported: {_json(found.scores)}")
        say(
            f"{count(len(found.items), 'item')}; `agentkv evidence score {found.id}` computes the scores again",
            dim=True,
        )
        for body in bodies if items else []:
            say(_json(body))

    return Result(whole, screen)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


# --- verify ---------------------------------------------------------------------------------------


@app.command()
def verify(
    *,
    ledger: options.LedgerFolder = None,
    anchor: Anchors = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Demand an anchor signed by this public key (text or file)."),
    ] = None,
) -> Result:
    """Find every changed, missing, doubled, moved or forged record, with its place. Exit code 100 if there is one.

    Without --anchor, someone who can write to the folder and re-makes the whole ledger is not found out.
    """
    from agentkv.errors import LedgerDamaged
    from agentkv.evidence import verify as check
    from agentkv.evidence.anchors import kept_anchors, require_signed
    from agentkv.signing.keys import parse_public_key

    opened = open_ledger(ledger)
    given = anchors(anchor)
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
    return Result(result, show, damaged)


# --- score ----------------------------------------------------------------------------------------


@app.command()
def score(*, run: RunId, ledger: options.LedgerFolder = None) -> Result:
    """Compute a run's scores again and compare them with those reported. Exit code 103 if they differ."""
    from agentkv.bench.measured import load_scorers
    from agentkv.errors import ScoreMismatch
    from agentkv.evidence import score as compute

    load_scorers()
    opened = open_ledger(ledger)
    found = compute(opened, opened.find(run))
    failures: list[AgentKVError] = [ScoreMismatch(found.run, found.differences)] if found.differences else []
    result = {
        **picked(found, "run", "kind", "version", "computed", "reported", "differences"),
        "equal": None if found.reported is None else not found.differences,
    }

    def show() -> None:
        say(orjson.dumps(found.computed, option=orjson.OPT_INDENT_2).decode())
        if found.reported is None:
            say(f"run {found.run} reported no scores")
        elif not found.differences:
            say(f"run {found.run}: equal to the scores reported, every figure")
        for difference in found.differences:
            say(difference)

    return Result(result, show, failures)


# --- head -----------------------------------------------------------------------------------------


@app.command()
def head(
    *,
    ledger: options.LedgerFolder = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEYFILE", help="Sign with a key of `agentkv pack keygen`.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write it to a file.")] = None,
) -> Result:
    """Print the anchor: number of records and digest of the last. Whoever has it can tell if the past was re-made."""
    from agentkv.evidence import anchors
    from agentkv.evidence.records import SignedAnchor

    opened = open_ledger(ledger)
    anchor = opened.head()
    if anchor is None:
        raise UsageError(f"the ledger in {opened.folder} has no records yet")
    signed = SignedAnchor(anchor=anchor) if sign is None else anchors.sign(anchor, load_signer(sign))
    written = [] if out is None else [out]
    if sign is not None:
        written.append(anchors.place_of(opened.folder, anchor))
    for path in written:
        anchors.write(signed, path)
    key = None if signed.signature is None else signed.signature.key
    result = {**anchor.model_dump(), "anchor": anchor.text, "signed_by": key, "files": written}

    def show() -> None:
        say(anchor.text)
        if key is not None:
            say(f"signed by {key}")
        for path in written:
            say(f"written to {path}", dim=True)
        say("publish it; `agentkv evidence verify --anchor TEXT|FILE` compares", dim=True)

    return Result(result, show)
