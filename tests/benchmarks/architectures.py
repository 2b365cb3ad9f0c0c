"""``python -m tests.benchmarks architectures``: which kinds of model restore exactly, and what changes their bits.

On tiny models with random weights, one of each of llama.cpp's kinds (or on one real model): a restore against the
uninterrupted run over 48 greedy steps at several lengths, past any sliding window, with flash attention off and on;
and whether threads, the batch split, the window size and the place of a cut change the bits of a cold prefill.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from agentkv.bench.base import Benchmark, Column, Row, Table, option, records, rows_of, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Engine
from agentkv.engine.generate import chained, first_difference, greedy_hashes
from agentkv.engine.settings import EngineSettings
from agentkv.errors import AgentKVError, GuaranteeViolated
from agentkv.io.hashing import file_sha256
from agentkv.models import resolve
from agentkv.records import Exactness
from agentkv.store.catalog import BlockStore

STEPS = 48
_VARIANTS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "threads": ({"threads": 1}, {"threads": 2}),
    "batch": ({"batch": 32}, {"batch": 512}),
    "window": ({"window": 1024}, {"window": 2048}),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``models``: real ones, instead of the tiny ones."""

    models: tuple[str, ...] = option((), "Real models, instead of the tiny ones.", name="model", metavar="NAME")
    small: bool = small_option()
    lengths: tuple[int, ...] | None = None


class Block(Row):
    """Of one length: both computations' digests, and whether the block was stored as exact and proves itself again."""

    n: int
    fresh_sha256: str
    graft_sha256: str
    first_difference: int | None
    stored_as_exact: bool
    reproved: bool


class Seen(Row):
    """The raw record of a model and an attention setting. ``pairs``: digests under each of two settings."""

    name: str
    flash_attention: bool
    refused: str | None = None
    sections: list[str] = Field(default_factory=list)
    steps: int = 0
    blocks: list[Block] = Field(default_factory=list)
    pairs: dict[str, tuple[str, str]] = Field(default_factory=dict)


class Verdict(Row):
    """``steps``: how many were equal at the worst length."""

    name: str
    flash_attention: bool
    verdict: Literal["exact", "inexact", "stored but not exact", "refused"]
    reason: str | None = None
    steps: int | None = None
    reproved: bool | None = None
    sections: list[str] | None = None
    unchanged_by: dict[str, bool] | None = None

    @classmethod
    def of(cls, seen: Seen) -> Verdict:
        """From digests."""
        name, flash = seen.name, seen.flash_attention
        if seen.refused is not None:
            return cls(name=name, flash_attention=flash, verdict="refused", reason=seen.refused)
        unequal = [block for block in seen.blocks if block.fresh_sha256 != block.graft_sha256]
        broken = [block for block in unequal if block.stored_as_exact]
        return cls(
            name=name,
            flash_attention=flash,
            verdict="stored but not exact" if broken else "inexact" if unequal else "exact",
            steps=min([seen.steps, *((block.first_difference or 1) - 1 for block in broken or unequal)]),
            reproved=all(block.reproved for block in seen.blocks),
            sections=seen.sections,
            unchanged_by={name: one == two for name, (one, two) in seen.pairs.items()},
        )

    def bits(self, unchanged: bool) -> str:
        """What changes the bits, or does not."""
        return ", ".join(name for name, equal in (self.unchanged_by or {}).items() if equal is unchanged)


class Architectures(Benchmark[Settings]):
    """Which kinds of model restore exactly, and what changes their bits: tiny random models of every kind."""

    name = "architectures"
    tables = (
        Table(
            rows_of(Verdict, "rows"),
            (
                Column("model", lambda row: row.name, left=True),
                Column("flash", lambda row: "on" if row.flash_attention else "off"),
                Column("restore", lambda row: row.verdict, left=True),
                Column("steps", lambda row: "" if row.steps is None else f"{row.steps}/{STEPS}"),
                Column("bits unchanged by", lambda row: row.reason or row.bits(True), left=True),
                Column("bits changed by", lambda row: row.bits(False), left=True),
            ),
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        from tests.benchmarks.tiny import ARCHITECTURES, write_tiny

        raw, models = dict[str, Any](), self.settings.models
        lengths = self.settings.lengths or ((64, 600) if self.settings.small else (1, 2, 31, 64, 200, 600))
        with tempfile.TemporaryDirectory(prefix="agentkv-architectures-") as folder:
            paths = {name: resolve(name).path for name in models}
            if not models:
                paths = {name: write_tiny(Path(folder) / f"{name}.gguf", name) for name in ARCHITECTURES}
            inputs = {name: file_sha256(path) for name, path in paths.items()}
            for name, path in paths.items():
                for flash in (False, True):
                    place = f"{name}, flash attention {'on' if flash else 'off'}"
                    raw[place] = {"name": name, "flash_attention": flash, **_measure(path, flash, lengths)}
                    say(f"{place}: {raw[place].get('refused', 'measured')}")
        settings = {"lengths": list(lengths), "steps": STEPS}
        return self.result(raw, model=", ".join(models) or "tiny", inputs=inputs, settings=settings)

    def models(self) -> list[str]:
        """The real ones."""
        return list(self.settings.models)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``rows``: each with a verdict."""
        return {"rows": [Verdict.of(seen).model_dump(exclude_none=True) for seen in records(Seen, raw)]}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """No block that passed its probe was inexact: a refusal is an honest outcome."""
        for row in rows_of(Verdict, "rows")(result):
            if row.verdict == "stored but not exact":
                raise GuaranteeViolated(f"{row.name}: a block that passed its probe diverged later")


def _measure(path: Path, flash: bool, lengths: Sequence[int]) -> dict[str, Any]:
    from agentkv.engine.llama.engine import LlamaEngine

    base: dict[str, Any] = {"window": 1024, "threads": 2, "flash_attention": flash}
    ids: list[int] = []

    def digest(variant: dict[str, int]) -> str:
        """Over every step's logits under a setting."""
        with LlamaEngine(path, EngineSettings(**{**base, **variant})) as engine:
            return chained(_fresh(engine, ids))

    try:
        with LlamaEngine(path, EngineSettings(**base)) as engine, tempfile.TemporaryDirectory() as store:
            sections = [f"{s.kind} {s.window}" if s.window else s.kind for s in engine.layout.sections]
            blocks = _grafted(Blocks(engine, BlockStore(store, cache_bytes=0)), lengths)
            ids = _tokens(engine, max(lengths))
            whole = chained(_fresh(engine, ids))
            cut = {f"cut at n-{k}": [whole, chained(_fresh(engine, ids[:-k], ids[-k:]))] for k in (36, 1)}
    except AgentKVError as error:
        return {"refused": f"{type(error).__name__}: {error.message}"}
    pairs = {name: [digest(one) for one in pair] for name, pair in _VARIANTS.items()}
    return {"sections": sections, "steps": STEPS, "blocks": blocks, "pairs": {**pairs, **cut}}


def _grafted(blocks: Blocks, lengths: Sequence[int]) -> list[dict[str, Any]]:
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
