"""``agentkv bench catalogue``: how opening, listing, finding and routing grow with the number of blocks.

A store of small blocks on top of one agent prefix, each with a segment, a manifest, a text, a name and a description of
its own, grown from one count to the next and measured at each. Every question is asked in a process of its own, once
(``first``) and then repeatedly (``again``, the median), several times; the files are in the page cache. Times are
those of the call, without the interpreter's start; ``open_ms`` is the opening of the store before it.

Routing is measured through ``AgentMemory.route`` with a classifier that picks nothing: what is left is the fetching of
the candidates. ``list`` is the command ``agentkv list --json``, with sizes; there a time is that of a whole process.

Of more than 20,000 blocks those above have names without a description, so that candidates stay 20,000, and what lists
every block (``names``, ``list``) is not asked. ``page`` is 100 names from somewhere in the middle; ``deposit`` a block
with a name; ``evict`` makes room for one block, which is then deposited again; ``gc``, ``check`` (without decoding) and
``rebuild`` (of a deleted index) look at everything and are asked once. Nothing of these waits for a disk.

Creation is reported apart. The first blocks are written as any deposit is, with every fsync; more by the same code in a
process whose ``os.fsync`` does nothing, which makes the same files in a tenth of the time; those above 20,000 are
written as files of the same bytes. Nothing measured here depends on fsync.

Enforced: every answer is right (all names, the named block, the block of the id's first digits, every candidate, the
page, what went, that nothing is found wrong or left over).
Reported: ``growth``, the exponent of the time's growth between the smallest and the largest count (0: does not grow,
1: in proportion); bytes and files of a block on disk.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench import measured
from agentkv.bench.base import Benchmark, Column, Row, Table, milliseconds, option, rows_of
from agentkv.bench.manyblocks import (
    BLOCK_TOKENS,
    DESCRIBED,
    EXTRA,
    PREFIX_TOKENS,
    block,
    deposit,
    disk_of,
    name_of,
    named,
    undo,
    write,
)
from agentkv.bench.measured import Raw
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.engine.fake import FakeEngine
from agentkv.errors import GuaranteeViolated
from agentkv.figures import spread
from agentkv.memory.memory import AgentMemory
from agentkv.notices import AgentKVWarning
from agentkv.records import Manifest
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.store.budget import stored_bytes
from agentkv.store.catalog import BlockStore

QUESTIONS = ("names", "name", "resolve", "manifest", "route", "list")
MORE = ("page", "deposit", "evict", "gc", "check", "rebuild")
OF_ALL = ("names", "list")
"""Questions whose answer is as long as the store."""
_DISK = "/disk"
_ONCE = ("gc", "check", "rebuild")
_PAGE = 100

_AGAIN = EXTRA - 1


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

    def shown(self, name: str) -> str:
        """A question's times; nothing if it was not asked."""
        return self.questions[name].both() if name in self.questions else "–"

    def rate(self, name: str) -> str:
        """Microseconds a block of a question that looks at every one."""
        return f"{self.questions[name].first_ms.median * 1e3 / self.blocks:.0f}"


class Disk(Row):
    """What a store takes up: bytes of its files as the disk counts them, files and folders; bytes of its index."""

    blocks: int
    bytes: int
    files: int
    index_bytes: int


def growth(rows: Sequence[Count]) -> dict[str, dict[str, float]]:
    """The exponent by question, ``first`` and ``again``; nothing for a single count."""
    if len(rows) < 2:
        return {}
    small, large = rows[0], rows[-1]
    factor = math.log(large.blocks / small.blocks)

    def exponent(name: str, when: str) -> float:
        one, two = (getattr(row.questions[name], when).median for row in (small, large))
        return math.log(two / one) / factor

    both = [name for name in large.questions if name in small.questions]
    return {name: {when: exponent(name, when) for when in ("first_ms", "again_ms")} for name in both}


_HEADINGS = {
    "names": "all names", "name": "one name", "resolve": "id by its start", "manifest": "manifest",
    "route": "a router's candidates",
}  # fmt: skip

_MORE_HEADINGS = {
    "name": "one name", "page": "a page of names", "route": "candidates", "deposit": "deposit", "evict": "evict",
}  # fmt: skip


class Catalogue(Benchmark[Settings]):
    """How opening, listing, finding and routing grow with the number of blocks. Loads no model."""

    name = "catalogue"
    version = 2
    tables = (
        Table(
            rows_of(Count, "counts"),
            (
                Column("blocks", lambda row: f"{row.blocks:,}"),
                *(
                    Column[Count](heading, lambda row, name=name: row.shown(name))  # type: ignore[misc]
                    for name, heading in _HEADINGS.items()
                ),
                Column(
                    "`agentkv list --json`, whole command",
                    lambda row: milliseconds(row.questions["list"].first_ms.median) if "list" in row.questions else "–",
                ),
            ),
            name="catalogue",
            by_model=False,
        ),
        Table(
            lambda result: [row for row in rows_of(Count, "counts")(result) if "page" in row.questions],
            (
                Column("blocks", lambda row: f"{row.blocks:,}"),
                Column("open", lambda row: milliseconds(row.questions["page"].open_ms.median)),
                *(
                    Column[Count](heading, lambda row, name=name: row.shown(name))  # type: ignore[misc]
                    for name, heading in _MORE_HEADINGS.items()
                ),
                *(
                    Column[Count](f"{name}, µs a block", lambda row, name=name: row.rate(name))  # type: ignore[misc]
                    for name in _ONCE
                ),
            ),
            name="catalogue-index",
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
                for stop in sorted({min(count, max(done, DESCRIBED)), count} - {done}):
                    created.append(_fill(root, done, stop, False))
                    done = stop
                raw[str(count)] = _ask_all(root, count, asked.processes)
                raw[f"{count}{_DISK}"] = disk_of(Path(root), count)
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
        """``counts`` and ``growth``, and since version 2 ``disk``. A record a number of blocks, with each question's
        answers by process."""
        rows, disk = [], []
        for key, record in raw.items():
            if key.endswith(_DISK):
                disk.append(Disk.model_validate(record).model_dump())
                continue
            answers = {one["question"]: [Answer.model_validate(each) for each in one["answers"]] for one in record}
            asked = {name: Asked.of(each) for name, each in answers.items()}
            rows.append(Count(blocks=int(key), questions=asked))
        found: dict[str, Any] = {"counts": [row.model_dump() for row in rows], "growth": growth(rows)}
        return {**found, "disk": disk} if disk else found

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
        for one in result.get("disk", ()):
            a_block = one["bytes"] / one["blocks"], one["files"] / one["blocks"], one["index_bytes"] / one["blocks"]
            yield "{:,} blocks: {:,.0f} bytes and {:.2f} files a block, {:,.0f} of them of the index".format(
                one["blocks"], *a_block
            )
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
    for name in (*QUESTIONS, *MORE):
        if name in OF_ALL and count > DESCRIBED:
            continue
        answers = [
            in_new_process(f"{__name__}:ask", {"root": root, "blocks": count, "question": name, "seed": seed})
            for seed in range(1 if name in _ONCE else processes)
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
        prefix, data = block(None, -1)
        store.put(prefix, data)
        for i in range(payload["start"], payload["stop"]):
            deposit(store, prefix, i) if i < DESCRIBED else write(store, prefix, i)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AgentKVWarning)  # that the index took long
            store.names(limit=1)
    blocks = payload["stop"] - payload["start"]
    return {"blocks": blocks, "seconds": time.perf_counter() - start, "synced": payload["synced"]}


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
    manifest, _ = block(block(None, -1)[0], i)
    start = time.perf_counter()
    store = BlockStore(payload["root"], create=False)
    open_ms = (time.perf_counter() - start) * 1e3
    with store:
        question = _questions(store, count, i, manifest)[payload["question"]]
        times, right = [], True
        for _ in range({"list": 2}.get(payload["question"], 1 if payload["question"] in _ONCE else _AGAIN + 1)):
            start = time.perf_counter()
            answer = question()
            times.append((time.perf_counter() - start) * 1e3)
            right = right and answer
        undo(store, count)
    again_ms = statistics.median(times[1:] or times)
    return {"open_ms": open_ms, "first_ms": times[0], "again_ms": again_ms, "right": right}


def _questions(store: BlockStore, count: int, i: int, manifest: Manifest) -> dict[str, Callable[[], bool]]:
    """Each does its work and says whether the answer was right."""
    nothing = Nothing()
    memory = AgentMemory(store, FakeEngine(window=64), classifier=nothing)
    fingerprint_id = manifest.fingerprint.id

    def name() -> bool:
        found = store.name("skill", name_of(i), fingerprint_id)
        return found is not None and found.block_id == manifest.block_id

    def route() -> bool:
        decision = memory.route("which case is this?")
        return decision.pick is None and not decision.left_out and nothing.seen == min(count, DESCRIBED)

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
        **_more_questions(store, count, i),
    }


def _more_questions(store: BlockStore, count: int, i: int) -> dict[str, Callable[[], bool]]:
    """Those that change the store leave it as it was."""
    os.fsync = lambda fd: None
    prefix, numbers = block(None, -1)[0], itertools.count(count)
    fingerprint_id = prefix.fingerprint.id
    middle = named(block(prefix, i)[0], i, None)

    def page() -> bool:
        found = store.names("skill", fingerprint_id, after=middle, limit=_PAGE)
        return [named.name for named in found] == [name_of(n) for n in range(i + 1, min(count, i + 1 + _PAGE))]

    def rebuild() -> bool:
        store.files.index.discard()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AgentKVWarning)
            return len(store.names(limit=1)) == 1

    return {
        "page": page,
        "deposit": lambda: store.has(deposit(store, prefix, next(numbers)).block_id),
        "evict": lambda: len(store.evict(stored_bytes(store.files) - 1).victims) == 1,
        "gc": lambda: store.collect().segments == 0,
        "check": lambda: not store.check(deep=False).findings,
        "rebuild": rebuild,
    }


measured.measured(Catalogue.name, 1)(Catalogue.figures)  # of version 1, without what came later
