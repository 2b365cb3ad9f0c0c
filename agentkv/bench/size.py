"""``agentkv bench size``: what blocks take up on disk; bytes only, so the figures do not depend on the machine.

Three parts, each on real text (the skills' manuals, their paragraphs in shuffled order):

1. *Shared prefix.* Skills on top of one agent prefix. ``ratio`` is the bytes of all files, or of all segments, over
   (own rows + one prefix). *Own rows* of a skill: the bytes of the segment files of its block that begin at or after
   the end of its parent, each skill counted by itself. *One prefix*: the bytes of the prefix block's segment files.
   So what a skill stores of its prefix once more, or a segment that straddles the seam, counts against the store.
2. *Thread.* A checkpoint after every turn, each a block on top of the one before, over the same tokens stored as one
   block in an empty store. What exceeds that, apart: ``small_segments``, the last checkpoint's segments against the one
   block's; ``superseded``, segments that only earlier checkpoints need; ``manifests``.
3. *Codecs.* One state at several lengths, its segments encoded in several ways, against llama.cpp's own blob
   (``raw``: every row, also those that a sliding window masks) and against an *order-0 bound*: for each segment and
   each byte plane (the first bytes of all elements, the second bytes, …) the empirical entropy of its byte values
   times their number, summed. It is what an ideal coder of single bytes with one table a plane could reach, tables
   not counted; a coder that sees more, or changes tables inside a plane, may go below it.

Enforced (exit code 60): part 1 at most ``MAX_SHARED``; part 2 at most ``MAX_THREAD`` where no layer has a sliding
window (there every checkpoint keeps windowed rows that the final state has dropped, see ``superseded``); the default
codec at most ``MAX_OVER_BOUND`` of the bound. Reported as an aim, not enforced: a share of raw for one model.
Not guaranteed: that other texts give the same shares.
"""

from __future__ import annotations

import contextlib
import random
import stat
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agentkv.bench.base import (
    Benchmark,
    Column,
    ModelSettings,
    Row,
    Table,
    aims,
    lengths_option,
    option,
    records,
    rows_of,
)
from agentkv.bench.bound import label, measure_codecs
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.bench.texts import beginning, default_setting, manual_texts, opened, running_text, states
from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Engine
from agentkv.errors import GuaranteeViolated
from agentkv.figures import aim
from agentkv.io.hashing import canonical_json
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore
from agentkv.store.format import Codec

TURN_TOKENS = (60, 100)
"""A turn's length in tokens, from and to."""
CODECS = ((Codec.ZSTD, 1), (Codec.ZSTD, 19), (Codec.PLANES, 1), (Codec.PLANES, 3), (Codec.PLANES, 9))
MAX_SHARED, MAX_THREAD, MAX_OVER_BOUND = 1.05, 1.1, 1.03
AIMS_OF_RAW = {("gemma-3-270m", 3000): 0.30}
PUBLISHED_FROM = 1500
"""Tokens; a shorter state is mostly header."""

_ROOM = 64


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """How much of everything. ``engine``: an open one with ``window``, instead of a model's name."""

    skills: int = option(50, "Skills on top of one prefix; 0: leave out.", metavar="N", least=0, small=2)
    turns: int = option(40, "Turns of the thread; 0: leave out.", metavar="N", least=0, small=4)
    lengths: tuple[int, ...] = lengths_option((512, 1500, 3000), (512,))
    prefix_tokens: int = 1500
    skill_tokens: int = 1500
    codecs: tuple[tuple[Codec, int], ...] = CODECS
    texts: tuple[str, ...] | None = None
    engine: Engine | None = None

    @property
    def window(self) -> int:
        """Tokens that the context has to hold, a multiple of 256."""
        skill = self.prefix_tokens + self.skill_tokens if self.skills else 0
        return -(-(max(skill, self.turns * TURN_TOKENS[1], *self.lengths) + _ROOM) // 256) * 256

    @property
    def plan(self) -> dict[str, Any]:
        """The amounts, as JSON."""
        amounts = {name: getattr(self, name) for name in ("skills", "prefix_tokens", "skill_tokens", "turns")}
        return {**amounts, "lengths": list(self.lengths), "codecs": [label(*pair) for pair in self.codecs]}


class Coded(Row):
    """One state in one codec. ``over_bound``: as a multiple of the order-0 bound; speeds in MB/s of raw state."""

    codec: str
    bytes: int
    of_raw: float
    over_bound: float | None = None
    encode_ms: float | None = None
    decode_ms: float | None = None
    encode_mb_s: float | None = None
    decode_mb_s: float | None = None


class SeenCodec(Row):
    """Bytes of one codec, and milliseconds on one thread of each repeat."""

    codec: str
    bytes: int
    encode_ms: list[float]
    decode_ms: list[float]

    def of(self, raw: int, bound: float) -> Coded:
        """Against the raw state and its bound."""
        encode, decode = statistics.median(self.encode_ms), statistics.median(self.decode_ms)
        return Coded(
            codec=self.codec,
            bytes=self.bytes,
            of_raw=self.bytes / raw,
            over_bound=self.bytes / bound if bound else None,
            encode_ms=encode,
            decode_ms=decode,
            encode_mb_s=raw / 1e3 / encode,
            decode_mb_s=raw / 1e3 / decode,
        )


class SeenState(Row):
    """The raw record of one length. ``variants``: other arrangements of the bytes, of results before 0.20."""

    n: int
    raw_bytes: int
    live_bytes: int
    bound_bytes: float
    segments: int
    codecs: list[SeenCodec]
    variants: list[dict[str, Any]] = Field(default_factory=list)


class StateSizes(Row):
    """The figures of one length."""

    n: int
    raw_bytes: int
    raw_bytes_per_token: float
    segments: int
    codecs: list[Coded]
    variants: list[dict[str, Any]] = Field(default_factory=list)

    @classmethod
    def of(cls, seen: SeenState) -> StateSizes:
        """From bytes and times."""
        raw, bound = seen.raw_bytes, seen.bound_bytes
        return cls(
            n=seen.n,
            raw_bytes=raw,
            raw_bytes_per_token=raw / seen.n,
            segments=seen.segments,
            codecs=[
                Coded(codec="raw", bytes=raw, of_raw=1.0),
                Coded(codec="live rows", bytes=seen.live_bytes, of_raw=seen.live_bytes / raw),
                *(one.of(raw, bound) for one in seen.codecs),
                Coded(codec="order-0 bound", bytes=round(bound), of_raw=bound / raw, over_bound=1.0),
            ],
            variants=seen.variants,
        )

    def __getitem__(self, codec: str) -> Coded:
        return next(one for one in self.codecs if one.codec == codec)

    def cell(self, codec: str) -> str:
        """Bytes a token, and the share of raw."""
        one = next((one for one in self.codecs if one.codec == codec), None)
        return "" if one is None else f"{one.bytes / self.n:,.0f} ({one.of_raw:.3f})"

    def over_bound(self, codec: str) -> str:
        """As a multiple of the order-0 bound."""
        return "".join(f"{one.over_bound:.3f}" for one in self.codecs if one.codec == codec and one.over_bound)

    def speeds(self) -> str:
        """Encoding / decoding on one thread, in MB/s."""
        return ", ".join(
            f"{one.codec} {one.encode_mb_s:,.0f} / {one.decode_mb_s:,.0f}"
            for one in self.codecs
            if one.encode_mb_s is not None and one.decode_mb_s is not None
        )


def _coded(row: StateSizes) -> dict[str, Any]:
    """As JSON: of raw and live rows only what they have, of a codec without a bound its None."""
    codecs = [
        one.model_dump() if one.encode_ms is not None else one.model_dump(exclude_none=True) for one in row.codecs
    ]
    return {**row.model_dump(), "codecs": codecs}


def shared_ratios(record: dict[str, Any]) -> dict[str, Any]:
    """Bytes of everything, and of all segments, over own rows + one prefix."""
    least = record["own_rows_bytes"] + record["prefix_bytes"]
    ratios = {"ratio": record["bytes"]["total"] / least, "ratio_segments": record["bytes"]["segments"] / least}
    return {**record, **ratios}


def thread_ratios(record: dict[str, Any]) -> dict[str, Any]:
    """Bytes of all checkpoints over those of the final state alone, and what the excess is made of."""
    here, there = record["bytes"], record["final_alone_bytes"]
    return {
        **record,
        "ratio": here["total"] / there["total"],
        "ratio_segments": here["segments"] / there["segments"],
        "excess": {
            "small_segments": (record["last_segments_bytes"] - record["one_block_segments_bytes"]) / there["total"],
            "superseded": record["superseded_bytes"] / there["total"],
            "manifests": (here["manifests"] - there["manifests"]) / there["total"],
            "other": (here["other"] - there["other"]) / there["total"],
        },
    }


class Size(Benchmark[Settings]):
    """What blocks take up: many skills on one prefix, a thread's checkpoints, codecs against their bound."""

    name = "size"
    tables = (
        Table(
            rows_of(StateSizes, "codecs"),
            (
                Column("tokens", lambda row: f"{row.n:,}"),
                Column("llama.cpp", lambda row: f"{row.raw_bytes / row.n:,.0f}"),
                Column("masked rows dropped", lambda row: row.cell("live rows")),
                Column("zstd 1", lambda row: row.cell("zstd 1")),
                Column("planes 1 (default)", lambda row: row.cell("planes 1")),
                Column("planes 3", lambda row: row.cell("planes 3")),
                Column("order-0 bound of the planes", lambda row: row.cell("order-0 bound")),
                Column("planes 1 / bound", lambda row: row.over_bound("planes 1")),
            ),
            name="size",
            published=lambda row: row.n >= PUBLISHED_FROM,
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        texts, options = list(asked.texts or manual_texts()), {"threads": asked.threads, "window": asked.window}
        with (
            opened(asked.engine or asked.model, options) as engine,
            tempfile.TemporaryDirectory(prefix="agentkv-size-") as temporary,
        ):
            name, digest = engine.info.name, engine.info.sha256
            raw: dict[str, Any] = {"store": {"model": name, "default": default_setting(), "sliding_window": 0}}
            if asked.skills:
                raw["shared_prefix"] = shared_prefix(engine, texts, asked, Path(temporary) / "shared")
            if asked.turns:
                raw["thread"] = thread(engine, texts, asked, Path(temporary))
            for state in states(engine, texts, asked.lengths):
                raw[f"codecs/{len(state.tokens)}"] = measure_codecs(state, asked.codecs)
                raw["store"]["sliding_window"] = max(section.window for section in state.layout.sections)
        settings = {**options, "plan": asked.plan}
        return self.result(raw, model=name, model_sha256=digest, inputs=texts, settings=settings)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``shared_prefix``, ``thread``, ``codecs``, ``sliding_window`` and ``aims``.

        Raw: ``store`` (the model, the default setting, the sliding window), ``shared_prefix`` and ``thread`` (bytes),
        ``codecs/N``.
        """
        parts = {"shared_prefix": shared_ratios, "thread": thread_ratios}
        made: dict[str, Any] = {name: part(raw[name]) for name, part in parts.items() if name in raw}
        rows = [StateSizes.of(seen) for seen in records(SeenState, raw, "codecs/")]
        store, aimed = raw["store"], []
        for row in rows:
            limit = AIMS_OF_RAW.get((store["model"], row.n))
            value = next((one.of_raw for one in row.codecs if one.codec == store["default"]), None)
            if limit is not None and value is not None:
                aimed.append(aim(f"{row.n:,} tokens, share of raw", value, limit))
        if "thread" in made and store["sliding_window"]:
            aimed.append(aim("thread, share of its final state", made["thread"]["ratio"], MAX_THREAD))
        window = store["sliding_window"]
        return {**made, "codecs": [_coded(row) for row in rows], "sliding_window": window, "aims": aimed}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """What the module's text calls enforced holds."""
        shared, talk = result.get("shared_prefix"), result.get("thread")
        if shared and shared["ratio"] > MAX_SHARED:
            raise GuaranteeViolated(f"{shared['skills']} skills take {shared['ratio']:.3f} of own rows + one prefix")
        if talk and not result["sliding_window"] and talk["ratio"] > MAX_THREAD:
            raise GuaranteeViolated(f"{talk['turns']} checkpoints take {talk['ratio']:.3f} of their final state")
        for row in result["codecs"]:
            over = next((c["over_bound"] for c in row["codecs"] if c["codec"] == default_setting()), 0.0)
            if over > MAX_OVER_BOUND:
                raise GuaranteeViolated(f"n = {row['n']}: the default codec takes {over:.3f} of the order-0 bound")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Speeds, the shared prefix, the thread, aims."""
        yield "bytes a token (share of llama.cpp's)"
        for row in rows_of(StateSizes, "codecs")(result):
            yield f"{row.n:,} tokens, {row.segments:,} segments; encode / decode MB/s on one thread: {row.speeds()}"
        if part := result.get("shared_prefix"):
            yield (
                f"{part['skills']} skills of {part['skill_tokens']:,} tokens on top of {part['prefix_tokens']:,}: "
                f"{part['bytes']['total'] / 1e6:,.1f} MB ({part['bytes']['manifests'] / 1e6:,.1f} MB manifests); "
                f"{part['ratio']:.4f} of own rows + one prefix, segments alone {part['ratio_segments']:.4f}; "
                f"{part['unshared_bytes'] / 1e6:,.1f} MB if nothing were shared"
            )
        if part := result.get("thread"):
            excess = ", ".join(f"{name.replace('_', ' ')} {share:+.1%}" for name, share in part["excess"].items())
            yield (
                f"{part['turns']} checkpoints, {part['tokens']:,} tokens: {part['ratio']:.4f} of the final state alone"
                f", segments {part['ratio_segments']:.4f} ({excess})"
            )
        yield from aims(result)


def bytes_below(root: Path) -> dict[str, int]:
    """Bytes of all files below ``root``, by the first folder; ``.`` for files in it."""
    sizes: Counter[str] = Counter()
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temporary file of a moment ago
            info = path.lstat()
            parts = path.relative_to(root).parts
            if stat.S_ISREG(info.st_mode):
                sizes[parts[0] if len(parts) > 1 else "."] += info.st_size
    return dict(sorted(sizes.items()))


def disk_usage(root: Path) -> dict[str, int]:
    """Bytes of all files below a store: ``segments``, ``manifests``, ``other`` and ``total``."""
    folders = bytes_below(root)
    usage = {name: folders.pop(name, 0) for name in ("segments", "manifests")}
    usage["other"] = sum(folders.values())
    return {**usage, "total": sum(usage.values())}


def _stored(store: BlockStore, digests: set[str]) -> int:
    sizes = {digest: store.segments.stored_bytes(digest) for digest in digests}
    if None in sizes.values():
        raise GuaranteeViolated("a segment of a block that was just stored is not there")
    return sum(filter(None, sizes.values()))


def _digests(manifest: Manifest, start: int = 0) -> set[str]:
    return {ref.sha256 for ref in manifest.segments if ref.start >= start}


# --- 1. many skills on one prefix -------------------------------------------------------------------


def shared_prefix(
    engine: Engine, texts: Sequence[str], plan: Settings, folder: Path, make: Callable[..., Blocks] = Blocks
) -> dict[str, Any]:
    """Deposit one prefix and ``plan.skills`` skills on top of it, and see what the store takes up."""
    with BlockStore(folder) as store:
        blocks = make(engine, store)
        prefix = blocks.deposit(beginning(engine, texts, plan.prefix_tokens, seed=-1), allow_inexact=True).manifest
        skills = []
        for seed in range(1, plan.skills + 1):
            start = time.perf_counter()
            ids = running_text(engine, texts, plan.skill_tokens, seed)
            skills.append(blocks.deposit(ids, parent=prefix, allow_inexact=True).manifest)
            say(f"skill {seed} of {plan.skills}: {time.perf_counter() - start:.1f} s")
        own = sum(_stored(store, _digests(skill, prefix.n_tokens)) for skill in skills)
        one = _stored(store, _digests(prefix))
        unshared = sum(_stored(store, _digests(skill)) for skill in skills)
    usage = disk_usage(folder)  # closed: with everything that a store leaves
    return {
        "skills": plan.skills,
        "prefix_tokens": prefix.n_tokens,
        "skill_tokens": plan.skill_tokens,
        "bytes": usage,
        "own_rows_bytes": own,
        "prefix_bytes": one,
        "unshared_bytes": unshared,
    }


# --- 2. a thread with a checkpoint after every turn -------------------------------------------------


def thread(engine: Engine, texts: Sequence[str], plan: Settings, folder: Path) -> dict[str, Any]:
    """Deposit a chain of turns, then the same tokens as one block in an empty store, and compare."""
    rng, step = random.Random(0), max(1, engine.alignment)
    sizes = [rng.randrange(TURN_TOKENS[0], TURN_TOKENS[1] + 1) // step * step for _ in range(plan.turns)]
    ids = beginning(engine, texts, sum(sizes), seed=-2)
    with BlockStore(folder / "thread") as store, BlockStore(folder / "alone") as empty:
        blocks, last, at = Blocks(engine, store), None, 0
        manifests: list[Manifest] = []
        for i, size in enumerate(sizes, 1):
            start = time.perf_counter()
            last = blocks.deposit(ids[at : at + size], parent=last, allow_inexact=True).manifest
            manifests.append(last)
            at += size
            say(f"checkpoint {i} of {plan.turns} at {at:,} tokens: {time.perf_counter() - start:.1f} s")
        alone = Blocks(engine, empty).deposit(ids, allow_inexact=True).manifest
        every, final = set[str]().union(*map(_digests, manifests)), _digests(manifests[-1])
        last_segments, superseded = _stored(store, final), _stored(store, every - final)
        one_segments = _stored(empty, _digests(alone))
    here, there = disk_usage(folder / "thread"), disk_usage(folder / "alone")
    return {
        "turns": plan.turns,
        "tokens": at,
        "bytes": here,
        "final_alone_bytes": there,
        "last_segments_bytes": last_segments,
        "one_block_segments_bytes": one_segments,
        "superseded_bytes": superseded,
        "manifest_parts": _manifest_parts(manifests),
    }


def _manifest_parts(manifests: Sequence[Manifest]) -> dict[str, int]:
    """Bytes of JSON that the manifests' larger fields take up, over all of them."""
    fields = ("tokens", "layout", "segments", "fingerprint")
    dumped = [manifest.model_dump(mode="json") for manifest in manifests]
    return {field: sum(len(canonical_json(one[field])) for one in dumped) for field in fields}
