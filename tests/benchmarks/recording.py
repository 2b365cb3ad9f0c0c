"""Benchmarks that record each item as soon as it is done, and resume a run that broke off."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from agentkv.bench import measured
from agentkv.bench.base import Benchmark, Column, ModelSettings, Row, interval, option
from agentkv.bench.results import origin
from agentkv.engine.base import Engine
from agentkv.evidence import Item, Ledger, Run
from agentkv.evidence.environment import source_code
from agentkv.evidence.files import FILE
from agentkv.evidence.ledger import RecordedRun
from agentkv.memory.memory import AgentMemory


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``engine``: an open one in place of the model's."""

    engine: Engine | None = None


def window_option(tokens: int) -> Any:
    """The option ``--window``."""
    return option(tokens, "Tokens that fit into the context.", metavar="TOKENS", env="AGENTKV_WINDOW")


@contextlib.contextmanager
def opened_memory(
    asked: Settings, store: Path | None = None, *, window: int | None = None, embedder: str | None = None
) -> Iterator[AgentMemory]:
    """The memory that is measured, in ``store`` or a temporary one."""
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as folder:
        options: dict[str, Any] = {} if asked.engine else {"window": window, "threads": asked.threads}
        place, model = store or Path(folder) / "store", asked.engine or asked.model
        with AgentMemory(place, model, embedder=embedder, **options) as memory:
            yield memory


def summary_of(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The summary as the one row of a table; no row where the benchmark was skipped."""
    return [result["summary"]] if "summary" in result else []


def counted(heading: str, name: str) -> Column[Mapping[str, Any]]:
    """The column of a share of the summary."""
    return Column(heading, lambda summary: of_asked(summary[name]))


def of_asked(part: Mapping[str, Any]) -> str:
    """A share with its interval, or that nothing was asked."""
    return interval(part) if part["n"] else "not asked"


# --- items ------------------------------------------------------------------------------------------

W = TypeVar("W", bound=Row)
E = TypeVar("E", bound=Row)


class Seen(Row, Generic[W, E]):
    """An item as a result has it: what was generated, what it is scored against, tokens by kind."""

    key: str
    raw: W
    expected: E
    tokens: dict[str, int] | None = None

    @property
    def item(self) -> Item:
        """As a ledger has it."""
        return Item(self.key, self.raw.model_dump(), self.expected.model_dump(), self.tokens)


@dataclass
class Recording:
    """A benchmark's items, those of before it broke off included. ``run``: in the ledger, if there is one."""

    header: dict[str, Any]
    run: Run | None
    items: list[Item]

    @property
    def keys(self) -> set[str]:
        """What is done."""
        return {item.key for item in self.items}

    def add(self, item: Item) -> None:
        """On record at once."""
        self.items.append(item)
        if self.run is not None:
            self.run.record_all([item])

    def end(self) -> dict[str, Any]:
        """The whole result; its summary is what the run reports."""
        result = measured.result(self.header, self.items, under="summary")
        if self.run is not None:
            self.run.scores(result["summary"])
            self.run.end()
        return {**result, "ledger_run": None if self.run is None else self.run.id}


M = TypeVar("M", bound=Settings)


class Recorded(Benchmark[M], Generic[M]):
    """Its figures are made of whole items, and stand under ``summary``. No promise, unless it says otherwise."""

    whole = resumes = True
    any_code: ClassVar[bool] = False
    """Whether a run that other code began is resumed, too."""

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Nothing is guaranteed: what a model can do is what is measured."""

    def recording(self, memory: AgentMemory, name: str, inputs: bytes, settings: Mapping[str, Any]) -> Recording:
        """A new run, or the one that broke off, if it was of these inputs and this very model.

        ``name``: what the inputs are called in the ledger; ``settings``: what names the run beside the model.
        """
        model, ledger = self.settings.model, self.ledger
        header = origin(self.kind, model, memory.engine.info.sha256, inputs, started=self.started, **settings)
        header["version"] = self.version
        if ledger is None:
            return Recording(header, None, [])
        asked = {**settings, "model": model}
        digests = {name: header["inputs_sha256"], "model": header["model_sha256"]}
        found = unfinished(ledger, self.kind, asked, any_code=self.any_code)
        if found is not None and found.body.inputs == digests:
            return Recording(header, ledger.resume(found), ledger.items(found))
        engine = {"engine": memory.engine.fingerprint()}
        run = ledger.begin(self.kind, version=self.version, settings=asked, inputs=digests, fingerprints=engine)
        return Recording(header, run, [])


def unfinished(ledger: Ledger, kind: str, settings: Mapping[str, Any], *, any_code: bool = False) -> RecordedRun | None:
    """The latest run of that kind and these settings, if it has no end; made by this very code unless ``any_code``.

    A run that is resumed keeps the record of the code that it began with.
    """
    if not (ledger.folder / FILE).exists():
        return None
    code = source_code().tree_sha256
    for run in reversed(ledger.runs()):
        if run.kind == kind and run.body.settings == settings and (any_code or run.body.code.tree_sha256 == code):
            return run if run.status == "unfinished" else None
    return None
