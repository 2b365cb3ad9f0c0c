"""``agentkv bench subsidy``: what reading a block costs, against restoring it, up to the first token's logits.

Everything is measured in one process and one run, so that the ratios mean something: cold prefill; capture and
store beside it (the probe apart); restore from the RAM cache, with a plain copy of as many bytes for scale, and the
clearing of the whole window's cache that llama.cpp does in each restore, whatever the block's size; restore from a
warm disk with verification and decompression in threads, and what each step takes of it.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.bench.controls import clear_cache
from agentkv.bench.report import origin, say, timed
from agentkv.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.engine.llama import LlamaEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.hashing import canonical_json
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
    options: dict[str, Any] = {"window": None, **(settings or {})}
    with tempfile.TemporaryDirectory(prefix="agentkv-subsidy-", dir=folder) as temporary:
        train = _train_window(model, options)
        fit = [n for n in lengths if n + 64 <= train]
        if not fit:
            raise UsageError(f"no length fits the trained window of {train:,} tokens")
        options["window"] = options["window"] or min(train, -(-(max(fit) + 64) // 256) * 256)
        with LlamaEngine.open(model, EngineSettings(**options)) as engine:
            rows = [_measure(engine, n, Path(temporary) / str(n)) for n in fit]
            result = origin("subsidy", model, engine.info.sha256, canonical_json(list(fit)), **options)
    left_out = {str(n): f"over the trained window of {train:,} tokens" for n in lengths if n not in fit}
    return {**result, "lengths": rows, "left_out": left_out}


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
    rng = random.Random(n)
    low = 1000
    tokens = [rng.randrange(low, min(40_000, engine.info.n_vocab)) for _ in range(n)]
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
        overhead = sum(deposit.ms[stage] for stage in ("capture", "cut", "store"))
        # 3. From RAM, and a plain copy of as many bytes.
        ram = timed(lambda: engine.restore(state), _REPEATS)
        first = _first_token(engine, state, tokens[0])
        cleared = timed(lambda: clear_cache(engine), _REPEATS)
        target = np.empty_like(state.blob)
        copy = timed(lambda: np.copyto(target, state.blob), _REPEATS)
        engine.restore(state)
        equal = bool(np.array_equal(engine.extend([tokens[0]]), fresh))
        sizes = store.sizes(deposit.manifest)
        # 4. From a warm disk.
        disk = _warm_disk(folder, engine, deposit.manifest, state)
    row = {
        "n": n,
        "state_bytes": int(state.blob.nbytes),
        "stored_bytes": sizes.stored,
        "cold_prefill_ms": cold,
        "first_token_ms": first,
        "restore_ram_ms": ram,
        "memcpy_ms": copy,
        "clear_cache_ms": cleared,
        "restore_disk": disk,
        "subsidy_ram": (cold + first) / (ram["median"] + first),
        "subsidy_disk": (cold + first) / (disk["first_read_ms"] + first),
        "ram_share_of_memcpy": copy["median"] / ram["median"],
        "deposit_ms": deposit.ms,
        "deposit_overhead": overhead / deposit.ms["prefill"],
        "logits_equal": equal,
    }
    say(
        f"n = {n}: cold {cold / 1e3:.1f} s, RAM {ram['median']:.1f} ms + first token {first:.1f} ms "
        f"({row['subsidy_ram']:.0f} x), disk {disk['first_read_ms']:.1f} ms ({row['subsidy_disk']:.0f} x)"
    )
    return row


def _first_token(engine: LlamaEngine, state: State, token: int) -> float:
    times = []
    for _ in range(_REPEATS):
        engine.restore(state)
        start = time.perf_counter()
        engine.extend([token])
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def _warm_disk(folder: Path, engine: LlamaEngine, manifest: Manifest, state: State) -> dict[str, Any]:
    """A new store object on files that the page cache holds; every digest checked on every read."""
    with BlockStore(folder, verify="always", cache_bytes=0) as store:

        def whole() -> None:
            assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
            store.read(manifest, assembly.place)
            engine.restore(State(state.tokens, manifest.layout, assembly.blob))

        def checked() -> None:
            store.verify(manifest.block_id, deep=False)

        assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
        total = timed(whole, _REPEATS)
        hashed = timed(checked, _REPEATS)["median"]
        decoded = timed(lambda: store.read(manifest, lambda ref, raw: None), _REPEATS)["median"]
        placed = timed(lambda: store.read(manifest, assembly.place), _REPEATS)["median"]
        native = timed(lambda: engine.restore(state), _REPEATS)["median"]
    with BlockStore(folder, verify="once", cache_bytes=0) as store:
        store.read(manifest, assembly.place)
        again = timed(lambda: store.read(manifest, assembly.place), _REPEATS)["median"]
    return {
        "first_read_ms": total["median"],
        "spread_ms": [total["min"], total["max"]],
        "verified_before_ms": again + native,
        "share": {
            "read + SHA-256": hashed / total["median"],
            "decompress": max(0.0, decoded - hashed) / total["median"],
            "place": max(0.0, placed - decoded) / total["median"],
            "native set": native / total["median"],
        },
    }
