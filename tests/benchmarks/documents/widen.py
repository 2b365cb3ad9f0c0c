"""``widen``: read millions of tokens of real documents once, and keep every window's state on disk.

A run goes on in the same ``work`` folder for as many sittings as it takes; each leaves a record beside the store, also
one that was interrupted. Windows do not overlap, so that no token of the documents counts twice; ``tokens`` are the
documents' own, without the headers and the prefix that every window has besides.

Most windows are ``exact_by_config``: the configuration has passed its self-test and the restored state was captured
again as the same bytes. One in 32, chosen by its id, has a probe of its own of 32 steps. When all is stored, some of
these probes are repeated from the files, without any prefill; one that differs breaks the guarantee (exit code 60).

Knows the documents' API, no commands. Not guaranteed: a rate on another machine, or beside other work.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from agentkv.bench import measured
from agentkv.bench.results import now, origin
from agentkv.bench.size import bytes_below
from agentkv.bench.texts import opened
from agentkv.documents import Corpus
from agentkv.documents.adding import AddPlan
from agentkv.documents.records import ChunkRecord, DocumentRecord
from agentkv.documents.split import block_text
from agentkv.engine.base import Cancellation, Engine
from agentkv.engine.generate import PROBE_STEPS
from agentkv.errors import Cancelled, GuaranteeViolated, UsageError
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.records import Manifest
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents import planting, recipe
from tests.benchmarks.documents.sitting import FOLDER, Clocked, Sitting, sittings

MODEL, WINDOW, NEEDLES, SEED = "gemma-3-270m", 2048, 60, 0
CORPUS = "widen"
SMALL_TOKENS = 8_000

_ROOM = 320
_REPROVED = 8


@dataclass(frozen=True)
class Plan:
    """What is asked for. ``window``: tokens; ``needles``: how many are put into the documents; ``seed``: of them.

    ``packages``, or in their place ``folder``, a folder of the user's own; ``any_version``: of the packages.
    ``enough``: reading ends once so many of the documents' tokens are stored (None: all).
    """

    window: int = WINDOW
    needles: int = NEEDLES
    seed: int = SEED
    packages: tuple[recipe.Package, ...] = recipe.PACKAGES
    folder: Path | None = None
    any_version: bool = False
    enough: int | None = None


SMALL = Plan(packages=recipe.SMALL, needles=8, enough=SMALL_TOKENS)


@dataclass(frozen=True)
class Scene:
    """A corpus that is laid out and planned. ``windows``: all of its windows in order of depth."""

    corpus: Corpus
    laid: recipe.Laid
    needles: tuple[planting.Needle, ...]
    plan: AddPlan
    windows: tuple[tuple[DocumentRecord, ChunkRecord], ...]

    @property
    def plan_sha256(self) -> str:
        """Over the ids of all windows' blocks, in order: model, settings, documents and cuts are in them."""
        return sha256(canonical_json([window.block_id for _, window in self.windows]))

    @functools.cached_property
    def own_tokens(self) -> dict[str, int]:
        """By block id: a window's tokens that are its document's."""
        return {window.block_id: own_tokens(self.corpus, record, window) for record, window in self.windows}


@dataclass
class Watch:
    """Told what goes on.

    ``on_step``: a line. ``on_begin``: windows that are not stored, tokens to read, and a counter of tokens that grows
    while they are read; ``on_chunk``: the window that is read next. ``on_item``: items done, in all, and the next.
    """

    on_step: Callable[[str], None] = lambda _: None
    on_begin: Callable[[int, int, Callable[[], int]], None] = lambda _windows, _tokens, _counter: None
    on_chunk: Callable[[DocumentRecord, ChunkRecord], None] = lambda _document, _window: None
    on_item: Callable[[int, int, str], None] = lambda _done, _total, _label: None
    cancellation: Cancellation = field(default_factory=Cancellation)


def run(
    model: str | Engine,
    work: Path,
    plan: Plan | None = None,
    *,
    minutes: float | None = None,
    settings: dict[str, Any] | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """One sitting, and the result of all so far. ``minutes``: the sitting ends before the first window after them.

    Raises what :func:`tests.benchmarks.documents.recipe.lay` raises, Cancelled with the sitting on record, StoreFull.
    """
    started, plan, watch = now(), plan or Plan(), watch or Watch()
    with scene(model, work, plan, settings=settings, watch=watch) as found:
        sitting = Sitting(work / FOLDER, cast(Clocked, found.corpus.memory.engine))
        try:
            _read(found, plan, minutes, sitting, watch)
        except Cancelled:
            sitting.ended = "interrupted"
            raise
        finally:
            sitting.keep()
        store = _store(found, watch)
        info = found.corpus.memory.engine.info
        asked = {**told(plan), "context": found.corpus.memory.engine.window, **(settings or {})}
        inputs = canonical_json([found.laid.sha256, found.plan_sha256])
        header = origin("widen", info.name, info.sha256, inputs, started=started, **asked)
        raw = {"corpus": _corpus(found, plan), "store": store, **sittings(work / FOLDER)}
    return measured.result(header, raw)


def told(plan: Plan) -> dict[str, Any]:
    """What a plan asks for, as JSON."""
    packages = [] if plan.folder is not None else [package.name for package in plan.packages]
    folder = None if plan.folder is None else str(plan.folder)
    kept = {name: getattr(plan, name) for name in ("window", "needles", "seed", "any_version", "enough")}
    return {**kept, "packages": packages, "folder": folder}


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if a stored window did not go on as it did when it was stored."""
    wrong = result["reproved"]["differ"]
    if wrong:
        raise GuaranteeViolated(f"{len(wrong)} stored windows go on otherwise than at deposit, the first is {wrong[0]}")


# --- the scene ------------------------------------------------------------------------------------


@contextlib.contextmanager
def scene(
    model: str | Engine,
    work: Path,
    plan: Plan,
    *,
    settings: dict[str, Any] | None = None,
    watch: Watch | None = None,
    cache_bytes: int = 64 << 20,
) -> Iterator[Scene]:
    """The documents laid out with their needles, an engine and a store in ``work``, and what there is to read.

    ``cache_bytes``: of RAM for states.
    """
    watch = watch or Watch()
    laid, needles = lay(work, plan, watch)
    context = -(-(plan.window + _ROOM) // 256) * 256
    with contextlib.ExitStack() as held:
        store = held.enter_context(BlockStore(work / "store", cache_bytes=cache_bytes))
        engine = held.enter_context(opened(model, {**(settings or {}), "window": context}))
        memory = held.enter_context(AgentMemory(store, cast(Engine, Clocked(engine))))
        corpus = Corpus(memory, CORPUS, chunk_tokens=plan.window, overlap=0, keep="eager")
        watch.on_step("cutting the documents into windows")
        add = corpus.plan(sorted(laid.folder.iterdir()), cancellation=watch.cancellation)
        documents = sorted(add.documents, key=lambda record: record.path)
        windows = tuple((record, window) for record in documents for window in record.chunks)
        yield Scene(corpus, laid, needles, add, windows)


def lay(work: Path, plan: Plan, watch: Watch) -> tuple[recipe.Laid, tuple[planting.Needle, ...]]:
    """The documents in ``work``, and the needles in them; those of an earlier sitting if they are there."""
    listing = work / "needles.json"

    def change(documents: dict[str, bytes]) -> dict[str, bytes]:
        made = planting.make(plan.needles, plan.seed, documents)
        changed, put = planting.plant(documents, made)
        fsio.write_durably(listing, [orjson.dumps([needle.record() for needle in put], option=orjson.OPT_INDENT_2)])
        return changed

    laid = recipe.lay(
        work,
        plan.packages,
        source=plan.folder,
        any_version=plan.any_version,
        change=change,
        settings={"needles": plan.needles, "seed": plan.seed},
        on_step=watch.on_step,
    )
    try:
        return laid, tuple(planting.Needle(**record) for record in orjson.loads(listing.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{listing} cannot be read ({error}); take another --work") from error


def own_tokens(corpus: Corpus, document: DocumentRecord, window: ChunkRecord) -> int:
    """A window's tokens that are the document's, without its header."""
    splitter = corpus.chunks.splitter
    header = block_text(splitter.header(document.path, window.heading_path), "", document.columns_of(window))
    return window.n_tokens - len(corpus.memory.engine.tokenize(header, special=False))


# --- a sitting ------------------------------------------------------------------------------------


def _read(found: Scene, plan: Plan, minutes: float | None, sitting: Sitting, watch: Watch) -> None:
    missing = {window.block_id for _, window in found.plan.missing}
    own = found.own_tokens
    there = sum(tokens for key, tokens in own.items() if key not in missing)
    wanted = min(plan.enough or sum(own.values()), sum(own.values()))
    counters = found.corpus.memory.engine.counters
    watch.on_begin(len(missing), max(0, wanted - there), lambda: counters.decoded)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    last: list[ChunkRecord] = []

    def done() -> None:
        for window in last:
            sitting.count(window.n_tokens, own[window.block_id])
        last.clear()

    def until() -> bool:
        done()
        if plan.enough is not None and there + sitting.own_tokens >= plan.enough:
            sitting.ended = "enough"
        elif deadline is not None and time.monotonic() >= deadline:
            sitting.ended = "time"
        return sitting.ended is not None

    def on_chunk(record: DocumentRecord, window: ChunkRecord) -> None:
        last.append(window)
        watch.on_chunk(record, window)

    report = found.corpus.carry_out(found.plan, on_chunk=on_chunk, until=until, cancellation=watch.cancellation)
    done()
    if sitting.ended is None:
        sitting.ended = "all" if report.stopped is None else report.stopped.message


# --- what there is --------------------------------------------------------------------------------


def _corpus(found: Scene, plan: Plan) -> dict[str, Any]:
    corpus = found.corpus
    return {
        "packages": list(found.laid.packages),
        "documents": len(found.laid.documents),
        "documents_sha256": found.laid.sha256,
        "plan_sha256": found.plan_sha256,
        "failed": [{"path": error.path, "reason": error.reason} for error in found.plan.failed],
        "windows": len(found.windows),
        "own_tokens": sum(found.own_tokens[window.block_id] for _, window in found.windows),
        "window": plan.window,
        "train_window": corpus.memory.engine.info.train_window,
        "context": corpus.memory.engine.window,
        "prefix_tokens": len(corpus.chunks.prompt("\n").prefix),
        "needles": len(found.needles),
    }


def _store(found: Scene, watch: Watch) -> dict[str, Any]:
    """What is stored of the windows, how it was proven, and some proofs repeated from the files."""
    watch.on_step("looking at what is stored")
    corpus, store = found.corpus, found.corpus.memory.store
    levels: Counter[str] = Counter()
    proven: list[Manifest] = []
    tokens = own = raw_bytes = 0
    for _, window in found.windows:
        manifest = store.manifest(window.block_id)
        if manifest is None:
            continue
        levels[manifest.exactness.value] += 1
        tokens += window.n_tokens
        own += found.own_tokens[window.block_id]
        raw_bytes += sum(ref.n_bytes for ref in manifest.segments)
        proven += [manifest] if manifest.probe is not None else []
    step = max(1, len(proven) // _REPROVED)
    sample = proven[::step][:_REPROVED]
    differ = [manifest.block_id for manifest in sample if not corpus.memory.blocks.reprove(manifest)]
    return {
        "blocks": sum(levels.values()),
        "levels": dict(levels),
        "tokens": tokens,
        "own_tokens": own,
        "raw_bytes": raw_bytes,
        "bytes": bytes_below(store.root),
        "reproved": {"blocks": len(sample), "steps": PROBE_STEPS, "differ": differ},
    }
