"""``agentkv bench subsidy``: what reading a block costs, against restoring it, up to the first token's logits.

Everything is measured in one process and one run, so that the ratios mean something: cold prefill; capture and
store beside it (the probe apart); restore from the RAM cache, with a plain copy of as many bytes for scale, and, but
for short blocks, the clearing of the whole window's cache with which llama.cpp begins; restore from a warm disk with
verification and decompression in threads, and what each step takes of it.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.bench import measured
from agentkv.bench.controls import clear_cache
from agentkv.bench.exactness import usual_tokens
from agentkv.bench.report import clocked, now, origin, say
from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import canonical_json, sha256
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore

LENGTHS = (512, 2048, 5569, 11994)
PAPER_RATIO = 85.6
"""arXiv 2607.14431: cold prefill against restore at 11,994 tokens."""

_REPEATS = 7


def run(
    model: str, *, lengths: Sequence[int] = LENGTHS, settings: dict[str, Any] | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """The whole benchmark. Lengths over the model's trained window are left out, and said so."""
    started = now()
    options: dict[str, Any] = {"window": None, **(settings or {})}
    with tempfile.TemporaryDirectory(prefix="agentkv-subsidy-", dir=folder) as temporary:
        train = _train_window(model, options)
        fit = [n for n in lengths if n + 64 <= train]
        if not fit:
            raise UsageError(f"no length fits the trained window of {train:,} tokens")
        options["window"] = options["window"] or min(train, -(-(max(fit) + 64) // 256) * 256)
        with LlamaEngine.open(model, EngineSettings(**options)) as engine:
            raw = {str(n): _measure(engine, n, Path(temporary) / str(n)) for n in fit}
            inputs = canonical_json(list(fit))
            header = origin("subsidy", model, engine.info.sha256, inputs, started=started, **options)
    left_out = {str(n): f"over the trained window of {train:,} tokens" for n in lengths if n not in fit}
    return measured.result({**header, "left_out": left_out}, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless a restore beats reading wherever it was measured and gave the same bits."""
    for row in result["lengths"]:
        if not row["logits_equal"]:
            raise GuaranteeViolated(f"n = {row['n']}: the first logits after a restore differ from those after reading")
        if row["subsidy_ram"] <= 1:
            raise GuaranteeViolated(f"n = {row['n']}: restoring was no faster than reading")


def _train_window(model: str, options: dict[str, Any]) -> int:
    with LlamaEngine.open(model, EngineSettings(**{**options, "window": 512})) as engine:
        return engine.info.train_window


def _measure(engine: LlamaEngine, n: int, folder: Path) -> dict[str, Any]:
    rng, known = random.Random(n), usual_tokens(engine)
    tokens = [rng.choice(known) for _ in range(n)]
    # 1. Cold: read the block; then the first token behind it.
    engine.clear()
    start = time.perf_counter()
    engine.extend(tokens)
    cold = (time.perf_counter() - start) * 1e3
    fresh = engine.extend([tokens[0]])
    # 2. Deposit, by stage.
    with BlockStore(folder, cache_bytes=1 << 34) as store:
        blocks = Blocks(engine, store)
        deposit = blocks.deposit(tokens)
        state = blocks.state(deposit.manifest)
        # 3. From RAM, and a plain copy of as many bytes.
        ram = clocked(lambda: engine.restore(state), _REPEATS)
        first = _first_token(engine, state, tokens[0])
        is_cleared = not engine.sets_without_zeroing(state)
        cleared = {"clear_cache_ms": clocked(lambda: clear_cache(engine), _REPEATS)} if is_cleared else {}
        target = np.empty_like(state.blob)
        copy = clocked(lambda: np.copyto(target, state.blob), _REPEATS)
        engine.restore(state)
        grafted = engine.extend([tokens[0]])
        sizes = store.sizes(deposit.manifest)
        # 4. From a warm disk.
        disk = _warm_disk(folder, engine, deposit.manifest, state)
    say(f"n = {n}: cold {cold / 1e3:.1f} s, RAM {min(ram):.1f} ms, disk {min(disk['whole']):.1f} ms at best")
    return {
        "n": n,
        "state_bytes": int(state.blob.nbytes),
        "stored_bytes": sizes.stored,
        "cold_prefill_ms": cold,
        "first_token_ms": first,
        "restore_ram_ms": ram,
        "memcpy_ms": copy,
        **cleared,
        "disk_ms": disk,
        "deposit_ms": deposit.ms,
        "logits_sha256": {"read": sha256(fresh.tobytes()), "grafted": sha256(grafted.tobytes())},
    }


def _first_token(engine: LlamaEngine, state: State, token: int) -> list[float]:
    times = []
    for _ in range(_REPEATS):
        engine.restore(state)
        start = time.perf_counter()
        engine.extend([token])
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _warm_disk(folder: Path, engine: LlamaEngine, manifest: Manifest, state: State) -> dict[str, list[float]]:
    """A new store object on files that the page cache holds; every digest checked on every read, but for ``again``."""
    with BlockStore(folder, verify="always", cache_bytes=0) as store:

        def whole() -> None:
            assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
            store.read(manifest, assembly.place)
            engine.restore(State(state.tokens, manifest.layout, assembly.blob))

        def checked() -> None:
            store.verify(manifest.block_id, deep=False)

        assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
        total = clocked(whole, _REPEATS)
        hashed = clocked(checked, _REPEATS)
        decoded = clocked(lambda: store.read(manifest, lambda ref, raw: None), _REPEATS)
        placed = clocked(lambda: store.read(manifest, assembly.place), _REPEATS)
        native = clocked(lambda: engine.restore(state), _REPEATS)
    with BlockStore(folder, verify="once", cache_bytes=0) as store:
        store.read(manifest, assembly.place)
        again = clocked(lambda: store.read(manifest, assembly.place), _REPEATS)
    return {
        "whole": total,
        "hashed": hashed,
        "decoded": decoded,
        "placed": placed,
        "native": native,
        "again": again,
    }
