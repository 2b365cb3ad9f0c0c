"""``agentkv learn``: tasks in, verified solutions in the store; goes on where it was broken off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.evidence.common import ledger_path
from agentkv.cli.flywheel import common
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, one_line, print_json, table, tell
from agentkv.cli.progress import shown
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.evidence import Ledger, Run
    from agentkv.evidence.ledger import RecordedRun
    from agentkv.flywheel.loop import Learned
    from agentkv.flywheel.solvers import Solver
    from agentkv.memory.memory import AgentMemory

KIND = "flywheel learn"
KEY = "AGENTKV_TEACHER_KEY"
_SOLVERS = "Solvers"


def learn(
    tasks: Annotated[Path, typer.Argument(metavar="TASKS", help="A file of tasks, a JSON object a line.")],
    best_of: Annotated[
        int, typer.Option(metavar="N", min=1, rich_help_panel=_SOLVERS, help="Programs of the model's own, in all.")
    ] = 5,
    budget: Annotated[
        int, typer.Option(metavar="TOKENS", min=1, rich_help_panel=_SOLVERS, help="Generated a task and solver.")
    ] = 4096,
    repair: Annotated[
        int, typer.Option(metavar="N", min=0, rich_help_panel=_SOLVERS, help="Then: programs shown their errors.")
    ] = 0,
    solutions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_SOLVERS, help="Then: solutions that somebody wrote, JSON lines."),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_SOLVERS, help=f"Then: an OpenAI-compatible endpoint; its key in ${KEY}."
        ),
    ] = None,
    teacher_model: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=_SOLVERS, help="The endpoint's model.")
    ] = "",
    procedure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead: try this text on the tasks, and keep it only if the model answers better."
        ),
    ] = None,
    samples: common.Samples = 3,
    agreement: common.Agreement = 1.0,
    margin: common.Margin = None,
    max_new: common.MaxNew = 512,
    seed: common.Seed = 0,
    isolation: common.Isolation = "namespaces",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew instead of going on.")] = False,
    model: options.Model = None,
    store: options.Store = None,
    ledger: common.LedgerFolder = None,
    window: options.Window = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Learn tasks: what the model lacks is solved, proven by running it, and kept."""
    from agentkv.flywheel import Flywheel, FromFile
    from agentkv.flywheel.task import read_tasks

    # 1. What is asked for, and who may solve it.
    if (teacher is None) != (not teacher_model):
        raise UsageError("--teacher and --teacher-model go together")
    policy = common.policy(isolation)
    wanted = read_tasks(tasks)
    others: list[Solver] = [] if solutions is None else [FromFile.read(solutions)]
    if teacher is not None:
        from agentkv.flywheel.solvers import Endpoint

        others.append(Endpoint(teacher, teacher_model, os.environ.get(KEY, ""), seed=seed))
    # 2. The settings that name a run: with the same ones it is gone on with.
    model, settings = options.chosen(store, model, window, threads)
    opened = options.open_ledger(ledger_path(ledger))
    assert opened is not None
    known = {
        "settings": {
            **{
                "best_of": best_of,
                "budget": budget,
                "repair": repair,
                "teacher": teacher,
                "teacher_model": teacher_model,
            },
            **{"samples": samples, "agreement": agreement, "max_new": max_new, "seed": seed, "isolation": isolation},
            **({} if margin is None else {"margin": margin}),
        },
        "inputs": {"tasks": tasks, **({"solutions": solutions} if solutions else {})},
    }
    with options.open_memory(store, model, settings, create=True) as memory, cancelled_by_ctrl_c() as cancellation:
        # 3. A procedure is tried instead of learning.
        if procedure is not None:
            from agentkv.cli.flywheel.procedure import try_procedure

            try_procedure(memory, wanted, procedure, opened, max_new, cancellation, as_json)
            return
        if repair:
            from agentkv.flywheel import SelfRepair

            others.insert(0, SelfRepair(memory, n=repair, budget=budget, max_new=max_new, seed=seed))
        # 4. Learn what is left of the tasks, each on record when it is done.
        run, done = _run(opened, memory, known, fresh)
        wheel = Flywheel.of(
            memory,
            samples=samples,
            agreement=agreement,
            max_new=max_new,
            seed=seed,
            best_of=best_of,
            budget=budget,
            margin=margin,
            solvers=tuple(others),
            policy=policy,
            recorder=run,
        )
        left = [task for task in wanted if task.id not in done]
        if len(left) < len(wanted) and not as_json:
            tell(f"going on with run {run.id}: {count(len(wanted) - len(left), 'task')} done, {len(left)} left")
        for task in shown(left, "task", lambda task: task.id):
            done[task.id] = _told(wheel.learn(task, cancellation), as_json)
        # 5. The scores, and what is shown.
        rows = [done[task.id] for task in wanted]
        run.scores(summary(rows))
        run.end()
    _show(rows, run, as_json)


def _run(ledger: Ledger, memory: AgentMemory, known: dict[str, Any], fresh: bool) -> tuple[Run, dict[str, Any]]:
    """The run that is recorded into, and the outcomes that it has already, by the task's id."""
    from agentkv.flywheel import journal  # noqa: F401 - registers the scorer
    from agentkv.io.hashing import file_sha256

    known["inputs"] = {name: file_sha256(path) for name, path in known["inputs"].items()}
    known["inputs"]["model"] = memory.engine.info.sha256
    found = None if fresh else _unfinished(ledger, known)
    if found is None:
        return ledger.begin(KIND, **known, fingerprints={"engine": memory.engine.fingerprint()}), {}
    items = [item for item in ledger.items(found) if item.key.startswith("outcome/")]
    return ledger.resume(found), {item.raw["id"]: item.raw for item in items}


def _unfinished(ledger: Ledger, known: dict[str, Any]) -> RecordedRun | None:
    from agentkv.evidence.appending import FILE

    if not (ledger.folder / FILE).exists():
        return None
    for run in reversed(ledger.runs()):
        if run.kind == KIND and run.body.settings == known["settings"] and run.body.inputs == known["inputs"]:
            return run if run.status == "unfinished" else None
    return None


def _told(learned: Learned, as_json: bool) -> dict[str, Any]:
    if not as_json:
        tell(f"{learned.task.id}: {learned.state}: {one_line(learned.reason, 120)}", dim=True)
    return learned.plain()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a run, from its outcomes."""
    from agentkv.flywheel.journal import learned

    return learned(rows)


def _show(rows: list[dict[str, Any]], run: Run, as_json: bool) -> None:
    if as_json:
        print_json({"run": run.id, "outcomes": rows, "summary": summary(rows)})
        return
    cells = [
        (
            row["id"],
            row["state"],
            f"{row['attempts']}",
            f"{row['tokens']:,}",
            _transfers(row),
            one_line(row["reason"], 90),
        )
        for row in rows
    ]
    table(
        ("task", "state", "attempts", "tokens", "transfers", "why"), cells, right=("attempts", "tokens"), wraps=("why",)
    )


def _transfers(row: dict[str, Any]) -> str:
    if row["transferable"] is None:
        return ""
    constants = ", ".join(str(one["value"]) for one in row["baked_in"])
    return "yes" if row["transferable"] else f"no: {constants} hard-coded" if constants else "no"
