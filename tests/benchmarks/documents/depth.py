"""``depth``: what a question costs deep in a store and shallow, in a large store and a small one.

From the store that ``widen`` filled, two smaller ones are made, of some of its documents: the same blocks
byte for byte. In each, windows of about one size at even depths are restored from disk, again and again and in an
order that is shuffled anew each time, and a turn of the same tokens is read behind each. ``restore``: from the question
to the state in the context, hashes included, nothing in the RAM cache. ``first``: from there to the first token's
logits. ``cold``: the block's files were put out of the page cache before (left out where some stay); ``warm``: at once
again. All figures of one run; flat means that the largest median of all points is at most ``FLAT`` times the median.

Peak memory: a process of its own that asks one window many times against one that asks as many different windows.

Knows the documents' API, no commands. Not guaranteed: that other work on the machine leaves the times alone.
"""

from __future__ import annotations

import contextlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.pagecache import SETTLE_S, evict
from agentkv.bench.process import in_new_process
from agentkv.bench.results import now, origin
from agentkv.bench.texts import opened
from agentkv.documents import Corpus, Hit
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.engine.base import Engine
from agentkv.errors import Cancelled, UsageError
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents.widen import CORPUS, Plan, Scene, Watch, scene, told

SIZES = (10, 100)
POINTS, REPEATS, MEMORY_WINDOWS = 10, 5, 48
QUESTION = "What is the default, and where can it be changed?"

_BAND = 0.75


@dataclass(frozen=True)
class Point:
    """A window of a store. ``depth``: its index among the store's ``of`` windows."""

    hit: Hit
    depth: int
    of: int


def run(
    model: str | Engine,
    work: Path,
    plan: Plan | None = None,
    *,
    sizes: Sequence[int] = SIZES,
    points: int = POINTS,
    repeats: int = REPEATS,
    settings: dict[str, Any] | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """The whole benchmark. ``sizes``: windows of the smaller stores. Raises UsageError where too few are stored."""
    started, plan, watch = now(), plan or Plan(), watch or Watch()
    with (
        scene(model, work, plan, settings=settings, watch=watch, cache_bytes=0) as found,
        tempfile.TemporaryDirectory(dir=work, prefix="smaller-") as temporary,
        contextlib.ExitStack() as held,
    ):
        whole = [record for record in _documents(found) if _all_stored(found, record)]
        corpora = {sum(len(record.chunks) for record in whole): (found.corpus, whole)}
        for size in sizes:
            watch.on_step(f"making a store of {size:,} windows")
            chosen = _some(whole, size)
            count = sum(len(record.chunks) for record in chosen)
            if count and count not in corpora:
                corpora[count] = held.enter_context(_smaller(found, chosen, Path(temporary) / str(size))), chosen
        chosen_points = {
            count: _points(corpus, documents, plan.window, points) for count, (corpus, documents) in corpora.items()
        }
        time.sleep(SETTLE_S)
        raw: dict[str, Any] = {"windows": sorted(corpora)}
        raw |= _measure({count: corpus for count, (corpus, _) in corpora.items()}, chosen_points, repeats, watch)
        info = found.corpus.memory.engine.info
        inputs = canonical_json([found.laid.sha256, found.plan_sha256])
        asked = {**told(plan), "sizes": list(sizes), "points": points, "repeats": repeats, **(settings or {})}
        header = origin("depth", info.name, info.sha256, inputs, started=started, **asked)
        everywhere = _points(found.corpus, whole, plan.window, MEMORY_WINDOWS)
        context = found.corpus.memory.engine.window
    if isinstance(model, str):
        watch.on_step("measuring peak memory in processes of their own")
        raw["memory"] = _memory(model, work / "store", everywhere, {**(settings or {}), "window": context})
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Nothing is promised that the times of one machine could break; aims are told."""


# --- the stores -----------------------------------------------------------------------------------


def _documents(found: Scene) -> list[DocumentRecord]:
    return list({record.path: record for record, _ in found.windows}.values())


def _all_stored(found: Scene, record: DocumentRecord) -> bool:
    store = found.corpus.memory.store
    return all(store.exists(window.block_id) for window in record.chunks)


def _some(documents: Sequence[DocumentRecord], size: int) -> list[DocumentRecord]:
    """Documents from all over, of ``size`` windows together, or a few less."""
    order = random.Random(size).sample(list(documents), len(documents))
    chosen, left = set(), size
    for record in order:
        if len(record.chunks) <= left:
            chosen.add(record.path)
            left -= len(record.chunks)
    return [record for record in documents if record.path in chosen]


@contextlib.contextmanager
def _smaller(found: Scene, documents: Sequence[DocumentRecord], folder: Path) -> Iterator[Corpus]:
    """A store with the same blocks of ``documents`` alone, under the same engine."""
    memory, shelf = found.corpus.memory, found.corpus.shelf
    with BlockStore(folder, cache_bytes=0) as store, AgentMemory(store, memory.engine) as small:
        for record in documents:
            for window in record.chunks:
                _copy(memory.store, store, window.block_id)
        there = Shelf(store, shelf.key)
        there.write(found.corpus.record)
        for key, record in shelf.all().items():
            if record in documents:
                there.put(key, record, shelf.sources.read(record.sha256) or b"")
        yield Corpus(small, CORPUS)


def _copy(source: BlockStore, target: BlockStore, block_id: str) -> None:
    manifest = source.manifest(block_id)
    if manifest is None:
        raise UsageError(f"block {block_id[:12]} is gone from the store")
    if manifest.parent_id is not None and not target.exists(manifest.parent_id):
        _copy(source, target, manifest.parent_id)
    raw: dict[str, bytes] = {}

    def keep(ref: Any, data: Any) -> None:
        raw[ref.sha256] = bytes(data)

    source.read(manifest, keep)
    target.put(manifest, raw)


def _points(corpus: Corpus, documents: Sequence[DocumentRecord], window: int, count: int) -> list[Point]:
    """At most ``count`` windows of about one size, at even depths; the largest where too few are large."""
    every = [(record, number) for record in documents for number in range(len(record.chunks))]
    sizes = [record.chunks[number].n_tokens for record, number in every]
    least = sorted(sizes, reverse=True)[min(count, len(sizes)) - 1] if sizes else 0
    large = [index for index, size in enumerate(sizes) if size >= min(least, _BAND * window)]
    step = max(1.0, (len(large) - 1) / max(1, count - 1))
    picked = sorted({large[min(len(large) - 1, round(number * step))] for number in range(min(count, len(large)))})
    keys = {record.path: key for key, record in corpus.shelf.all().items()}
    return [Point(_hit(keys[every[index][0].path], *every[index]), index, len(every)) for index in picked]


def _hit(key: str, record: DocumentRecord, number: int) -> Hit:
    return Hit(key, record, number, 0.0, "given", "")


# --- times ----------------------------------------------------------------------------------------


def _measure(corpora: dict[int, Corpus], points: dict[int, list[Point]], repeats: int, watch: Watch) -> dict[str, Any]:
    """``point/WINDOWS/DEPTH``: all times of a window, in milliseconds."""
    raw: dict[str, Any] = {}
    done = 0
    todo = [(count, point) for count, items in points.items() for point in items]
    rng = random.Random(0)
    for _ in range(repeats):
        for count, point in rng.sample(todo, len(todo)):
            if watch.cancellation.requested:
                raise Cancelled("measuring depths")
            watch.on_item(done, len(todo) * repeats, f"{point.depth:,} of {point.of:,} windows")
            key = f"point/{count:07}/{point.depth:07}"
            row = raw.setdefault(key, _row(corpora[count], count, point))
            _once(corpora[count], point, row)
            done += 1
    return dict(sorted(raw.items()))


def _row(corpus: Corpus, count: int, point: Point) -> dict[str, Any]:
    manifest = corpus.memory.store.manifest(point.hit.chunk.block_id)
    stored = corpus.memory.store.sizes(manifest).stored if manifest is not None else 0
    times: dict[str, dict[str, list[float]]] = {kind: {"restore": [], "first": []} for kind in ("cold", "warm")}
    return {
        "windows": count, "depth": point.depth, "of": point.of, "tokens": point.hit.chunk.n_tokens, "bytes": stored,
        "find": [], "prefilled": 0, "ms": times, "cold_pages_left": 0.0,
    }  # fmt: skip


def _once(corpus: Corpus, point: Point, row: dict[str, Any]) -> None:
    begun = time.perf_counter()
    corpus.find(QUESTION, 1)
    row["find"].append((time.perf_counter() - begun) * 1e3)
    corpus.shelf.readable(point.hit.document)  # finding a window has read its document
    left = evict(_files(corpus.memory.store, point.hit.chunk.block_id))
    row["cold_pages_left"] = max(row["cold_pages_left"], left)
    for kind in ("cold", "warm"):
        restore, first, row["prefilled"] = _ask(corpus, point)
        row["ms"][kind]["restore"].append(restore)
        row["ms"][kind]["first"].append(first)


def _ask(corpus: Corpus, point: Point) -> tuple[float, float, int]:
    """Milliseconds of restoring and to the first token's logits, and tokens of the turn."""
    engine = corpus.memory.engine
    begun = time.perf_counter()
    with corpus.chunks.live(point.hit.document, point.hit.chunk, QUESTION) as live:
        restored = time.perf_counter()
        engine.extend(live.prompt.turn)
        return (restored - begun) * 1e3, (time.perf_counter() - restored) * 1e3, len(live.prompt.turn)


def _files(store: BlockStore, block_id: str) -> list[Path]:
    manifest = store.manifest(block_id)
    digests = {ref.sha256 for ref in manifest.segments} if manifest is not None else set()
    paths = (Path(store.segments.where(digest)) for digest in digests)
    return [path for path in paths if path.exists()]


# --- memory ---------------------------------------------------------------------------------------


def _memory(model: str, store: Path, points: Sequence[Point], settings: dict[str, Any]) -> dict[str, Any]:
    every = [[point.hit.key, point.hit.number] for point in points]
    payload = {"model": model, "store": str(store), "settings": settings}
    told: dict[str, Any] = {"windows": len(every), "one": [], "many": []}
    for _ in range(2):
        for name, windows in (("one", every[:1] * len(every)), ("many", every)):
            told[name].append(in_new_process(f"{__name__}:peak", {**payload, "windows": windows})["peak_bytes"])
    return told


def peak(payload: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: ask each window a question, one after the other; the most memory that was resident."""
    with (
        BlockStore(payload["store"], cache_bytes=0, create=False) as store,
        opened(payload["model"], payload["settings"]) as engine,
        AgentMemory(store, engine) as memory,
    ):
        corpus = Corpus(memory, CORPUS)
        for key, number in payload["windows"]:
            record = corpus.shelf.documents.valid(key)
            if record is not None:
                _ask(corpus, Point(_hit(key, record, number), 0, 0))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_bytes": most if sys.platform == "darwin" else most * 1024}
