"""``agentkv deposit``: read manuals and texts once and store what the model made of them.

A bad manual, or a text that is too long, is reported and does not keep the others out. A fault of the store
ends the command, and so does Ctrl-C; each deposit before it stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import evictions, options, readd
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, finish, say, size, table
from agentkv.cli.progress import reading_bar
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
    from agentkv.engine.base import Cancellation
    from agentkv.memory.memory import AgentMemory
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
    allow_inexact: Annotated[
        bool, typer.Option("--allow-inexact", help="Store a block that failed its proof, as `inexact`.")
    ] = False,
    model: options.Model = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Read skill manuals or texts once and store their KV states; what is stored already costs a hash.

    With --again: what was deposited with another model, other settings or another llama.cpp is deposited for this one.
    """
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    if again:
        if paths or name or description:
            raise UsageError("--again deposits what the store holds for other engines; leave paths and names out")
        readd.deposit_again(store, model, settings, allow_inexact=allow_inexact, as_json=as_json)
        return
    if not paths:
        raise UsageError("name a skill folder or a text file, or --again")
    items, failures = gather(paths, name, description)
    rows: list[Row] = []
    evicted: list[dict[str, Any]] = []
    if items:
        with options.open_memory(store, model, settings, create=True) as memory:
            rows, more = deposit_all(memory, items, allow_inexact=allow_inexact)
            failures += more
            evicted = evictions.evicted(memory.store)
            failures += [(error.evicted or "", error) for error in evictions.gone(memory.store, [r.name for r in rows])]
    record = {
        "store": options.store_path(store),
        "model": model,
        "deposits": [asdict(row) for row in rows],
        "evicted": evicted,
        "failed": [{"path": path, "reason": error.message} for path, error in failures],
    }
    finish(record, as_json, lambda: _show(rows, evicted), [error for _, error in failures])


def _show(rows: Sequence[Row], evicted: Sequence[dict[str, Any]]) -> None:
    show(rows)
    evictions.tell(evicted)


# --- what to deposit ------------------------------------------------------------------------------


def gather(paths: Sequence[Path], name: str | None, description: str) -> tuple[list[Item], Failures]:
    """Everything under ``paths`` that can be deposited, and what cannot. Raises UsageError."""
    from agentkv.skills.discovery import FILE_NAMES

    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
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
    with reading_bar(sum(lengths), lambda: engine.counters.decoded) as bar:
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
    how: Any = {"allow_inexact": allow_inexact, "cancellation": cancellation}
    if item.manual is not None:
        done = memory.deposit_skill(item.manual, **how)
    else:
        source = os.fsencode(item.path.absolute()).decode("utf-8", "replace")
        done = memory.deposit_text(item.name, item.text, item.description, source=source, **how)
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
    columns = ("name", "tokens", "", "seconds", "on disk", "exactness")
    table(columns, [_cells(row) for row in rows], right=("tokens", "seconds", "on disk"), wraps=("name",))
    say(f"\n{summary(rows)}")


def summary(rows: Sequence[Row]) -> str:
    """What the deposits came to, in one line; tokens are counted at the decode call, proofs included."""
    new = [row for row in rows if row.new]
    parts = []
    if new:
        read, seconds = sum(row.read for row in new), sum(row.seconds for row in new)
        rate = f"{read / max(seconds, 1e-6):,.0f} a second"
        parts.append(f"{len(new)} new: {count(read, 'token')} read in {seconds:,.1f} s ({rate}), proofs included")
    if len(new) < len(rows):
        parts.append(f"{len(rows) - len(new)} known, nothing to read")
    return "; ".join(parts)


def _cells(row: Row) -> tuple[str, ...]:
    state = "new" if row.new else "known"
    return row.name, f"{row.tokens:,}", state, f"{row.seconds:,.2f}", size(row.stored_bytes), row.exactness
