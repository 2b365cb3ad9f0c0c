"""Many processes on one store: writers of overlapping texts, readers, a collector, a remover and a checker.

Every process is an ordinary user of the SDK on the fake engine; fsync is real here. What readers see is compared with a
computation of their own, what stays with a store that one process filled alone.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench.base import Row
from agentkv.bench.integrity.material import bytes_of, files_of, needed
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.fake import FakeEngine
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import GuaranteeViolated, UnknownBlock
from agentkv.io.hashing import block_id, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.records import Exactness, Manifest
from agentkv.store.catalog import BlockStore
from agentkv.store.check import check as check_store

PREFIXES = ("You are the first agent. ", "You are the second agent, and a slightly longer one. ")
QUESTION = "What does it say?"
_WINDOW = 1024
_NAMES = 6
_LONG = 10**12
_STARVED_S = 30.0


@dataclass(frozen=True)
class Plan:
    """How many processes of each kind, and what the writers write."""

    writers: int = 8
    deposits: int = 50
    texts: int = 40
    readers: int = 4


SMALL = Plan(writers=2, deposits=8, texts=6, readers=1)


def run(folder: Path, plan: Plan) -> dict[str, Any]:
    """Start everybody at once, wait for the writers, look at what is there."""
    root, signals = folder / "store", folder / "signals"
    signals.mkdir(parents=True)
    expected = _fill_alone(folder / "alone", plan)
    _start(root)
    jobs = [("write", seed) for seed in range(plan.writers)] + [("read", seed) for seed in range(plan.readers)]
    jobs += [("collect", 0), ("remove", 0), ("check", 0)]
    with ThreadPoolExecutor(len(jobs)) as threads:
        common = {"root": str(root), "signals": str(signals), "of": len(jobs), **vars(plan)}
        futures = [threads.submit(_job, {**common, "role": role, "seed": seed}) for role, seed in jobs]
        writers = futures[: plan.writers]
        try:
            started = time.monotonic()
            reports = [future.result() for future in writers]
        finally:
            (signals / "stop").touch()
        reports += [future.result() for future in futures[plan.writers :]]
    say(f"concurrency: {len(jobs)} processes, {time.monotonic() - started:.1f} s")
    return _judge(root, expected, plan, reports)


class Together(Row):
    """What came of it; a count of each kind of what must not be."""

    processes: int
    writers: int
    deposits: int
    blocks: int
    rounds: dict[str, int]
    misses: int
    longest_ms: dict[str, float]
    collected_segments: int
    errors: int
    temporaries: int
    leftovers: int
    wrong_names: int
    missing: int
    unexpected: int
    examples: dict[str, list[str]]


def check(result: Together) -> None:
    """Raise GuaranteeViolated unless there was no error, nothing is missing or left, and everybody got their turn."""
    for kind in ("errors", "missing", "unexpected", "temporaries", "leftovers", "wrong_names"):
        if getattr(result, kind):
            raise GuaranteeViolated(f"concurrency: {kind}: {result.examples[kind]}")
    for role in ("read", "collect", "remove", "check"):
        if not result.rounds[role]:
            raise GuaranteeViolated(f"concurrency: {role} never got its turn")
    slow = {role: ms for role, ms in result.longest_ms.items() if ms > _STARVED_S * 1e3}
    if slow:
        raise GuaranteeViolated(f"concurrency: somebody waited for {_STARVED_S:.0f} s or more: {slow}")


def text(number: int) -> str:
    """One of the texts; 100 to 400 tokens."""
    return f"Text number {number}: the value is {number * 37 % 1000}. " * (3 + number % 8)


def _name(prefix: int, number: int) -> str:
    return f"agent {prefix}, topic {number % _NAMES}"


def _memory(store: BlockStore, engine: FakeEngine, prefix: int) -> AgentMemory:
    return AgentMemory(store, engine, prefix=PREFIXES[prefix])


def _start(root: Path) -> None:
    """What is there from the beginning, so that readers have something to read."""
    with BlockStore(root) as store:
        engine = FakeEngine(window=_WINDOW)
        for prefix in range(len(PREFIXES)):
            _memory(store, engine, prefix).deposit_text(_name(prefix, 0), text(0))


def _fill_alone(root: Path, plan: Plan) -> dict[str, bytes]:
    """Blocks and texts that must be there in the end, from one process that does everything in turn."""
    with BlockStore(root) as store:
        engine = FakeEngine(window=_WINDOW)
        for prefix in range(len(PREFIXES)):
            memory = _memory(store, engine, prefix)
            for number in _numbers(plan):
                memory.deposit_text(_name(prefix, number), text(number))
        for number in range(_NAMES):
            _put_twin(store, engine, number)
        return {name: data for name, data in bytes_of(root).items() if name.startswith(("manifests/", "segments/"))}


def _numbers(plan: Plan) -> list[int]:
    drawn = {number for seed in range(plan.writers) for _, number in _draws(seed, plan.deposits, plan.texts)}
    return sorted(drawn | {0})


def _draws(seed: int, deposits: int, texts: int) -> list[tuple[int, int]]:
    """(prefix, text) of each of a writer's deposits. Both prefixes get every text that any gets."""
    rng = random.Random(seed)
    drawn = [rng.randrange(texts) for _ in range((deposits + 1) // 2)]
    return [(prefix, number) for number in drawn for prefix in range(len(PREFIXES))][:deposits]


def _judge(root: Path, expected: dict[str, bytes], plan: Plan, reports: list[dict[str, Any]]) -> dict[str, Any]:
    bad: dict[str, list[str]] = {"errors": [error for report in reports for error in report["errors"]]}
    bad["temporaries"] = [name for name in files_of(root) if name.startswith("tmp/") or name.endswith(".tmp")]
    with BlockStore(root, create=False) as store:
        for found in store.block_ids():
            store.verify(found)
        store.collect()
        bad["leftovers"] = sorted(files_of(root) - needed(store))
        report = check_store(store.files)
        bad["errors"] += [f"check in the end: {finding}" for finding in report.findings]
        engine = FakeEngine(window=_WINDOW)
        allowed = _blocks_by_name(store, engine, plan)
        names = {named.name: named.block_id for named in store.names()}
    bad["wrong_names"] = [name for name, found in names.items() if found not in allowed.get(name, ())]
    bad["wrong_names"] += sorted(allowed.keys() - names.keys())
    there = {name: data for name, data in bytes_of(root).items() if name.startswith(("manifests/", "segments/"))}
    bad["missing"] = sorted(name for name, data in expected.items() if there.get(name) != data)
    bad["unexpected"] = sorted(there.keys() - expected.keys())
    roles = {role: [report for report in reports if report["role"] == role] for role in _ROLES}
    return {
        "processes": len(reports),
        "writers": plan.writers,
        "deposits": plan.writers * plan.deposits,
        "blocks": sum(name.startswith("manifests/") for name in there),
        "rounds": {role: sum(report["rounds"] for report in of) for role, of in roles.items()},
        "misses": sum(report["misses"] for report in reports),
        "longest_ms": {role: max(report["longest_ms"] for report in of) for role, of in roles.items()},
        "collected_segments": sum(report["collected"] for report in reports),
        **{kind: len(found) for kind, found in bad.items()},
        "examples": {kind: found[:5] for kind, found in bad.items() if found},
    }


def _blocks_by_name(store: BlockStore, engine: FakeEngine, plan: Plan) -> dict[str, set[str]]:
    allowed: dict[str, set[str]] = {}
    for prefix in range(len(PREFIXES)):
        memory = _memory(store, engine, prefix)
        for number in _numbers(plan):
            allowed.setdefault(_name(prefix, number), set()).add(_block_of(memory, text(number)))
    return allowed


def _block_of(memory: AgentMemory, body: str) -> str:
    prompt = PromptBuilder(memory.engine).build(memory.prefix, body + "\n", [Message("user", "?")])
    return memory.blocks.id_of(prompt.manual, memory.blocks.id_of(prompt.prefix))


# --- one process ----------------------------------------------------------------------------------


def _job(payload: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = in_new_process(f"{__name__}:work", payload)
    return result


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """Entry point of every process: its role until the writers are done, with times and errors."""
    role = _ROLES[payload["role"]](payload)
    signals = Path(payload["signals"])
    (signals / f"{payload['role']}-{payload['seed']}").touch()
    while len(list(signals.iterdir())) < payload["of"]:
        time.sleep(0.01)
    report: dict[str, Any] = {"role": payload["role"], "rounds": 0, "misses": 0, "collected": 0, "errors": []}
    longest = 0.0
    while not role.is_done(report["rounds"], (signals / "stop").exists()):
        start = time.monotonic()
        try:
            role.step(report["rounds"])
        except UnknownBlock as error:
            if role.may_miss:
                report["misses"] += 1
            else:
                report["errors"].append(f"{payload['role']}: {error!r}")
        except Exception as error:  # noqa: BLE001 - whatever comes is an error to be reported
            report["errors"].append(f"{payload['role']}: {error!r}")
        longest = max(longest, time.monotonic() - start)
        report["rounds"] += 1
        if len(report["errors"]) > 10:
            break
    role.end()
    return {**report, "collected": role.collected, "longest_ms": longest * 1e3}


class _Role(ABC):
    """Something done again and again. ``may_miss``: a block may be gone before it is read."""

    may_miss = False
    pause_s = 0.0

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload, self.collected = payload, 0
        self.rng = random.Random(f"{payload['role']} {payload['seed']}")
        self.store = BlockStore(payload["root"], create=False, cache_bytes=0, verify="always")
        self.engine = FakeEngine(window=_WINDOW)

    def is_done(self, rounds: int, stopped: bool) -> bool:
        time.sleep(self.pause_s)
        return stopped and rounds > 0

    @abstractmethod
    def step(self, number: int) -> None: ...

    def end(self) -> None:
        self.store.close()


class _Writer(_Role):
    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload)
        self.memories = [_memory(self.store, self.engine, prefix) for prefix in range(len(PREFIXES))]
        self.draws = _draws(payload["seed"], payload["deposits"], payload["texts"])

    def is_done(self, rounds: int, stopped: bool) -> bool:
        return rounds >= len(self.draws)

    def step(self, number: int) -> None:
        prefix, drawn = self.draws[number]
        self.memories[prefix].deposit_text(_name(prefix, drawn), text(drawn))


class _Reader(_Role):
    may_miss = True

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload)
        self.memories = [_memory(self.store, self.engine, prefix) for prefix in range(len(PREFIXES))]
        self.alone = FakeEngine(window=_WINDOW)
        self.first_logits: dict[str, str] = {}

    def step(self, number: int) -> None:
        self._read_any()
        prefix = number % len(PREFIXES)
        memory = self.memories[prefix]
        names = [named.name for named in memory.names() if named.name.startswith(f"agent {prefix}")]
        turn = memory.ask(QUESTION, skill=self.rng.choice(names), max_new=2)
        if turn.block_id is None or turn.not_restored is not None:
            raise AssertionError(f"not restored: {turn.not_restored}")
        if turn.first_logits_sha256 != self._cold(memory, turn.block_id):
            raise AssertionError(f"block {turn.block_id[:12]} restored, but the logits are others")

    def _read_any(self) -> None:
        """Any block: every byte of its state."""
        found = self.rng.choice(list(self.store.block_ids()))
        manifest = self.store.manifest(found)
        if manifest is None:
            raise UnknownBlock(found)
        assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
        self.store.read(manifest, assembly.place, deep=True)
        if sha256(assembly.blob.data) != manifest.state_sha256:
            raise AssertionError(f"block {found[:12]}: the state's bytes are others")

    def _cold(self, memory: AgentMemory, found: str) -> str:
        if found not in self.first_logits:
            manifest = self.store.manifest(found)
            if manifest is None:
                raise UnknownBlock(found)
            self.alone.clear()
            for link in memory.blocks.chain(manifest):
                self.alone.extend(link.tokens)
            turn = memory.prompt([Message("user", QUESTION)], None).turn
            self.first_logits[found] = sha256(self.alone.extend(turn).data)
        return self.first_logits[found]


class _Collector(_Role):
    pause_s = 0.02

    def step(self, number: int) -> None:
        self.collected += self.store.collect().segments
        self.store.evict(_LONG, dry_run=True)


class _Remover(_Role):
    """Puts blocks whose segments are those of the writers' blocks, and takes them away again."""

    def step(self, number: int) -> None:
        twin = _put_twin(self.store, self.engine, self.rng.randrange(_NAMES))
        self.store.pin(twin.block_id)
        self.store.remove_block(twin.block_id)

    def end(self) -> None:
        for number in range(_NAMES):
            _put_twin(self.store, self.engine, number)
        super().end()


class _Checker(_Role):
    pause_s = 0.02

    def step(self, number: int) -> None:
        report = check_store(self.store.files)
        if report.damage:
            raise AssertionError(f"check: {report.damage[0]}")


_ROLES: dict[str, Callable[[dict[str, Any]], _Role]] = {
    "write": _Writer,
    "read": _Reader,
    "collect": _Collector,
    "remove": _Remover,
    "check": _Checker,
}


def _put_twin(store: BlockStore, engine: FakeEngine, number: int) -> Manifest:
    """A block of other tokens with the very state of a text's block: the two share every segment."""
    blocks = Blocks(engine, store)
    prompt = PromptBuilder(engine).build(PREFIXES[0], text(number) + "\n", [Message("user", "?")])
    parts = [prompt.prefix, prompt.manual]
    engine.clear()
    for part in parts:
        engine.extend(part)
    state = engine.capture()
    n_tokens, seam = len(state.tokens), len(prompt.prefix)
    segments = blobs.cut(state.blob, state.layout, n_tokens, [(0, seam), *blobs.cuts(seam, n_tokens)])
    tokens = tuple(reversed(state.tokens))
    manifest = Manifest(
        block_id=block_id(blocks.fingerprint.id, None, tokens),
        parent_id=None,
        fingerprint=blocks.fingerprint,
        tokens=tokens,
        n_tokens=n_tokens,
        layout=state.layout,
        segments=tuple(ref for ref, _ in segments),
        state_sha256=sha256(state.blob.data),
        exactness=Exactness.EXACT,
        probe=None,
    )
    store.put(manifest, {ref.sha256: raw for ref, raw in segments})
    return manifest
