"""``all``: every benchmark in turn, one process each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.bench import Small
from agentkv.cli.output import duration, finish, say, table, tell
from agentkv.errors import AgentKVError, GuaranteeViolated, UsageError, WorkerFailed
from tests.benchmarks.commands.registry import BENCHMARKS, Given, jobs

Work = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        show_default="agentkv/bench in the user's cache folder",
        help="Results go here, and what is finished there is not run again.",
    ),
]
Only = Annotated[str | None, typer.Option(metavar="NAME,…", help="Only these benchmarks.")]
Problems = Annotated[Path | None, typer.Option(metavar="FILE", help="Problems for `aime`, which do not come along.")]


def all_(
    small: Small = False,
    work: Work = None,
    only: Only = None,
    model: options.BenchModel = "smollm2-135m",
    problems: Problems = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Every benchmark, one model process at a time; with --small at most 15 minutes on two cores."""
    from agentkv.bench.results import origin, save
    from tests.benchmarks import every

    chosen = tuple(part.strip() for part in only.split(",")) if only else ()
    names = [one.name for one in BENCHMARKS]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise UsageError(f"there is no benchmark {unknown[0]!r}; there are {', '.join(names)}")
    folder = (work or _default_work()) / ("small" if small else "full")
    file = None if problems is None else str(problems.absolute())
    given = Given(model, threads, file, str(folder.absolute()))
    result = origin("all", model, "", b"", small=small, only=list(chosen), threads=threads)
    done = every.run(jobs(given, small=small, only=chosen), folder.absolute(), tell=tell, progress=_progress)
    result["parts"] = [
        {**vars(one), "result": None if one.result is None else str(folder / one.result)} for one in done
    ]
    result["seconds"] = round(sum(one.seconds for one in done), 1)
    save(result, folder / "all.json")
    failures: list[AgentKVError] = [
        WorkerFailed(f"benchmark {one.name}", one.code or 1) for one in done if one.verdict == every.BROKEN
    ]
    failures += [GuaranteeViolated(f"{one.name}: {one.reason}") for one in done if one.verdict == every.FAILS]
    finish(result, as_json, lambda: _show(result, folder), failures)


def _default_work() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("agentkv") / "bench"


def _progress(line: str) -> None:
    tell(f"  {line}", dim=True)


def _show(result: dict[str, Any], folder: Path) -> None:
    rows = [
        (
            part["name"],
            part["verdict"],
            "" if part["code"] is None else str(part["code"]),
            f"{part['seconds'] / 60:.1f}",
            part["reason"] or "",
        )
        for part in result["parts"]
    ]
    table(("benchmark", "verdict", "exit code", "minutes", "why"), rows, right=("exit code", "minutes"), wraps=("why",))
    say(f"\n{duration(1e3 * result['seconds'])} in all; results in {folder}", dim=True)
