"""``agentkv check``: is every file of a store what it should be? With ``--repair``, move what is not to the quarantine.

Without it nothing changes. Needs no model. A repair ends with 0 if the store is whole again, if smaller; with 47 if
something could not be read, or if a source text is gone whose name stays: no move mends that, the deposits that it
prints do.

``agentkv verify``: are the bytes on disk those that were committed and, with ``--prove``, do states still continue as
at deposit? Goes on past a bad block and ends with the exit code of the first fault. It reports and never mends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import commands, engines_of, expected, say_note
from agentkv.cli.inventory import find, names_by_block
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import Column, count, error_record, number, picked, printable, say, show_rows, size
from agentkv.cli.progress import bytes_bar, steps_bar
from agentkv.errors import AgentKVError, InexactBlock, StoreDamaged

if TYPE_CHECKING:
    from agentkv.blocks.blocks import Blocks
    from agentkv.engine.settings import EngineSettings
    from agentkv.records import Manifest, NamedBlock
    from agentkv.store.catalog import BlockStore
    from agentkv.store.findings import Finding, Report
    from agentkv.store.repair import Repaired


_SHOWN, _NAMES_SHOWN = 30, 4
_DIGITS = 12
_WORDS = {
    "corrupt": "CORRUPT",
    "wrong-size": "WRONG SIZE",
    "missing": "MISSING",
    "dangling": "DANGLING",
    "unreadable": "UNREADABLE",
    "foreign": "not agentkv's",
}


def check(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare the files' own digests only; decode no segment.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move what is corrupt, and what needs it, to the store's quarantine.")
    ] = False,
    store: StoreOptions,
) -> Result:
    """Look at every file of the store; say what is corrupt, missing or left over, and which blocks that costs."""

    with store.open() as opened:
        with bytes_bar("") as bar:
            report = opened.check(deep=not quick, progress=bar)
        done = opened.repair(report) if repair and report.damage else None
        record, again = _record(report, done), [] if done is None else _again(opened, done, store)
        meant = expected(opened, None)
        note = meant.note((n.name, meant.of_block(n.block_id)) for n in opened.names(on_error=lambda _: None))
    failures = _failures(report, done)

    def show() -> None:
        _show_check(report, done, again)
        say_note(meant, note)

    return Result(record | {"note": note or None}, show, failures)


def _failures(report: Report, done: Repaired | None) -> list[AgentKVError]:
    """Damage, as long as it is there: after a repair only what could not be judged."""
    if done is None:
        return [_damaged(report)] if report.damage else []
    failures: list[AgentKVError] = []
    if done.left:
        text = (
            f"{count(len(done.left), 'file')} could not be read and stayed in place: {done.left[0]}. Look at the disk "
            "and the permissions, then run `agentkv check` again."
        )
        failures.append(StoreDamaged(report.root, done.left).worded(text))
    if done.texts:
        missing = [f"the source text of {named.name} is not there" for named in done.texts]
        text = (
            f"{count(len(done.texts), 'name')} without a source text: {_first(done.texts)}. No move mends that: "
            "deposit again what is named above."
        )
        failures.append(StoreDamaged(report.root, missing).worded(text))
    return failures


def _damaged(report: Report) -> StoreDamaged:
    error = StoreDamaged(report.root, [str(finding) for finding in report.damage])
    if not all(_is_missing_text(finding) for finding in report.damage):
        return error
    texts = count(len(report.damage), "source text")
    return error.worded(
        f"{report.root} lacks {texts}; the blocks themselves are whole. Nothing was changed; `agentkv check --repair` "
        "says what to deposit again."
    )


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
        **picked(report, "deep", "blocks", "segments", "bytes"),
        "findings": [_finding(finding) for finding in report.findings],
        "repair": None if done is None else _repaired(done),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    known = picked(finding, "damage", "path", "reason", "blocks", "names", "bytes")
    return {"kind": finding.kind.value, **known}


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


def _show_check(report: Report, done: Repaired | None, again: Iterable[str]) -> None:
    _findings(report)
    how = "every byte decoded and hashed" if report.deep else "files compared with their own digests"
    looked = f"{count(report.blocks, 'block')} and {count(report.segments, 'segment')}, {size(report.bytes)}"
    blocks = {block_id for finding in report.damage for block_id in finding.blocks}
    bad = count(len(report.damage), "bad file") if report.damage else "all valid"
    cost = f", {count(len(blocks), 'block')} cannot be used" if blocks else ""
    say(f"{bad}{cost} (looked at {looked}: {how})")
    _leftovers(report)
    if done is not None:
        _show_repair(done, again)


def _findings(report: Report) -> None:
    from agentkv.store.findings import LEFT_OVER

    shown = [finding for finding in report.findings if finding.kind not in LEFT_OVER]
    if not shown:
        return
    columns = (
        Column("", lambda finding: _WORDS[finding.kind.value]),
        Column("file", lambda finding: _place(report.root, finding.path), wraps=True),
        Column("why", lambda finding: f"{finding.reason}{_concerns(finding)}", wraps=True),
    )
    show_rows(columns, shown[:_SHOWN])
    if len(shown) > _SHOWN:
        say(f"… and {len(shown) - _SHOWN:,} more; --json lists them all", dim=True)
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


def _show_repair(done: Repaired, again: Iterable[str]) -> None:
    if done.moved:
        places = sorted({str(target.parent) for _, target in done.moved})
        say(f"\nmoved {count(len(done.moved), 'file')} ({size(done.bytes)}) to {places[0]}; nothing was deleted")
    else:
        say("\nnothing had to be moved")
    named = [(entry, block.tokens) for block in done.blocks for entry in block.names]
    named += [(entry, None) for entry in done.names]
    if named:
        say("\nlost until it is deposited again:")
        show_rows(_LOST, named)
    _also_lost(done)
    for line in again:
        typer.echo(printable(line))


_LOST = (
    Column("name", lambda row: row[0].name, wraps=True),
    Column("kind", lambda row: row[0].kind),
    number("tokens", lambda row: row[1]),
    Column("it was made from", lambda row: row[0].source, wraps=True),
)


def _also_lost(done: Repaired) -> None:
    unnamed = [block for block in done.blocks if not block.names]
    if unnamed:
        say(f"{count(len(unnamed), 'block')} without a name (prefixes, router cards): they are made again when needed")
    if done.texts:
        names = ", ".join(named.name for named in done.texts)
        say(f"without their source texts until they are deposited again; their blocks are whole: {names}")
    if done.settings:
        say("the store's settings: set its budget again with `agentkv gc --set-budget SIZE`")


def _again(store: BlockStore, done: Repaired, where: StoreOptions) -> list[str]:
    """The commands that bring back what is lost."""

    kept = store.names(on_error=lambda _: None)
    lost = [named for block in done.blocks for named in block.names] + list(done.names)
    engines = engines_of(store, [block.fingerprint for block in done.blocks if block.fingerprint is not None], kept)
    return list(commands(lost, done.texts, kept, engines, where))


# --- verify ---------------------------------------------------------------------------------------


_UNNAMED = "(unnamed)"


@dataclass(frozen=True)
class Check:
    """What became of one block. ``proof`` says what --prove found, None without it."""

    key: str
    block_id: str | None
    name: str
    ok: bool
    proof: str | None
    error: dict[str, Any] | None


def verify(
    *,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|BLOCK_ID]...", help="Which ones.", show_default="all")
    ] = None,
    prove: options.Prove = False,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Check every byte of stored blocks; with --prove also that they continue as when they were stored."""

    model, settings = engine.chosen(store)
    failures: list[AgentKVError] = []
    with _opened(store, model, settings, prove) as (opened, blocks):
        names = _names(opened, failures)
        chosen = keys or list(opened.block_ids())
        checks = (_check(opened, blocks, key, model, names, failures) for key in chosen)
        label = lambda i: names.get(chosen[i], chosen[i])  # noqa: E731
        done = list(steps_bar(checks, len(chosen), "block", label))
        root, meant = opened.root, expected(opened, model, settings)
        note = meant.note((check.name, meant.of_block(check.block_id)) for check in done if check.block_id in names)
    record = {"store": root, "ok": not failures, "blocks": [asdict(check) for check in done], "note": note or None}

    def show() -> None:
        _show_verify(done, root)
        say_note(meant, note)

    return Result(record, show, failures)


@contextlib.contextmanager
def _opened(
    store: StoreOptions, model: str, settings: EngineSettings, prove: bool
) -> Iterator[tuple[BlockStore, Blocks | None]]:
    """The store, and with ``prove`` the model's blocks in it."""
    if prove:
        with options.open_memory(store, model, settings) as memory:
            yield memory.store, memory.blocks
    else:
        with store.open() as opened:
            yield opened, None


def _names(store: BlockStore, failures: list[AgentKVError]) -> dict[str, str]:

    store.names(on_error=failures.append)
    return names_by_block(store)


def _check(
    store: BlockStore,
    blocks: Blocks | None,
    key: str,
    model: str,
    names: dict[str, str],
    failures: list[AgentKVError],
) -> Check:

    block_id = proof = error = None
    try:
        block_id = find(store, key, model)
        manifest = store.verify(block_id, deep=True)
        proof = None if blocks is None else _prove(blocks, manifest)
    except AgentKVError as fault:
        failures.append(fault)
        error = fault
    name = names.get(block_id or "", _UNNAMED if block_id else key)
    return Check(key, block_id, name, error is None, proof, error_record(error) if error else None)


def _prove(blocks: Blocks, manifest: Manifest) -> str:
    """What the repeated proof found. Raises InexactBlock if it fails where it held at deposit."""
    from agentkv.records import Exactness

    if manifest.fingerprint.id != blocks.fingerprint.id:
        fields = manifest.fingerprint.differences(blocks.fingerprint)
        return f"not repeated: other model or settings ({', '.join(fields)})"
    if manifest.probe is None:
        rests = manifest.exactness is Exactness.EXACT_BY_CONFIG
        return "by the configuration's self-test" if rests else "no proof to repeat"
    if blocks.reprove(manifest):
        return "proved"
    if manifest.exactness is Exactness.INEXACT:
        return "inexact, as stored"
    steps = manifest.probe.steps
    raise InexactBlock(manifest.block_id, 0, steps).worded(
        f"block {manifest.block_id[:12]} does not continue as when it was stored: its {steps} steps give other logits "
        "now. The bytes are valid, the computation differs; deposit the text again."
    )


def _show_verify(checks: list[Check], root: Path) -> None:
    if not checks:
        say(f"nothing is stored in {root} yet")
        return
    show_rows(_CHECK, checks)
    bad = sum(not check.ok for check in checks)
    say(f"\n{count(len(checks), 'block')} checked, {bad or 'none'} bad")


_CHECK = (
    Column("block", lambda check: check.block_id[:12] if check.block_id else "?"),
    Column("name", "name", wraps=True),
    Column("bytes", lambda check: "ok" if check.error is None else check.error["type"]),
    Column("proof", "proof", optional=True),
)
