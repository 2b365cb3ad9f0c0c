"""Bits flipped, files cut, lengthened and swapped: all refused, with the right error, before the engine hears of it.

One store with every kind of file. Each damage is done to it, a reader of the file asked, and then, in the same process
and on the same engine, another question: its logits must be what they were. ``agentkv-uses.sqlite`` is left out: it
holds counts that may be lost, and is thrown away when damaged.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.bench.base import Row
from agentkv.bench.integrity.material import Findings, bytes_of, counts
from agentkv.bench.results import say
from agentkv.engine.base import Cancellation, Logits, State
from agentkv.engine.fake import FakeEngine
from agentkv.engine.prompt import Message
from agentkv.errors import (
    AgentKVError,
    CorruptBlock,
    GuaranteeViolated,
    MissingSegment,
    StoreFormatError,
    StoreUnusable,
)
from agentkv.io.hashing import sha256
from agentkv.memory.memory import AgentMemory
from agentkv.notices import AgentKVWarning
from agentkv.records import Import
from agentkv.store.catalog import BlockStore
from agentkv.store.format import HEADER_BYTES, HEADER_FIELDS, TRAILER_BYTES
from agentkv.store.marker import MARKER, marker_fault

PREFIX = "You answer from the manual below. "
QUESTION = "What is the value?"
_WINDOW = 1024
_SKILLS = {"planes": "first", "zstd": "second", "raw": "third"}
_WIDTHS = {"H": 2, "B": 1, "I": 4, "Q": 8}


@dataclass(frozen=True)
class Plan:
    """How many places and lengths are drawn at random, and which share of the others is tried: each ``every``-th."""

    flips: int = 2000
    cuts: int = 200
    every: int = 1


SMALL = Plan(flips=30, cuts=10, every=14)


class CountingEngine(FakeEngine):
    """Counts the calls that a native engine would carry out on what it is given."""

    calls = 0

    def restore(self, state: State) -> None:
        self.calls += 1
        super().restore(state)

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        self.calls += 1
        return super().extend(tokens, cancellation)


@dataclass(frozen=True)
class Region:
    """A named range of a file's bytes."""

    name: str
    start: int
    stop: int


def regions(name: str, data: bytes) -> list[Region]:
    """The parts of a file of the store, in order and without a gap."""
    if name.endswith(".seg"):
        found, at = [], 0
        for field_name, kind in HEADER_FIELDS:
            width = _WIDTHS.get(kind) or int(kind.removesuffix("s"))
            found.append(Region(f"header: {field_name}", at, at + width))
            at += width
        payload = Region("payload", HEADER_BYTES, len(data) - TRAILER_BYTES)
        trailer = Region("trailer", payload.stop, len(data))
        return [*found, *([payload] if payload.start < payload.stop else []), trailer]  # zeros have no payload
    line = data.find(b"\n")
    if line < 0 or line == len(data) - 1:
        return [Region("marker", 0, len(data))]
    digest = line - 64
    return [
        Region("seal: format word", 0, digest - 3),
        Region("seal: version", digest - 3, digest),
        Region("seal: digest", digest, line),
        Region("seal: newline", line, line + 1),
        Region("body", line + 1, len(data)),
    ]


def kind_of(name: str) -> str:
    """``segment``, ``manifest``, ``name``, …"""
    folder = name.split("/")[0]
    return {"agentkv-store.json": "marker", "agentkv-settings.json": "settings"}.get(folder, folder.removesuffix("s"))


@dataclass
class _Tally(Findings):
    """What came of one case: the error that refused it, if one did; the lists hold only what must not be."""

    refused: str | None = None
    accepted: list[str] = field(default_factory=list)
    wrong_error: list[str] = field(default_factory=list)
    engine_called: list[str] = field(default_factory=list)
    other_answers: list[str] = field(default_factory=list)


KINDS = ("accepted", "wrong_error", "engine_called", "other_answers")


class DamageRow(Row):
    """A kind of damage: by which error it was refused, and how often what must not be was."""

    cases: int
    refused: dict[str, int]
    by_kind: dict[str, int]
    accepted: int
    wrong_error: int
    engine_called: int
    other_answers: int
    examples: dict[str, list[str]]


class Damages(Row):
    """``files``: how many of each kind; a row a kind of damage."""

    files: dict[str, int]
    damages: dict[str, DamageRow]


def figures(record: dict[str, Any]) -> Damages:
    """From ``files`` as [kind, name] and a damage's cases as [number of the file, what was done, the error, wrong]."""
    kinds = [kind for kind, _ in record["files"]]
    damages = {}
    for damage in record["damages"]:
        cases = damage["cases"]
        damages[damage["what"]] = DamageRow(
            cases=len(cases),
            refused=dict(Counter(refused for _, _, refused, _ in cases if refused is not None)),
            by_kind=dict(Counter(kinds[number] for number, *_ in cases)),
            **counts(KINDS, [wrong for *_, wrong in cases], 5),
        )
    return Damages(files=dict(Counter(kinds)), damages=damages)


def cases(folder: Path, plan: Plan, seed: int = 1) -> dict[str, Any]:
    """Every damage of the plan, as a raw record: of each case the file, the damage, the refusal, and what was wrong."""
    bench = _Bench(folder)
    rng = random.Random(seed)
    damages: dict[str, Iterator[tuple[str, str, dict[str, bytes]]]] = {
        "a flip in each region": bench.flips_by_region(rng),
        "flips at random": bench.flips_at_random(rng, plan.flips),
        "cut at each boundary": bench.cuts_at_boundaries(),
        "cut at random": bench.cuts_at_random(rng, plan.cuts),
        "one byte more": bench.appended(),
        "two files swapped": bench.swapped(),
        "a file gone": bench.gone(),
    }
    numbers = {name: number for number, name in enumerate(bench.files)}
    raw: dict[str, Any] = {"files": [[kind_of(name), name] for name in bench.files], "damages": []}
    for what, tried in damages.items():
        seen: list[list[Any]] = []
        raw["damages"].append({"what": what, "cases": seen})
        every = 1 if "random" in what else plan.every
        for name, case, changed in itertools.islice(tried, 0, None, every):
            tally = bench.try_one(name, case, changed)
            seen.append([numbers[name], case.removeprefix(name).lstrip(": "), tally.refused, tally.wrong])
        refused = sum(one is not None for _, _, one, _ in seen)
        say(f"corruption: {what}, {len(seen)} cases, {refused} refused")
    return raw


def check(result: Damages) -> None:
    """Raise GuaranteeViolated unless everything was refused, rightly, and left no trace in the running process."""
    for what, row in result.damages.items():
        for kind in KINDS:
            if getattr(row, kind):
                raise GuaranteeViolated(f"{what}: {kind}: {row.examples[kind]}")
        if not row.cases:
            raise GuaranteeViolated(f"{what}: nothing was tried")


class _Bench:
    """The store, the engine that lives through everything, and who reads each file."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "store"
        self.engine = CountingEngine(window=_WINDOW)
        folder.mkdir(parents=True, exist_ok=True)
        self.blocks: dict[str, str] = {}
        self.tokens: list[int] = []
        for codec, name in _SKILLS.items():  # the prefix, and what is first written, in planes
            with BlockStore(self.root, codec=codec, cache_bytes=0) as store:
                memory = AgentMemory(store, self.engine, prefix=PREFIX)
                body = f"Manual {name}: the value is {len(name) * 7}. " * 3
                self.blocks[name] = memory.deposit_text(name, body, f"About {name}.").manifest.block_id
        with BlockStore(self.root, cache_bytes=0) as store:
            store.pin(self.blocks["first"])
            store.set_budget(10**9)
            store.set_import(
                Import(block_id=self.blocks["second"], pack_sha256="ab" * 32, signed_by=None, decision="unsigned")
            )
            store.collect()
            self.files = bytes_of(self.root)
            self.readers = {name: self._reader(store, name) for name in self.files}
        self.answer = self._ask()

    # --- damages: the file, what is done, and the new bytes of each file that changes ---

    def flips_by_region(self, rng: random.Random) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        for name, data in self.files.items():
            for region in regions(name, data):
                for at in {region.start, rng.randrange(region.start, region.stop), region.stop - 1}:
                    yield self._flip(name, at, rng.randrange(8), region.name)

    def flips_at_random(self, rng: random.Random, count: int) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        names = list(self.files)
        # Every file alike, whatever its size: else nearly all places would be in manifests.
        for name in (names[rng.randrange(len(names))] for _ in range(count)):
            yield self._flip(name, rng.randrange(len(self.files[name])), rng.randrange(8), "random")

    def _flip(self, name: str, at: int, bit: int, where: str) -> tuple[str, str, dict[str, bytes]]:
        data = self.files[name]
        changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        return name, f"{name}: bit {bit} of byte {at} ({where})", {name: changed}

    def cuts_at_boundaries(self) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        for name, data in self.files.items():
            for length in sorted({region.start for region in regions(name, data)} | {len(data) - 1}):
                yield self._cut(name, length)

    def cuts_at_random(self, rng: random.Random, count: int) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        names = list(self.files)
        for name in (names[rng.randrange(len(names))] for _ in range(count)):
            yield self._cut(name, rng.randrange(len(self.files[name])))

    def _cut(self, name: str, length: int) -> tuple[str, str, dict[str, bytes]]:
        return name, f"{name}: cut to {length} of {len(self.files[name])}", {name: self.files[name][:length]}

    def appended(self) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        for name, data in self.files.items():
            for byte in (b"\x00", b"\n", data[-1:]):
                yield name, f"{name}: {byte!r} appended", {name: data + byte}

    def swapped(self) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        names = list(self.files)
        for index, name in enumerate(names):
            for other in names[index + 1 :]:
                if self.files[name] != self.files[other] and kind_of(name) == kind_of(other):
                    yield name, f"{name} ↔ {other}", {name: self.files[other], other: self.files[name]}

    def gone(self) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        for name in self.files:
            if kind_of(name) == "segment":  # any other file that is gone was never there
                yield name, f"{name}: gone", {name: b""}

    # --- one case ---

    def try_one(self, name: str, case: str, changed: dict[str, bytes]) -> _Tally:
        tally = _Tally()
        for path, data in changed.items():
            (self.root / path).unlink()  # a new file: ext4 flushes one that is cut and written again
            if not case.endswith("gone"):
                (self.root / path).write_bytes(data)
        self.engine.calls = 0
        try:
            self.readers[name]()
        except AgentKVError as error:
            tally.refused = type(error).__name__
            if not isinstance(error, self._expected(name, case)):
                tally.wrong_error.append(f"{case}: {error!r}")
        except Exception as error:  # noqa: BLE001 - an error of another kind is a finding
            tally.wrong_error.append(f"{case}: {error!r}")
        else:
            tally.accepted.append(case)
        if self.engine.calls:
            tally.engine_called.append(f"{case}: {self.engine.calls} calls")
        if kind_of(name) != "marker" and self._ask(graft=False) != self.answer:
            tally.other_answers.append(f"{case}: prefilled again")
        for path in changed:
            (self.root / path).unlink(missing_ok=True)
            (self.root / path).write_bytes(self.files[path])
        if self._ask() != self.answer:
            tally.other_answers.append(f"{case}: after mending")
        return tally

    def _expected(self, name: str, case: str) -> tuple[type[AgentKVError], ...]:
        if kind_of(name) == "marker":
            return CorruptBlock, StoreFormatError, StoreUnusable
        return (MissingSegment,) if case.endswith("gone") else (CorruptBlock,)

    def _ask(self, graft: bool = True) -> str:
        """The logits of an answer in the running process. Without a graft the store's blocks are not touched."""
        if not graft:
            self.engine.clear()
            first = FakeEngine.extend(self.engine, self.tokens)
            digest = sha256(first.data)
            self.engine.clear()
            return digest
        with BlockStore(self.root, create=False, cache_bytes=0) as store:
            memory = AgentMemory(store, self.engine, prefix=PREFIX)
            turn = memory.ask(QUESTION, skill="first", max_new=1)
            if turn.not_restored is not None:
                return f"not restored: {turn.not_restored}"
            prompt = memory.prompt([Message("user", QUESTION)], "first")
            self.tokens = [*prompt.prefix, *prompt.manual, *prompt.turn]
            return turn.first_logits_sha256

    # --- who reads a file ---

    def _reader(self, store: BlockStore, name: str) -> Callable[[], object]:
        kind, digest = kind_of(name), Path(name).stem
        if kind == "segment":
            users = [block for block in store.block_ids() if digest in _digests(store, block)]
            return self._graft(users[0])
        if kind == "manifest":
            return self._graft(digest)
        reads: dict[str, Callable[[BlockStore], object]] = {
            "name": lambda opened: opened.files.names.read(digest),
            "text": lambda opened: opened.text(digest),
            "pin": lambda opened: opened.files.pins.read(digest),
            "import": lambda opened: opened.imported(digest),
            "selftest": lambda opened: _known(opened.selftest(digest), opened.root / name),
            "settings": lambda opened: opened.files.read_settings(),
            "marker": lambda opened: _marked(opened.root),
            "model": lambda opened: opened.files.models.read(digest),
        }
        return self._opened(reads[kind])

    def _opened(self, read: Callable[[BlockStore], object]) -> Callable[[], object]:
        def run() -> object:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AgentKVWarning)  # of a marker that is passed over
                with BlockStore(self.root, create=False, cache_bytes=0) as store:
                    return read(store)

        return run

    def _graft(self, block_id: str) -> Callable[[], object]:
        """Restores the block, or raises; a turn would read its tokens instead."""

        def graft(store: BlockStore) -> object:
            memory = AgentMemory(store, self.engine, prefix=PREFIX)
            manifest = store.manifest(block_id)
            if manifest is not None:
                memory.blocks.graft(manifest)
            return manifest

        return self._opened(graft)


def _digests(store: BlockStore, block_id: str) -> set[str]:
    manifest = store.manifest(block_id)
    return {ref.sha256 for ref in manifest.segments} if manifest else set()


def _marked(root: Path) -> None:
    """A damaged marker is passed over where the records around it are a store's; `check` finds it."""
    reason = marker_fault(root)
    if reason is not None:
        raise CorruptBlock("the marker", root / MARKER, reason)


def _known(found: object, path: Path) -> object:
    """A damaged self-test counts as none and is made again, which is as good as refused."""
    if found is None:
        raise CorruptBlock("self-test", path, "it counts as none")
    return found
