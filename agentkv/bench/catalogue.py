"""``agentkv bench catalogue``: how opening, listing, finding and routing grow with the number of blocks.

A store of small blocks on top of one agent prefix, each with a segment, a manifest, a text, a name and a description of
its own, grown from one count to the next and measured at each. Every question is asked in a process of its own, once
(``first``) and then repeatedly (``again``, the median), several times; the files are in the page cache. Times are
those of the call, without the interpreter's start; ``open_ms`` is the opening of the store before it.

Routing is measured through ``AgentMemory.route`` with a classifier that picks nothing: what is left is the fetching of
the candidates. ``list`` is the command ``agentkv list --json``, with sizes; there a time is that of a whole process.

Creation is reported apart. The first blocks are written as any deposit is, with every fsync; the rest by the same code
in a process whose ``os.fsync`` does nothing, which makes the same files in a tenth of the time. Nothing measured here
depends on fsync.

Enforced: every answer is right (all names, the named block, the block of the id's first digits, every candidate).
Reported: ``growth``, the exponent of the time's growth between the smallest and the largest count (0: does not grow,
1: in proportion).
"""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from agentkv.bench.base import Benchmark, Column, Row, Table, milliseconds, option, rows_of
from agentkv.bench.measured import Raw
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.engine import layout as blobs
from agentkv.engine.fake import FakeEngine
from agentkv.errors import GuaranteeViolated
from agentkv.figures import spread
from agentkv.io.hashing import block_id, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.records import Exactness, Manifest, NamedBlock, Planes, Section, StateLayout
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.store.catalog import BlockStore

BLOCK_TOKENS, PREFIX_TOKENS = 200, 256
QUESTIONS = ("names", "name", "resolve", "manifest", "route", "list")

_ROW_BYTES = 16
_AGAIN = 5
_LAYOUT = StateLayout(
    architecture="catalogue",
    sections=(Section(kind="attention", keys=(Planes(ggml_type=1, token_major=True, row_bytes=_ROW_BYTES),)),),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``synced``: blocks that are written with every fsync."""

    blocks: tuple[int, ...] = option(
        (1000, 5000, 20_000), "Numbers of blocks.", metavar="N,N,…", shown="1000,5000,20000", small=(500, 2000)
    )
    processes: int = option(3, "How often each question is asked in a new process.", least=1, small=1)
    folder: Path | None = option(
        None, "A folder on the disk that is meant.", metavar="DIR", shown="the system's temporary folder"
    )
    synced: int = 100


class Answer(Row):
    """What one process gave, times in milliseconds."""

    open_ms: float
    first_ms: float
    again_ms: float
    right: bool


class Spread(Row):
    """Over the processes, in milliseconds."""

    median: float
    min: float
    max: float


class Asked(Row):
    """One question at one number of blocks."""

    open_ms: Spread
    first_ms: Spread
    again_ms: Spread
    right: bool

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Asked:
        """Of every process's answer."""
        times = {key: spread([getattr(one, key) for one in answers]) for key in ("open_ms", "first_ms", "again_ms")}
        return cls.model_validate({**times, "right": all(one.right for one in answers)})

    def both(self) -> str:
        """The first time and later ones."""
        return f"{milliseconds(self.first_ms.median)} / {milliseconds(self.again_ms.median)}"


class Count(Row):
    """Every question at one number of blocks."""

    blocks: int
    questions: dict[str, Asked]


def growth(rows: Sequence[Count]) -> dict[str, dict[str, float]]:
    """The exponent by question, ``first`` and ``again``; nothing for a single count."""
    if len(rows) < 2:
        return {}
    small, large = rows[0], rows[-1]
    factor = math.log(large.blocks / small.blocks)

    def exponent(name: str, when: str) -> float:
        one, two = (getattr(row.questions[name], when).median for row in (small, large))
        return math.log(two / one) / factor

    return {name: {when: exponent(name, when) for when in ("first_ms", "again_ms")} for name in large.questions}


_HEADINGS = {
    "names": "all names", "name": "one name", "resolve": "id by its start", "manifest": "manifest",
    "route": "a router's candidates",
}  # fmt: skip


class Catalogue(Benchmark[Settings]):
    """How opening, listing, finding and routing grow with the number of blocks. Loads no model."""

    name = "catalogue"
    tables = (
        Table(
            rows_of(Count, "counts"),
            (
                Column("blocks", lambda row: f"{row.blocks:,}"),
                *(
                    Column[Count](heading, lambda row, name=name: row.questions[name].both())  # type: ignore[misc]
                    for name, heading in _HEADINGS.items()
                ),
                Column(
                    "`agentkv list --json`, whole command",
                    lambda row: milliseconds(row.questions["list"].first_ms.median),
                ),
            ),
            name="catalogue",
            by_model=False,
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        counts, synced = sorted(set(asked.blocks)), min(asked.synced, *asked.blocks)
        with tempfile.TemporaryDirectory(prefix="agentkv-catalogue-", dir=asked.folder) as temporary:
            root, raw = str(Path(temporary) / "store"), dict[str, Any]()
            created, done = [_fill(root, 0, synced, True)], synced
            for count in counts:
                created.append(_fill(root, done, count, False))
                done = count
                raw[str(count)] = _ask_all(root, count, asked.processes)
        return self.result(
            raw,
            model="fake",
            model_sha256=FakeEngine(window=64).info.sha256,
            inputs=[counts, BLOCK_TOKENS, PREFIX_TOKENS],
            settings={"processes": asked.processes},
            created=[part for part in created if part["blocks"]],
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``counts`` and ``growth``. A record a number of blocks, with each question's answers by process."""
        rows = []
        for key, record in raw.items():
            answers = {one["question"]: [Answer.model_validate(each) for each in one["answers"]] for one in record}
            asked = {name: Asked.of(each) for name, each in answers.items()}
            rows.append(Count(blocks=int(key), questions=asked))
        return {"counts": [row.model_dump() for row in rows], "growth": growth(rows)}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every answer was right."""
        for row in result["counts"]:
            for name, one in row["questions"].items():
                if not one["right"]:
                    raise GuaranteeViolated(f"{row['blocks']:,} blocks: {name} gave a wrong answer")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Growth, and what creation took."""
        yield "milliseconds, in a new process / again there; medians"
        if result["growth"]:
            rows = (f"{name} {one['first_ms']:.2f} / {one['again_ms']:.2f}" for name, one in result["growth"].items())
            yield f"growth (0: none, 1: in proportion): {', '.join(rows)}"
        for part in result["created"]:
            how = "with every fsync" if part["synced"] else "without fsync"
            yield f"created {part['blocks']:,} blocks {how}: {part['seconds'] / part['blocks'] * 1e3:.1f} ms each"


def _fill(root: str, start: int, stop: int, synced: bool) -> dict[str, Any]:
    part: dict[str, Any] = in_new_process(
        f"{__name__}:fill", {"root": root, "start": start, "stop": stop, "synced": synced}
    )
    if part["blocks"]:
        say(f"created {part['blocks']:,} blocks in {part['seconds']:.1f} s, " + ("synced" if synced else "unsynced"))
    return part


def _ask_all(root: str, count: int, processes: int) -> list[dict[str, Any]]:
    """Of each question what each process answered."""
    rows = []
    for name in QUESTIONS:
        answers = [
            in_new_process(f"{__name__}:ask", {"root": root, "blocks": count, "question": name, "seed": seed})
            for seed in range(processes)
        ]
        rows.append({"question": name, "answers": answers})
        times = [statistics.median(one[when] for one in answers) for when in ("first_ms", "again_ms")]
        say(f"{count:,} blocks, {name}: first {times[0]:.1f} ms, again {times[1]:.1f} ms")
    return rows


# --- the processes that create ----------------------------------------------------------------------


def fill(payload: dict[str, Any]) -> dict[str, Any]:
    """Put blocks ``start`` to ``stop`` into the store; without fsync unless ``synced``."""
    if not payload["synced"]:
        os.fsync = lambda fd: None
    start = time.perf_counter()
    with BlockStore(payload["root"], cache_bytes=0) as store:
        prefix, data = _block(None, -1)
        store.put(prefix, data)
        for i in range(payload["start"], payload["stop"]):
            manifest, data = _block(prefix, i)
            store.put(manifest, data)
            text = bytes(manifest.tokens).decode()
            store.set_name(_named(manifest, i, sha256(text.encode())), text)
    blocks = payload["stop"] - payload["start"]
    return {"blocks": blocks, "seconds": time.perf_counter() - start, "synced": payload["synced"]}


def _block(parent: Manifest | None, i: int) -> tuple[Manifest, dict[str, bytes]]:
    """Block ``i`` on top of ``parent``, or the prefix: one segment of random bytes, token ids as of a short text."""
    rng, n = random.Random(i), BLOCK_TOKENS if parent else PREFIX_TOKENS
    tokens = tuple(rng.choices(range(32, 127), k=n))
    at = parent.n_tokens if parent else 0
    data = rng.randbytes(n * _ROW_BYTES)
    fingerprint = FakeEngine(window=64).fingerprint() if parent is None else parent.fingerprint
    ref = blobs.reference(0, at, at + n, np.frombuffer(data, np.uint8), 2)
    manifest = Manifest(
        block_id=block_id(fingerprint.id, parent.block_id if parent else None, tokens),
        parent_id=parent.block_id if parent else None,
        fingerprint=fingerprint,
        tokens=tokens,
        n_tokens=at + n,
        layout=_LAYOUT,
        segments=(*(parent.segments if parent else ()), ref),
        state_sha256=sha256(data),
        exactness=Exactness.INEXACT,
        probe=None,
    )
    return manifest, {ref.sha256: data}


def _name(i: int) -> str:
    return f"skill-{i:06d}"


def _named(manifest: Manifest, i: int, source_sha256: str) -> NamedBlock:
    return NamedBlock(
        kind="skill",
        name=_name(i),
        fingerprint_id=manifest.fingerprint.id,
        block_id=manifest.block_id,
        description=f"What to do about case {i}: who is asked, what is written down, and by when it has to be done.",
        source=f"skills/{_name(i)}",
        source_sha256=source_sha256,
    )


# --- the processes that ask -------------------------------------------------------------------------


class Nothing:
    """A classifier that picks no block, at no cost; it notes how many candidates it was given."""

    name, version = "nothing", "1"

    def __init__(self) -> None:
        self.seen = 0

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`."""
        self.seen = len(candidates)
        return Classification(raw_pick=NONE, scores={NONE: 0.0}, tokens=0)


def ask(payload: dict[str, Any]) -> dict[str, Any]:
    """Open the store and ask one question about a block of it, again and again."""
    count = payload["blocks"]
    i = random.Random(payload["seed"]).randrange(count)
    manifest, _ = _block(_block(None, -1)[0], i)
    start = time.perf_counter()
    store = BlockStore(payload["root"], create=False)
    open_ms = (time.perf_counter() - start) * 1e3
    with store:
        question = _questions(store, count, i, manifest)[payload["question"]]
        times, right = [], True
        for _ in range(2 if payload["question"] == "list" else _AGAIN + 1):
            start = time.perf_counter()
            answer = question()
            times.append((time.perf_counter() - start) * 1e3)
            right = right and answer
    return {"open_ms": open_ms, "first_ms": times[0], "again_ms": statistics.median(times[1:]), "right": right}


def _questions(store: BlockStore, count: int, i: int, manifest: Manifest) -> dict[str, Callable[[], bool]]:
    """Each does its work and says whether the answer was right."""
    nothing = Nothing()
    memory = AgentMemory(store, FakeEngine(window=64), classifier=nothing)
    fingerprint_id = manifest.fingerprint.id

    def name() -> bool:
        found = store.name("skill", _name(i), fingerprint_id)
        return found is not None and found.block_id == manifest.block_id

    def route() -> bool:
        decision = memory.route("which case is this?")
        return decision.pick is None and not decision.left_out and nothing.seen == count

    def command() -> bool:
        line = [sys.executable, "-m", "agentkv", "list", "--json", "--store", str(store.root)]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
        sizes = [one["own_bytes"] or 0 for one in orjson.loads(done.stdout)["blocks"]]
        return len(sizes) == count and min(sizes) > 0

    return {
        "names": lambda: len(store.names()) == count,
        "name": name,
        "resolve": lambda: store.resolve(manifest.block_id[:10]) == manifest.block_id,
        "manifest": lambda: store.manifest(manifest.block_id) == manifest,
        "route": route,
        "list": command,
    }
