"""A corpus of real documents with needles in it, and the store of its chunks: ``widen`` fills it, others ask it.

What the documents are, where the needles stand and where chunks are cut follows from the settings, so that a run goes
on in the ``work`` folder of an earlier one. Chunks do not overlap: no token of the documents counts twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from agentkv.bench.base import ModelSettings, option, small_option
from agentkv.bench.results import say
from agentkv.bench.texts import opened
from agentkv.cli.progress import cancelled_by_ctrl_c
from agentkv.documents import Corpus
from agentkv.documents.adding import AddPlan
from agentkv.documents.records import ChunkRecord, DocumentRecord
from agentkv.documents.split import block_text
from agentkv.engine.base import Cancellation, Engine, Logits
from agentkv.errors import UsageError
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents import planting, recipe

CORPUS = "widen"

_ROOM = 320


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(ModelSettings):
    """Which documents, where, how they are cut. Raises UsageError for a ``folder`` that is not a directory."""

    model: str = "gemma-3-270m"
    work: Path = option(
        dataclasses.MISSING, "Packages, documents and the store; the next run goes on there.", metavar="DIR"
    )
    window: int = option(2048, "Tokens of one chunk.", metavar="N")
    folder: Path | None = option(None, "Documents of your own instead of Debian's packages.", metavar="DIR")
    any_version: bool = option(False, "Take another version of a package than the pinned one, and say so.")
    needles: int = option(60, "Needles to put into the documents.", metavar="N", least=0, small=8)
    seed: int = option(0, "Of the needles.", metavar="N", shown="0")
    small: bool = small_option()
    engine: Engine | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not self.folder.is_dir():
            raise UsageError(f"--folder {self.folder} is not a directory")

    @property
    def packages(self) -> tuple[recipe.Package, ...]:
        """None with a folder in their place."""
        if self.folder is not None:
            return ()
        return recipe.SMALL if self.small else recipe.PACKAGES

    def described(self) -> dict[str, Any]:
        """As a result's settings have them."""
        names = ("window", "needles", "seed", "any_version", "threads")
        folder = None if self.folder is None else str(self.folder)
        packages = [package.name for package in self.packages]
        return {**{name: getattr(self, name) for name in names}, "packages": packages, "folder": folder}


@dataclass(frozen=True)
class Prepared:
    """A corpus that is laid out and planned. ``chunks``: all of its chunks in order of depth."""

    corpus: Corpus
    laid: recipe.Laid
    needles: tuple[planting.Needle, ...]
    plan: AddPlan
    chunks: tuple[tuple[DocumentRecord, ChunkRecord], ...]
    cancellation: Cancellation

    @property
    def plan_sha256(self) -> str:
        """Over the ids of all chunks' blocks, in order: model, settings, documents and cuts are in them."""
        return sha256(canonical_json([chunk.block_id for _, chunk in self.chunks]))

    @functools.cached_property
    def own_tokens(self) -> dict[str, int]:
        """By block id: a chunk's tokens that are the document's, without its header."""
        return {chunk.block_id: self._own_tokens(document, chunk) for document, chunk in self.chunks}

    def _own_tokens(self, document: DocumentRecord, chunk: ChunkRecord) -> int:
        splitter = self.corpus.chunks.splitter
        header = block_text(splitter.header(document.path, chunk.heading_path), "", document.columns_of(chunk))
        return chunk.n_tokens - len(self.corpus.memory.engine.tokenize(header, special=False))

    def is_stored(self, chunk: ChunkRecord) -> bool:
        """Whether the store has its block."""
        return self.corpus.memory.store.exists(chunk.block_id)


class Clocked:
    """An engine that counts seconds and tokens of its ``extend``: ``prefill`` (several tokens), ``steps`` (one)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds = {"prefill": 0.0, "steps": 0.0}
        self.decoded = {"prefill": 0, "steps": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        """See :class:`agentkv.engine.base.Engine`."""
        kind, start = "steps" if len(tokens) == 1 else "prefill", time.perf_counter()
        logits = self._engine.extend(tokens, cancellation)
        self.seconds[kind] += time.perf_counter() - start
        self.decoded[kind] += len(tokens)
        return logits


@contextlib.contextmanager
def prepared(asked: CorpusSettings, *, cache_bytes: int = 64 << 20) -> Iterator[Prepared]:
    """The documents laid out with their needles, and what there is to prefill; store and engine are open meanwhile.

    ``cache_bytes``: of RAM for states. Ctrl-C takes effect within a token. Raises what :func:`recipe.lay` raises.
    """
    laid, needles = lay(asked)
    context = -(-(asked.window + _ROOM) // 256) * 256
    with (
        cancelled_by_ctrl_c() as cancellation,
        BlockStore(asked.work / "store", cache_bytes=cache_bytes) as store,
        opened(asked.engine or asked.model, {"threads": asked.threads, "window": context}) as engine,
        AgentMemory(store, cast(Engine, Clocked(engine))) as memory,
    ):
        corpus = Corpus(memory, CORPUS, chunk_tokens=asked.window, overlap=0, keep="eager")
        say("cutting the documents into chunks")
        plan = corpus.plan(sorted(laid.folder.iterdir()), cancellation=cancellation)
        documents = sorted(plan.documents, key=lambda record: record.path)
        chunks = tuple((record, chunk) for record in documents for chunk in record.chunks)
        yield Prepared(corpus, laid, needles, plan, chunks, cancellation)


def lay(asked: CorpusSettings) -> tuple[recipe.Laid, tuple[planting.Needle, ...]]:
    """The documents in ``work``, and the needles in them; those of an earlier run if they are there."""
    listing = asked.work / "needles.json"

    def change(documents: dict[str, bytes]) -> dict[str, bytes]:
        made = planting.make(asked.needles, asked.seed, documents)
        changed, needles = planting.plant(documents, made)
        fsio.write_durably(listing, [orjson.dumps([needle.record() for needle in needles], option=orjson.OPT_INDENT_2)])
        return changed

    laid = recipe.lay(
        asked.work,
        asked.packages,
        source=asked.folder,
        any_version=asked.any_version,
        change=change,
        settings={"needles": asked.needles, "seed": asked.seed},
        on_step=say,
    )
    try:
        return laid, tuple(planting.Needle(**record) for record in orjson.loads(listing.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{listing} cannot be read ({error}); take another --work") from error


def aim_lines(result: Mapping[str, Any]) -> Iterable[str]:
    """A line an aim, which is reported and not enforced."""
    for aim in result["aims"]:
        met = "met" if aim["met"] else "NOT MET"
        yield f"aim: {aim['aim']} {aim['limit']:,}, is {round(aim['value'], 3):,}: {met}"
