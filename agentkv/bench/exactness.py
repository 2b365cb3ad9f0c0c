"""``agentkv bench exactness``: is a restore, in a new process, the same computation as a cold prefill?

Two processes. The first prefills each block, continues greedily and writes down the SHA-256 of every step's logits; it
also deposits the blocks. The second opens the store, restores, continues, and the two lists are compared. Beside it:
the KL divergence over real text, the same after the block was *moved*, and, on sliding-window models, a control with
llama.cpp's plain per-sequence state, which has to fail past the window.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Sequence
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
    lengths_option,
    records,
    rows_of,
    small_option,
)
from agentkv.bench.measured import Raw
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.bench.texts import manual_texts
from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Logits
from agentkv.engine.generate import greedy_hashes
from agentkv.errors import GuaranteeViolated
from agentkv.figures import quantile
from agentkv.io.hashing import sha256
from agentkv.store.catalog import BlockStore

if TYPE_CHECKING:
    from agentkv.engine.llama.engine import LlamaEngine

STEPS = 48
SAMPLE_TOKENS, TURN_TOKENS = 160, 13
UNALIGNED = 158
"""A block length that is not a multiple of four: cut there, one pass and two are two computations."""
DISTANCES = (8, 128, 1024)


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``texts``: the real text that samples are cut from, the manuals by default."""

    lengths: tuple[int, ...] = lengths_option(
        (1, 2, 255, 256, 257, 511, 512, 513, 600, 1024, 1500, 1900, 3000), (1, 257, 600)
    )
    small: bool = small_option()
    flash_attention: bool | None = False
    kv_type: str | None = "f16"
    gpu_layers: int | None = 0
    texts: tuple[str, ...] | None = None
    samples: int | None = None

    @property
    def engine(self) -> dict[str, Any]:
        """The engine's settings."""
        own = {name: getattr(self, name) for name in ("threads", "flash_attention", "kv_type", "gpu_layers")}
        return {"window": max([*self.lengths, 512]) + 1200, **own}


class Compared(Row):
    """``length/N``: SHA-256 of every step's logits, after a cold prefill and after a restore, and of the state as it
    was and as captured again; on sliding-window models the control's two lists."""

    n: int
    fresh: list[str]
    graft: list[str]
    state_sha256: str
    recaptured_sha256: str
    control: tuple[list[str], list[str]] | None


class Variant(Row):
    """``kl``: against the reference, in nats; ``flipped``: whether the top-1 token changed."""

    sha256: str
    kl: float
    flipped: bool


class Sample(Row):
    """``sample/I``: SHA-256 of the reference's logits, and each variant. KL is recorded, not computed again: that needs
    all logits."""

    sha256: str
    variants: dict[str, Variant]


class Length(Row):
    """How many of the steps are equal."""

    n: int
    equal_steps: int
    first_difference: int | None
    recaptured_equal: bool
    control_equal_steps: int | None

    @classmethod
    def of(cls, seen: Compared) -> Length:
        """From both lists of digests."""
        pairs = list(zip(seen.fresh, seen.graft, strict=True))
        unequal = [step for step, (one, two) in enumerate(pairs, 1) if one != two]
        control = seen.control
        return cls(
            n=seen.n,
            equal_steps=len(pairs) - len(unequal),
            first_difference=unequal[0] if unequal else None,
            recaptured_equal=seen.state_sha256 == seen.recaptured_sha256,
            control_equal_steps=None if control is None else sum(a == b for a, b in zip(*control, strict=True)),
        )

    def control(self) -> str:
        """Steps of the plain per-sequence state that are equal."""
        return "not windowed" if self.control_equal_steps is None else f"{self.control_equal_steps}/{STEPS}"


class Divergence(Row):
    """Of one variant, over all samples. ``argmax_flips``: how often the top-1 token changed."""

    n: int = 0
    kl_median: float = 0.0
    kl_p99: float = 0.0
    kl_max: float = 0.0
    argmax_flips: int = 0
    equal: int = 0

    @classmethod
    def of(cls, name: str, samples: list[Sample]) -> Divergence:
        """Of the variant ``name``."""
        variants = [sample.variants[name] for sample in samples]
        divergences = [one.kl for one in variants]
        return cls(
            n=len(variants),
            kl_median=statistics.median(divergences),
            kl_p99=quantile(divergences, 0.99),
            kl_max=max(divergences),
            argmax_flips=sum(one.flipped for one in variants),
            equal=sum(one.sha256 == sample.sha256 for one, sample in zip(variants, samples, strict=True)),
        )

    def moved(self) -> str:
        """KL, and how often the top-1 token changed."""
        return f"{self.kl_median:.1e} ({self.argmax_flips})"

    def equals(self) -> str:
        """Of how many samples the bytes are equal."""
        return f"{self.equal}/{self.n}"


def _place(name: str) -> tuple[bool, int, str]:
    """The ways to prefill first, then distances by size."""
    return name.isdigit(), int(name) if name.isdigit() else 0, name


@dataclass(frozen=True)
class _Model:
    """A whole result, as the one row of a table."""

    data: dict[str, Any]

    @property
    def lengths(self) -> list[Length]:
        return rows_of(Length, "lengths")(self.data)

    def sample(self, name: str) -> Divergence:
        """Of one variant; empty where it was not measured."""
        return Divergence.model_validate(self.data["samples"].get(name, {}))

    def steps(self) -> str:
        steps = self.data["settings"]["steps"] * len(self.lengths)
        return f"{sum(row.equal_steps for row in self.lengths)}/{steps}"

    def control(self) -> str:
        """Where the plain per-sequence state failed."""
        if not self.data["sliding_window"]:
            return "not windowed"
        steps = self.data["settings"]["steps"]
        failed = [row for row in self.lengths if row.control_equal_steps not in (None, steps)]
        return ", ".join(f"{row.control_equal_steps}/{steps} at {row.n:,}" for row in failed) or "equal throughout"


class Exactness(Benchmark[Settings]):
    """Is a restore in a new process the same computation as a cold prefill? 48 greedy steps a length, every byte."""

    name = "exactness"
    tables = (
        Table(
            rows_of(Length, "lengths"),
            (
                Column("tokens", lambda row: f"{row.n:,}"),
                Column("restored = prefilled", lambda row: f"{row.equal_steps}/{STEPS}"),
                Column("captured again, equal", lambda row: "yes" if row.recaptured_equal else "no"),
                Column("control, equal", Length.control),
            ),
        ),
        Table(
            lambda result: [_Model(dict(result))],
            (
                Column[_Model]("steps equal", _Model.steps),
                Column("KL median / p99", lambda m: f"{m.sample('0').kl_median:.2g} / {m.sample('0').kl_p99:.2g}"),
                Column("top-1 token changed", lambda m: f"{m.sample('0').argmax_flips}/{m.sample('0').n}"),
                Column("equal to one pass", lambda m: m.sample("one pass").equals()),
                Column("… cut at 158 tokens", lambda m: m.sample("one pass, cut unaligned").equals()),
                Column("moved by 8: KL median (top-1 changed)", lambda m: m.sample("8").moved()),
                Column("by 128", lambda m: m.sample("128").moved()),
                Column("by 1,024", lambda m: m.sample("1024").moved()),
                Column("control: plain per-sequence state", _Model.control),
            ),
            name="exactness",
            published=lambda m: not m.data["settings"].get("flash_attention"),  # those have another fingerprint
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        with tempfile.TemporaryDirectory(prefix="agentkv-exactness-") as folder:
            payload: dict[str, Any] = {
                "model": asked.model,
                "lengths": list(asked.lengths),
                "samples": asked.samples if asked.samples is not None else 5 if asked.small else 50,
                "texts": list(asked.texts or manual_texts()),
                "folder": folder,
                "settings": asked.engine,
            }
            fresh = in_new_process(f"{__name__}:fresh_side", payload)
            graft = in_new_process(f"{__name__}:graft_side", {**payload, "fresh": fresh})
        return self.result(
            graft,
            model=asked.model,
            model_sha256=fresh["model_sha256"],
            inputs=[payload["lengths"], payload["samples"], payload["texts"]],
            settings={**asked.engine, "steps": STEPS},
            fingerprint=fresh["fingerprint"],
            sliding_window=fresh["sliding_window"],
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``lengths``: steps that are equal; ``samples``: by variant."""
        samples = records(Sample, raw, "sample/")
        names = sorted(samples[0].variants, key=_place) if samples else []
        by_variant = {name: Divergence.of(name, samples).model_dump() for name in names}
        return {
            "lengths": [Length.of(seen).model_dump() for seen in records(Compared, raw, "length/")],
            "samples": by_variant or {"0": Divergence().model_dump()},
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every restore was exact, and the control could fail where it must."""
        rows, own = rows_of(Length, "lengths")(result), result["samples"]["0"]
        for row in rows:
            if row.equal_steps != STEPS:
                raise GuaranteeViolated(f"n = {row.n}: only {row.equal_steps} of {STEPS} steps are equal")
        if not all(row.recaptured_equal for row in rows):
            raise GuaranteeViolated("a restored state was not captured again as the same bytes")
        if own["equal"] != own["n"]:
            raise GuaranteeViolated(f"restores at their own position differ from cold prefills: {own}")
        window = result["sliding_window"]
        past = [row for row in rows if window and row.n > window + 100]
        if past and all(row.control_equal_steps == STEPS for row in past):
            raise GuaranteeViolated("the control did not fail past the sliding window: this benchmark proves nothing")


def _opened(payload: dict[str, Any]) -> LlamaEngine:
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    return LlamaEngine.open(payload["model"], EngineSettings(**payload["settings"]))


# --- the first process ----------------------------------------------------------------------------


def fresh_side(payload: dict[str, Any]) -> dict[str, Any]:
    """Prefill, continue, note every step; then deposit the same blocks."""
    from agentkv.bench.controls import plain_hashes

    folder = Path(payload["folder"])
    with _opened(payload) as engine:
        blocks = Blocks(engine, BlockStore(folder / "store", cache_bytes=0))
        rows = []
        window = max(section.window for section in engine.layout.sections)
        for n in payload["lengths"]:
            tokens = _random_tokens(engine, n)
            engine.clear()
            engine.extend(tokens)
            hashes = greedy_hashes(engine, tokens[n // 2], STEPS)
            control = plain_hashes(engine, tokens, tokens[n // 2], STEPS) if window else None
            block = blocks.deposit(tokens).manifest.block_id
            rows.append({"n": n, "block": block, "hashes": hashes, "control": control})
            say(f"prefilled {n} tokens")
        engine.clear()
        return {
            "rows": rows,
            "samples": _prefill_samples(engine, blocks, payload, folder),
            "model_sha256": engine.info.sha256,
            "fingerprint": engine.fingerprint().model_dump(),
            "sliding_window": window,
        }


def _random_tokens(engine: LlamaEngine, n: int) -> list[int]:
    rng, known = random.Random(n), usual_tokens(engine)
    head = engine.info.bos if engine.info.bos is not None else known[0]
    return [head, *(rng.choice(known) for _ in range(n - 1))]


def usual_tokens(engine: LlamaEngine) -> range:
    """Ids past the control tokens, of which random blocks are made."""
    high = min(40_000, engine.info.n_vocab)
    return range(1000 if high > 2000 else 3, high)


def _sample_tokens(engine: LlamaEngine, payload: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Block and turn ids of each sample, cut evenly from the real text."""
    ids = [token for text in payload["texts"] for token in engine.tokenize(text, special=False)]
    count, size = payload["samples"], SAMPLE_TOKENS + TURN_TOKENS
    starts = [round(i * (len(ids) - size) / max(1, count - 1)) for i in range(count)]
    return [(ids[s : s + SAMPLE_TOKENS], ids[s + SAMPLE_TOKENS : s + size]) for s in starts]


_CUTS = {"fresh": SAMPLE_TOKENS, "one pass": 0, "one pass, cut unaligned": UNALIGNED}
"""Where a sample is cut into two prefills: the reference, and two other ways."""


def _prefill_samples(
    engine: LlamaEngine, blocks: Blocks, payload: dict[str, Any], folder: Path
) -> list[dict[str, Any]]:
    sampled: list[dict[str, Any]] = []
    logits: dict[str, list[Logits]] = {name: [] for name in _CUTS}
    for block, turn in _sample_tokens(engine, payload):
        whole = block + turn
        for name, cut in _CUTS.items():
            engine.clear()
            if cut:
                engine.extend(whole[:cut])
            logits[name].append(engine.extend(whole[cut:]))
        sampled.append({"block": blocks.deposit(block).manifest.block_id, "turn": turn})
    if sampled:
        for name, rows in logits.items():
            np.save(folder / f"{name}.npy", np.stack(rows))
    say(f"prefilled {len(sampled)} samples of real text")
    return sampled


# --- the second process ---------------------------------------------------------------------------


def graft_side(payload: dict[str, Any]) -> dict[str, Any]:
    """Restore what the first process stored, continue, and put what was seen beside its notes: the raw records."""
    folder, fresh = Path(payload["folder"]), payload["fresh"]
    with _opened(payload) as engine:
        blocks = Blocks(engine, BlockStore(folder / "store", cache_bytes=0, create=False))
        raw: dict[str, Any] = {}
        for row in fresh["rows"]:
            manifest = blocks.store.manifest(row["block"])
            assert manifest is not None
            blocks.graft(manifest)
            again = blocks.engine.capture()
            blocks.graft(manifest)
            hashes = greedy_hashes(engine, manifest.tokens[len(manifest.tokens) // 2], STEPS)
            raw[f"length/{row['n']}"] = {
                "n": row["n"],
                "fresh": row["hashes"],
                "graft": hashes,
                "state_sha256": manifest.state_sha256,
                "recaptured_sha256": sha256(again.blob.data),
                "control": row["control"],
            }
            equal = sum(a == b for a, b in zip(row["hashes"], hashes, strict=True))
            say(f"restored {row['n']} tokens: {equal}/{STEPS} equal")
        return raw | _compare_samples(engine, blocks, fresh["samples"], folder)


def _compare_samples(
    engine: LlamaEngine, blocks: Blocks, samples: list[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    from agentkv.bench.controls import can_move, move

    if not samples:
        return {}
    reference: Logits = np.load(folder / "fresh.npy", mmap_mode="r")
    raw: dict[str, Any] = {
        f"sample/{i}": {"sha256": sha256(row.tobytes()), "variants": {}} for i, row in enumerate(reference)
    }
    for name in list(_CUTS)[1:]:
        _note(raw, name, reference, list(np.load(folder / f"{name}.npy", mmap_mode="r")))
    for distance in (0, *(DISTANCES if can_move(engine) else ())):
        logits = []
        for sample in samples:
            manifest = blocks.store.manifest(sample["block"])
            assert manifest is not None
            blocks.graft(manifest)
            if distance:
                move(engine, distance)
            logits.append(engine.extend(sample["turn"]))
        _note(raw, str(distance), reference, logits)
        say(f"{len(samples)} samples moved by {distance}")
    return raw


def _note(raw: dict[str, Any], name: str, reference: Logits, others: Sequence[Logits]) -> None:
    """A variant of each sample."""
    for i, (a, b) in enumerate(zip(reference, others, strict=True)):
        raw[f"sample/{i}"]["variants"][name] = {
            "sha256": sha256(b.tobytes()),
            "kl": kl_divergence(a, b),
            "flipped": bool(a.argmax() != b.argmax()),
        }


def kl_divergence(a: Logits, b: Logits) -> float:
    """KL(softmax(a) ‖ softmax(b)) in nats, in float64; exactly 0 for equal logits."""
    first, second = (x.astype(np.float64) - x.max() for x in (a, b))
    first -= np.log(np.exp(first).sum())
    second -= np.log(np.exp(second).sum())
    return max(0.0, float((np.exp(first) * (first - second)).sum()))
