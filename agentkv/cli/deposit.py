"""``agentkv deposit``: prefill manuals and texts once and store what the model made of them.

A bad manual, or a text that is too long, is reported and does not keep the others out. A fault of the store ends the
command, and so does Ctrl-C; each deposit before it stays.

``--again`` deposits for this engine what the store holds for others; documents are cut again. Nothing of the other
engines goes, and the same command does what a failure or Ctrl-C left.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.inventory import evicted, gone, say_evicted
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import Column, count, number, say, show_rows, size
from agentkv.cli.progress import cancelled_by_ctrl_c, prefill_bar
from agentkv.errors import (
    AgentKVError,
    InexactBlock,
    Interrupted,
    InvalidManual,
    SkillError,
    UsageError,
    WindowOverflow,
)

if TYPE_CHECKING:
    from agentkv.documents.corpus import Recut
    from agentkv.engine.base import Cancellation
    from agentkv.engine.settings import EngineSettings
    from agentkv.memory.again import Again
    from agentkv.memory.memory import AgentMemory
    from agentkv.records import NamedBlock
    from agentkv.skills.manual import Manual


_ONE_BAD_ITEM = (SkillError, WindowOverflow, InexactBlock)


@dataclass(frozen=True)
class Item:
    """Something to deposit: a manual, or a named text."""

    name: str
    path: Path
    text: str
    description: str = ""
    manual: Manual | None = None


@dataclass(frozen=True)
class Row:
    """What one deposit did. ``tokens``: of the whole block; ``stored_bytes``: what it added on disk."""

    name: str
    kind: str
    block_id: str
    tokens: int
    read: int
    new: bool
    seconds: float
    stored_bytes: int
    exactness: str


Failures = list[tuple[str, AgentKVError]]


def deposit(
    *,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="A skill folder, a folder of such folders, or a text file.",
            show_default=False,
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Instead: all that the store holds for other engines, documents too, from the texts that it keeps.",
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of a text file's block.", show_default="the file's name")
    ] = None,
    description: Annotated[str, typer.Option(help="What a text file is for; with it, it is routed.")] = "",
    allow_inexact: options.AllowInexact = False,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Prefill skill manuals or texts once and store their KV states; what is stored already costs a hash.

    With --again: what was deposited with another model, other settings or another llama.cpp is deposited for this one.
    """
    model, settings = engine.chosen(store)
    if again:
        if paths or name or description:
            raise UsageError("--again deposits what the store holds for other engines; leave paths and names out")
        return deposit_again(store, model, settings, allow_inexact=allow_inexact)
    if not paths:
        raise UsageError("name a skill folder or a text file, or --again")
    items, failures = gather(paths, name, description)
    rows: list[Row] = []
    went: list[dict[str, Any]] = []
    if items:
        with options.open_memory(store, model, settings, create=True) as memory:
            rows, more = deposit_all(memory, items, allow_inexact=allow_inexact)
            failures += more
            went = evicted(memory.store)
            failures += [(error.evicted or "", error) for error in gone(memory.store, [r.name for r in rows])]
    record = {
        "store": store.path,
        "model": model,
        "deposits": [asdict(row) for row in rows],
        "evicted": went,
        "failed": [{"path": path, "reason": error.message} for path, error in failures],
    }

    def screen() -> None:
        show(rows)
        say_evicted(went)

    return Result(record, screen, [error for _, error in failures])


# --- what to deposit ------------------------------------------------------------------------------


def gather(paths: Sequence[Path], name: str | None, description: str) -> tuple[list[Item], Failures]:
    """Everything under ``paths`` that can be deposited, and what cannot. Raises UsageError."""
    from agentkv.skills.discovery import FILE_NAMES

    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} is not a file or directory. Name a folder that holds a SKILL.md, or a text file")
    folders = [path for path in paths if path.is_dir() or path.name in FILE_NAMES]
    texts = [path for path in paths if path not in folders]
    if (name or description) and (folders or len(texts) != 1):
        raise UsageError("--name and --description go with exactly one text file; a manual has its own")
    items, failures = manuals_in(folders) if folders else ([], [])
    for path in texts:
        try:
            items.append(Item(path.stem if name is None else name, path, _read(path), description))
        except InvalidManual as error:
            failures.append((str(path), error))
    return items, failures


def manuals_in(folders: Sequence[Path]) -> tuple[list[Item], Failures]:
    """All manuals at or below ``folders``, and the broken ones."""
    from agentkv.skills.discovery import NOTHING_THERE, Found, find_manuals
    from agentkv.skills.manual import load_manuals
    from agentkv.skills.report import warn_of

    empty = [path for path in folders if path.is_dir() and find_manuals(path) == Found()]
    found = load_manuals([path.absolute() for path in folders if path not in empty])
    warn_of([*found.notices, *(manual.warning for manual in found.loaded if manual.notes)], set())
    failures: Failures = [(str(error.path), error) for error in found.broken]
    failures += [(str(path), InvalidManual(path, NOTHING_THERE)) for path in empty]
    return [Item(m.name, m.path, m.text, m.description, m) for m in found.loaded], failures


def _read(path: Path) -> str:
    from agentkv.skills.manual import MAX_FILE_BYTES, decode_text

    try:
        if not path.is_file():
            raise InvalidManual(path, "not a regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidManual(path, f"larger than {MAX_FILE_BYTES:,} bytes")
        return decode_text(path, path.read_bytes())
    except OSError as error:
        raise InvalidManual(path, error.strerror or str(error)) from error


# --- the work -------------------------------------------------------------------------------------


def deposit_all(
    memory: AgentMemory, items: Sequence[Item], *, allow_inexact: bool = False
) -> tuple[list[Row], Failures]:
    """Deposit one after the other. Raises Interrupted, with how many are done, and the store's errors."""
    engine = memory.engine
    lengths = [len(engine.tokenize(item.text, special=False)) for item in items]
    rows: list[Row] = []
    failures: Failures = []
    with prefill_bar(sum(lengths), lambda: engine.counters.decoded) as bar:
        try:
            with cancelled_by_ctrl_c() as cancellation:
                for item, length in zip(items, lengths, strict=True):
                    bar.begin(item.name, length)
                    try:
                        rows.append(_deposit_one(memory, item, allow_inexact, cancellation))
                    except _ONE_BAD_ITEM as error:
                        failures.append((str(item.path), error))
        except KeyboardInterrupt:
            raise _interrupted(len(rows), len(items)) from None
    return rows, failures


def _deposit_one(memory: AgentMemory, item: Item, allow_inexact: bool, cancellation: Cancellation) -> Row:
    start, before = time.perf_counter(), memory.engine.counters.decoded
    if item.manual is not None:
        done = memory.deposit_skill(item.manual, allow_inexact=allow_inexact, cancellation=cancellation)
    else:
        source = os.fsencode(item.path.absolute()).decode("utf-8", "replace")
        done = memory.deposit_text(
            item.name,
            item.text,
            item.description,
            source=source,
            allow_inexact=allow_inexact,
            cancellation=cancellation,
        )
    return Row(
        name=item.name,
        kind="skill" if item.manual else "text",
        block_id=done.manifest.block_id,
        tokens=done.manifest.n_tokens,
        read=memory.engine.counters.decoded - before,
        new=done.created,
        seconds=time.perf_counter() - start,
        stored_bytes=memory.store.sizes(done.manifest).own_stored,
        exactness=done.manifest.exactness.value,
    )


def _interrupted(done: int, total: int) -> Interrupted:
    message = f"interrupted: {done} of {total} are stored and stay; the same command goes on with the rest"
    return Interrupted(message, done=done, total=total)


# --- the screen -----------------------------------------------------------------------------------


def show(rows: Sequence[Row]) -> None:
    """The table of deposits and their sum."""
    if not rows:
        return
    show_rows(_COLUMNS, rows)
    say(f"\n{summary(rows)}")


def summary(rows: Sequence[Row]) -> str:
    """What the deposits came to, in one line; tokens are counted at the decode call, proofs included."""
    new = [row for row in rows if row.new]
    parts = []
    if new:
        read, seconds = sum(row.read for row in new), sum(row.seconds for row in new)
        rate = f"{read / max(seconds, 1e-6):,.0f} a second"
        parts.append(f"{len(new)} new: {count(read, 'token')} prefilled in {seconds:,.1f} s ({rate}), proofs included")
    if len(new) < len(rows):
        parts.append(f"{len(rows) - len(new)} known, nothing to prefill")
    return "; ".join(parts)


_COLUMNS = (
    Column("name", "name", wraps=True),
    number("tokens"),
    Column("", lambda row: "new" if row.new else "known"),
    number("seconds", lambda row: f"{row.seconds:,.2f}"),
    number("on disk", lambda row: size(row.stored_bytes)),
    Column("exactness", "exactness"),
)


# --- --again --------------------------------------------------------------------------------------


def deposit_again(store: StoreOptions, model: str, settings: EngineSettings, *, allow_inexact: bool) -> Result:
    """``--again``: deposit for this engine what other engines have."""
    with options.open_memory(store, model, settings) as memory:
        done, corpora = _done(memory, allow_inexact)
        names = [named.name for named, _ in done.done]
        lost = gone(memory.store, names)
        record: dict[str, Any] = {
            "store": memory.store.root,
            "model": memory.engine.info.name,
            "deposits": [
                {"name": named.name, "kind": named.kind, "block_id": made.manifest.block_id, "new": made.created}
                for named, made in done.done
            ],
            "corpora": [{"name": one.name, "files": one.files, "windows": one.chunks} for one in corpora],
            "evicted": evicted(memory.store),
            "router_to_learn": is_unlearned(memory),
            "failed": [{"name": named.name, "reason": error.message} for named, error in done.failed],
        }
    failures: list[AgentKVError] = [error for _, error in done.failed]
    failures += [error for one in corpora for _, error in one.failed]
    return Result(record, lambda: _show_again(record, corpora), [*lost, *failures])


def _done(memory: AgentMemory, allow_inexact: bool) -> tuple[Again, list[Recut]]:
    from agentkv.documents.corpus import deposit_again as cut_again
    from agentkv.memory.again import lacking

    lacks = lacking(memory.store, memory.blocks.fingerprint.id)
    texts = {named.name: _length(memory, named) for named in lacks}
    started = 0
    with prefill_bar(sum(texts.values()), lambda: memory.engine.counters.decoded) as bar:

        def on_work(named: NamedBlock) -> None:
            nonlocal started
            started += 1
            bar.begin(named.name, texts.get(named.name, 0))

        try:
            with cancelled_by_ctrl_c() as cancellation:
                done = memory.deposit_again(allow_inexact=allow_inexact, on_work=on_work, cancellation=cancellation)
                return done, cut_again(memory, cancellation=cancellation)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted: {max(0, started - 1)} of {len(texts)} are stored; the same command does the rest",
                done=max(0, started - 1),
                total=len(texts),
            ) from None


def is_unlearned(memory: AgentMemory) -> bool:
    """Whether the router has learned for other engines, and not for this one."""
    from agentkv.store.files import ROUTER

    learned = {path.stem for path in (memory.store.root / ROUTER).glob("*.json")}
    return bool(learned) and memory.blocks.fingerprint.id not in learned


def _length(memory: AgentMemory, named: NamedBlock) -> int:
    text = None
    with contextlib.suppress(AgentKVError):
        text = memory.store.text(named.source_sha256) if named.source_sha256 else None
    return len(memory.engine.tokenize(text or "", special=False))


def _show_again(record: dict[str, Any], corpora: Sequence[Recut]) -> None:
    deposits = record["deposits"]
    if deposits:
        show_rows((Column("name", "name", wraps=True), Column("kind", "kind")), deposits)
    for one in corpora:
        if one.files:
            say(
                f"documents {one.name!r}: {count(one.files, 'file')}, {count(one.chunks, 'chunk')}; a chunk is "
                "prefilled when a question first needs it, or now by `agentkv docs add PATH`"
            )
    if not deposits and not corpora:
        say(f"nothing to do: {record['store']} holds nothing that {record['model']} has not with these settings")
        return
    say(f"\ndeposited for {record['model']}; what other engines have stays, and can go by `agentkv rm BLOCK_ID`")
    say_evicted(record["evicted"])
    if record["router_to_learn"]:
        say("the router has learned for another engine only; `agentkv route learn FILE` teaches it for this one")
