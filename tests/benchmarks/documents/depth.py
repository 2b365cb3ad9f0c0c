"""``depth``: what a question costs deep in a store and shallow, in a large store and a small one.

From the store that ``widen`` filled, two smaller ones are made, of some of its documents: the same blocks byte for
byte. In each, chunks of about one size at even depths are restored from disk, again and again and in an order that is
shuffled each time, and a turn of the same tokens is prefilled after each. ``restore``: from the question to the state
in the context, hashes included, nothing in the RAM cache. ``first``: from there to the first token's logits. ``cold``:
the block's files were put out of the page cache before (left out where some stay); ``warm``: at once again. All
figures are of one run; flat means that the largest median of all points is at most ``FLAT`` times the median.

Peak memory: a process of its own that asks one chunk many times against one that asks as many different chunks.

Not guaranteed: that other work on the machine leaves the times alone.
"""

from __future__ import annotations

import contextlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from agentkv.bench.base import Benchmark, Column, Row, Table, duration, milliseconds, option, records, rows_of
from agentkv.bench.measured import Raw
from agentkv.bench.pagecache import SETTLE_S, evict
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.bench.texts import opened
from agentkv.cli.output import size
from agentkv.cli.progress import shown
from agentkv.documents import Corpus, Hit
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.errors import Cancelled, UsageError
from agentkv.figures import aim
from agentkv.memory.memory import AgentMemory
from agentkv.records import SegmentRef
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents.prepared import CORPUS, CorpusSettings, Prepared, aim_lines, prepared

MEMORY_CHUNKS = 48
FLAT, MEMORY, PREFILLED = 1.3, 1.03, 60
QUESTION = "What is the default, and where can it be changed?"
KINDS, STAGES = ("cold", "warm"), ("restore", "first", "both")

_BAND = 0.75


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusSettings):
    """As of ``widen``, whose store it is; ``sizes``: chunks of the smaller stores."""

    sizes: tuple[int, ...] = option((10, 100), "Chunks of the smaller stores.", metavar="N,N,…", small=(4, 10))
    points: int = option(10, "Depths a store.", metavar="N", least=1, small=3)
    repeats: int = option(5, "Of each.", metavar="N", least=1, small=2)


class Measured(Row):
    """Of a chunk at ``depth`` among ``of``, all of a store."""

    windows: int
    depth: int
    of: int
    tokens: int
    bytes: int
    prefilled: int
    cold_pages_left: float


class Seen(Measured):
    """The raw record: every time in milliseconds, by kind and stage."""

    find: list[float]
    ms: dict[str, dict[str, list[float]]]


class Peaks(Row):
    """The raw record of memory: the peaks of each process in bytes, with one chunk and with many."""

    windows: int
    one: list[int]
    many: list[int]


class Point(Measured):
    """The figures: medians in milliseconds."""

    find_ms: float
    ms: dict[str, dict[str, float]]

    @classmethod
    def of_seen(cls, seen: Seen) -> Point:
        """From what was seen."""
        ms = {}
        for kind, stages in seen.ms.items():
            both = [sum(pair) for pair in zip(stages["restore"], stages["first"], strict=True)]
            ms[kind] = {stage: median(times) for stage, times in {**stages, "both": both}.items()}
        return cls(**seen.model_dump(include=set(Measured.model_fields)), find_ms=median(seen.find), ms=ms)


class Store(Row):
    """The figures of one store: medians over its points. ``depths``: of the first and the last."""

    windows: int
    points: int
    depths: list[int]
    tokens: int | float
    find_ms: float
    ms: dict[str, float]

    @classmethod
    def of(cls, count: int, points: Sequence[Point], kinds: Sequence[str]) -> Store:
        """Of those of ``points`` that are in the store of ``count`` chunks."""
        own = [point for point in points if point.windows == count]
        depths = [point.depth for point in own]
        return cls(
            windows=count,
            points=len(own),
            depths=[min(depths), max(depths)],
            tokens=median(point.tokens for point in own),
            find_ms=median(point.find_ms for point in own),
            ms={name: median(times) for name, times in by_name(own, kinds).items()},
        )

    def time(self, name: str) -> str:
        """A cell."""
        return f"{milliseconds(self.ms[name])} ms" if name in self.ms else "not measured"


def by_name(points: Sequence[Point], kinds: Sequence[str]) -> dict[str, list[float]]:
    """Every point's median by ``KIND STAGE``."""
    return {f"{kind} {stage}": [point.ms[kind][stage] for point in points] for kind in kinds for stage in STAGES}


def _rows(result: Mapping[str, Any]) -> Iterator[Store | tuple[str, ...]]:
    yield from rows_of(Store, "stores")(result)
    flat = [result["flat"].get(f"{kind} {stage}") for kind in KINDS for stage in ("restore", "both")]
    yield "largest / median of all", "", *("" if one is None else f"{one['max_of_median']:.2f}" for one in flat)


class Depth(Benchmark[Settings]):
    """Restore and first token by depth and by size of the store that `widen` filled, and peak memory."""

    name = "depth"
    tables = (
        Table(
            _rows,
            (
                Column[Store]("windows in the store", lambda row: f"{row.windows:,}", left=True),
                Column("depth", lambda row: f"{row.depths[0]:,} to {row.depths[1]:,}"),
                Column("cold: restore", lambda row: row.time("cold restore")),
                Column("cold: to the first token", lambda row: row.time("cold both")),
                Column("warm: restore", lambda row: row.time("warm restore")),
                Column("warm: to the first token", lambda row: row.time("warm both")),
            ),
            name="depth",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text. Raises UsageError where too few chunks are stored."""
        asked = self.settings
        with (
            prepared(asked, cache_bytes=0) as found,
            tempfile.TemporaryDirectory(dir=asked.work, prefix="smaller-") as temporary,
            contextlib.ExitStack() as held,
        ):
            # 1. The stores.
            whole = [record for record in documents(found) if all(map(found.is_stored, record.chunks))]
            corpora = {sum(len(record.chunks) for record in whole): (found.corpus, whole)}
            for wide in asked.sizes:
                say(f"making a store of {wide:,} chunks")
                chosen = _some(whole, wide)
                count = sum(len(record.chunks) for record in chosen)
                if count and count not in corpora:
                    corpora[count] = held.enter_context(smaller(found, chosen, Path(temporary) / str(wide))), chosen
            places = [
                (corpus, place)
                for corpus, records in corpora.values()
                for place in places_in(corpus, records, asked.window, asked.points)
            ]
            # 2. Times.
            time.sleep(SETTLE_S)
            raw: dict[str, Any] = {"windows": sorted(corpora), **_measure(found, places, asked.repeats)}
            everywhere = places_in(found.corpus, whole, asked.window, MEMORY_CHUNKS)
            engine, inputs = found.corpus.memory.engine, [found.laid.sha256, found.plan_sha256]
            info, options = engine.info, {"threads": asked.threads, "window": engine.window}
        # 3. Memory.
        if asked.engine is None:
            say("measuring peak memory in processes of their own")
            raw["memory"] = _memory(asked.model, asked.work / "store", everywhere, options).model_dump()
        amounts = {"sizes": list(asked.sizes), "points": asked.points, "repeats": asked.repeats}
        settings = {**asked.described(), **amounts}
        return self.result(raw, model=info.name, model_sha256=info.sha256, inputs=inputs, settings=settings)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``points``, ``stores``; ``flat``: of all points the largest and the smallest median over their median."""
        points = [Point.of_seen(seen) for seen in records(Seen, raw, "point/")]
        kinds = KINDS[1:] if any(point.cold_pages_left for point in points) else KINDS
        flat = {name: _flat(medians) for name, medians in by_name(points, kinds).items()}
        memory = _ratio(Peaks.model_validate(raw["memory"])) if "memory" in raw else None
        prefilled = max((point.prefilled for point in points), default=0)
        aims = [aim(name, one["max_of_median"], FLAT) for name, one in flat.items()]
        aims += [aim("memory of many windows, of one", memory["ratio"], MEMORY)] if memory else []
        return {
            "points": [point.model_dump() for point in points],
            "stores": [Store.of(count, points, kinds).model_dump() for count in raw["windows"]],
            "flat": flat,
            "cold": kinds == KINDS,
            "memory": memory,
            "prefilled": prefilled,
            "aims": [*aims, aim("tokens prefilled", prefilled, PREFILLED)],
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Nothing is promised that the times of one machine could break; aims are reported."""

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Finding, memory, and what was aimed at."""
        for store in rows_of(Store, "stores")(result):
            tokens, find = f"{store.tokens:,.0f} tokens", duration(store.find_ms)
            yield f"{store.windows:,} chunks: found in {find}; {store.points} points of {tokens}"
        if not result["cold"]:
            yield "cold is left out: pages stay in the page cache here"
        memory = result["memory"]
        if memory is not None:
            one, many = size(memory["one_bytes"]), size(memory["many_bytes"])
            yield f"peak memory: {one} with one chunk, {many} with {memory['windows']}: {memory['ratio']:.4f}"
        yield from aim_lines(result)


def _flat(medians: Sequence[float]) -> dict[str, float]:
    middle = median(medians)
    return {"median": middle, "max_of_median": max(medians) / middle, "min_of_median": min(medians) / middle}


def _ratio(peaks: Peaks) -> dict[str, int | float]:
    one, many = median(peaks.one), median(peaks.many)
    return {"windows": peaks.windows, "one_bytes": one, "many_bytes": many, "ratio": many / one}


# --- the stores -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A chunk of a store. ``depth``: its index among the store's ``of`` chunks."""

    hit: Hit
    depth: int
    of: int


def documents(found: Prepared) -> list[DocumentRecord]:
    """Each once, in order."""
    return list({record.path: record for record, _ in found.chunks}.values())


def _some(whole: Sequence[DocumentRecord], n_chunks: int) -> list[DocumentRecord]:
    """Documents from all over, of ``n_chunks`` together, or a few less."""
    order = random.Random(n_chunks).sample(list(whole), len(whole))
    chosen, left = set(), n_chunks
    for record in order:
        if len(record.chunks) <= left:
            chosen.add(record.path)
            left -= len(record.chunks)
    return [record for record in whole if record.path in chosen]


@contextlib.contextmanager
def smaller(found: Prepared, chosen: Sequence[DocumentRecord], folder: Path) -> Iterator[Corpus]:
    """A store with the same blocks of the ``chosen`` documents alone, under the same engine."""
    memory, shelf = found.corpus.memory, found.corpus.shelf
    with BlockStore(folder, cache_bytes=0) as store, AgentMemory(store, memory.engine) as small:
        for record in chosen:
            for chunk in record.chunks:
                _copy(memory.store, store, chunk.block_id)
        there = Shelf(store, shelf.key)
        there.write(found.corpus.record)
        for key, record in shelf.all().items():
            if record in chosen:
                there.put(key, record, shelf.sources.read(record.sha256) or b"")
        yield Corpus(small, CORPUS)


def _copy(source: BlockStore, target: BlockStore, block_id: str) -> None:
    manifest = source.manifest(block_id)
    if manifest is None:
        raise UsageError(f"block {block_id[:12]} is gone from the store")
    if manifest.parent_id is not None and not target.exists(manifest.parent_id):
        _copy(source, target, manifest.parent_id)
    raw: dict[str, bytes] = {}

    def keep(ref: SegmentRef, data: Any) -> None:
        raw[ref.sha256] = bytes(data)

    source.read(manifest, keep)
    target.put(manifest, raw)


def places_in(corpus: Corpus, chosen: Sequence[DocumentRecord], window: int, count: int) -> list[Place]:
    """At most ``count`` chunks of about one size, at even depths; the largest where too few are large."""
    every = [(record, number) for record in chosen for number in range(len(record.chunks))]
    sizes = [record.chunks[number].n_tokens for record, number in every]
    least = sorted(sizes, reverse=True)[min(count, len(sizes)) - 1] if sizes else 0
    large = [index for index, n_tokens in enumerate(sizes) if n_tokens >= min(least, _BAND * window)]
    step = max(1.0, (len(large) - 1) / max(1, count - 1))
    picked = sorted({large[min(len(large) - 1, round(number * step))] for number in range(min(count, len(large)))})
    keys = {record.path: key for key, record in corpus.shelf.all().items()}
    return [Place(_hit(keys[every[index][0].path], *every[index]), index, len(every)) for index in picked]


def _hit(key: str, record: DocumentRecord, number: int) -> Hit:
    return Hit(key, record, number, 0.0, "given", "")


# --- times ----------------------------------------------------------------------------------------


def _measure(found: Prepared, places: Sequence[tuple[Corpus, Place]], repeats: int) -> dict[str, Any]:
    """``point/WINDOWS/DEPTH``: all times of a chunk."""
    rng, seen = random.Random(0), [_unseen(*each) for each in places]
    order = [number for _ in range(repeats) for number in rng.sample(range(len(places)), len(places))]
    for number in shown(order, "point", lambda number: f"{seen[number].depth:,} of {seen[number].of:,} chunks"):
        if found.cancellation.requested:
            raise Cancelled("measuring depths")
        seen[number] = _once(*places[number], seen[number])
    return {f"point/{row.windows:07}/{row.depth:07}": row.model_dump() for row in sorted(seen, key=_by_depth)}


def _by_depth(row: Seen) -> tuple[int, int]:
    return row.windows, row.depth


def _unseen(corpus: Corpus, place: Place) -> Seen:
    chunk, store = place.hit.chunk, corpus.memory.store
    manifest = store.manifest(chunk.block_id)
    return Seen(
        windows=place.of,
        depth=place.depth,
        of=place.of,
        tokens=chunk.n_tokens,
        bytes=store.sizes(manifest).stored if manifest is not None else 0,
        prefilled=len(corpus.chunks.chunk_prompt(place.hit.document, chunk, QUESTION).turn),
        cold_pages_left=0.0,
        find=[],
        ms={kind: {"restore": [], "first": []} for kind in KINDS},
    )


def _once(corpus: Corpus, place: Place, seen: Seen) -> Seen:
    """What was seen, and once more."""
    start = time.perf_counter()
    corpus.find(QUESTION, 1)
    seen.find.append((time.perf_counter() - start) * 1e3)
    corpus.shelf.readable(place.hit.document)  # finding a chunk has read its document
    left = evict(_files(corpus.memory.store, place.hit.chunk.block_id))
    for kind in KINDS:
        for stage, taken in zip(("restore", "first"), ask(corpus, place), strict=True):
            seen.ms[kind][stage].append(taken)
    return seen.model_copy(update={"cold_pages_left": max(seen.cold_pages_left, left)})


def ask(corpus: Corpus, place: Place) -> tuple[float, float]:
    """Milliseconds of restoring a chunk, and from there to the first token's logits after the question."""
    start = time.perf_counter()
    with corpus.chunks.live(place.hit.document, place.hit.chunk, QUESTION) as live:
        restored = time.perf_counter()
        corpus.memory.engine.extend(live.prompt.turn)
        return (restored - start) * 1e3, (time.perf_counter() - restored) * 1e3


def _files(store: BlockStore, block_id: str) -> list[Path]:
    manifest = store.manifest(block_id)
    digests = {ref.sha256 for ref in manifest.segments} if manifest is not None else set()
    paths = (Path(store.segments.where(digest)) for digest in digests)
    return [path for path in paths if path.exists()]


# --- memory ---------------------------------------------------------------------------------------


def _memory(model: str, store: Path, places: Sequence[Place], settings: dict[str, Any]) -> Peaks:
    every = [[place.hit.key, place.hit.number] for place in places]
    payload, peaks = {"model": model, "store": str(store), "settings": settings}, dict[str, list[int]]()
    for _ in range(2):
        for name, chunks in (("one", every[:1] * len(every)), ("many", every)):
            done = in_new_process(f"{__name__}:peak", {**payload, "windows": chunks})
            peaks.setdefault(name, []).append(done["peak_bytes"])
    return Peaks(windows=len(every), one=peaks["one"], many=peaks["many"])


def peak(payload: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: ask each chunk a question, one after the other; the most memory that was resident."""
    with (
        BlockStore(payload["store"], cache_bytes=0, create=False) as store,
        opened(payload["model"], payload["settings"]) as engine,
        AgentMemory(store, engine) as memory,
    ):
        corpus = Corpus(memory, CORPUS)
        for key, number in payload["windows"]:
            record = corpus.shelf.documents.valid(key)
            if record is not None:
                ask(corpus, Place(_hit(key, record, number), 0, 0))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_bytes": most if sys.platform == "darwin" else most * 1024}
