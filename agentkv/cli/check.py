"""``agentkv check``: is every file of a store what it should be? With ``--repair``, move aside what is not.

Without it nothing changes. Needs no model: whether states still continue as at deposit, ``agentkv verify --prove``
tells.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, printable, say, size, table
from agentkv.cli.progress import bytes_bar
from agentkv.errors import AgentKVError, StoreDamaged

if TYPE_CHECKING:
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
    with options.open_store(store) as opened:
        report = _look(opened, deep=not quick)
        done = _repair(opened, report) if repair and report.damage else None
        record, models = _record(report, done), _models(opened, done)
    failures = _failures(report, done)
    finish(record, as_json, lambda: _show(report, done, models, store), failures)


def _look(store: BlockStore, *, deep: bool) -> Report:
    with bytes_bar("") as bar:
        return store.check(deep=deep, progress=bar)


def _repair(store: BlockStore, report: Report) -> Repaired:
    return store.repair(report)


def _failures(report: Report, done: Repaired | None) -> list[AgentKVError]:
    """Damage, as long as it is there: after a repair only what could not be judged."""
    if done is None:
        return [StoreDamaged(report.root, [str(finding) for finding in report.damage])] if report.damage else []
    if not done.left:
        return []
    error = StoreDamaged(report.root, done.left)
    error.message = (
        f"{count(len(done.left), 'file')} could not be read and stayed in place: {done.left[0]}. Look at the disk and "
        "the permissions, then run `agentkv check` again."
    )
    return [error]


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
        "texts": done.texts,
        "settings": done.settings,
        "left": done.left,
    }


# --- the screen -----------------------------------------------------------------------------------


def _show(report: Report, done: Repaired | None, models: Mapping[str, str], store: Path | None) -> None:
    _findings(report)
    how = "every byte decoded and hashed" if report.deep else "files compared with their own digests"
    looked = f"{count(report.blocks, 'block')} and {count(report.segments, 'segment')}, {size(report.bytes)}"
    blocks = {block_id for finding in report.damage for block_id in finding.blocks}
    bad = count(len(report.damage), "bad file") if report.damage else "all sound"
    cost = f", {count(len(blocks), 'block')} cannot be used" if blocks else ""
    say(f"{bad}{cost} (looked at {looked}: {how})")
    _leftovers(report)
    if done is not None:
        _aside(done, models, store)


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
    return f" (lost with it: {', '.join(parts)})" if parts else ""


def _leftovers(report: Report) -> None:
    from agentkv.store.findings import Kind

    orphans, temporaries = report.of(Kind.ORPHAN), report.of(Kind.STALE_TEMP)
    parts = [f"{count(len(orphans), 'file')} that nothing needs"] if orphans else []
    parts += [f"{count(len(temporaries), 'unfinished file')}"] if temporaries else []
    if parts:
        n_bytes = sum(finding.bytes for finding in (*orphans, *temporaries))
        say(f"left over: {', '.join(parts)}, {size(n_bytes)}; `agentkv gc` removes them")


def _aside(done: Repaired, models: Mapping[str, str], store: Path | None) -> None:
    if not done.moved:
        say("\nnothing had to be moved")
        return
    places = sorted({str(target.parent) for _, target in done.moved})
    say(f"\nmoved {count(len(done.moved), 'file')} ({size(done.bytes)}) to {places[0]}; nothing was deleted")
    named = [(entry, block.tokens) for block in done.blocks for entry in block.names]
    named += [(entry, None) for entry in done.names]
    if named:
        say("\nlost until it is deposited again:")
        rows = [(n.name, n.kind, "" if tokens is None else f"{tokens:,}", n.source) for n, tokens in named]
        table(
            ("name", "kind", "tokens", "it was made from"), rows, right=("tokens",), wraps=("name", "it was made from")
        )
    _also_lost(done)
    for line in _commands(done, models, store):
        typer.echo(printable(line))


def _also_lost(done: Repaired) -> None:
    unnamed = [block for block in done.blocks if not block.names]
    if unnamed:
        say(f"{count(len(unnamed), 'block')} without a name (prefixes, router cards): they are made anew when needed")
    if done.texts:
        say(f"the source texts of {', '.join(done.texts)}; their blocks are whole")
    if done.settings:
        say("the store's settings: set its budget again with `agentkv gc --set-budget SIZE`")


def _commands(done: Repaired, models: Mapping[str, str], store: Path | None) -> Iterable[str]:
    """The exact next steps, one deposit for each model; whole lines, to be copied."""
    by_model: dict[str, dict[str, None]] = {}
    absent = []
    for named in (*(named for block in done.blocks for named in block.names), *done.names):
        if named.source and Path(named.source).exists():
            by_model.setdefault(models.get(named.fingerprint_id, ""), {})[named.source] = None
        else:
            absent.append(named.name)
    where = f" --store {shlex.quote(str(store))}" if store is not None else ""
    if by_model:
        yield "\nnow run:"
    for model, sources in by_model.items():
        of = f" --model {model}" if model else ""
        yield f"  agentkv deposit{where}{of} {' '.join(map(shlex.quote, sources))}"
    if absent:
        yield f"\nno longer where they came from, deposit them from where they are now: {', '.join(absent)}"


def _models(store: BlockStore, done: Repaired | None) -> dict[str, str]:
    """What to pass as --model, by fingerprint: of lost blocks, and of one sound block for each other one."""
    from agentkv.cli.inventory import model_name
    from agentkv.cli.options import FAKE
    from agentkv.engine.models import CATALOGUE

    found: dict[str, str] = {}
    if done is None:
        return found
    known = [block.fingerprint for block in done.blocks if block.fingerprint is not None]
    found = {fingerprint.id: model_name(fingerprint) for fingerprint in known}
    for named in store.names(on_error=lambda _: None):
        if named.fingerprint_id not in found:
            with contextlib.suppress(AgentKVError):
                manifest = store.manifest(named.block_id)
                found |= {named.fingerprint_id: model_name(manifest.fingerprint)} if manifest else {}
    return {fingerprint_id: model for fingerprint_id, model in found.items() if model in CATALOGUE or model == FAKE}
