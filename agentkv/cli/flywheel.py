"""``agentkv learn``: tasks in, verified solutions in the store; goes on where it was broken off. ``agentkv solve``:
one task, answered from what was learned or by the model; says which, and whether it was checked.

``agentkv flywheel report``: every task that was learned, its live solution, its proof, and what became of others.
``agentkv flywheel retire``: a live solution becomes history; nothing answers from it any more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.evidence import ledger_path
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import Column, count, number, one_line, print_json, printable, say, show_rows, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, shown
from agentkv.errors import UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentkv.engine.base import Cancellation
    from agentkv.evidence import Ledger, Run
    from agentkv.evidence.ledger import RecordedRun
    from agentkv.flywheel import Flywheel, Policy
    from agentkv.flywheel.book import KeptTask, KeptTasks
    from agentkv.flywheel.loop import Answered
    from agentkv.flywheel.solution import Solution
    from agentkv.flywheel.solvers import Solver
    from agentkv.flywheel.task import Task
    from agentkv.memory.memory import AgentMemory


LEARN, SOLVE, PROCEDURE = "flywheel learn", "flywheel solve", "flywheel procedure"

"""Kinds of runs in the ledger."""

KEY = "AGENTKV_TEACHER_KEY"

_GATE, _SOLVERS = "Gate", "Solvers"


Isolation = Annotated[
    str,
    typer.Option(
        metavar="LEVEL", help="What a proof needs: limits, namespaces or bubblewrap. Below namespaces it can be forged."
    ),
]

Margin = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        min=0,
        rich_help_panel=_GATE,
        show_default="agreement of programs",
        help="Instead: one direct answer, confident from this margin over the next best token on.",
    ),
]


@dataclass(frozen=True)
class GateOptions:
    """When the model is confident, and how its programs are sampled."""

    samples: Annotated[
        int,
        typer.Option(metavar="N", min=1, rich_help_panel=_GATE, help="The model's own programs before help is asked."),
    ] = 3
    agreement: Annotated[
        float,
        typer.Option(min=0, max=1, rich_help_panel=_GATE, help="Share of them that has to agree to be confident."),
    ] = 1.0
    max_new: Annotated[int, typer.Option("--max-new", metavar="N", min=1, help=options.MAX_NEW_HELP)] = 512
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help=options.SEED_HELP)] = 0


@dataclass(frozen=True)
class SolverOptions:
    """Who solves what the model is not confident of, in this order."""

    best_of: Annotated[
        int, typer.Option(metavar="N", min=1, rich_help_panel=_SOLVERS, help="Programs of the model's own, in all.")
    ] = 5
    budget: Annotated[
        int, typer.Option(metavar="TOKENS", min=1, rich_help_panel=_SOLVERS, help="Generated a task and solver.")
    ] = 4096
    repair: Annotated[
        int, typer.Option(metavar="N", min=0, rich_help_panel=_SOLVERS, help="Then: programs shown their errors.")
    ] = 0
    solutions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_SOLVERS, help="Then: solutions that somebody wrote, JSON lines."),
    ] = None
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_SOLVERS, help=f"Then: an OpenAI-compatible endpoint; its key in ${KEY}."
        ),
    ] = None
    teacher_model: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=_SOLVERS, help="The endpoint's model.")
    ] = ""

    def beyond_the_model(self, seed: int) -> list[Solver]:
        """Solutions of a file, and a teacher. Raises UsageError, and what reading the file raises."""
        from agentkv.flywheel import FromFile
        from agentkv.flywheel.solvers import Endpoint

        if (self.teacher is None) != (not self.teacher_model):
            raise UsageError("--teacher and --teacher-model go together")
        found: list[Solver] = [] if self.solutions is None else [FromFile.read(self.solutions)]
        if self.teacher is not None:
            found.append(Endpoint(self.teacher, self.teacher_model, os.environ.get(KEY, ""), seed=seed))
        return found


def policy(isolation: str) -> Policy:
    """The policy by which a deposit needs that level of isolation. Raises UsageError."""
    from agentkv.errors import UsageError
    from agentkv.sandbox.base import Level, Policy

    known = [one.value for one in Level if one is not Level.PROCESS]
    if isolation not in known:
        raise UsageError(f"--isolation is one of {', '.join(known)}, not {isolation!r}")
    return Policy(deposit=Level(isolation))


def answer_text(value: Any) -> str:
    """An answer for people."""
    from agentkv.flywheel import values

    return printable(value if isinstance(value, str) else values.encode(value))


# --- learn ----------------------------------------------------------------------------------------


def learn(
    *,
    tasks: Annotated[Path, typer.Argument(metavar="TASKS", help="A file of tasks, a JSON object a line.")],
    solvers: SolverOptions,
    procedure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead: try this text on the tasks, and keep it only if the model answers better."
        ),
    ] = None,
    gate: GateOptions,
    margin: Margin = None,
    isolation: Isolation = "namespaces",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again instead of going on.")] = False,
    ledger: options.LedgerFolder = None,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Learn tasks: what the model lacks is solved, proven by running it, and kept."""
    from agentkv.flywheel import Flywheel, SelfRepair
    from agentkv.flywheel.task import read_tasks

    # 1. The tasks, and who may solve them.
    others = solvers.beyond_the_model(gate.seed)
    proven_by, asked = policy(isolation), read_tasks(tasks)
    opened = _ledger(ledger)
    with (
        options.open_memory(store, *engine.chosen(store), create=True) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        if procedure is not None:  # tried instead of learning
            return try_procedure(memory, asked, procedure, opened, gate.max_new, cancellation)
        # 2. The run that is gone on with, and what is left of the tasks.
        identity = _identity(memory, tasks, solvers, gate, margin, isolation)
        run, done = _run(opened, memory, identity, fresh)
        left = [task for task in asked if task.id not in done]
        if len(left) < len(asked) and not as_json:
            tell(f"going on with run {run.id}: {count(len(asked) - len(left), 'task')} done, {len(left)} left")
        # 3. Each task, on record when it is done.
        limits: dict[str, Any] = {"budget": solvers.budget, "max_new": gate.max_new, "seed": gate.seed}
        if solvers.repair:
            others.insert(0, SelfRepair(memory, n=solvers.repair, **limits))
        wheel = Flywheel.of(
            memory,
            samples=gate.samples,
            agreement=gate.agreement,
            best_of=solvers.best_of,
            margin=margin,
            solvers=tuple(others),
            policy=proven_by,
            recorder=run,
            **limits,
        )
        for task in shown(left, "task", lambda task: task.id):
            learned = wheel.learn(task, cancellation)
            done[task.id] = learned.plain()
            if not as_json:
                tell(f"{learned.task.id}: {learned.state}: {one_line(learned.reason, 120)}", dim=True)
        # 4. The scores.
        rows = [done[task.id] for task in asked]
        run.scores(summary(rows))
        run.end()
    record = {"run": run.id, "outcomes": rows, "summary": summary(rows)}
    return Result(record, lambda: show_rows(_COLUMNS, rows))


def _ledger(folder: Path | None) -> Ledger:
    opened = options.open_ledger(ledger_path(folder))
    assert opened is not None
    return opened


def _identity(
    memory: AgentMemory, tasks: Path, solvers: SolverOptions, gate: GateOptions, margin: float | None, isolation: str
) -> dict[str, Any]:
    """The settings and inputs that name a run: with the same ones it is gone on with."""
    from agentkv.io.hashing import file_sha256

    files = {"tasks": tasks, **({} if solvers.solutions is None else {"solutions": solvers.solutions})}
    settings = {name: value for name, value in vars(solvers).items() if name != "solutions"}
    settings |= {**vars(gate), "isolation": isolation, **({} if margin is None else {"margin": margin})}
    inputs = {name: file_sha256(path) for name, path in files.items()} | {"model": memory.engine.info.sha256}
    return {"settings": settings, "inputs": inputs}


def try_procedure(
    memory: AgentMemory,
    tasks: Sequence[Task],
    path: Path,
    ledger: Ledger,
    max_new: int,
    cancellation: Cancellation,
) -> Result:
    """Try the text of ``path``, keep it or not, and say why."""
    from agentkv.flywheel.gate import ProcedureTrial

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    inputs: dict[str, bytes | Path | str] = {"procedure": path, "model": memory.engine.info.sha256}
    with ledger.run(
        PROCEDURE, settings={"max_new": max_new, "tasks": [task.task_id for task in tasks]}, inputs=inputs
    ) as run:
        trial = ProcedureTrial(memory, run, max_new)
        found = trial.try_text(path.stem, text, tasks, cancellation=cancellation)
        run.verdict("kept", found.keeps, found.reason)
    record = {"run": run.id, "name": path.stem, "kept": found.keeps, "reason": found.reason, **found.plain()}
    return Result(record, lambda: say(f"{path.stem}: {'kept' if found.keeps else 'not kept'}: {found.reason}"))


def _run(ledger: Ledger, memory: AgentMemory, identity: dict[str, Any], fresh: bool) -> tuple[Run, dict[str, Any]]:
    """The run that is recorded into, and the outcomes that it has already, by the task's id."""
    from agentkv.flywheel import journal  # noqa: F401 - registers the scorer

    found = None if fresh else _unfinished(ledger, identity)
    if found is None:
        return ledger.begin(LEARN, **identity, fingerprints={"engine": memory.engine.fingerprint()}), {}
    items = [item for item in ledger.items(found) if item.key.startswith("outcome/")]
    return ledger.resume(found), {item.raw["id"]: item.raw for item in items}


def _unfinished(ledger: Ledger, identity: dict[str, Any]) -> RecordedRun | None:
    from agentkv.evidence.files import FILE

    if not (ledger.folder / FILE).exists():
        return None
    for run in reversed(ledger.runs()):
        if run.kind == LEARN and {"settings": run.body.settings, "inputs": run.body.inputs} == identity:
            return run if run.status == "unfinished" else None
    return None


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a run, from its outcomes."""
    from agentkv.flywheel.journal import learned

    return learned(rows)


def _transfers(row: dict[str, Any]) -> str:
    if row["transferable"] is None:
        return ""
    hard_coded = ", ".join(str(one["value"]) for one in row["baked_in"])
    return "yes" if row["transferable"] else f"no: {hard_coded} hard-coded" if hard_coded else "no"


_COLUMNS = (
    Column("task", "id"),
    Column("state", "state"),
    number("attempts"),
    number("tokens"),
    Column("transfers", _transfers),
    Column("why", lambda row: one_line(row["reason"], 90), wraps=True),
)


# --- solve ----------------------------------------------------------------------------------------


def solve(
    *,
    prompt: Annotated[str | None, typer.Argument(metavar="TASK", help="The task, in quotes.")] = None,
    task: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: the one task of this file, with its check.")
    ] = None,
    own: Annotated[bool, typer.Option(help="Let the model try by itself where nothing learned fits.")] = True,
    gate: GateOptions,
    isolation: Isolation = "namespaces",
    embedder: options.Embedder = None,
    ledger: options.LedgerFolder = None,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> None:
    """Answer a task: recalled if it was solved, transferred if a similar one was, else the model's own."""
    from agentkv.flywheel import Flywheel

    proven_by, asked = policy(isolation), _task(prompt, task)
    with (
        options.open_memory(store, *engine.chosen(store), create=True, embedder=embedder) as memory,
        cancelled_by_ctrl_c() as cancellation,
        _ledger(ledger).run(
            SOLVE,
            settings={**vars(gate), "own": own},
            inputs={"task": asked.prompt.encode(), "model": memory.engine.info.sha256},
            fingerprints={"engine": memory.engine.fingerprint()},
        ) as run,
    ):
        wheel = Flywheel.of(memory, **vars(gate), policy=proven_by, recorder=run)
        known = wheel.library.book.live(asked.task_id)
        answered = wheel.solve(asked, own=own, cancellation=cancellation)
        _warn_if_retired(wheel, asked, known)
    if as_json:
        print_json({"run": run.id, **answered.plain()})
    else:
        _show_solve(answered)
    if not answered.answered:
        raise typer.Exit(1)


def _task(prompt: str | None, file: Path | None) -> Task:
    """The one task that is asked. Raises UsageError."""
    from pydantic import ValidationError

    from agentkv.flywheel.task import Task, read_tasks

    if (prompt is None) == (file is None):
        raise UsageError("give a task in quotes or --task FILE, one of the two")
    if file is not None:
        tasks = read_tasks(file)
        if len(tasks) != 1:
            raise UsageError(f"{file} holds {len(tasks):,} tasks instead of one. `agentkv learn` takes many.")
        return tasks[0]
    try:
        return Task(id="asked", prompt=prompt or "")
    except ValidationError as error:
        raise UsageError(f"the task: {error.errors()[0]['msg']}") from error


def _warn_if_retired(wheel: Flywheel, task: Task, known: Solution | None) -> None:
    """Warn, if the solution that was live has failed what was asked now."""
    standing = None if known is None else wheel.library.book.standing(task.task_id)
    if standing is not None and standing.live is None and standing.history:
        why = one_line(standing.history[-1].reason, 200)
        warn(f"the solution that was learned is retired: {why}. `agentkv learn` solves the task again.")


def _show_solve(answered: Answered) -> None:
    if answered.answered:
        say(answer_text(answered.answer))
    tell(f"[{answered.origin} | {answered.tokens:,} tokens generated]", dim=True)
    last: Any = answered.transfers[-1] if answered.transfers else None
    if last is not None:
        tell(f"[parameters: {answer_text(last.parameters)}{_why(last)}]", dim=True)
    if not answered.answered:
        tell("no answer: nothing learned fits, and the model's own programs gave none")


def _why(last: Any) -> str:
    return "" if last.answered else f" | {one_line(last.reason, 120)}"


# --- report, retire -------------------------------------------------------------------------------


def report(*, store: StoreOptions) -> Result:
    """What was learned: tasks, live solutions, proofs, history. No model is loaded."""
    from agentkv.flywheel.book import KeptTasks, SolutionBook

    with store.open() as opened:
        book, rows = SolutionBook(opened.root), []
        for kept in KeptTasks(opened.root).all():
            standing = book.standing(kept.task.task_id)
            history = [] if standing is None else [event.model_dump(mode="json") for event in standing.history]
            rows.append(_row(kept, book.live(kept.task.task_id), history))
    rows.sort(key=lambda row: row["id"])
    return Result({"tasks": rows}, lambda: _show_report(rows))


_REPORT = (
    Column("task", "id"),
    Column("solution", lambda row: "live" if row["live"] else "none"),
    Column("answer", lambda row: one_line(answer_text(row["answer"]), 30)),
    Column("solved by", "solver"),
    Column("proof", "proof", wraps=True),
    Column("transfers", "transfers", wraps=True),
    number("events", lambda row: len(row["history"])),
)


def _show_report(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("nothing was learned yet; `agentkv learn TASKS` does it")
        return
    show_rows(_REPORT, rows)
    live, transfer = sum(row["live"] for row in rows), sum(row["transfers"] == "yes" for row in rows)
    say(f"\n{count(len(rows), 'task')}, {live} with a live solution, {transfer} transfer")


def _row(kept: KeptTask, solution: Solution | None, history: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": kept.task.id,
        "task": kept.task.task_id,
        "prompt": kept.task.prompt,
        "live": solution is not None,
        "history": history,
        **dict.fromkeys(("solution", "answer", "solver", "proof", "tokens")),
        "transfers": "",
        "baked_in": [],
    }
    if solution is None:
        return row
    proof, parametric = solution.proof, solution.parametric
    isolation = "" if proof.isolation is None else f", {proof.isolation.level}"
    constants = [] if parametric is None else [one.model_dump() for one in parametric.hard_coded]
    why = f"no: {', '.join(str(one['value']) for one in constants)} hard-coded" if constants else "no"
    return row | {
        "solution": solution.solution_id,
        "answer": solution.answer,
        "solver": solution.provenance.solver,
        "tokens": solution.provenance.tokens,
        "proof": f"{proof.verdict}: {proof.checks_run} of {proof.checks_expected} checks{isolation}",
        "transfers": "yes" if parametric is not None and parametric.transferable else why,
        "baked_in": constants,
    }


_DIGITS = 6


def retire(
    *,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id, or the first digits of its identity.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it goes on record.")] = "retired by hand",
    store: StoreOptions,
) -> Result:
    """Take a live solution back: it stays on record, and answers nothing. No model is loaded."""
    from agentkv.flywheel.book import KeptTasks
    from agentkv.flywheel.library import retire as retire_task

    with store.open() as opened:
        kept = _named(KeptTasks(opened.root), task)
        retire_task(opened, kept.task.task_id, reason)
    record = {"id": kept.task.id, "task": kept.task.task_id, "retired": True, "reason": reason}
    text = f"retired the solution of {kept.task.id} ({kept.task.task_id[:12]}); `agentkv learn` solves it again"
    return Result(record, lambda: say(text))


def _named(tasks: KeptTasks, key: str) -> KeptTask:
    """The one kept task that is called so. Raises UnknownTask, UsageError for several."""
    from agentkv.errors import UnknownTask

    known = list(tasks.all())
    found = [kept for kept in known if kept.task.id == key]
    if not found and len(key) >= _DIGITS:
        found = [kept for kept in known if kept.task.task_id.startswith(key.lower())]
    if len(found) > 1:
        several = ", ".join(kept.task.task_id[:12] for kept in found)
        raise UsageError(f"{len(found)} tasks are called {key!r}; name one by its identity: {several}")
    if not found:
        raise UnknownTask(key)
    return found[0]
