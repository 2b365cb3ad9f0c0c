"""``agentkv verify``: are the bytes on disk those that were committed, and do they still continue as at
deposit?

Goes on past a bad block and ends with the exit code of the first fault. It reports and never mends or
removes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, error_record, finish, say, table
from agentkv.cli.progress import steps_bar
from agentkv.errors import AgentKVError, InexactBlock

if TYPE_CHECKING:
    from agentkv.blocks.blocks import Blocks
    from agentkv.engine.settings import EngineSettings
    from agentkv.records import Manifest
    from agentkv.store.catalog import BlockStore

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
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|BLOCK_ID]...", help="Which ones.", show_default="all")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Repeat the 32-step proof with the model, for its own blocks.")
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
    """Check every byte of stored blocks; with --prove also that they continue as when they were stored."""
    from agentkv.cli.differing import expected, say_note

    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    failures: list[AgentKVError] = []
    with _opened(store, model, settings, prove) as (opened, blocks):
        names = _names(opened, failures)
        wanted = keys or list(opened.block_ids())
        checks = (_check(opened, blocks, key, model, names, failures) for key in wanted)
        label = lambda i: names.get(wanted[i], wanted[i])  # noqa: E731
        done = list(steps_bar(checks, len(wanted), "block", label))
        root, meant = opened.root, expected(opened, model, settings)
        note = meant.note((check.name, meant.of_block(check.block_id)) for check in done if check.block_id in names)
    record = {"store": root, "ok": not failures, "blocks": [asdict(check) for check in done], "note": note or None}

    def show() -> None:
        _show(done, root)
        say_note(meant, note)

    finish(record, as_json, show, failures)


@contextlib.contextmanager
def _opened(
    store: Path | None, model: str, settings: EngineSettings, prove: bool
) -> Iterator[tuple[BlockStore, Blocks | None]]:
    """The store, and with ``prove`` the model's blocks in it."""
    if prove:
        with options.open_memory(store, model, settings) as memory:
            yield memory.store, memory.blocks
    else:
        with options.open_store(store) as opened:
            yield opened, None


def _names(store: BlockStore, failures: list[AgentKVError]) -> dict[str, str]:
    from agentkv.cli.inventory import names_by_block

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
    from agentkv.cli.inventory import find

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
    error = InexactBlock(manifest.block_id, 0, manifest.probe.steps)
    error.message = (
        f"block {manifest.block_id[:12]} does not continue as when it was stored: its {manifest.probe.steps} "
        "steps give other logits now. The bytes are sound, the computation differs; deposit the text again."
    )
    raise error


def _show(checks: list[Check], root: Path) -> None:
    if not checks:
        say(f"nothing is stored in {root} yet")
        return
    proved = any(check.proof for check in checks)
    rows = [(c.block_id[:12] if c.block_id else "?", c.name, _verdict(c), c.proof or "") for c in checks]
    columns = ("block", "name", "bytes", "proof")
    table(columns if proved else columns[:3], rows if proved else [row[:3] for row in rows], wraps=("name",))
    bad = sum(not check.ok for check in checks)
    say(f"\n{count(len(checks), 'block')} checked, {bad or 'none'} bad")


def _verdict(check: Check) -> str:
    return "ok" if check.error is None else str(check.error["type"])
