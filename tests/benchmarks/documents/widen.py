"""``widen``: prefill millions of tokens of real documents once, and keep every chunk's state on disk.

It goes on in the same ``work`` folder for as many runs as it takes; each leaves a record beside the store, also one
that was interrupted or killed. ``tokens`` are the documents' own, without the header and the prefix of every chunk.

Most chunks are ``exact_by_config``: the configuration has passed its self-test and the restored state was captured
again as the same bytes. One in 32, chosen by its id, has a probe of its own of 32 steps. When all is stored, some of
these probes are repeated from the files, without any prefill; one that differs breaks the guarantee (exit code 60).

Not guaranteed: a rate on another machine, or beside other work.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson
from pydantic import Field, ValidationError

from agentkv.bench.base import Benchmark, Column, Row, Table, option, records, rows_of
from agentkv.bench.measured import Raw
from agentkv.bench.results import now, say
from agentkv.bench.size import bytes_below
from agentkv.cli.output import size
from agentkv.cli.progress import prefill_bar
from agentkv.documents.records import ChunkRecord, DocumentRecord
from agentkv.engine.generate import PROBE_STEPS
from agentkv.errors import Cancelled, GuaranteeViolated, UsageError
from agentkv.figures import aim
from agentkv.io import fsio
from agentkv.records import Manifest
from tests.benchmarks.documents.prepared import Clocked, CorpusSettings, Prepared, aim_lines, prepared

PAPER: dict[str, int | float] = {
    "tokens": 2_854_766, "blocks": 88, "ratio": 87.1, "bytes": 40.6e9, "window": 32_768,
}  # fmt: skip
"""arXiv 2607.14431: with a serving window of 32,768 tokens."""

RUNS = "sittings"
"""The folder of the runs' records."""

_KEEP_S = 30.0
_MARK = 50
_REPROVED = 8


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusSettings):
    """``enough``: it ends once so many of the documents' tokens are stored; ``minutes``: or after so long."""

    minutes: float | None = option(None, "End this run after so long, between two chunks.", metavar="N", least=0)
    enough: int | None = option(
        None, "Prefill no further than so many.", name="tokens", metavar="N", least=1, shown="all", small=8_000
    )


class Documents(Row):
    """The raw record of the plan. ``windows``: chunks, of at most ``window`` tokens; ``context``: of the engine."""

    packages: list[dict[str, Any]]
    documents: int
    documents_sha256: str
    plan_sha256: str
    failed: list[dict[str, str]]
    windows: int
    own_tokens: int
    window: int
    train_window: int
    context: int
    prefix_tokens: int
    needles: int


class Proofs(Row):
    """Probes repeated from the files, of so many steps; ids of those that differ."""

    blocks: int
    steps: int
    differ: list[str]


class Stored(Row):
    """The raw record of the store: blocks by level of exactness, tokens with headers, bytes by folder."""

    blocks: int
    levels: dict[str, int]
    tokens: int
    own_tokens: int
    raw_bytes: int
    bytes: dict[str, int]
    reproved: Proofs


class RunBase(Row, frozen=False):
    """Of one run. ``ended``: why; None while it goes on, or if it was killed."""

    started: str = Field(default_factory=now)
    ended: str | None = None
    windows: int = 0
    own_tokens: int = 0
    seconds: float = 0.0


class RunSeen(RunBase):
    """The raw record of one run. ``marks``: seconds and own tokens, now and then."""

    finished: str = ""
    tokens: int = 0
    marks: list[tuple[float, int]] = Field(default_factory=list)
    engine_seconds: dict[str, float] = Field(default_factory=dict)
    engine_tokens: dict[str, int] = Field(default_factory=dict)


class RunRates(RunBase):
    """The figures of one run; rates are of the documents' own tokens, but for ``prefill_tokens_a_second``."""

    number: str = Field(alias="sitting")
    tokens_a_second: float | None
    prefill_share: float | None
    probe_share: float | None
    prefill_tokens_a_second: float | None

    @classmethod
    def of(cls, number: str, seen: RunSeen) -> RunRates:
        """From what was seen."""
        seconds, prefill = seen.seconds, seen.engine_seconds["prefill"]
        return cls(
            sitting=number,
            **seen.model_dump(include=set(RunBase.model_fields)),
            tokens_a_second=_over(seen.own_tokens, seconds),
            prefill_share=_over(prefill, seconds),
            probe_share=_over(seen.engine_seconds["steps"], seconds),
            prefill_tokens_a_second=_over(seen.engine_tokens["prefill"], prefill),
        )


class Shown(Row):
    """The row of a result."""

    model: str
    corpus: Documents
    blocks: int
    tokens: int
    bytes: int
    ratio: dict[str, float]
    tokens_a_second: float | None
    prefill_share: float | None


def _shown(result: Mapping[str, Any]) -> Iterator[Shown | tuple[str, ...]]:
    yield Shown.in_(result)
    window = f"{PAPER['ratio']} × {PAPER['window']:,}"
    yield "the paper", f"{PAPER['blocks']}", f"{PAPER['tokens']:,}", "", window, f"{PAPER['bytes'] / 1e9:.1f} GB"


class Widen(Benchmark[Settings]):
    """Millions of tokens of documents prefilled once and kept on disk, in as many runs as it takes."""

    name = "widen"
    tables = (
        Table(
            _shown,
            (
                Column[Shown]("", lambda row: f"{row.model}, {row.corpus.documents:,} documents", left=True),
                Column("blocks", lambda row: f"{row.blocks:,} of {row.corpus.windows:,}"),
                Column("tokens of the documents", lambda row: f"{row.tokens:,}"),
                Column(
                    "trained windows", lambda row: f"{row.ratio['trained window']:.1f} × {row.corpus.train_window:,}"
                ),
                Column("serving windows", lambda row: f"{row.ratio['serving window']:,.0f} × {row.corpus.context:,}"),
                Column("on disk", lambda row: f"{row.bytes / 1e9:.1f} GB"),
                Column("tokens a second", lambda row: _number(row.tokens_a_second, ".0f")),
                Column("of that in prefill", lambda row: _number(row.prefill_share, ".0%")),
            ),
            name="widen",
            by_model=False,
        ),
        Table(
            rows_of(RunRates, "sittings"),
            (
                Column("run", lambda row: row.number),
                Column("began", lambda row: row.started, left=True),
                Column("ended", lambda row: row.ended or "killed", left=True),
                Column("chunks", lambda row: f"{row.windows:,}"),
                Column("tokens", lambda row: f"{row.own_tokens:,}"),
                Column("minutes", lambda row: f"{row.seconds / 60:.1f}"),
                Column("tokens/s", lambda row: _number(row.tokens_a_second, ".0f")),
                Column("prefill", lambda row: _number(row.prefill_share, ".1%")),
                Column("probes", lambda row: _number(row.probe_share, ".1%")),
            ),
        ),
    )

    def run(self) -> dict[str, Any]:
        """One run, and the result of all so far. Raises what :func:`prepared` raises, StoreFull."""
        asked = self.settings
        with prepared(asked) as found:
            engine = found.corpus.memory.engine
            log = RunLog(asked.work / RUNS, cast(Clocked, engine))
            try:
                _prefill(found, asked, log)
            except (Cancelled, KeyboardInterrupt):
                log.seen.ended = "interrupted"
                raise
            finally:
                log.keep()
            store, documents, info = _stored(found), _documents(found, asked), engine.info
            settings = {**asked.described(), "enough": asked.enough, "context": engine.window}
        runs = {f"sitting/{number}": seen.model_dump() for number, seen in run_records(asked.work / RUNS).items()}
        return self.result(
            {"corpus": documents.model_dump(), "store": store.model_dump(), **runs},
            model=info.name,
            model_sha256=info.sha256,
            inputs=[documents.documents_sha256, documents.plan_sha256],
            settings=settings,
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """How much is stored, how fast it was prefilled, and against which windows."""
        corpus, store = Documents.model_validate(raw["corpus"]), Stored.model_validate(raw["store"])
        numbers = [key.partition("/")[2] for key in raw if key.startswith("sitting/")]
        runs = [RunRates.of(*each) for each in zip(numbers, records(RunSeen, raw, "sitting/"), strict=True)]
        seconds, total, tokens = sum(run.seconds for run in runs), sum(store.bytes.values()), store.own_tokens
        trained = tokens / corpus.train_window
        return {
            "corpus": corpus.model_dump(),
            "blocks": store.blocks,
            "levels": store.levels,
            "tokens": tokens,
            "tokens_with_headers": store.tokens,
            "complete": store.blocks == corpus.windows,
            "bytes": total,
            "bytes_by_folder": store.bytes,
            "bytes_a_token": _over(total, tokens),
            "bytes_of_raw": _over(total, store.raw_bytes),
            "ratio": {"trained window": trained, "serving window": tokens / corpus.context},
            "sittings": [run.model_dump(by_alias=True) for run in runs],
            "seconds": seconds,
            "tokens_a_second": _over(sum(run.own_tokens for run in runs), seconds),
            "prefill_share": _over(sum((run.prefill_share or 0.0) * run.seconds for run in runs), seconds),
            "reproved": store.reproved.model_dump(),
            "paper": PAPER,
            "aims": [
                aim("tokens", tokens, PAPER["tokens"], least=True),
                aim("trained windows", trained, PAPER["ratio"], least=True),
            ],
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every stored chunk goes on as it did when it was stored."""
        differ = result["reproved"]["differ"]
        if differ:
            raise GuaranteeViolated(
                f"{len(differ)} stored chunks go on otherwise than at deposit, the first is {differ[0]}"
            )

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """How blocks were proven, and what was aimed at."""
        corpus, reproved = Documents.model_validate(result["corpus"]), Proofs.model_validate(result["reproved"])
        levels = ", ".join(f"{number:,} {level}" for level, number in sorted(result["levels"].items()))
        yield f"{levels}; {reproved.blocks} proofs repeated from the files, {len(reproved.differ)} differ"
        yield f"chunks of at most {corpus.window:,} tokens; on disk {size(result['bytes'])}"
        if not all(package["pinned"] for package in corpus.packages):
            yield "the documents are not those of the pinned packages"
        yield from aim_lines(result)


def _over(value: float, by: float) -> float | None:
    return value / by if by else None


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


# --- one run --------------------------------------------------------------------------------------


class RunLog:
    """Counts chunks from its making on; the record is written every half a minute, so a killed run has one too."""

    def __init__(self, folder: Path, engine: Clocked) -> None:
        fsio.make_directory(folder)
        numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]
        self._path = folder / f"{max(numbers, default=0) + 1:03}.json"
        self._engine, self._before = engine, (dict(engine.seconds), dict(engine.decoded))
        self._start = self._kept = time.perf_counter()
        self.seen = RunSeen()

    def count(self, tokens: int, own_tokens: int) -> None:
        """A chunk is stored: its tokens, and the document's own among them."""
        seen, moment = self.seen, time.perf_counter()
        seen.windows += 1
        seen.tokens += tokens
        seen.own_tokens += own_tokens
        if seen.windows % _MARK == 0:
            seen.marks.append((round(moment - self._start, 2), seen.own_tokens))
        if moment - self._kept > _KEEP_S:
            self.keep()

    def keep(self) -> None:
        """Write the record, unless there is nothing in it."""
        seen, (seconds, decoded) = self.seen, self._before
        self._kept = time.perf_counter()
        seen.finished, seen.seconds = now(), self._kept - self._start
        seen.engine_seconds = {kind: self._engine.seconds[kind] - seconds[kind] for kind in seconds}
        seen.engine_tokens = {kind: self._engine.decoded[kind] - decoded[kind] for kind in decoded}
        if seen.windows:
            fsio.write_durably(self._path, [orjson.dumps(seen.model_dump(), option=orjson.OPT_INDENT_2)])


def run_records(folder: Path) -> dict[str, RunSeen]:
    """All records by number, in order. Raises UsageError for one that cannot be read."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = RunSeen.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise UsageError(f"{path} cannot be read ({error})") from error
    return found


def _prefill(found: Prepared, asked: Settings, log: RunLog) -> None:
    missing = {chunk.block_id for _, chunk in found.plan.missing}
    own = found.own_tokens
    there = sum(tokens for key, tokens in own.items() if key not in missing)
    left = max(0, min(asked.enough or sum(own.values()), sum(own.values())) - there)
    counters = found.corpus.memory.engine.counters
    say(f"{len(missing):,} chunks are not stored; {left:,} tokens to prefill")
    deadline = None if asked.minutes is None else time.monotonic() + 60 * asked.minutes
    last: list[ChunkRecord] = []

    def done() -> None:
        for chunk in last:
            log.count(chunk.n_tokens, own[chunk.block_id])
        last.clear()

    def until() -> bool:
        done()
        if asked.enough is not None and there + log.seen.own_tokens >= asked.enough:
            log.seen.ended = "enough"
        elif deadline is not None and time.monotonic() >= deadline:
            log.seen.ended = "time"
        return log.seen.ended is not None

    with prefill_bar(left, lambda: counters.decoded) as bar:

        def on_chunk(document: DocumentRecord, chunk: ChunkRecord) -> None:
            last.append(chunk)
            bar.begin(document.path, chunk.n_tokens)

        report = found.corpus.carry_out(found.plan, on_chunk=on_chunk, until=until, cancellation=found.cancellation)
    done()
    if log.seen.ended is None:
        log.seen.ended = "all" if report.stopped is None else report.stopped.message


# --- what there is --------------------------------------------------------------------------------


def _documents(found: Prepared, asked: Settings) -> Documents:
    engine = found.corpus.memory.engine
    return Documents(
        packages=list(found.laid.packages),
        documents=len(found.laid.documents),
        documents_sha256=found.laid.sha256,
        plan_sha256=found.plan_sha256,
        failed=[{"path": error.path, "reason": error.reason} for error in found.plan.failed],
        windows=len(found.chunks),
        own_tokens=sum(found.own_tokens[chunk.block_id] for _, chunk in found.chunks),
        window=asked.window,
        train_window=engine.info.train_window,
        context=engine.window,
        prefix_tokens=len(found.corpus.chunks.prompt("\n").prefix),
        needles=len(found.needles),
    )


def _stored(found: Prepared) -> Stored:
    """What is stored of the chunks, how it was proven, and some proofs repeated from the files."""
    say("looking at what is stored")
    memory = found.corpus.memory
    pairs = [(chunk, memory.store.manifest(chunk.block_id)) for _, chunk in found.chunks]
    stored = [(chunk, manifest) for chunk, manifest in pairs if manifest is not None]
    proven: list[Manifest] = [manifest for _, manifest in stored if manifest.probe is not None]
    sample = proven[:: max(1, len(proven) // _REPROVED)][:_REPROVED]
    differ = [manifest.block_id for manifest in sample if not memory.blocks.reprove(manifest)]
    return Stored(
        blocks=len(stored),
        levels=dict(Counter(manifest.exactness.value for _, manifest in stored)),
        tokens=sum(chunk.n_tokens for chunk, _ in stored),
        own_tokens=sum(found.own_tokens[chunk.block_id] for chunk, _ in stored),
        raw_bytes=sum(ref.n_bytes for _, manifest in stored for ref in manifest.segments),
        bytes=bytes_below(memory.store.root),
        reproved=Proofs(blocks=len(sample), steps=PROBE_STEPS, differ=differ),
    )
