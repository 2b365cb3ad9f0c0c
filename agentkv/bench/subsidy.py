"""``agentkv bench subsidy``: the speed-up, prefill time ÷ restore time, up to the first token's logits.

Everything is measured in one process and one run, so that the ratios mean something: a cold prefill; capture and store
(the probe apart); a restore from the RAM cache, with a plain copy of as many bytes for scale and, but for short blocks,
the clearing of the whole window's cache with which llama.cpp begins; a restore from a warm disk with verification and
decompression in threads, and what each step takes of it.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv.bench.base import (
    Benchmark,
    Column,
    ModelSettings,
    Row,
    Table,
    Timing,
    lengths_option,
    records,
    rows_of,
    timed,
)
from agentkv.bench.exactness import usual_tokens
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import sha256
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore

if TYPE_CHECKING:
    from agentkv.engine.llama.engine import LlamaEngine

_REPEATS = 7
STEPS = ("read + SHA-256", "decompress", "place", "native set")


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """Lengths over the model's trained window are left out."""

    lengths: tuple[int, ...] = lengths_option((512, 2048, 5569, 11994), (512, 2048))


class DiskTimes(Row):
    """Milliseconds. ``whole``: a read with every hash, and the native set; ``hashed``, ``decoded`` and ``placed`` do
    more and more of it, so that their differences are what each step takes; ``native``: the set alone; ``again``: a
    later read."""

    whole: list[float]
    hashed: list[float]
    decoded: list[float]
    placed: list[float]
    native: list[float]
    again: list[float]


class Seen(Row):
    """The raw record of one length: every time that was taken, in milliseconds."""

    n: int
    state_bytes: int
    stored_bytes: int
    cold_prefill_ms: float
    first_token_ms: list[float]
    restore_ram_ms: list[float]
    memcpy_ms: list[float]
    clear_cache_ms: list[float] | None = None
    disk_ms: DiskTimes
    deposit_ms: dict[str, float]
    logits_sha256: dict[str, str]


class Disk(Row):
    """A restore from a warm disk; ``share``: of the first read, by step."""

    first_read_ms: float
    spread_ms: list[float]
    verified_before_ms: float
    share: dict[str, float]

    @classmethod
    def of(cls, seen: DiskTimes) -> Disk:
        """From every time that was taken."""
        total = Timing.of(seen.whole)
        times = (seen.hashed, seen.decoded, seen.placed, seen.native, seen.again)
        hashed, decoded, placed, native, again = map(statistics.median, times)
        steps = (hashed, max(0.0, decoded - hashed), max(0.0, placed - decoded), native)
        return cls(
            first_read_ms=total.median,
            spread_ms=[total.min, total.max],
            verified_before_ms=again + native,
            share={step: ms / total.median for step, ms in zip(STEPS, steps, strict=True)},
        )


class Length(Row):
    """The figures of one length. ``subsidy_*``: the speed-up."""

    n: int
    state_bytes: int
    stored_bytes: int
    cold_prefill_ms: float
    first_token_ms: float
    restore_ram_ms: Timing
    memcpy_ms: Timing
    clear_cache_ms: Timing | None = None
    restore_disk: Disk
    subsidy_ram: float
    subsidy_disk: float
    ram_share_of_memcpy: float
    deposit_ms: dict[str, float]
    deposit_overhead: float
    logits_equal: bool

    @classmethod
    def of(cls, seen: Seen) -> Length:
        """From what was seen."""
        cold, first = seen.cold_prefill_ms, statistics.median(seen.first_token_ms)
        ram, copy, disk = Timing.of(seen.restore_ram_ms), Timing.of(seen.memcpy_ms), Disk.of(seen.disk_ms)
        deposit = seen.deposit_ms
        return cls(
            n=seen.n,
            state_bytes=seen.state_bytes,
            stored_bytes=seen.stored_bytes,
            cold_prefill_ms=cold,
            first_token_ms=first,
            restore_ram_ms=ram,
            memcpy_ms=copy,
            clear_cache_ms=None if seen.clear_cache_ms is None else Timing.of(seen.clear_cache_ms),
            restore_disk=disk,
            subsidy_ram=(cold + first) / (ram.median + first),
            subsidy_disk=(cold + first) / (disk.first_read_ms + first),
            ram_share_of_memcpy=copy.median / ram.median,
            deposit_ms=deposit,
            deposit_overhead=sum(deposit[stage] for stage in ("capture", "cut", "store")) / deposit["prefill"],
            logits_equal=seen.logits_sha256["read"] == seen.logits_sha256["grafted"],
        )

    def ram(self) -> str:
        """A restore from RAM, and the first token."""
        cleared = "" if self.clear_cache_ms is None else f" ({self.clear_cache_ms.median:.1f})"
        return f"{self.restore_ram_ms.median:.1f}{cleared} + {self.first_token_ms:.0f} ms"


def _rows(result: Mapping[str, Any]) -> Iterator[Length | tuple[str, ...]]:
    yield from rows_of(Length, "lengths")(result)
    for n, reason in result["left_out"].items():
        yield f"{int(n):,}", reason


class Subsidy(Benchmark[Settings]):
    """What prefilling costs against restoring, up to the first token; ratios of one run."""

    name = "subsidy"
    tables = (
        Table(
            _rows,
            (
                Column[Length]("tokens", lambda row: f"{row.n:,}"),
                Column("prefill", lambda row: f"{row.cold_prefill_ms / 1e3:.1f} s"),
                Column("RAM restore (of it clearing the window) + first token", Length.ram),
                Column("speed-up", lambda row: f"{row.subsidy_ram:,.0f} ×"),
                Column("restore as a share of memcpy speed", lambda row: f"{row.ram_share_of_memcpy:.2f}"),
                Column("warm disk, all hashes checked", lambda row: f"{row.restore_disk.first_read_ms:.0f} ms"),
                Column("speed-up", lambda row: f"{row.subsidy_disk:,.0f} ×"),
                Column(
                    "of it: read + SHA-256 / decompress / place / native",
                    lambda row: " / ".join(f"{row.restore_disk.share[step]:.0%}" for step in STEPS),
                ),
                Column("capture + store add", lambda row: f"{row.deposit_overhead:.1%}"),
            ),
            name="subsidy",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        from agentkv.engine.llama.engine import LlamaEngine
        from agentkv.engine.settings import EngineSettings

        model, asked = self.settings.model, self.settings.lengths
        with LlamaEngine.open(model, EngineSettings(threads=self.settings.threads, window=512)) as engine:
            train = engine.info.train_window
        fit = [n for n in asked if n + 64 <= train]
        if not fit:
            raise UsageError(f"no length fits the trained window of {train:,} tokens")
        options: dict[str, Any] = {
            "window": min(train, -(-(max(fit) + 64) // 256) * 256),
            "threads": self.settings.threads,
        }
        with (
            tempfile.TemporaryDirectory(prefix="agentkv-subsidy-") as folder,
            LlamaEngine.open(model, EngineSettings(**options)) as engine,
        ):
            raw = {str(n): _measure(engine, n, Path(folder) / str(n)) for n in fit}
            digest = engine.info.sha256
        over = {str(n): f"over the trained window of {train:,} tokens" for n in asked if n not in fit}
        return self.result(raw, model=model, model_sha256=digest, inputs=fit, settings=options, left_out=over)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``lengths``: one row each."""
        return {"lengths": [Length.of(seen).model_dump(exclude_none=True) for seen in records(Seen, raw)]}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """A restore is faster than prefilling wherever it was measured, and gave the same bits."""
        for row in rows_of(Length, "lengths")(result):
            if not row.logits_equal:
                raise GuaranteeViolated(f"n = {row.n}: the first logits after a restore differ from a cold prefill's")
            if row.subsidy_ram <= 1:
                raise GuaranteeViolated(f"n = {row.n}: restoring was not faster than prefilling")


def _measure(engine: LlamaEngine, n: int, folder: Path) -> dict[str, Any]:
    from agentkv.bench.controls import clear_cache

    rng, known = random.Random(n), usual_tokens(engine)
    tokens = [rng.choice(known) for _ in range(n)]
    # 1. Cold: prefill the block; then the first token after it.
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
        ram = timed(lambda: engine.restore(state), _REPEATS)
        first = _first_token(engine, state, tokens[0])
        is_cleared = not engine.sets_without_zeroing(state)
        cleared = {"clear_cache_ms": timed(lambda: clear_cache(engine), _REPEATS)} if is_cleared else {}
        target = np.empty_like(state.blob)
        copy = timed(lambda: np.copyto(target, state.blob), _REPEATS)
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
        times += timed(lambda: engine.extend([token]), 1, warm_up=0)
    return times


def _warm_disk(folder: Path, engine: LlamaEngine, manifest: Manifest, state: State) -> dict[str, list[float]]:
    """A new store object on files that the page cache holds; every digest checked on every read, but for ``again``."""
    assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
    with BlockStore(folder, verify="always", cache_bytes=0) as store:

        def whole() -> None:
            made = blobs.Assembly(manifest.layout, manifest.n_tokens)
            store.read(manifest, made.place)
            engine.restore(State(state.tokens, manifest.layout, made.blob))

        steps: dict[str, Callable[[], object]] = {
            "whole": whole,
            "hashed": lambda: store.verify(manifest.block_id, deep=False),
            "decoded": lambda: store.read(manifest, lambda ref, raw: None),
            "placed": lambda: store.read(manifest, assembly.place),
            "native": lambda: engine.restore(state),
        }
        times = {name: timed(step, _REPEATS) for name, step in steps.items()}
    with BlockStore(folder, verify="once", cache_bytes=0) as store:
        return {**times, "again": timed(lambda: store.read(manifest, assembly.place), _REPEATS)}
