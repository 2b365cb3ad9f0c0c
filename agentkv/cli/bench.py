"""``agentkv bench``: what a user measures on a machine and a model of his own; each command from its benchmark's class.

Exit code 60 when what is measured and promised does not hold. A benchmark's module is imported when its command is
used. Research benchmarks are in a checkout: ``python -m tests.benchmarks``.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from agentkv.bench import BENCHMARKS
from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.output import console, count, facts, say, table
from agentkv.errors import AgentKVError, GuaranteeViolated, ScoreMismatch, UsageError

if TYPE_CHECKING:
    from agentkv.bench.base import Benchmark, Option, Table
    from agentkv.bench.results import Figure
    from agentkv.evidence import Run

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the whole result as JSON.")]
Small = Annotated[bool, typer.Option("--small", help="A part of it that takes a minute or two.")]

_SHARED: dict[str, Any] = {
    "model": options.BenchModel,
    "embedder": options.Embedder,
    "threads": options.Threads,
    "flash_attention": options.FlashAttention,
    "kv_type": options.KvType,
    "gpu_layers": options.GpuLayers,
    "small": Small,
}
"""The options of :data:`agentkv.bench.base.SHARED`."""


_HEADING = 14
"""Characters that a line of a heading may have, unless a cell below it has more."""
_GAP = 2
"""Spaces after a cell."""


# --- a command from a class -------------------------------------------------------------------------


def command(kind: type[Benchmark[Any]]) -> Callable[..., Result]:
    """The function of a benchmark's command: its settings as options, and what all have."""
    fields = _fields(kind)

    def run(**values: Any) -> Result:
        out, ledger = values.pop("out"), values.pop("ledger")
        small = values.pop("small", False)
        known = {name: _value(field, values[name], small) for name, field in fields.items() if name != "small"}
        return measure(kind(**known, **({"small": small} if "small" in fields else {})), out, ledger)

    parameters = {name: _parameter(name, field) for name, field in fields.items()}
    if any(option.small is not None for option in map(_option, fields.values()) if option):
        parameters.setdefault("small", _typed("small", Small, False))
    parameters |= {"out": _typed("out", Out, None), "ledger": _typed("ledger", options.Ledger, None)}
    run.__name__, run.__doc__ = kind.name, inspect.getdoc(kind)
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _fields(kind: type[Benchmark[Any]]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of its settings that are options; with their types as objects, not as text."""
    from agentkv.bench.base import options_of

    hints, fields = typing.get_type_hints(kind.settings_type), options_of(kind.settings_type)
    for field in fields.values():
        field.type = hints[field.name]
    return fields


def _option(field: dataclasses.Field[Any]) -> Option | None:
    option: Option | None = field.metadata.get("option")
    return option


def _typed(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter(name: str, field: dataclasses.Field[Any]) -> inspect.Parameter:
    option = _option(field)
    if name in _SHARED or option is None:
        return _typed(name, _shared(name, field), field.default)
    flag = f"--{(option.name or name).replace('_', '-')}"
    how: dict[str, Any] = {"metavar": option.metavar, "help": option.help, "min": option.least, "max": option.most}
    if option.argument:
        return _typed(name, Annotated[field.type, typer.Argument(**how)], inspect.Parameter.empty)
    how["envvar"] = option.env
    if field.type is bool:
        switch = f"{flag}/--no{flag[1:]}" if field.default else flag
        return _typed(name, Annotated[bool, typer.Option(switch, help=option.help)], field.default)
    flags = (flag, *([option.short] if option.short else []))
    if field.default is dataclasses.MISSING:
        return _typed(name, Annotated[field.type, typer.Option(*flags, **how)], inspect.Parameter.empty)
    if field.default:
        usual = field.default if isinstance(field.default, tuple) else (field.default,)
        how["show_default"] = option.shown or ",".join(map(str, usual))
    elif option.shown:
        how["show_default"] = option.shown
    return _typed(name, Annotated[_given(field.type, field.default), typer.Option(*flags, **how)], None)


def _shared(name: str, field: dataclasses.Field[Any]) -> Any:
    """The type of a shared option; a benchmark may say in its own words what it does and what its default is."""
    option, (declared, flag) = _option(field), typing.get_args(_SHARED[name])
    if option is None:
        return _SHARED[name]
    own = copy.copy(flag)
    own.help, own.show_default = option.help or flag.help, option.shown or flag.show_default
    return Annotated[declared | None if field.default is None else declared, own]


def _given(declared: Any, default: Any) -> Any:
    """What the command line takes for a field: several words where there is no usual list, ``A,B,…`` where there is."""
    if typing.get_origin(declared) is tuple:
        return str | None if default else list[str] | None
    return declared if isinstance(declared, types.UnionType) else declared | None


def _value(field: dataclasses.Field[Any], given: Any, small: bool) -> Any:
    """What was given, or the default, which may be another with ``--small``."""
    option = _option(field)
    if given is None or given == []:
        return option.small if small and option and option.small is not None else field.default
    if typing.get_origin(field.type) is not tuple:
        return given
    if isinstance(given, list):
        return tuple(given)
    if typing.get_args(field.type)[0] is int:
        return tuple(options.numbers(given) or ())
    return tuple(part.strip() for part in given.split(","))


def measure(benchmark: Benchmark[Any], out: Path | None, ledger: Path | None) -> Result:
    """Run a benchmark: on record before anything is measured, and saved; ends with 60 if a promise does not hold."""
    for name in benchmark.models():
        options.fetch_model(name)
    recorded = None
    if benchmark.resumes:
        benchmark.ledger = options.open_ledger(ledger)
    else:
        recorded = begin(ledger, benchmark.kind, benchmark.recorded(), benchmark.version)
    result = benchmark.run()

    def show(result: dict[str, Any]) -> None:
        show_tables(benchmark.tables, result)
        for line in benchmark.notes(result):
            say(line)

    return ended(result, out, show, benchmark.check, recorded)


def show_tables(tables: Iterable[Table[Any]], result: Mapping[str, Any]) -> None:
    """Each that has rows, and an empty line after it. A single row that is too wide stands upright."""
    for one in tables:
        rows = one.cells(result)
        if not rows:
            continue
        if len(rows) == 1 and sum(map(len, rows[0])) + _GAP * len(rows[0]) > console().width:
            facts(zip(one.headings([result]), rows[0], strict=True))
            say()
            continue
        widest = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        headings = [
            textwrap.fill(heading, max(width, _HEADING))
            for heading, width in zip(one.headings([result]), widest, strict=True)
        ]
        texts = {heading for heading, column in zip(headings, one.columns, strict=True) if column.left}
        table(headings, rows, right=[heading for heading in headings if heading not in texts], wraps=list(texts))
        say()


def begin(ledger: Path | None, benchmark: str, settings: Mapping[str, Any], version: int = 1) -> Run | None:
    """A run in the ledger, if one was given, before anything is measured: if it breaks off, that is on record.

    ``settings``: what was asked for. ``version``: of the benchmark's figures.
    """
    opened = options.open_ledger(ledger)
    return None if opened is None else opened.begin(benchmark, version=version, settings=settings)


def ended(
    result: dict[str, Any],
    out: Path | None,
    show: Callable[[dict[str, Any]], None],
    check: Callable[[dict[str, Any]], None],
    run: Run | None = None,
) -> Result:
    """Record and save the result; it is a failure if what it promises did not hold.

    ``run``: what :func:`begin` gave. Raw records go to the ledger and the file, not to the terminal.
    """
    from agentkv.bench.results import now, save

    result = {**result, "finished": now()}
    failures: list[GuaranteeViolated] = []
    try:
        check(result)
    except GuaranteeViolated as error:
        failures.append(error)
    if run is not None:
        _record(run, result, failures[0].message if failures else None)
        result["ledger_run"] = run.id
    save(result, out)
    return Result({key: value for key, value in result.items() if key != "raw"}, lambda: show(result), failures)


def _record(run: Run, result: dict[str, Any], failure: str | None) -> None:
    from agentkv.bench import measured
    from agentkv.evidence import Item

    items = measured.items_of(result)
    run.record_all([Item(measured.ORIGIN, measured.header(result)), *items])
    run.verdict("what is promised holds", failure is None, failure)
    run.scores(measured.figures_of(result))
    run.end()


# --- the group --------------------------------------------------------------------------------------


class Group(TyperGroup):
    """Commands that are made when they are asked for, so that no other command imports a benchmark."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Benchmarks first."""
        return [*BENCHMARKS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a benchmark, or one of the others."""
        if cmd_name in BENCHMARKS and cmd_name not in self.commands:
            from agentkv.bench.base import load

            one = App(add_completion=False)
            one.command(cmd_name)(command(load(cmd_name)))
            self.commands[cmd_name] = typer.main.get_command(one)
        return super().get_command(ctx, cmd_name)


app = App(
    cls=Group,
    no_args_is_help=True,
    help="Measure what agentkv promises, on this machine.",
    epilog="Research benchmarks, in a checkout: `python -m tests.benchmarks`.",
)


@app.command()
def score(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT…", help="Files that --out wrote.")],
) -> Result:
    """Compute every figure of result files again, without a model, and compare. Exit code 103 if one differs."""
    from agentkv.bench.measured import rescore
    from agentkv.bench.results import read

    rows: list[dict[str, Any]] = []
    failures: list[AgentKVError] = []
    for path in results:
        result = read(path)
        differences = rescore(result.data)
        if differences:
            failures.append(ScoreMismatch(str(path), differences))
        records = len(result.data["raw"])
        rows.append({"file": path, "benchmark": result.benchmark, "records": records, "differences": differences})

    def show() -> None:
        for row in rows:
            verdict = "; ".join(row["differences"]) or "every figure is equal"
            say(f"{row['file']}: {row['benchmark']}, {count(row['records'], 'raw record')}: {verdict}")

    return Result({"results": rows}, show, failures)


_PLACE = "FILE:PATH; a path is names and indices with dots, as in lengths.0.cold_prefill_ms."


@app.command()
def ratio(
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help=_PLACE)],
    other: Annotated[str, typer.Argument(metavar="FIGURE", help="What it is divided by.")],
) -> Result:
    """Divide two figures of one run; figures of different runs are refused, with exit code 63."""
    first, second = _figure(figure), _figure(other)
    value = first.over(second)
    result = {"ratio": value, "figure": first.value, "over": second.value, "run": first.run}
    return Result(result, lambda: say(f"{first.value:g} / {second.value:g} = {value:.3g}"))


def _figure(place: str) -> Figure:
    from agentkv.bench.results import read

    file, _, path = place.rpartition(":")
    if not file or not path:
        raise UsageError(f"{place!r} is not {_PLACE}")
    return read(Path(file)).figure(path)
