"""``aime FILE``: hard problems with whole-number answers; base, library by rule, recurrence, system.

1. Base: the model is asked for ``samples`` programs a problem within a budget of tokens. What a program returns counts,
   or what a script prints, or what is said in words; the commonest is the answer, its share the confidence.
2. Library, by rule: the first eight problems that no sample solves and for which somebody has a program that is
   verified: a file, a teacher, or those that come along (``variants/``, written by an engineer's assistant).
3. Recurrence: those eight from their blocks, each repeat in a fresh process.
4. System: a problem with a live solution is answered by recurrence, any other as by the base; counted from what was
   recorded, a *system* number.

The problems stay in their file: records hold digests of their texts. What the model wrote may repeat a problem's words,
so it is in the ledger only; the result has its SHA-256. Every problem is recorded when it is done, and a
run that was broken off goes on. What was written in one run can be read anew in another, in place of asking again.
Where the file is absent the benchmark skips, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentkv.bench.process import in_new_process
from agentkv.bench.results import now, origin, say
from agentkv.errors import UsageError
from agentkv.evidence import Item, Ledger
from agentkv.evidence.ledger import RecordedRun
from agentkv.flywheel import values
from agentkv.flywheel.gate import Gate
from agentkv.flywheel.journal import attempt_record
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.loop import Flywheel
from agentkv.flywheel.solution import Program, Provenance
from agentkv.flywheel.solvers import Attempt, BestOfN, FromFile, Solver
from agentkv.flywheel.task import Task, Truth
from agentkv.flywheel.transfer import Recalled, Recurrence
from agentkv.io.hashing import sha256
from agentkv.memory.memory import AgentMemory
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.energy import metered
from tests.benchmarks.flywheel import grading
from tests.benchmarks.flywheel.reread import Reread, replies
from tests.benchmarks.flywheel.variants import BY, written_programs
from tests.benchmarks.recording import Recording

LIBRARY = 8
REPEATS = 4
_WRITTEN = ("generated", "program")


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


def written() -> FromFile:
    """The programs that come along, as a solver."""
    by = Provenance(solver="programs of this benchmark", note=BY)
    known = {name: (Attempt(Program(source=source), by, "", ""),) for name, source in written_programs().items()}
    return FromFile(Path("programs of this benchmark"), known)


def run(
    path: Path,
    model: str,
    store: Path,
    *,
    count: int | None = None,
    samples: int = 5,
    max_new: int = 768,
    budget: int = 4096,
    agreement: float = 0.6,
    seed: int = 0,
    solutions: Path | None = None,
    solvers: Sequence[Solver] = (),
    own_programs: bool = True,
    repeats: int = REPEATS,
    reread: str | None = None,
    settings: dict[str, Any] | None = None,
    ledger: Ledger,
    found: RecordedRun | None = None,
) -> dict[str, Any]:
    """The whole benchmark, over the first ``count`` problems. ``store`` is where solutions and blocks are kept.

    ``own_programs=False`` leaves out the programs that come along. ``reread``: a run of ``ledger`` with the same model
    and settings, whose replies are read anew in place of asking. Raises UsageError if it is another's, UnknownRun.
    """
    started = now()
    if not path.exists():
        return {
            "benchmark": grading.AIME,
            "skipped": f"{path} is not there; the problems do not come with this project",
        }
    tasks = problems(path)[:count]
    known: dict[str, Any] = {"samples": samples, "max_new": max_new, "budget": budget, "agreement": agreement}
    known |= {"seed": seed, "own_programs": own_programs, "reread": reread}
    with AgentMemory(store, model, **(settings or {})) as memory:
        digest = memory.engine.info.sha256
        header = origin(grading.AIME, model, digest, path.read_bytes(), started=started, **known, count=len(tasks))
        then = {} if reread is None else replies(ledger, reread, digest, known, grading.AIME)
        recording = Recording.opened(header, memory, "problems", ledger, found)
        sandbox = Sandbox()
        base = Reread(BestOfN(memory, n=samples, budget=budget, max_new=max_new, seed=seed), then)
        gate = Gate(base, sandbox, samples, agreement)
        done = recording.keys
        for item in _base(gate, base, [task for task in tasks if f"base/{task.id}" not in done]):
            recording.add(item)
        others = [*([FromFile.read(solutions)] if solutions else []), *solvers, *([written()] if own_programs else [])]
        _learn(Flywheel(SolutionLibrary(memory), sandbox, replace(gate, samples=0), others), tasks, recording)
    learned = [item.key.removeprefix("learned/") for item in recording.items if item.key.startswith("learned/")]
    for repeat in range(repeats if learned else 0):
        if f"recall/{repeat}" not in recording.keys:
            recording.add(_recalled(path, model, store, learned, repeat, settings or {}))
    return _told(recording.end())


def _told(result: dict[str, Any]) -> dict[str, Any]:
    """A result that may be published: digests in place of what was generated, which no figure is made of."""
    return {**result, "raw": [{**item, "raw": _digests(item["raw"])} for item in result["raw"]]}


def _digests(value: Any) -> Any:
    if isinstance(value, list):
        return [_digests(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    told = {key: _digests(inner) for key, inner in value.items() if key != "sha256"}  # digests already
    told |= {key: f"sha256:{sha256(told[key].encode())}" for key in _WRITTEN if isinstance(told.get(key), str)}
    return told | {key: inner for key, inner in value.items() if key == "sha256"}


def _base(gate: Gate, base: Reread, tasks: Sequence[Task]) -> Iterator[Item]:
    for number, task in enumerate(tasks, 1):
        attempts: list[dict[str, Any]] = []

        def observe(attempt: Any, found: Any, answer: Any, task: Task = task, into: list[Any] = attempts) -> None:
            record = attempt_record(task, attempt, found, answer)
            record["prompt"] = sha256(attempt.prompt.encode())  # the problem's text stays where it is
            into.append({**record, "tokens": attempt.provenance.tokens})

        start = time.perf_counter()
        with metered() as energy:
            own = gate.own(task, settle=False, observe=observe)
        raw = {"attempts": attempts, "answer": own.answer, "agreeing": own.agreeing, "samples": own.samples}
        raw["confident"] = own.answered and own.agreement >= gate.agreement
        cost = {"seconds": round(time.perf_counter() - start, 1), "joules": energy.joules}
        raw |= base.cost(task) or cost
        assert isinstance(task.check, Truth)
        yield Item(f"base/{task.id}", raw, {"answer": task.check.answer}, {"generated": own.tokens})
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


def _recalled(
    path: Path, model: str, store: Path, chosen: Sequence[str], repeat: int, settings: dict[str, Any]
) -> Item:
    payload = {"path": str(path), "model": model, "store": str(store), "ids": list(chosen), "settings": settings}
    raw = in_new_process(f"{__name__}:recall_worker", payload)
    say(f"recurrence, repeat {repeat + 1}: {sum(row['right'] for row in raw['rows'])} of {len(raw['rows'])}")
    return Item(f"recall/{repeat}", raw, None, {"generated": sum(row["tokens"] for row in raw["rows"])})


def _check_seconds(recalled: Recalled) -> float:
    """What running the check again took, of the seconds of a recurrence."""
    again = recalled.verification
    return 0.0 if again is None else round(sum(check.wall_ms for check in again.proof.checks) / 1e3, 3)


def recall_worker(payload: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: the chosen problems from their blocks."""
    tasks = {task.id: task for task in problems(Path(payload["path"]))}
    rows = []
    with AgentMemory(Path(payload["store"]), payload["model"], **payload["settings"]) as memory, metered() as energy:
        recurrence = Recurrence(SolutionLibrary(memory), Sandbox())
        for identity in payload["ids"]:
            start = time.perf_counter()
            recalled = recurrence.recall(tasks[identity])
            seconds = round(time.perf_counter() - start, 3)
            turn = None if recalled is None else recalled.turn
            check = tasks[identity].check
            assert isinstance(check, Truth)
            rows.append(
                {
                    "id": identity,
                    "read": None if turn is None else turn.text,
                    "answer": None if recalled is None else recalled.answer,
                    "verdict": None if recalled is None else recalled.verdict.value,
                    "right": recalled is not None and grading.is_same(recalled.answer, check.answer),
                    "read_rightly": recalled is not None and recalled.read_rightly is True,
                    "restored": 0 if turn is None else turn.tokens.restored,
                    "tokens": 0 if turn is None else turn.tokens.generated,
                    "logits_sha256": None if turn is None else turn.logits_sha256,
                    "seconds": seconds,
                    "check_seconds": 0.0 if recalled is None else _check_seconds(recalled),
                }
            )
    return {"rows": rows, "joules": energy.joules}
