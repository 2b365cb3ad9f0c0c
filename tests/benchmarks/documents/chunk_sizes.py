"""``reread``: a chunk of a document restored from disk, against a cold prefill of it, by size.

For each size a corpus of its own, of the same text; its fullest chunks are deposited. Then, chunk by chunk, the time
up to the logits after a question: *cold prefill*, of prefix, chunk and question; *warm*, the block restored from files
in the page cache, every hash checked as by a process that meets it for the first time, and the question prefilled;
*cold*, likewise with the files out of the page cache (what that means: :mod:`agentkv.bench.pagecache`). All sizes run
in one engine, whose context fits the largest: llama.cpp clears all of it in each restore, whatever the block's size.
The three must give the same logits, bit for bit.

Reported, not enforced: how each grows over the range of sizes, and where restoring begins to be faster.
"""

from __future__ import annotations

import tempfile
import time
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
    Timing,
    duration,
    option,
    records,
    rows_of,
)
from agentkv.bench.measured import Raw
from agentkv.bench.pagecache import SETTLE_S, evict
from agentkv.bench.results import say
from agentkv.bench.texts import manual_texts, opened, shuffled
from agentkv.blocks.blocks import Blocks
from agentkv.documents import Corpus
from agentkv.documents.adding import AddPlan
from agentkv.engine.base import Engine, Logits
from agentkv.engine.prompt import Prompt
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import sha256
from agentkv.memory.memory import AgentMemory
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore

QUESTION = "What is said here about the time that it takes?"
PAPER_MS = {"prefilled": (96, 748), "restored": (58, 86)}
"""arXiv 2607.14431: the smallest and the largest of its eightfold range, on its accelerator."""

_ROOM = 512
_CHARACTERS_A_TOKEN = 6


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``per_size``: chunks of each size; ``prefills``, ``restores``: how often each is timed."""

    windows: tuple[int, ...] = option(
        (512, 1024, 2048, 4096), "Chunk sizes in tokens.", metavar="N,N,…", small=(256, 512)
    )
    folder: Path | None = option(
        None, "On the disk to be measured.", metavar="DIR", shown="the system's temporary folder"
    )
    per_size: int = 2
    prefills: int = 2
    restores: int = 5
    texts: tuple[str, ...] | None = None
    engine: Engine | None = None


class Seen(Row):
    """The raw record of one chunk size: every time to the first token, in milliseconds; digests by way."""

    window: int
    tokens: float
    windows: int
    stored_bytes: int
    reread_ms: list[float]
    warm_ms: list[float]
    cold_ms: list[float]
    logits_sha256: list[dict[str, str]]
    pages_left: float


class Size(Row):
    """The figures of one chunk size. ``ratio``: the time of a cold prefill over a restore's."""

    window: int
    tokens: float
    windows: int
    stored_bytes: int
    prefilled: Timing = Field(alias="reread")
    warm: Timing | None
    cold: Timing | None
    ratio: dict[str, float]
    logits_equal: bool
    pages_left: float

    @classmethod
    def of(cls, seen: Seen) -> Size:
        """From what was seen."""
        prefilled = Timing.of(seen.reread_ms)
        ways = {"warm": seen.warm_ms, "cold": seen.cold_ms}
        return cls(
            **seen.model_dump(include={"window", "tokens", "windows", "stored_bytes", "pages_left"}),
            reread=prefilled,
            warm=Timing.of(seen.warm_ms) if seen.warm_ms else None,
            cold=Timing.of(seen.cold_ms) if seen.cold_ms else None,
            ratio={way: prefilled.median / Timing.of(times).median for way, times in ways.items() if times},
            logits_equal=all(len(set(digests.values())) == 1 for digests in seen.logits_sha256),
        )

    def cell(self, way: str) -> str:
        """Of ``warm`` or ``cold``: the time, and how many times less than a cold prefill."""
        timing: Timing | None = getattr(self, way)
        return "not measured" if timing is None else f"{duration(timing.median)} ({self.ratio[way]:.1f} ×)"


class ChunkSizes(Benchmark[Settings]):
    """A chunk of a document restored from disk against a cold prefill of it, by size."""

    name = "reread"
    tables = (
        Table(
            rows_of(Size, "sizes"),
            (
                Column("tokens", lambda row: f"{row.tokens:,.0f}"),
                Column("prefilled", lambda row: duration(row.prefilled.median)),
                Column("restored, warm", lambda row: row.cell("warm")),
                Column("restored, cold", lambda row: row.cell("cold")),
                Column("logits equal", lambda row: "yes" if row.logits_equal else "NO"),
            ),
            name="reread",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text. Raises UsageError without text or sizes."""
        asked = self.settings
        texts = list(manual_texts() if asked.texts is None else asked.texts)
        if not asked.windows or not any(text.strip() for text in texts):
            raise UsageError("it takes at least one chunk size and some text")
        sizes = sorted(set(asked.windows))
        options = {"threads": asked.threads, "window": -(-(sizes[-1] + _ROOM) // 256) * 256}
        with (
            opened(asked.engine or asked.model, options) as engine,
            tempfile.TemporaryDirectory(prefix="agentkv-chunk-sizes-", dir=asked.folder) as home,
        ):
            raw = {str(size): _size(engine, texts, size, Path(home) / str(size), asked) for size in sizes}
            name, digest = engine.info.name, engine.info.sha256
        return self.result(raw, model=name, model_sha256=digest, inputs=[texts, sizes], settings=options)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``sizes``: one row each; ``growth``: the largest size's time over the smallest's, of each way."""
        rows = [Size.of(seen) for seen in records(Seen, raw)]
        first, last = rows[0], rows[-1]
        fields = {"reread": "prefilled", "warm": "warm", "cold": "cold"}
        pairs = {way: (getattr(first, field), getattr(last, field)) for way, field in fields.items()}
        return {
            "sizes": [row.model_dump(by_alias=True) for row in rows],
            "range": last.tokens / first.tokens,
            "growth": {way: two.median / one.median for way, (one, two) in pairs.items() if one and two},
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """A restored chunk gave the logits of a cold prefill."""
        for row in result["sizes"]:
            if not row["logits_equal"]:
                raise GuaranteeViolated(f"chunk of {row['window']}: its logits after a restore are others")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Growth, and the paper's."""
        growth = ", ".join(f"{way} {factor:.1f} ×" for way, factor in result["growth"].items())
        yield f"over a range of {result['range']:.1f} ×: {growth}"
        (low, high), (one, two) = PAPER_MS["prefilled"], PAPER_MS["restored"]
        yield f"the paper, over 8 ×: prefilled {low} to {high} ms, restored {one} to {two} ms"


def _size(engine: Engine, texts: Sequence[str], size: int, home: Path, asked: Settings) -> dict[str, Any]:
    home.mkdir()
    file = home / "text.md"
    file.write_text(_document(texts, _CHARACTERS_A_TOKEN * size * (asked.per_size + 1), seed=size), encoding="utf-8")
    # 1. The chunks, stored.
    with AgentMemory(home / "store", engine) as memory:
        corpus = Corpus(memory, chunk_tokens=size, overlap=0, keep="lazy")
        plan = corpus.plan([file])
        corpus.carry_out(plan)
        chosen = _fullest(corpus, plan, asked.per_size)
    time.sleep(SETTLE_S)
    files = [path for path in (home / "store" / "segments").rglob("*") if path.is_file()]
    # 2. Each way, up to the first logits after the question.
    record: dict[str, Any] = {"window": size, "windows": len(chosen), "reread_ms": [], "warm_ms": [], "cold_ms": []}
    record["tokens"] = sum(manifest.n_tokens for _, manifest in chosen) / len(chosen)
    record["stored_bytes"] = sum(path.stat().st_size for path in files)
    record["logits_sha256"] = []
    record["pages_left"] = evict(files)
    with BlockStore(home / "store", create=False, cache_bytes=0, verify="always") as store:
        blocks = Blocks(engine, store)
        for prompt, manifest in chosen:
            _ways(blocks, prompt, manifest, files, record, asked)
    engine.clear()
    best = {way: f"{min(record[f'{way}_ms']):,.0f}" for way in ("reread", "warm", "cold") if record[f"{way}_ms"]}
    say(f"chunk of {size:,}: ms at best: {best}")
    return record


def _ways(
    blocks: Blocks,
    prompt: Prompt,
    manifest: Manifest,
    files: Sequence[Path],
    record: dict[str, Any],
    asked: Settings,
) -> None:
    engine = blocks.engine

    def prefilled() -> Logits:
        engine.clear()
        for part in prompt.blocks:
            engine.extend(part)
        return engine.extend(prompt.turn)

    def restored() -> Logits:
        blocks.graft(manifest)
        return engine.extend(prompt.turn)

    cold, digests = record["pages_left"] == 0, dict[str, str]()
    for way, work, repeats, before in (
        ("reread", prefilled, asked.prefills, None),
        ("warm", restored, asked.restores, None),
        *([("cold", restored, asked.restores, lambda: evict(files))] if cold else []),
    ):
        if way == "warm":
            work()
        for _ in range(repeats):
            taken, logits = _timed(work, before)
            record[f"{way}_ms"].append(taken)
        digests[way] = sha256(logits.tobytes())
    record["logits_sha256"].append(digests)


def _timed(work: Callable[[], Logits], before: Callable[[], object] | None) -> tuple[float, Logits]:
    if before is not None:
        before()
    start = time.perf_counter()
    logits = work()
    return (time.perf_counter() - start) * 1e3, logits


def _fullest(corpus: Corpus, plan: AddPlan, count: int) -> list[tuple[Prompt, Manifest]]:
    """The chunks with most tokens, deposited, each with the prompt that has the question after it."""
    reader = corpus.chunks
    fullest = sorted(plan.missing, key=lambda item: -item[1].n_tokens)[:count]
    return [(reader.chunk_prompt(*item, QUESTION), reader.deposit(*item)[0]) for item in fullest]


def _document(texts: Sequence[str], n_characters: int, seed: int) -> str:
    """Paragraphs of the texts in an order that ``seed`` gives, as often as it takes."""
    paragraphs, parts, length = shuffled(texts, seed), list[str](), 0
    while length < n_characters:
        parts.append(next(paragraphs))
        length += len(parts[-1])
    return "\n\n".join(parts)[:n_characters]
