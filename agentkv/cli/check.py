"""``agentkv check``: is every file of a store what it should be? With ``--repair``, move aside what is not.

Without it nothing changes. Needs no model: whether states still continue as at deposit, ``agentkv verify --prove``
tells. A repair ends with 0 if the store is whole again, if smaller; with 47 if something could not be read, or if a
source text is gone whose name stays: no move mends that, the deposits that it prints do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, printable, say, size, table
from agentkv.cli.progress import bytes_bar
from agentkv.errors import AgentKVError, StoreDamaged

if TYPE_CHECKING:
    from agentkv.records import NamedBlock
    from agentkv.store.catalog import BlockStore
    from agentkv.store.findings import Finding, Report
    from agentkv.store.repair import Repaired

_SHOWN, _NAMES_SHOWN = 30, 4
_DIGITS = 12
_WORDS = {
    "corrupt": "DAMAGED",
    "wrong-size": "WRONG SIZE",
    "missing": "MISSING",
    "dangling": "DANGLING",
    "unreadable": "UNREADABLE",
    "foreign": "foreign",
}


def check(
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare the files' own digests only; decode no segment.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move what is damaged, and what needs it, to the store's quarantine.")
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Look at every file of the store; say what is damaged, missing or left over, and which blocks that costs."""
    from agentkv.cli.differing import expected, say_note

    with options.open_store(store) as opened:
        report = _look(opened, deep=not quick)
        done = _repair(opened, report) if repair and report.damage else None
        record, again = _record(report, done), [] if done is None else _again(opened, done, store)
        meant = expected(opened, None)
        note = meant.note((n.name, meant.of_block(n.block_id)) for n in opened.names(on_error=lambda _: None))
    failures = _failures(report, done)

    def show() -> None:
        _show(report, done, again)
        say_note(meant, note)

    finish(record | {"note": note or None}, as_json, show, failures)


def _look(store: BlockStore, *, deep: bool) -> Report:
    with bytes_bar("") as bar:
        return store.check(deep=deep, progress=bar)


def _repair(store: BlockStore, report: Report) -> Repaired:
    return store.repair(report)


def _failures(report: Report, done: Repaired | None) -> list[AgentKVError]:
    """Damage, as long as it is there: after a repair only what could not be judged."""
    if done is None:
        return [_damaged(report)] if report.damage else []
    failures: list[AgentKVError] = []
    if done.left:
        left = StoreDamaged(report.root, done.left)
        left.message = (
            f"{count(len(done.left), 'file')} could not be read and stayed in place: {done.left[0]}. Look at the disk "
            "and the permissions, then run `agentkv check` again."
        )
        failures.append(left)
    if done.texts:
        lacking = StoreDamaged(report.root, [f"the source text of {named.name} is not there" for named in done.texts])
        lacking.message = (
            f"{count(len(done.texts), 'name')} without a source text: {_first(done.texts)}. No move mends that: "
            "deposit again what is named above."
        )
        failures.append(lacking)
    return failures


def _damaged(report: Report) -> StoreDamaged:
    error = StoreDamaged(report.root, [str(finding) for finding in report.damage])
    if all(_is_missing_text(finding) for finding in report.damage):
        texts = count(len(report.damage), "source text")
        error.message = (
            f"{report.root} lacks {texts}; the blocks themselves are whole. Nothing was changed; `agentkv check "
            "--repair` says what to deposit again."
        )
    return error


def _is_text(finding: Finding) -> bool:
    return finding.path.suffix == ".txt"


def _is_missing_text(finding: Finding) -> bool:
    return finding.kind.value == "missing" and _is_text(finding)


def _first(names: Sequence[NamedBlock]) -> str:
    shown = [named.name for named in names[:_NAMES_SHOWN]]
    return ", ".join(shown + ([f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []))


def _record(report: Report, done: Repaired | None) -> dict[str, Any]:
    return {
        "store": report.root,
        "ok": not report.damage,
        "deep": report.deep,
        "blocks": report.blocks,
        "segments": report.segments,
        "bytes": report.bytes,
        "findings": [_finding(finding) for finding in report.findings],
        "repair": None if done is None else _repaired(done),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "damage": finding.damage,
        "path": finding.path,
        "reason": finding.reason,
        "blocks": finding.blocks,
        "names": finding.names,
        "bytes": finding.bytes,
    }


def _repaired(done: Repaired) -> dict[str, Any]:
    of_name = {"kind", "name", "source", "source_sha256"}
    return {
        "moved": [{"from": source, "to": target} for source, target in done.moved],
        "bytes": done.bytes,
        "blocks": [
            {
                "block_id": block.block_id,
                "tokens": block.tokens,
                "names": [named.model_dump(mode="json", include=of_name) for named in block.names],
            }
            for block in done.blocks
        ],
        "names": [named.model_dump(mode="json", include=of_name) for named in done.names],
        "texts": [named.model_dump(mode="json", include=of_name) for named in done.texts],
        "settings": done.settings,
        "left": done.left,
    }


# --- the screen -----------------------------------------------------------------------------------


def _show(report: Report, done: Repaired | None, again: Iterable[str]) -> None:
    _findings(report)
    how = "every byte decoded and hashed" if report.deep else "files compared with their own digests"
    looked = f"{count(report.blocks, 'block')} and {count(report.segments, 'segment')}, {size(report.bytes)}"
    blocks = {block_id for finding in report.damage for block_id in finding.blocks}
    bad = count(len(report.damage), "bad file") if report.damage else "all sound"
    cost = f", {count(len(blocks), 'block')} cannot be used" if blocks else ""
    say(f"{bad}{cost} (looked at {looked}: {how})")
    _leftovers(report)
    if done is not None:
        _aside(done, again)


def _findings(report: Report) -> None:
    from agentkv.store.findings import LEFT_OVER

    told = [finding for finding in report.findings if finding.kind not in LEFT_OVER]
    if not told:
        return
    rows = [(_WORDS[f.kind.value], _place(report.root, f.path), f"{f.reason}{_concerns(f)}") for f in told[:_SHOWN]]
    table(("", "file", "why"), rows, wraps=("file", "why"))
    if len(told) > _SHOWN:
        say(f"… and {len(told) - _SHOWN:,} more; --json lists them all", dim=True)
    say()


def _place(root: Path, path: Path) -> str:
    """The path below the store, its digest cut short."""
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    return shown.replace(path.stem, f"{path.stem[:_DIGITS]}…") if len(path.stem) == 64 else shown


def _concerns(finding: Finding) -> str:
    """Whom it costs: names first, then how many blocks that have none."""
    from agentkv.store.findings import Kind

    if finding.kind in (Kind.DANGLING, Kind.FOREIGN) and len(finding.blocks) < 2:
        return ""
    parts = list(finding.names[:_NAMES_SHOWN])
    parts += [f"{len(finding.names) - _NAMES_SHOWN} more names"] if len(finding.names) > _NAMES_SHOWN else []
    if not finding.names and finding.blocks:
        parts = [count(len(finding.blocks), "block") + " without a name"]
    cost = "source text of" if _is_text(finding) else "lost with it"
    return f" ({cost}: {', '.join(parts)})" if parts else ""


def _leftovers(report: Report) -> None:
    from agentkv.store.findings import Kind

    orphans, temporaries = report.of(Kind.ORPHAN), report.of(Kind.STALE_TEMP)
    parts = [f"{count(len(orphans), 'file')} that nothing needs"] if orphans else []
    parts += [f"{count(len(temporaries), 'unfinished file')}"] if temporaries else []
    if parts:
        n_bytes = sum(finding.bytes for finding in (*orphans, *temporaries))
        say(f"left over: {', '.join(parts)}, {size(n_bytes)}; `agentkv gc` removes them")


def _aside(done: Repaired, again: Iterable[str]) -> None:
    if done.moved:
        places = sorted({str(target.parent) for _, target in done.moved})
        say(f"\nmoved {count(len(done.moved), 'file')} ({size(done.bytes)}) to {places[0]}; nothing was deleted")
    else:
        say("\nnothing had to be moved")
    named = [(entry, block.tokens) for block in done.blocks for entry in block.names]
    named += [(entry, None) for entry in done.names]
    if named:
        say("\nlost until it is deposited again:")
        rows = [(n.name, n.kind, "" if tokens is None else f"{tokens:,}", n.source) for n, tokens in named]
        table(
            ("name", "kind", "tokens", "it was made from"), rows, right=("tokens",), wraps=("name", "it was made from")
        )
    _also_lost(done)
    for line in again:
        typer.echo(printable(line))


def _also_lost(done: Repaired) -> None:
    unnamed = [block for block in done.blocks if not block.names]
    if unnamed:
        say(f"{count(len(unnamed), 'block')} without a name (prefixes, router cards): they are made anew when needed")
    if done.texts:
        names = ", ".join(named.name for named in done.texts)
        say(f"without their source texts until they are deposited again; their blocks are whole: {names}")
    if done.settings:
        say("the store's settings: set its budget again with `agentkv gc --set-budget SIZE`")


def _again(store: BlockStore, done: Repaired, where: Path | None) -> list[str]:
    """The commands that bring back what is lost."""
    from agentkv.cli.again import commands, engines_of

    kept = store.names(on_error=lambda _: None)
    lost = [named for block in done.blocks for named in block.names] + list(done.names)
    engines = engines_of(store, [block.fingerprint for block in done.blocks if block.fingerprint is not None], kept)
    return list(commands(lost, done.texts, kept, engines, where))
