"""``migration``: a store moves to another fingerprint, killed again and again on the way: is all there, as it was?

A store is filled with skills, threads and documents under one fingerprint, and migrated to another (flash attention,
off and on) by processes that get SIGKILL at random moments; the last one is left to finish. After each kill no block of
the first fingerprint may be missing. At the end a question is asked of each skill, each thread and the documents, three
times: before the migration; after it, from the states that it made; and by a cold prefill under the new fingerprint.

What must hold: every skill, thread, turn and chunk is there, each state is restored and gives the logits of the cold
prefill, bit for bit, and a second migration finds nothing to do. Answers before and after may differ, since the other
setting computes other bits; how many are the same is reported. Not shown: power failures (``agentkv bench integrity``).
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.bench.base import Benchmark, Column, ModelSettings, Row, Table, interval, option, records, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.bench.texts import manual_texts
from agentkv.errors import GuaranteeViolated
from agentkv.figures import share, spread
from agentkv.io.hashing import sha256
from tests.benchmarks.killing import begin, run_or_kill

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory
    from agentkv.records import Manifest, Turn

FAKE = "fake"
"""The engine without a model: many more moments a minute, the same code around it."""
_TRIED = 50
_MOST_RUNS = 4
"""A kill that comes too late is tried again, at most so many times the kills asked for."""


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``model`` may be ``fake``."""

    skills: int = option(20, "Skills in the store.", metavar="N", least=1, small=4)
    conversations: int = option(3, "Threads in the store, of two turns each.", metavar="N", least=1, small=1)
    chunks: int = option(200, "Chunks of documents in the store.", metavar="N", least=1, small=12)
    kills: int = option(10, "How often the migration is killed.", metavar="N", least=1, small=2)
    seed: int = option(21, "Which random moments.", metavar="N")
    small: bool = small_option()


class Asked(Row):
    """The raw record of one question; the texts of the answers and SHA-256 of all logits.

    ``restored``: tokens that came from a stored state after the migration.
    """

    before: str
    after: str
    cold: str
    after_sha256: str
    cold_sha256: str
    restored: int


class Kill(Row):
    """The raw record of one kill: when, the blocks that were new by then, and those of before that were gone."""

    delay_s: float
    new_blocks: int
    lost: list[str]


class Kept(Row):
    """The raw record of what was there, before and after: skills, turns of each thread, stored chunks.

    ``equal``: of ``tried`` chunks, those whose stored state has the bytes that a cold prefill gives.
    """

    skills: int
    turns: list[int]
    chunks: int
    tried: int
    equal: int


class Figures(Row):
    """What was killed, what is there, and how the answers compare."""

    kills: int
    kills_wanted: int
    delay_s: dict[str, int | float]
    new_blocks: dict[str, int | float]
    lost_after_a_kill: int
    before: Kept
    after: Kept
    left_to_do: int
    damage: int
    identical: dict[str, Any]
    same_answer: dict[str, Any]

    @classmethod
    def in_(cls, result: Mapping[str, Any]) -> Figures:
        """Of a whole result."""
        return cls.model_validate({name: result[name] for name in cls.model_fields})

    def held(self) -> str:
        """What is there after the migration, of what was there before."""
        turns = f"{sum(self.after.turns)}/{sum(self.before.turns)} turns of {len(self.before.turns)} threads"
        chunks = f"{min(self.after.chunks, self.before.chunks)}/{self.before.chunks} chunks"
        return f"{self.after.skills}/{self.before.skills} skills, {turns}, {chunks}"


class Migration(Benchmark[Settings]):
    """A store migrated to another fingerprint, killed on the way: nothing lost, every state as a cold prefill?"""

    name = "migration"
    tables = (
        Table(
            lambda result: [Figures.in_(result)],
            (
                Column[Figures]("SIGKILLs that landed", lambda row: f"{row.kills} of {row.kills_wanted}"),
                Column("blocks lost at one", lambda row: f"{row.lost_after_a_kill}"),
                Column("there after, of before", Figures.held),
                Column("restored = cold prefill (ids and logits)", lambda row: interval(row.identical)),
                Column("the answer of before", lambda row: interval(row.same_answer)),
            ),
            name="migration",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        with tempfile.TemporaryDirectory(prefix="agentkv-migration-") as temporary:
            amounts = {"skills": asked.skills, "conversations": asked.conversations, "chunks": asked.chunks}
            work = {"model": asked.model, "threads": asked.threads, "folder": temporary, **amounts}
            filled = in_new_process(f"{__name__}:fill", work)
            kept, seconds = filled["kept"], filled["seconds"]
            say(f"filled: {kept['skills']} skills, {kept['chunks']} chunks, {seconds:.0f} s")
            raw = _killed(work, filled, asked.kills, random.Random(asked.seed))
            after = in_new_process(f"{__name__}:look", work)
        raw |= {"before": filled["kept"], "after": after["kept"], "wanted": {"kills": asked.kills}}
        raw["end"] = {"left_to_do": after["left_to_do"], "damage": after["damage"]}
        for name, answer in filled["answers"].items():
            raw[f"asked/{name}"] = {"before": answer, **after["answers"][name]}
        return self.result(
            raw,
            model=asked.model,
            model_sha256=after["model_sha256"],
            inputs=[filled["texts"], asked.seed],
            settings={**amounts, "kills": asked.kills, "seed": asked.seed, "threads": asked.threads},
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """See :class:`Figures`."""
        asked, kills = records(Asked, raw, "asked/"), records(Kill, raw, "kill/")
        same = [(one.after, one.after_sha256) == (one.cold, one.cold_sha256) and one.restored > 0 for one in asked]
        return Figures(
            kills=len(kills),
            kills_wanted=raw["wanted"]["kills"],
            delay_s=spread([kill.delay_s for kill in kills]),
            new_blocks=spread([kill.new_blocks for kill in kills]),
            lost_after_a_kill=sum(len(kill.lost) for kill in kills),
            before=Kept.model_validate(raw["before"]),
            after=Kept.model_validate(raw["after"]),
            left_to_do=raw["end"]["left_to_do"],
            damage=len(raw["end"]["damage"]),
            identical=share(sum(same), len(same)),
            same_answer=share(sum(one.before == one.after for one in asked), len(asked)),
        ).model_dump()

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Nothing is lost, and what was migrated restores as it was prefilled."""
        row = Figures.in_(result)
        if row.lost_after_a_kill or row.damage:
            raise GuaranteeViolated(f"{row.lost_after_a_kill} blocks lost after kills, {row.damage} damaged")
        if row.kills < row.kills_wanted:
            raise GuaranteeViolated(f"only {row.kills} of {row.kills_wanted} kills landed in the migration")
        is_there = (row.after.skills, row.after.turns) == (row.before.skills, row.before.turns)
        if not is_there or row.after.chunks < row.before.chunks or row.left_to_do:
            raise GuaranteeViolated(f"not all is there after the migration: {row.held()}, {row.left_to_do} left to do")
        if row.after.equal != row.after.tried:
            raise GuaranteeViolated(f"{row.after.tried - row.after.equal} chunks differ from a cold prefill")
        if row.identical["k"] != row.identical["n"]:
            raise GuaranteeViolated(f"only {interval(row.identical)} answers are those of a cold prefill")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """When the kills came."""
        row = Figures.in_(result)
        yield (
            f"killed {row.delay_s['min']:.1f} to {row.delay_s['max']:.1f} s after a start, with "
            f"{row.new_blocks['min']:.0f} to {row.new_blocks['max']:.0f} new blocks in the store"
        )


# --- here: killing --------------------------------------------------------------------------------


def _killed(work: dict[str, Any], filled: dict[str, Any], kills: int, chance: random.Random) -> dict[str, Any]:
    """Migrate: ``kills`` processes are killed, each after up to an ``kills``-th of the filling's time, one finishes."""
    raw: dict[str, Any] = {}
    old = set(filled["blocks"])
    most = filled["seconds"] / kills
    for _ in range(_MOST_RUNS * kills):
        if len(raw) == kills:
            break
        delay = chance.uniform(most / 4, most)
        if _migrate(work, delay):
            break  # it came to its end before its time
        blocks = set(in_new_process(f"{__name__}:blocks", work))
        raw[f"kill/{len(raw)}"] = {"delay_s": delay, "new_blocks": len(blocks - old), "lost": sorted(old - blocks)}
        say(f"kill {len(raw)} of {kills}: {len(blocks - old)} new blocks")
    _migrate(work, None)
    return raw


def _migrate(work: dict[str, Any], delay: float | None) -> bool:
    """Let another process migrate; False if it was killed ``delay`` seconds after its engine was open."""
    return run_or_kill(f"{__name__}:move", work, delay) is not None


# --- there: a process with the engine -----------------------------------------------------------------


def _memory(work: dict[str, Any], *, flash: bool) -> AgentMemory:
    from agentkv.engine.fake import FakeEngine, quote
    from agentkv.engine.settings import EngineSettings
    from agentkv.memory.memory import AgentMemory

    store = Path(work["folder"]) / "store"
    if work["model"] == FAKE:
        settings = EngineSettings(flash_attention=flash)
        return AgentMemory(store, FakeEngine(window=1 << 14, settings=settings, replies=quote))
    return AgentMemory(store, work["model"], window=4096, threads=work["threads"], flash_attention=flash)


def _texts(work: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Of each skill and of four documents; real text, and in each skill a value that is nowhere else."""
    paragraphs = [part.strip() for text in manual_texts() for part in text.split("\n\n") if len(part) > 80]
    skills = [
        f"Tariff {n} costs {n * 7 + 11} euros.\n\n{paragraphs[n % len(paragraphs)]}" for n in range(work["skills"])
    ]
    rules = [
        f"Rule {n} of the house allows {n + 3} guests in room {n} until {n % 12 + 1} o'clock."
        for n in range(work["chunks"])
    ]
    return skills, [
        "\n\n".join(f"{rule} {paragraphs[n % len(paragraphs)]}" for n, rule in enumerate(rules) if n % 4 == part)
        for part in range(4)
    ]


def fill(work: dict[str, Any]) -> dict[str, Any]:
    """Make the store, under the first fingerprint, and ask."""
    from agentkv.documents import Corpus

    skills, documents = _texts(work)
    folder = Path(work["folder"]) / "documents"
    folder.mkdir()
    for number, text in enumerate(documents):
        (folder / f"part-{number}.md").write_text(text, encoding="utf-8")
    start = time.perf_counter()
    with _memory(work, flash=False) as memory:
        for number, text in enumerate(skills):
            memory.deposit_text(f"tariff-{number}", text)
        for number in range(work["conversations"]):
            thread = memory.thread(f"visitor {number}")
            thread.ask(f"I am visitor {number}. My favourite number is {number + 40}.", skill=None, max_new=24)
            thread.ask("Good morning to you.", max_new=24)
        Corpus(memory, chunk_tokens=64, overlap=0, keep="eager").add([folder])
        seconds = time.perf_counter() - start
        answers = {name: turn.text for name, turn in _asked(memory, work, graft=True)}
        return {
            "seconds": seconds,
            "kept": _kept(memory),
            "blocks": list(memory.store.block_ids()),
            "answers": answers,
            "texts": [skills, documents],
        }


def move(work: dict[str, Any]) -> dict[str, Any]:
    """Migrate to the second fingerprint, or go on."""
    from agentkv.migrate import migrate

    with _memory(work, flash=True) as memory:
        begin()
        return {"failed": [f"{name}: {error.message}" for name, error in migrate(memory).failed]}


def blocks(work: dict[str, Any]) -> list[str]:
    """The blocks that are there."""
    from agentkv.store.catalog import BlockStore

    with BlockStore(Path(work["folder"]) / "store", cache_bytes=0) as store:
        return list(store.block_ids())


def look(work: dict[str, Any]) -> dict[str, Any]:
    """What is there after the migration, and the same questions from states and cold."""
    from agentkv.migrate import plan

    with _memory(work, flash=True) as memory:
        todo = plan(memory, measure=False)
        answers = {}
        cold_turns = dict(_asked(memory, work, graft=False))
        for name, turn in _asked(memory, work, graft=True):
            cold = cold_turns[name]
            answers[name] = {
                "after": turn.text,
                "cold": cold.text,
                "after_sha256": turn.logits_sha256,
                "cold_sha256": cold.logits_sha256,
                "restored": turn.tokens.restored,
            }
        return {
            "kept": _kept(memory),
            "left_to_do": len(todo.names) + len(todo.corpora) + len(todo.threads) + todo.chunks,
            "damage": [str(finding) for finding in memory.store.check().damage],
            "answers": answers,
            "model_sha256": memory.engine.info.sha256,
        }


def _kept(memory: AgentMemory) -> dict[str, Any]:
    from agentkv.documents import Corpus

    stored = sorted(Corpus(memory).shelf.stored())
    manifests = [memory.store.manifest(block_id) for block_id in stored[:_TRIED]]
    return {
        "skills": len(memory.store.names(fingerprint_id=memory.blocks.fingerprint.id)),
        "turns": [len(memory.thread(name).turns) for name in sorted(memory.threads())],
        "chunks": len(stored),
        "tried": len(manifests),
        "equal": sum(manifest is not None and _is_cold_state(memory, manifest) for manifest in manifests),
    }


def _is_cold_state(memory: AgentMemory, manifest: Manifest) -> bool:
    with memory.blocks.exclusive():
        memory.blocks.read_parts(memory.blocks.parts_of(manifest))
        return sha256(memory.engine.capture().blob.data) == manifest.state_sha256


def _asked(memory: AgentMemory, work: dict[str, Any], *, graft: bool) -> Iterable[tuple[str, Turn]]:
    """The turn of each skill and of each thread, which is as it was afterwards."""
    for number in range(work["skills"]):
        question = f"What does Tariff {number} cost?"
        yield f"skill {number}", memory.ask(question, skill=f"tariff-{number}", graft=graft, max_new=24)
    for number in range(work["conversations"]):
        thread = memory.thread(f"visitor {number}")
        n_turns = len(thread.turns)
        yield f"thread {number}", thread.ask("What is my favourite number?", keep=False, graft=graft, max_new=24)
        thread.rewind(n_turns)
