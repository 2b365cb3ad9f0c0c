"""``aime FILE``: hard problems with whole-number answers; base, library by rule, recurrence, system.

1. Base: the model is asked for ``samples`` programs a problem within a budget of tokens. What a program returns counts,
   or what a script prints, or what the reply says; the commonest is the answer, its share the confidence.
2. Library, by rule: the first eight problems that no sample solves and for which somebody has a program that is
   verified: a file, a teacher, or those that come along (``variants/``, written by an engineer's assistant).
3. Recurrence: those eight from their blocks, each repeat in a process of its own.
4. System: a problem with a live solution is answered by recurrence, any other as by the base; counted from what was
   recorded, a *system* number.

The problems stay in their file: records hold digests of their texts. What the model wrote may repeat a problem's text,
so it is in the ledger only; the result has its SHA-256. Every problem is recorded when it is done, and a run that broke
off is resumed. What was written in one run can be parsed again in another, in place of asking (``replies.py``). Where
the file is absent the benchmark skips, and says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any

from agentkv.bench.base import Column, Row, Table, duration, option, records
from agentkv.bench.measured import Raw
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.engine.base import Engine
from agentkv.errors import UsageError
from agentkv.evidence import Item
from agentkv.figures import share
from agentkv.flywheel import values
from agentkv.flywheel.gate import Gate
from agentkv.flywheel.journal import attempt_record
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.loop import Flywheel
from agentkv.flywheel.solution import Program, Provenance
from agentkv.flywheel.solvers import Attempt, BestOfN, Endpoint, FromFile, Solver
from agentkv.flywheel.task import Task, Truth
from agentkv.flywheel.transfer import Recalled, Recurrence
from agentkv.io.hashing import sha256
from agentkv.memory.memory import AgentMemory
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.energy import metered, written
from tests.benchmarks.flywheel.grading import is_same
from tests.benchmarks.flywheel.replies import Attempted, Base, Replayed, replies
from tests.benchmarks.flywheel.variants import BY, written_programs
from tests.benchmarks.recording import (
    Recorded,
    Recording,
    Seen,
    counted,
    of_asked,
    opened_memory,
    summary_of,
    window_option,
)
from tests.benchmarks.recording import Settings as RecordedSettings

LIBRARY = 8
_WRITTEN = ("generated", "program")
_NAMING = ("samples", "max_new", "budget", "agreement", "seed", "own_programs")


@dataclass(frozen=True, kw_only=True)
class Settings(RecordedSettings):
    """``file``: of the problems. ``store``: where solutions and blocks are kept. ``again``: a run of the ledger with
    the same model and settings."""

    model: str = "qwen2.5-coder-1.5b"
    file: Path = option(MISSING, "Lines of id, problem, answer; it stays where it is.", metavar="FILE", argument=True)
    store: Path = option(MISSING, "Where solutions and blocks are kept; a run is resumed there.", metavar="DIR")
    problems: int | None = option(None, "Only the first so many.", shown="all", least=1, small=3)
    samples: int = option(5, "Programs a problem.", least=1, small=2)
    max_new: int = option(768, "Most tokens of one program.", least=1, small=128)
    budget: int = option(4096, "Tokens a problem in all.", least=1)
    agreement: float = option(0.6, "Share that has to agree to be confident.", least=0, most=1)
    seed: int = option(0, "Of the samples.", shown="0", least=0)
    solutions: Path | None = option(None, "Programs of others, JSON lines.", metavar="FILE")
    teacher: str | None = option(None, "An OpenAI-compatible endpoint.", metavar="URL")
    teacher_model: str = option("", "The model there.", metavar="NAME")
    own_programs: bool = option(True, "Then: the programs that come along.")
    repeats: int = option(4, "Of recurrence, each in a process of its own.", least=0, small=1)
    again: str | None = option(
        None,
        "Parse again what was written in that run of the ledger, in place of asking.",
        name="reread",
        metavar="RUN",
    )
    window: int | None = window_option(4096)

    def solvers(self) -> list[Solver]:
        """Who is asked for a problem that the model does not solve, in this order."""
        asked: list[Solver] = [FromFile.read(self.solutions)] if self.solutions else []
        if self.teacher is not None:
            asked.append(Endpoint(self.teacher, self.teacher_model, os.environ.get("AGENTKV_TEACHER_KEY", "")))
        return [*asked, own_programs()] if self.own_programs else asked


class Answer(Row):
    """What a problem is scored against."""

    answer: int


class Recurred(Row):
    """A problem from its block, once."""

    id: str
    read: str | None = None
    answer: Any = None
    verdict: str | None = None
    right: bool = False
    read_rightly: bool = False
    restored: int = 0
    tokens: int = 0
    logits_sha256: str | None = None
    seconds: float
    check_seconds: float = 0.0

    @classmethod
    def of(cls, task: Task, recalled: Recalled | None, seconds: float) -> Recurred:
        """As it was recalled; None where no block was live."""
        known: dict[str, Any] = {"id": task.id, "seconds": round(seconds, 3)}
        if recalled is not None:
            checks = [] if recalled.verification is None else recalled.verification.proof.checks
            known |= {"answer": recalled.answer, "verdict": recalled.verdict.value}
            known |= {"right": is_same(recalled.answer, _answer(task)), "read_rightly": recalled.read_rightly is True}
            known["check_seconds"] = round(sum(check.wall_ms for check in checks) / 1e3, 3)
            if (turn := recalled.turn) is not None:
                known |= {"read": turn.text, "logits_sha256": turn.logits_sha256}
                known |= {"restored": turn.tokens.restored, "tokens": turn.tokens.generated}
        return cls(**known)


class Repeat(Row):
    """The raw record of one repeat of recurrence."""

    rows: list[Recurred]
    joules: float | None


class Aime(Recorded[Settings]):
    """A file of hard problems: base, library by rule, recurrence, the whole system.

    It takes --ledger, where every generation is recorded. A run that broke off is resumed.
    """

    name, kind = "aime", "bench aime"
    any_code = True
    tables = (
        Table(
            summary_of,
            (
                counted("base: commonest answer", "base"),
                Column(
                    "what it took", lambda row: f"{row['base_tokens']:,} tokens, {row['base_seconds'] / 60:.0f} min"
                ),
                counted("any sample right", "base_any_sample"),
                Column(
                    "recurrence of the library", lambda row: f"{row['recurrence']['k']} of {row['recurrence']['n']}"
                ),
                Column(
                    "what it took",
                    lambda row: f"{row['recurrence_tokens']:,} tokens, {duration(1e3 * row['recurrence_seconds'])}",
                ),
                Column("repeats", lambda row: f"{row['repeats']}, {'equal' if row['repeats_equal'] else 'NOT equal'}"),
                counted("system: recurrence, else base", "system"),
            ),
            name="aime",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text. Raises UsageError, UnknownRun."""
        asked, ledger = self.settings, self.ledger
        if (asked.teacher is None) != (not asked.teacher_model):
            raise UsageError("--teacher and --teacher-model go together")
        if ledger is None:
            raise UsageError("--ledger DIR is needed: every generation is recorded there")
        if not asked.file.exists():
            reason = f"{asked.file} is not there; the problems do not come with this project"
            return {"benchmark": self.kind, "skipped": reason}
        tasks = problems(asked.file)[: asked.problems]
        naming = {**{name: getattr(asked, name) for name in _NAMING}, "reread": asked.again, "count": len(tasks)}
        with opened_memory(asked, asked.store, window=asked.window) as memory:
            digest, sandbox = memory.engine.info.sha256, Sandbox()
            then = {} if asked.again is None else replies(ledger, asked.again, digest, naming, self.kind)
            recording = self.recording(memory, "problems", asked.file.read_bytes(), naming)
            solver = BestOfN(memory, n=asked.samples, budget=asked.budget, max_new=asked.max_new, seed=asked.seed)
            base = Replayed(solver, then)
            gate = Gate(base, sandbox, asked.samples, asked.agreement)
            _base(gate, base, tasks, recording)
            wheel = Flywheel(SolutionLibrary(memory), sandbox, replace(gate, samples=0), asked.solvers())
            _learn(wheel, tasks, recording)
        self._recur(recording)
        return published(recording.end())

    def models(self) -> list[str]:
        """The model, where there are problems."""
        return super().models() if self.settings.file.exists() else []

    def _recur(self, recording: Recording) -> None:
        """Each repeat in a process of its own."""
        asked = self.settings
        learned = [
            key.removeprefix("learned/") for key in (i.key for i in recording.items) if key.startswith("learned/")
        ]
        options = {"window": asked.window, "threads": asked.threads}
        payload = {"file": str(asked.file), "model": asked.model, "store": str(asked.store), "ids": learned}
        for number in range(asked.repeats if learned else 0):
            key = f"recall/{number}"
            if key not in recording.keys:
                raw = Repeat.model_validate(in_new_process(f"{__name__}:recur", {**payload, "options": options}))
                right = sum(row.right for row in raw.rows)
                say(f"recurrence, repeat {number + 1}: {right} of {len(raw.rows)}")
                tokens = {"generated": sum(row.tokens for row in raw.rows)}
                recording.add(Item(key, raw.model_dump(), None, tokens))

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Shares with their Wilson 95 % intervals; recurrence as in its first repeat."""
        base = {one.key.removeprefix("base/"): one for one in records(Seen[Base, Answer], raw, "base/")}
        attempts = [attempt for one in base.values() for attempt in one.raw.attempts]
        learned = [key.removeprefix("learned/") for key in raw if key.startswith("learned/")]
        repeats = [Repeat.model_validate(one["raw"]) for key, one in raw.items() if key.startswith("recall/")]
        first = repeats[0].rows if repeats else []
        right = {key: is_same(one.raw.answer, one.expected.answer) for key, one in base.items()}
        confident = [key for key, one in base.items() if one.raw.confident]
        ever = [any(attempt.verdict == "verified" for attempt in one.raw.attempts) for one in base.values()]
        recalled = {row.id for row in first if row.right}
        seen = [[(row.id, row.read, row.logits_sha256) for row in repeat.rows] for repeat in repeats]
        return {
            "base": share(sum(right.values()), len(base)),
            "base_confident": share(sum(right[key] for key in confident), len(confident)),
            "base_any_sample": share(sum(ever), len(base)),
            "base_answered": [sum(attempt.answer is not None for attempt in attempts), len(attempts)],
            "base_tokens": sum((one.tokens or {}).get("generated", 0) for one in base.values()),
            "base_seconds": round(sum(one.raw.seconds for one in base.values()), 1),
            "base_joules": _joules([one.raw.joules for one in base.values()]),
            "library": learned,
            "recurrence": share(len(recalled), len(learned)),
            "recurrence_read_rightly": sum(row.read_rightly for row in first),
            "recurrence_tokens": sum(row.tokens for row in first),
            "recurrence_seconds": round(sum(row.seconds for row in first), 3),
            "recurrence_check_seconds": round(sum(row.check_seconds for row in first), 3),
            "recurrence_joules": [repeat.joules for repeat in repeats],
            "repeats": len(repeats),
            "repeats_equal": all(one == seen[0] for one in seen),
            "system": share(sum(right[key] or key in recalled for key in right), len(base)),
        }

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """How sure the base was, and joules; or why nothing was measured."""
        if "skipped" in result:
            yield f"skipped: {result['skipped']}"
        for summary in summary_of(result):
            yield f"base, where its samples agree enough: {of_asked(summary['base_confident'])}"
            recall = next(iter(summary["recurrence_joules"]), None)
            yield f"energy: {written(summary['base_joules'])} for the base, {written(recall)} to recall"


def _joules(measured: Sequence[float | None]) -> float | None:
    """The sum; None where one was not measured."""
    known = [one for one in measured if one is not None]
    return round(sum(known), 3) if known and len(known) == len(measured) else None


# --- problems and programs ------------------------------------------------------------------------------


def problems(path: Path) -> list[Task]:
    """The problems of a file of ``id``, ``problem``, ``answer`` lines. Raises UsageError."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = values.decode(line)
            check = Truth(answer=int(row["answer"]))
            found.append(Task(id=str(row["id"]), prompt=row["problem"], check=check))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}:{number}: not a line of id, problem and answer: {error}") from error
    return found


def own_programs() -> FromFile:
    """The programs that come along, as a solver."""
    by = Provenance(solver="programs of this benchmark", note=BY)
    known = {name: (Attempt(Program(source=source), by, "", ""),) for name, source in written_programs().items()}
    return FromFile(Path("programs of this benchmark"), known)


def _answer(task: Task) -> Any:
    assert isinstance(task.check, Truth)
    return task.check.answer


def published(result: dict[str, Any]) -> dict[str, Any]:
    """A result with digests in place of what was generated, of which no figure is made."""
    return {**result, "raw": [{**item, "raw": _digests(item["raw"])} for item in result["raw"]]}


def _digests(value: Any) -> Any:
    if isinstance(value, list):
        return [_digests(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    made = {key: inner if key == "sha256" else _digests(inner) for key, inner in value.items()}
    return made | {key: f"sha256:{sha256(made[key].encode())}" for key in _WRITTEN if isinstance(made.get(key), str)}


# --- the parts of a run -----------------------------------------------------------------------------


def _base(gate: Gate, base: Replayed, tasks: Sequence[Task], recording: Recording) -> None:
    """The samples of each problem that is not on record."""
    done = recording.keys
    for number, task in enumerate(tasks, 1):
        if f"base/{task.id}" in done:
            continue
        attempts: list[Attempted] = []

        def observe(attempt: Any, found: Any, answer: Any, task: Task = task, into: list[Any] = attempts) -> None:
            record = attempt_record(task, attempt, found, answer)
            record["prompt"] = sha256(attempt.prompt.encode())  # the problem's text stays where it is
            into.append(Attempted(**record, tokens=attempt.provenance.tokens))

        start = time.perf_counter()
        with metered() as energy:
            own = gate.own(task, settle=False, observe=observe)
        seconds = round(time.perf_counter() - start, 1)
        raw = Base(
            attempts=attempts,
            answer=own.answer,
            agreeing=own.agreeing,
            samples=own.samples,
            confident=own.answered and own.agreement >= gate.agreement,
            **(base.cost(task) or {"seconds": seconds, "joules": energy.joules}),
        )
        expected = Answer(answer=_answer(task))
        recording.add(Seen(key=f"base/{task.id}", raw=raw, expected=expected, tokens={"generated": own.tokens}).item)
        say(f"base, {number} of {len(tasks)}: {task.id}: {own.agreeing} of {own.samples} agree, {own.tokens} tokens")


def _learn(wheel: Flywheel, tasks: Sequence[Task], recording: Recording) -> None:
    """The first eight that the base never solves and that a solver has a verified program for."""
    base = {item.key: item.raw["attempts"] for item in recording.items if item.key.startswith("base/")}
    have = {key for key in recording.keys if key.startswith("learned/")}
    for task in tasks:
        if len(have) >= LIBRARY:
            break
        key = f"learned/{task.id}"
        solved = any(attempt["verdict"] == "verified" for attempt in base[f"base/{task.id}"])
        if solved or key in have:
            continue
        learned = wheel.learn(task)
        if learned.state in ("deposited", "known"):
            have.add(key)
            recording.add(Item(key, learned.plain()))


def recur(payload: dict[str, Any], engine: Engine | None = None) -> dict[str, Any]:
    """In a process of its own: the chosen problems from their blocks."""
    tasks = {task.id: task for task in problems(Path(payload["file"]))}
    rows = []
    options = {} if engine else payload["options"]
    with AgentMemory(Path(payload["store"]), engine or payload["model"], **options) as memory, metered() as energy:
        recurrence = Recurrence(SolutionLibrary(memory), Sandbox())
        for identity in payload["ids"]:
            start = time.perf_counter()
            recalled = recurrence.recall(tasks[identity])
            rows.append(Recurred.of(tasks[identity], recalled, time.perf_counter() - start))
    return Repeat(rows=rows, joules=energy.joules).model_dump()
