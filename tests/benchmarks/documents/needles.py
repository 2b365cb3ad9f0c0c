"""``needles``: unique values in a store of documents, found and given as the answer, and not without their chunk.

Over the store that ``widen`` filled (the same ``work``): each needle's question is searched for, its best chunk is
grafted, and the model answers as ``agentkv docs ask`` does: it quotes a sentence of the chunk, then gives the answer
in its own words. Right is the value alone; letters' case, white space and marks at the ends do not count. An answer
with anything else in it is wrong, so no echoed haystack counts.

Two controls a needle, both the question alone after a grafted chunk and the answer free, without search, quote or
grammar: after the needle's own chunk (``own``), and after another one, far away (``other``): what is not grafted is not
in attention, so the value must not be in any of these answers (exit code 60).

Chunks that are not stored are left out and counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from agentkv.bench.base import Benchmark, Column, Row, Table, interval, milliseconds, records, rows_of
from agentkv.bench.measured import Raw
from agentkv.cli.output import one_line, picked
from agentkv.cli.progress import shown
from agentkv.documents.answer import ask_chunk
from agentkv.documents.locate import Hit
from agentkv.documents.quote import generate_line
from agentkv.documents.records import document_key
from agentkv.errors import Cancelled, GuaranteeViolated, UsageError
from agentkv.figures import aim, share, spread
from agentkv.records import TokenCounts
from tests.benchmarks.documents.planting import Needle
from tests.benchmarks.documents.prepared import CorpusSettings, Prepared, aim_lines, prepared

K = 5
MOST_PREFILLED, LEAST = 60, 0.98
STEPS = ("find", "restore", "answer")

_MAX_NEW = 24
_MARKS = " \t\n.,;:!?\"'`*()[]«»“”‘’"


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusSettings):
    """As of ``widen``, whose store it is."""


class Place(Row):
    """The raw record of where all this was seen."""

    windows: int
    stored: int
    needles: int
    placed: int
    documents_sha256: str
    plan_sha256: str


class Control(Row):
    """What the model wrote after the chunk at ``depth``."""

    depth: int
    text: str


class Answered(Row):
    """Of one needle: what was asked for, found, quoted and answered."""

    question: str
    value: str
    answer: str | None
    quote: str | None
    depth: int
    find_ms: float
    restore_ms: float
    answer_ms: float
    read_now: bool


class Seen(Answered):
    """The raw record of one needle. ``holding``, ``ranked``: indices of chunks that have it, and that were found."""

    sentence: str
    path: str
    holding: list[int]
    ranked: list[int | None]
    verified: bool | None
    confidence: float
    tokens: TokenCounts
    own: Control
    other: Control


class Asked(Answered):
    """The figures of one needle. ``rank``: of the first chunk found that has it; ``is_given``: the answer is right."""

    needle: str
    rank: int | None
    is_given: bool = Field(alias="said")
    quote_right: bool
    own: bool
    other: bool
    leaked: bool
    prefilled: int

    @classmethod
    def of(cls, number: str, seen: Seen) -> Asked:
        """From what was seen."""
        return cls(
            needle=number,
            **seen.model_dump(include=set(Answered.model_fields)),
            rank=next((place for place, index in enumerate(seen.ranked, 1) if index in seen.holding), None),
            said=is_value(seen.answer, seen.value),
            quote_right=bool(seen.verified) and seen.quote == seen.sentence,
            own=is_value(seen.own.text, seen.value),
            other=is_value(seen.other.text, seen.value),
            leaked=_plain(seen.value) in _plain(seen.other.text),
            prefilled=seen.tokens.prefilled,
        )


class Shown(Row):
    """The row of a result."""

    depth: dict[str, int | None]
    retrieved: dict[str, Any]
    quote_right: dict[str, Any]
    given: dict[str, Any] = Field(alias="said")
    control_own: dict[str, Any]
    control_other: dict[str, Any]
    prefilled: dict[str, float]
    ms: dict[str, dict[str, float]]

    def depths(self) -> str:
        """The first chunk with a needle, the last, and how many there are."""
        return f"windows {self.depth['first']:,} to {self.depth['last']:,} of {self.depth['of']:,}"

    def tokens(self) -> str:
        """Prefilled a question."""
        return f"{self.prefilled['median']:.0f} (at most {self.prefilled['max']:.0f})"

    def times(self) -> str:
        """Medians of the three steps."""
        return " + ".join(milliseconds(self.ms[step]["median"]) for step in STEPS) + " ms"


class Needles(Benchmark[Settings]):
    """Values hidden in the documents that `widen` stored: found, given as the answer, and not without their chunk."""

    name = "needles"
    tables = (
        Table(
            lambda result: [Shown.in_(result)],
            (
                Column("depth", Shown.depths, left=True),
                Column("window found first", lambda row: interval(row.retrieved)),
                Column("quoted sentence right", lambda row: interval(row.quote_right)),
                Column("answer is the value alone", lambda row: interval(row.given)),
                Column("free answer after its window", lambda row: interval(row.control_own)),
                Column("free answer after another", lambda row: interval(row.control_other)),
                Column("tokens prefilled", Shown.tokens),
                Column("find + restore + answer", Shown.times),
            ),
            name="needles",
        ),
    )

    def run(self) -> dict[str, Any]:
        """Ask for every needle whose chunk is stored. Raises UsageError where none is."""
        asked = self.settings
        with prepared(asked) as found:
            everywhere, stored = placed(found), stored_chunks(found)
            here = [item for item in everywhere if item.depth in stored]
            if not here:
                raise UsageError(
                    f"no chunk with a needle is stored in {asked.work}; `python -m tests.benchmarks widen` comes first"
                )
            place = Place(
                windows=len(found.chunks),
                stored=len(stored),
                needles=len(found.needles),
                placed=len(everywhere),
                documents_sha256=found.laid.sha256,
                plan_sha256=found.plan_sha256,
            )
            raw: dict[str, Any] = {"corpus": place.model_dump()}
            for number, item in enumerate(shown(here, "needle", lambda item: item.needle.question)):
                if found.cancellation.requested:
                    raise Cancelled("asking for needles")
                raw[f"needle/{number:03}"] = _ask(found, item, stored).model_dump()
            info = found.corpus.memory.engine.info
        needles = [item.needle.record() for item in everywhere]
        inputs = [place.documents_sha256, place.plan_sha256, needles]
        settings = asked.described()
        return self.result(raw, model=info.name, model_sha256=info.sha256, inputs=inputs, settings=settings)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Shares of all needles that were asked for, with Wilson intervals; milliseconds."""
        numbers = [key.partition("/")[2] for key in raw if key.startswith("needle/")]
        rows = [Asked.of(*each) for each in zip(numbers, records(Seen, raw, "needle/"), strict=True)]
        corpus, n = Place.model_validate(raw["corpus"]), len(rows)
        depths, prefilled = [row.depth for row in rows], [row.prefilled for row in rows]
        right = {
            "retrieved": sum(row.rank == 1 for row in rows),
            "among_five": sum(row.rank is not None for row in rows),
            "said": sum(row.is_given for row in rows),
            "retrieved_and_said": sum(row.rank == 1 and row.is_given for row in rows),
            "quote_right": sum(row.quote_right for row in rows),
            "control_own": sum(row.own for row in rows),
            "control_other": sum(row.other for row in rows),
        }
        return {
            "corpus": corpus.model_dump(),
            "needles": [row.model_dump(by_alias=True) for row in rows],
            "asked": n,
            "left_out": corpus.needles - n,
            "depth": {"first": min(depths, default=None), "last": max(depths, default=None), "of": corpus.windows},
            **{name: share(k, n) for name, k in right.items()},
            "leaked": [row.needle for row in rows if row.leaked],
            "prefilled": spread([float(count) for count in prefilled]),
            "ms": {step: spread([getattr(row, f"{step}_ms") for row in rows]) for step in STEPS},
            "aims": [
                *(aim(name, right[name] / n if n else 0.0, LEAST, least=True) for name in ("retrieved", "said")),
                aim("tokens prefilled, at most", max(prefilled, default=0), MOST_PREFILLED),
            ],
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """No value was given while its chunk was not in the context."""
        if result["leaked"]:
            raise GuaranteeViolated(f"given without its chunk in the context: {', '.join(result['leaked'])}")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """What was missed, and what was aimed at."""
        five, stored = interval(result["among_five"]), result["corpus"]["stored"]
        yield f"{result['asked']} needles over {stored:,} stored chunks; among the first five {five}"
        for row in rows_of(Asked, "needles")(result):
            if row.rank != 1 or not row.is_given:
                answer = one_line(str(row.answer), 60)
                yield f"missed at {row.depth:,}: {row.question} {row.value!r}, got {answer!r}, rank {row.rank}"
        if result["left_out"]:
            yield f"{result['left_out']} needles left out: their chunks are not stored, or do not hold them whole"
        yield from aim_lines(result)


def is_value(answer: str | None, value: str) -> bool:
    """Whether an answer is the value and nothing else; case, white space and marks at the ends do not count.

    >>> is_value('"Amber  heron."', "amber heron"), is_value("It is amber heron", "amber heron")
    (True, False)
    """
    return answer is not None and _plain(answer) == _plain(value)


def _plain(text: str) -> str:
    return " ".join(text.strip(_MARKS).split()).casefold()


# --- where the needles are ------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A needle and the chunks that hold it whole; ``depth``: index of the first of them among all chunks."""

    needle: Needle
    depth: int
    chunks: frozenset[int]


def placed(found: Prepared) -> list[Placed]:
    """The needles that stand whole in a chunk, in order of depth; none where nothing was stored yet."""
    if not found.corpus.exists:
        return []
    by_path: dict[str, list[int]] = {}
    for index, (record, _) in enumerate(found.chunks):
        by_path.setdefault(record.path, []).append(index)
    items = []
    for needle in found.needles:
        near = by_path.get(needle.path, [])
        holding = [index for index in near if needle.sentence in " ".join(hit(found, index).text.split())]
        if holding:
            items.append(Placed(needle, holding[0], frozenset(holding)))
    return sorted(items, key=lambda item: item.depth)


def hit(found: Prepared, index: int) -> Hit:
    """Chunk ``index`` of all, as if it had been found."""
    record, chunk = found.chunks[index]
    document = found.corpus.shelf.readable(record)
    start, stop = document.characters(chunk.start, chunk.stop)
    key = document_key(record.origin.encode("utf-8", "surrogateescape"))
    return Hit(key, record, record.chunks.index(chunk), 0.0, "given", document.text[start:stop])


def stored_chunks(found: Prepared) -> set[int]:
    """The chunks whose blocks are in the store."""
    return {index for index, (_, chunk) in enumerate(found.chunks) if found.is_stored(chunk)}


def far_from(item: Placed, stored: Set[int]) -> int:
    """Of the chunks that are ``stored``, the one farthest from the needle's, wrapped around. Raises UsageError."""
    others = sorted(stored - item.chunks)
    if not others:
        raise UsageError("the control takes a second chunk that is stored")
    at = next((number for number, index in enumerate(others) if index >= item.depth), 0)
    return others[(at + len(others) // 2) % len(others)]


# --- one needle -----------------------------------------------------------------------------------


def _ask(found: Prepared, item: Placed, stored: Set[int]) -> Seen:
    corpus, needle, cancellation = found.corpus, item.needle, found.cancellation
    start = time.perf_counter()
    hits = corpus.find(needle.question, K, cancellation=cancellation)
    find_ms = (time.perf_counter() - start) * 1e3
    numbers = {(record.path, chunk.block_id): index for index, (record, chunk) in enumerate(found.chunks)}
    attempt = ask_chunk(corpus.chunks, hits[0], needle.question, max_new=_MAX_NEW, cancellation=cancellation)
    evidence = attempt.evidence
    return Seen(
        **picked(needle, "question", "sentence", "value", "path"),
        **picked(attempt, "answer", "confidence", "tokens", "restore_ms", "answer_ms"),
        depth=item.depth,
        holding=sorted(item.chunks),
        ranked=[numbers.get((one.path, one.chunk.block_id)) for one in hits],
        find_ms=find_ms,
        quote=None if evidence is None else evidence.quote,
        verified=None if evidence is None else evidence.verified,
        read_now=attempt.prefilled_now,
        own=_free(found, item.depth, needle.question),
        other=_free(found, far_from(item, stored), needle.question),
    )


def _free(found: Prepared, depth: int, question: str) -> Control:
    """What the model writes to the question after chunk ``depth``: one line, no search, no quote, no grammar."""
    corpus, (record, chunk) = found.corpus, found.chunks[depth]
    engine = corpus.memory.engine
    with corpus.chunks.live(record, chunk, question, found.cancellation) as live:
        logits = engine.extend(live.prompt.turn, found.cancellation)
        text, *_ = generate_line(engine, logits, live.prompt.stops, _MAX_NEW, found.cancellation)
        return Control(depth=depth, text=text)
