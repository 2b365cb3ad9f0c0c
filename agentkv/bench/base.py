"""What a benchmark declares, in one file: its settings, its run, its figures, its tables.

    class Growth(Benchmark[Settings]):
        \"\"\"The first line is the command's help.\"\"\"

        name = "growth"                        # on the command line, in results and ledgers
        tables = (Table(rows, columns),)       # to the terminal and, where it has a name, to a page of results

        def run(self) -> dict[str, Any]: ...   # measures, and returns self.result(raw, …)
        def figures(raw) -> dict[str, Any]: …  # a pure function of the raw records: the scorer
        def check(result) -> None: …           # raises GuaranteeViolated for what does not hold

``Settings`` is a frozen dataclass; each field made with :func:`option` is an option of the command, and a field called
``model``, ``threads``, ``kv_type``, … is the option of that name that all commands share. A change of what is counted
is a new ``version``. :mod:`agentkv.cli.bench` makes the command.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

from agentkv.bench import BENCHMARKS, measured
from agentkv.bench.measured import Raw
from agentkv.bench.results import now, origin
from agentkv.evidence.ledger import Ledger
from agentkv.evidence.records import Item
from agentkv.io.hashing import canonical_json

DEFAULT_MODEL = "smollm2-135m"

# --- settings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """How a field is given on the command line. ``shown``: its default as the help shows it; ``short``: another name,
    as ``-k``; ``least``, ``most``: of a number; ``env``: an environment variable that stands in for it; ``argument``:
    given by its place, without a name.

    Of a field that is an option which all commands share, ``help`` (unless empty) and ``shown`` count.
    """

    help: str
    name: str | None = None
    short: str | None = None
    metavar: str | None = None
    shown: str | None = None
    least: float | None = None
    most: float | None = None
    env: str | None = None
    argument: bool = False
    small: Any = None
    """The default with ``--small``, if it is another."""


def option(
    default: Any,
    help: str,
    *,
    name: str | None = None,
    short: str | None = None,
    metavar: str | None = None,
    shown: str | None = None,
    least: float | None = None,
    most: float | None = None,
    env: str | None = None,
    argument: bool = False,
    small: Any = None,
) -> Any:
    """A dataclass field that is an option; see :class:`Option`. A tuple of numbers or words is given as ``A,B,…``.

    Without a ``default`` (``dataclasses.MISSING``) it has to be given.
    """
    made = Option(help, name, short, metavar, shown, least, most, env, argument, small)
    return dataclasses.field(default=default, metadata={"option": made})


def lengths_option(usual: tuple[int, ...], small: tuple[int, ...]) -> Any:
    """The option ``--lengths``."""
    return option(usual, "Block lengths in tokens.", metavar="N,N,…", small=small)


def small_option(help: str = "A part of it that takes a minute or two.") -> Any:
    """The field of a benchmark whose run depends on ``--small``; the option is there wherever a default does, too."""
    return option(False, help)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Of a benchmark that runs a model: its name or path, CPU threads (None: all)."""

    model: str = DEFAULT_MODEL
    threads: int | None = None


SHARED = ("model", "embedder", "threads", "flash_attention", "kv_type", "gpu_layers", "small")
"""Fields that are options of every command that has them."""


def options_of(settings: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a settings class that are options."""
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return {name: field for name, field in fields.items() if "option" in field.metadata or name in SHARED}


S = TypeVar("S")
T = TypeVar("T")

# --- records and tables -----------------------------------------------------------------------------


class Row(BaseModel):
    """Base of raw records and rows of figures: read from JSON, written to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def in_(cls, result: Mapping[str, Any]) -> Self:
        """Of a whole result: what it has under the names of the fields."""
        names = [field.alias or name for name, field in cls.model_fields.items()]
        return cls.model_validate({name: result[name] for name in names})


R = TypeVar("R", bound=Row)


def records(kind: type[R], raw: Raw, prefix: str = "") -> list[R]:
    """The raw records whose key begins with ``prefix``. Raises ValueError where one is of another form."""
    return [kind.model_validate(record) for key, record in raw.items() if key.startswith(prefix)]


def rows_of(kind: type[R], key: str) -> Callable[[Mapping[str, Any]], list[R]]:
    """From a result to the rows that its figure ``key`` lists."""
    return lambda result: [kind.model_validate(row) for row in result[key]]


class Timing(Row):
    """Milliseconds of several repeats."""

    median: float
    min: float
    max: float
    repeats: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Timing:
        """Of each repeat's milliseconds; at least one."""
        return cls(median=statistics.median(times), min=min(times), max=max(times), repeats=float(len(times)))


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column: the cell of a row. ``left``: text, aligned left and folded where the terminal is narrow.

    ``heading``: or a function of the results, which may raise ValueError where they do not fit into one table.
    """

    heading: str | Callable[[Sequence[Mapping[str, Any]]], str]
    cell: Callable[[T], str]
    left: bool = False


@dataclass(frozen=True)
class Table(Generic[T]):
    """One list of columns for the terminal and for Markdown.

    ``rows``: from a result; a tuple of strings is a row that is written already, filled with empty cells. ``name``:
    between the markers of a page of results; ``published``: which rows such a page has; ``by_model``: whether it
    begins with the model, which on the terminal is the same in each.
    """

    rows: Callable[[Mapping[str, Any]], Iterable[T | tuple[str, ...]]]
    columns: tuple[Column[T], ...]
    name: str | None = None
    published: Callable[[T], bool] = lambda row: True
    by_model: bool = True

    def headings(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        """Of every column."""
        given = [column.heading for column in self.columns]
        return [heading if isinstance(heading, str) else heading(results) for heading in given]

    def cells(self, result: Mapping[str, Any], *, published: bool = False) -> list[list[str]]:
        """The rows as text, one cell a column."""
        found = []
        for row in self.rows(result):
            if isinstance(row, tuple):
                found.append([*row, *[""] * (len(self.columns) - len(row))])
            elif not published or self.published(row):
                found.append([column.cell(row) for column in self.columns])
        return found

    def markdown(self, results: Iterable[Mapping[str, Any]]) -> str:
        """The published rows of several results, below each other."""
        shown = list(results)
        model = ["model"] if self.by_model else []
        rows = [
            [*([one["model"]] if self.by_model else []), *row]
            for one in shown
            for row in self.cells(one, published=True)
        ]
        return markdown([*model, *self.headings(shown)], rows)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def milliseconds(value: float) -> str:
    """Three digits of a number of milliseconds at most: ``0.02``, ``4.9``, ``58``, ``1,470``."""
    if value < 0.1:
        return f"{value:.2f}"
    if value < 10:
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def interval(part: Mapping[str, Any]) -> str:
    """So many of so many, their share, its 95 % interval after Wilson; of :func:`agentkv.figures.share`; "" of none."""
    if not part["n"]:
        return ""
    low, high = part["wilson_95"]
    return f"{part['k']}/{part['n']} = {part['share']:.3f} ({low:.3f}–{high:.3f})"


def duration(ms: float) -> str:
    """Milliseconds, or seconds from one second on."""
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1e3:.1f} s"


def gigabytes(count: float) -> str:
    """Bytes in GB."""
    return f"{count / 1e9:.1f} GB"


def megabytes(count: float) -> str:
    """Bytes in MB."""
    return f"{count / 1e6:.1f} MB"


def left_out(result: Mapping[str, Any]) -> list[str]:
    """A line a length that was not measured."""
    return [f"{int(n):,} tokens left out: {reason}" for n, reason in result["left_out"].items()]


def aims(result: Mapping[str, Any]) -> list[str]:
    """A line an aim, which is reported and not enforced."""
    lines = []
    for aim in result["aims"]:
        bound, limit = ("at least", aim["least"]) if "least" in aim else ("at most", aim["limit"])
        at = f" at {aim['n']:,} tokens" if "n" in aim else ""
        met = "met" if aim["met"] else "NOT MET"
        lines.append(f"aim{at}: {aim['aim']} {bound} {limit:.2f}, is {aim['value']:.3f}: {met}")
    return lines


# --- a benchmark ------------------------------------------------------------------------------------


class Benchmark(ABC, Generic[S]):
    """Base of every benchmark; see the module's text."""

    name: ClassVar[str]
    kind: ClassVar[str]
    """By which results and ledgers know it; its name, unless it says otherwise."""
    version: ClassVar[int] = 1
    whole: ClassVar[bool] = False
    """Whether ``figures`` gets whole items by key, with what is expected and counted, instead of their raw part."""
    resumes: ClassVar[bool] = False
    """Whether ``run`` itself records in :attr:`ledger` and resumes a run that has no end there."""
    tables: ClassVar[tuple[Table[Any], ...]] = ()
    settings_type: ClassVar[type[Any]]

    def __init__(self, settings: S | None = None, **given: Any) -> None:
        self.settings: S = settings if settings is not None else self.settings_type(**given)
        self.started = now()
        self.ledger: Ledger | None = None

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "figures" not in cls.__dict__:
            return  # a benchmark that measures in another way what its base does
        cls.settings_type = get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]
        cls.kind = cls.__dict__.get("kind", cls.name)
        measured.measured(cls.kind, cls.version, whole=cls.whole)(cls.figures)

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Measure, and give the whole result."""

    @staticmethod
    @abstractmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """The figures that follow from the raw records by key, as JSON gives them back. Pure; no model, no llama.cpp.

        Inside a record keys come back sorted: where an order counts, it is a list.
        """

    @staticmethod
    @abstractmethod
    def check(result: dict[str, Any]) -> None:
        """Raise GuaranteeViolated for the first promise that does not hold."""

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Lines below the tables on the terminal."""
        return ()

    def models(self) -> list[str]:
        """Names of the models that have to be on this machine."""
        named = (getattr(self.settings, field, None) for field in ("model", "embedder", "answer_model"))
        return [name for name in named if isinstance(name, str)]

    def recorded(self) -> dict[str, Any]:
        """The settings as a ledger records them: the options, but for places on this machine."""
        fields = options_of(self.settings_type).items()
        known = {name: getattr(self.settings, name) for name, field in fields if "Path" not in str(field.type)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}

    def result(
        self,
        raw: Raw | Sequence[Item],
        *,
        model: str,
        model_sha256: str = "",
        inputs: Any,
        settings: dict[str, Any],
        **more: Any,
    ) -> dict[str, Any]:
        """The whole result: header, figures, raw records. ``inputs``: JSON, or bytes; ``more``: what else it says."""
        data = inputs if isinstance(inputs, bytes) else canonical_json(inputs)
        header = origin(self.kind, model, model_sha256, data, started=self.started, **settings)
        return measured.result({**header, "version": self.version, **more}, raw)


def load(name: str) -> type[Benchmark[Any]]:
    """The benchmark of a command of ``agentkv bench``; its module is imported now."""
    benchmark: type[Benchmark[Any]] = getattr(importlib.import_module(f"agentkv.bench.{name}"), BENCHMARKS[name])
    return benchmark


# --- what several measure with ----------------------------------------------------------------------


def timed(work: Callable[[], object], repeats: int, warm_up: int = 1) -> list[float]:
    """Milliseconds of each of ``repeats`` runs of ``work``, after ``warm_up`` runs that are not timed."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return times
