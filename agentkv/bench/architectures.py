"""``agentkv bench architectures``: which kinds of model graft exactly, and what changes their bits.

On tiny models with random weights, one of each of llama.cpp's kinds (or on one real model): a graft against the
uninterrupted run over 48 greedy steps at several lengths, past any sliding window, with flash attention off and on;
and whether threads, the batch split, the window size and the place of a cut change the bits of a fresh reading.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.bench import measured
from agentkv.bench.report import now, origin, say
from agentkv.bench.tiny import ARCHITECTURES, write_tiny
from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Engine
from agentkv.engine.generate import chained, first_difference, greedy_hashes
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import AgentKVError, GuaranteeViolated
from agentkv.io.hashing import canonical_json, file_sha256
from agentkv.models import resolve
from agentkv.records import Exactness
from agentkv.store.catalog import BlockStore

LENGTHS = (1, 2, 31, 64, 200, 600)
SMALL = (64, 600)
STEPS = 48
_VARIANTS = {
    "threads": ({"threads": 1}, {"threads": 2}),
    "batch": ({"batch": 32}, {"batch": 512}),
    "window": ({"window": 1024}, {"window": 2048}),
}


def run(models: Sequence[str] = (), *, lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """The whole benchmark: every tiny architecture, or the real ``models`` instead."""
    started, raw = now(), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="agentkv-architectures-") as folder:
        paths = {name: resolve(name).path for name in models}
        if not models:
            paths = {name: write_tiny(Path(folder) / f"{name}.gguf", name) for name in ARCHITECTURES}
        inputs = canonical_json({name: file_sha256(path) for name, path in paths.items()})
        for name, path in paths.items():
            for flash in (False, True):
                place = f"{name}, flash attention {'on' if flash else 'off'}"
                raw[place] = {"name": name, "flash_attention": flash, **_measure(path, flash, lengths)}
                say(f"{place}: {raw[place].get('refused', 'measured')}")
    shown = ", ".join(models) or "tiny"
    header = origin("architectures", shown, "", inputs, started=started, lengths=list(lengths), steps=STEPS)
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if a block that passed its probe was not exact: a refusal is an honest outcome."""
    for row in result["rows"]:
        if row["verdict"] == "stored but not exact":
            raise GuaranteeViolated(f"{row['name']}: a block that passed its probe diverged later")


def _measure(path: Path, flash: bool, lengths: Sequence[int]) -> dict[str, Any]:
    base: dict[str, Any] = {"window": 1024, "threads": 2, "flash_attention": flash}
    try:
        with LlamaEngine(path, EngineSettings(**base)) as engine, tempfile.TemporaryDirectory() as store:
            sections = [f"{s.kind} {s.window}" if s.window else s.kind for s in engine.layout.sections]
            blocks = _grafted(Blocks(engine, BlockStore(store, cache_bytes=0)), lengths)
            ids = _tokens(engine, max(lengths))
            whole = chained(_fresh(engine, ids))
            cut = {f"cut at n-{k}": [whole, chained(_fresh(engine, ids[:-k], ids[-k:]))] for k in (36, 1)}
    except AgentKVError as error:
        return {"refused": f"{type(error).__name__}: {error.message}"}
    pairs = {name: _pair(path, base, *pair, length=max(lengths)) for name, pair in _VARIANTS.items()}
    return {"sections": sections, "steps": STEPS, "blocks": blocks, "pairs": {**pairs, **cut}}


def _grafted(blocks: Blocks, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Of each length both readings' digests, and whether the block was stored as exact and proves itself again."""
    engine, seen = blocks.engine, []
    for n in lengths:
        ids = _tokens(engine, n)
        reference = _fresh(engine, ids)
        manifest = blocks.deposit(ids, allow_inexact=True).manifest
        blocks.graft(manifest)
        grafted = greedy_hashes(engine, ids[0], STEPS)
        seen.append(
            {
                "n": n,
                "fresh_sha256": chained(reference),
                "graft_sha256": chained(grafted),
                "first_difference": first_difference(reference, grafted),
                "stored_as_exact": manifest.exactness is Exactness.EXACT,
                "reproved": blocks.reprove(manifest),
            }
        )
    return seen


def _tokens(engine: Engine, n: int) -> list[int]:
    top = min(engine.info.n_vocab, 40_000)
    low = 0 if top < 1000 else 1000
    return [int(i) for i in np.random.default_rng(n).integers(low, top if low else 256, n)]


def _fresh(engine: Engine, *parts: Sequence[int]) -> list[str]:
    engine.clear()
    for part in parts:
        engine.extend(part)
    return greedy_hashes(engine, parts[0][0], STEPS)


def _pair(path: Path, base: dict[str, Any], one: dict[str, Any], two: dict[str, Any], *, length: int) -> list[str]:
    """SHA-256 over every step's logits under each of two settings."""
    hashes = []
    for variant in (one, two):
        with LlamaEngine(path, EngineSettings(**{**base, **variant})) as engine:
            hashes.append(chained(_fresh(engine, _tokens(engine, length))))
    return hashes
