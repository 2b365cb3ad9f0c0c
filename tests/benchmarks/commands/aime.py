"""``aime``: asks for the benchmark and shows its result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, duration, say, table
from agentkv.errors import UsageError
from tests.benchmarks.commands import common


def aime(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of id, problem, answer; it stays where it is.")],
    store: Annotated[
        Path, typer.Option(metavar="DIR", help="Where solutions and blocks are kept; a run goes on there.")
    ],
    ledger: Annotated[
        Path, typer.Option(metavar="DIR", envvar="AGENTKV_LEDGER", help="Where every generation is recorded.")
    ],
    model: options.BenchModel = "qwen2.5-coder-1.5b",
    problems: Annotated[int | None, typer.Option(min=1, show_default="all", help="Only the first so many.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Programs a problem.")] = 5,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of one program.")] = 768,
    budget: Annotated[int, typer.Option(min=1, help="Tokens a problem in all.")] = 4096,
    agreement: Annotated[float, typer.Option(min=0, max=1, help="Share that has to agree to be confident.")] = 0.6,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    small: common.Small = False,
    solutions: Annotated[Path | None, typer.Option(metavar="FILE", help="Programs of others, JSON lines.")] = None,
    teacher: Annotated[str | None, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint.")] = None,
    teacher_model: Annotated[str, typer.Option(metavar="NAME")] = "",
    own_programs: Annotated[bool, typer.Option(help="Then: the programs that come along.")] = True,
    repeats: Annotated[int, typer.Option(min=0, help="Of recurrence, each in a fresh process.")] = 4,
    reread: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Read anew what was written in that run of the ledger, in place of asking."),
    ] = None,
    window: options.Window = 4096,
    threads: options.Threads = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """A file of hard problems: base, library by rule, recurrence, the whole system. Goes on where it stopped."""
    from tests.benchmarks.commands.resuming import unfinished
    from tests.benchmarks.flywheel import aime as bench

    if (teacher is None) != (not teacher_model):
        raise UsageError("--teacher and --teacher-model go together")
    solvers: list[Any] = []
    if teacher is not None:
        from agentkv.flywheel.solvers import Endpoint

        solvers.append(Endpoint(teacher, teacher_model, os.environ.get("AGENTKV_TEACHER_KEY", "")))
    opened = options.open_ledger(ledger)
    assert opened is not None
    if file.exists():
        options.fetch_model(model)
    if small:
        problems, samples, max_new, repeats = min(problems or 3, 3), 2, 128, 1
    how: dict[str, Any] = {
        "samples": samples,
        "max_new": max_new,
        "budget": budget,
        "agreement": agreement,
        "seed": seed,
        "own_programs": own_programs,
        "reread": reread,
    }
    n = len(bench.problems(file)[:problems]) if file.exists() else 0
    result = bench.run(
        file,
        model,
        store,
        count=problems,
        **how,
        solutions=solutions,
        solvers=solvers,
        repeats=repeats,
        settings={"window": window, "threads": threads},
        ledger=opened,
        found=unfinished(opened, "bench aime", how | {"count": n, "model": model}, any_code=True),
    )
    common.end(result, out, as_json, _show, lambda _: None)


def _show(result: dict[str, Any]) -> None:
    if "skipped" in result:
        say(f"skipped: {result['skipped']}")
        return
    from tests.benchmarks.energy import told

    summary, rows = result["summary"], []
    for name, label in (
        ("base", "base: the commonest answer"),
        ("base_confident", "… where its samples agree enough"),
        ("base_any_sample", "base: any sample"),
        ("recurrence", "recurrence, the library's"),
        ("system", "system: recurrence, else base"),
    ):
        found = summary[name]
        low, high = found["wilson_95"] if found["n"] else (0.0, 1.0)
        rows.append((label, f"{found['k']} of {found['n']}", f"{low:.2f} to {high:.2f}"))
    table(("score", "right", "95 %"), rows, right=("right", "95 %"))
    say(
        f"\ntokens: {summary['base_tokens']:,} for the base, {summary['recurrence_tokens']:,} for "
        f"{count(len(summary['library']), 'recalled problem')} ({duration(1e3 * summary['recurrence_seconds'])})"
    )
    recall = next(iter(summary["recurrence_joules"]), None)
    say(f"energy: {told(summary['base_joules'])} for the base, {told(recall)} to recall")
    say(f"{count(summary['repeats'], 'repeat')}, {'equal' if summary['repeats_equal'] else 'NOT equal'} each time")
