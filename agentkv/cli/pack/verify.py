"""``agentkv pack verify``: is a pack whole? With a model: do its states belong to its tokens and texts?

Stores nothing and asks nobody's trust. Goes on past a refuted block and ends with the first one's exit code.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, error_record, finish, say, table
from agentkv.cli.pack.show import PackFile, signature, signer_line
from agentkv.cli.progress import bytes_bar, steps_bar
from agentkv.errors import AgentKVError, UsageError

if TYPE_CHECKING:
    from agentkv.engine.settings import EngineSettings
    from agentkv.packs import Pack, Proof
    from agentkv.packs.check import Contents
    from agentkv.packs.proof import How


def verify(
    pack: PackFile,
    prove: Annotated[
        bool, typer.Option("--prove", help="Repeat each block's 32-step proof with --model; quick, finds damage.")
    ] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Read all tokens anew with --model and compare; finds forgery.")
    ] = False,
    model: options.Model = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Check every byte of a pack; with a model also that its states are what its texts give."""
    from agentkv.packs import open_pack
    from agentkv.packs.check import check

    if prove and recompute:
        raise UsageError("--recompute finds all that --prove finds; pass one of them")
    model, settings = options.chosen(None, model, window, threads, kv_type, flash_attention, gpu_layers)
    with open_pack(pack) as opened:
        with bytes_bar("") as progress:
            contents = check(opened, progress=progress)
        how: How | None = "prove" if prove else "recompute" if recompute else None
        proofs = _ask(opened, contents, model, settings, how) if how else []
        signed = signature(opened)
        failures: list[AgentKVError] = [proof.error for proof in proofs if proof.error is not None]
        judged = [proof for proof in proofs if proof.verdict != "other model or settings"]
        if how and not judged:
            raise UsageError(
                f"no block of the pack is of {model} with these settings; `agentkv pack show` tells of which"
            )
        record: dict[str, Any] = {
            "pack": opened.path,
            "sha256": opened.sha256,
            "ok": not failures,
            "blocks": len(contents.blocks),
            "segments": len(contents.segments),
            "signature": signed,
            "proofs": [_proof(proof) for proof in proofs],
        }
    finish(record, as_json, lambda: _show(record, proofs), failures)


def _ask(pack: Pack, contents: Contents, model: str, settings: EngineSettings, how: How) -> list[Proof]:
    from agentkv.packs import prove_pack

    ids = list(contents.blocks)
    names = {named.block_id: named.name for named in contents.names}
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-verify-") as folder,
        options.open_memory(Path(folder) / "store", model, settings, create=True) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        proofs = prove_pack(pack, contents, memory.engine, how, cancellation=cancellation)
        return list(steps_bar(proofs, len(ids), "block", lambda i: names.get(ids[i], ids[i][:12])))


def _proof(proof: Proof) -> dict[str, Any]:
    error = None if proof.error is None else error_record(proof.error)
    return {"block_id": proof.block_id, "names": list(proof.names), "verdict": proof.verdict, "error": error}


def _show(record: dict[str, Any], proofs: list[Proof]) -> None:
    if proofs:
        rows = [(proof.block_id[:12], ", ".join(proof.names) or "(unnamed)", proof.verdict) for proof in proofs]
        table(("block", "name", "verdict"), rows, wraps=("name",))
        say()
    whole = f"{count(record['blocks'], 'block')} and {count(record['segments'], 'segment')}"
    say(f"{record['pack']}: every byte as its index says, {whole} decoded")
    say(signer_line(record["signature"]))
    if not proofs:
        say("whether the states belong to the texts, only a model can tell: --recompute --model NAME", dim=True)
