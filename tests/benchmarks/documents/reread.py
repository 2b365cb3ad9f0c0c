"""``reread``: a window of a document restored from disk, against reading it anew, by window size.

For each size a corpus of its own, of the same text; its fullest windows are deposited. Then, window by window, the time
up to the logits behind a question: *reread*, prefix, window and question read by the model; *warm*, the block restored
from files in the page cache, every hash checked as by a process that meets it for the first time, and the question
read; *cold*, likewise with the files out of the page cache (see :mod:`agentkv.bench.restore` for what cold means). All
sizes run in one engine, whose context fits the largest: llama.cpp clears all of it in each restore, whatever the
block's size. The three must give the same logits, bit for bit.

Reported, not enforced: how each grows over the range of sizes, and where restoring begins to be faster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.report import now, origin, say
from agentkv.bench.restore import SETTLE_S, evict
from agentkv.bench.size import opened, shuffled
from agentkv.blocks.blocks import Blocks
from agentkv.documents import Corpus
from agentkv.documents.adding import AddPlan
from agentkv.engine.base import Engine, Logits
from agentkv.engine.prompt import Prompt
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import canonical_json, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore

WINDOWS = (512, 1024, 2048, 4096)
QUESTION = "What is said here about the time that it takes?"
PAPER_MS = {"reread": (96, 748), "restored": (58, 86)}
"""arXiv 2607.14431: the smallest and the largest of its eightfold range, on its accelerator."""

_PER_SIZE = 2
_REREADS, _RESTORES = 2, 5
_ROOM = 512
_CHARACTERS_A_TOKEN = 6


def run(
    model: str | Engine,
    texts: Sequence[str],
    *,
    windows: Sequence[int] = WINDOWS,
    per_size: int = _PER_SIZE,
    rereads: int = _REREADS,
    restores: int = _RESTORES,
    settings: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """The whole benchmark; ``folder``: on the disk to be measured. Raises UsageError without text or sizes."""
    if not windows or not any(text.strip() for text in texts):
        raise UsageError("it takes at least one window size and some text")
    started, sizes = now(), sorted(set(windows))
    options = {**(settings or {}), "window": -(-(sizes[-1] + _ROOM) // 256) * 256}
    with opened(model, options) as engine, tempfile.TemporaryDirectory(prefix="agentkv-reread-", dir=folder) as home:
        raw = {}
        for size in sizes:
            raw[str(size)] = _size(engine, texts, size, Path(home) / str(size), per_size, rereads, restores)
        inputs = canonical_json([list(texts), sizes])
        header = origin("reread", engine.info.name, engine.info.sha256, inputs, started=started, **options)
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated where a restored window gave other logits than the reading of it."""
    for row in result["sizes"]:
        if not row["logits_equal"]:
            raise GuaranteeViolated(f"window of {row['window']}: restored, its logits are others than read")


def _size(
    engine: Engine, texts: Sequence[str], size: int, home: Path, per_size: int, rereads: int, restores: int
) -> dict[str, Any]:
    home.mkdir()
    file = home / "text.md"
    file.write_text(_document(texts, _CHARACTERS_A_TOKEN * size * (per_size + 1), seed=size), encoding="utf-8")
    # 1. The windows, stored.
    with AgentMemory(home / "store", engine) as memory:
        corpus = Corpus(memory, chunk_tokens=size, overlap=0, keep="lazy")
        plan = corpus.plan([file])
        corpus.carry_out(plan)
        chosen = _fullest(corpus, plan, per_size)
    time.sleep(SETTLE_S)
    files = [path for path in (home / "store" / "segments").rglob("*") if path.is_file()]
    # 2. Each way, up to the first logits behind the question.
    record: dict[str, Any] = {"window": size, "windows": len(chosen), "reread_ms": [], "warm_ms": [], "cold_ms": []}
    record["tokens"] = sum(manifest.n_tokens for _, manifest in chosen) / len(chosen)
    record["stored_bytes"] = sum(path.stat().st_size for path in files)
    record["logits_sha256"] = []
    record["pages_left"] = evict(files)
    with BlockStore(home / "store", create=False, cache_bytes=0, verify="always") as store:
        blocks = Blocks(engine, store)
        for prompt, manifest in chosen:
            _ways(blocks, prompt, manifest, files, record, rereads, restores)
    engine.clear()
    told = {way: f"{min(record[f'{way}_ms']):,.0f}" for way in ("reread", "warm", "cold") if record[f"{way}_ms"]}
    say(f"window of {size:,}: ms at best: {told}")
    return record


def _ways(
    blocks: Blocks,
    prompt: Prompt,
    manifest: Manifest,
    files: Sequence[Path],
    record: dict[str, Any],
    rereads: int,
    restores: int,
) -> None:
    engine = blocks.engine

    def reread() -> Logits:
        engine.clear()
        for part in prompt.blocks:
            engine.extend(part)
        return engine.extend(prompt.turn)

    def restored() -> Logits:
        blocks.graft(manifest)
        return engine.extend(prompt.turn)

    cold, digests = record["pages_left"] == 0, dict[str, str]()
    for way, work, repeats, before in (
        ("reread", reread, rereads, None),
        ("warm", restored, restores, None),
        *([("cold", restored, restores, lambda: evict(files))] if cold else []),
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
    """The windows with most tokens, deposited, each with the prompt that has the question behind it."""
    chunks = corpus.chunks
    found = sorted(plan.missing, key=lambda item: -item[1].n_tokens)[:count]
    return [(chunks.chunk_prompt(*item, QUESTION), chunks.deposit(*item)[0]) for item in found]


def _document(texts: Sequence[str], n_characters: int, seed: int) -> str:
    """Paragraphs of the texts in an order that ``seed`` gives, as often as it takes."""
    paragraphs, parts, length = shuffled(texts, seed), list[str](), 0
    while length < n_characters:
        parts.append(next(paragraphs))
        length += len(parts[-1])
    return "\n\n".join(parts)[:n_characters]
