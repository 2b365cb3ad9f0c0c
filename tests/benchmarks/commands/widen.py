"""``widen``: asks for the benchmark, shows how far it is, and its result."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import console, one_line, say, size, table, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, prefill_bar
from agentkv.errors import UsageError
from tests.benchmarks.commands import common

if TYPE_CHECKING:
    from agentkv.cli.progress import PrefillProgress
    from agentkv.documents.records import ChunkRecord, DocumentRecord
    from agentkv.engine.base import Cancellation
    from tests.benchmarks.documents.widen import Plan, Watch

Work = Annotated[
    Path, typer.Option("--work", metavar="DIR", help="Packages, documents and the store; the next run goes on there.")
]
Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="Documents of your own instead of Debian's packages.")
]
AnyVersion = Annotated[
    bool, typer.Option("--any-version", help="Take another version of a package than the pinned one, and say so.")
]
SameWindow = Annotated[
    int | None, typer.Option("--window", metavar="N", show_default="2048", help="As of `bench widen`.")
]
SameSeed = Annotated[int | None, typer.Option("--seed", metavar="N", show_default="0", help="As of `bench widen`.")]


def widen(
    work: Work,
    model: options.BenchModel = "gemma-3-270m",
    minutes: Annotated[
        float | None, typer.Option(metavar="N", min=0, help="End this sitting after so long, between two windows.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default="all", help="Read no further than so many.")
    ] = None,
    window: Annotated[int | None, typer.Option(metavar="N", show_default="2048", help="Tokens of one window.")] = None,
    folder: Folder = None,
    any_version: AnyVersion = False,
    needles: Annotated[
        int | None, typer.Option(metavar="N", min=0, show_default="60", help="Needles to put into the documents.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", show_default="0", help="Of the needles.")] = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Millions of tokens of documents read once and kept on disk, in as many sittings as it takes."""
    from tests.benchmarks.documents import widen as bench

    plan = planned(small, any_version, folder, window=window, needles=needles, seed=seed, enough=tokens)
    options.fetch_model(model)
    recorded = common.begin(
        ledger, "widen", {"model": model, "minutes": minutes, "threads": threads, **bench.told(plan)}
    )
    with cancelled_by_ctrl_c() as cancellation, watching(cancellation) as watch:
        result = bench.run(engine(model), work, plan, minutes=minutes, settings={"threads": threads}, watch=watch)
    common.end(result, out, as_json, _show, bench.check, recorded)


def engine(model: str) -> Any:
    """The model's name, or the fake for tests."""
    if model != options.FAKE:
        return model
    from agentkv.engine.fake import FakeEngine, quote

    return FakeEngine(window=1 << 14, replies=quote)


def planned(small: bool, any_version: bool, folder: Path | None, **asked: int | None) -> Plan:
    """The plan that was asked for. Raises UsageError for a folder that is none."""
    from tests.benchmarks.documents.widen import SMALL, Plan

    if folder is not None and not folder.is_dir():
        raise UsageError(f"--folder {folder} is no folder")
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return dataclasses.replace(SMALL if small else Plan(), any_version=any_version, folder=folder, **given)


@contextlib.contextmanager
def watching(cancellation: Cancellation) -> Iterator[Watch]:
    """Lines about the steps, and a bar with rate and time left while windows are read."""
    from tests.benchmarks.documents.widen import Watch

    def on_step(line: str) -> None:
        tell(line, dim=True)

    with contextlib.ExitStack() as held:
        bars: list[PrefillProgress] = []

        def on_begin(windows: int, tokens: int, counter: Callable[[], int]) -> None:
            tell(f"{windows:,} windows are not stored; {tokens:,} tokens to read")
            bars.append(held.enter_context(prefill_bar(tokens, counter)))

        def on_chunk(document: DocumentRecord, window: ChunkRecord) -> None:
            bars[0].begin(document.path, window.n_tokens)

        items: list[Callable[[int, str], None]] = []

        def on_item(done: int, total: int, label: str) -> None:
            if not items:
                items.append(held.enter_context(_counting(total)))
            items[0](done, label)

        yield Watch(on_step, on_begin, on_chunk, on_item, cancellation)


@contextlib.contextmanager
def _counting(total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar over ``total`` items with the time left, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    label = TextColumn("{task.description}", markup=False)
    columns = (label, BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, text: bar.update(task, completed=done, description=one_line(text, 48))


def _show(result: dict[str, Any]) -> None:
    corpus, paper = result["corpus"], result["paper"]
    say(f"{result['model']}: windows of at most {corpus['window']:,} tokens of {corpus['documents']:,} documents\n")
    pinned = all(package["pinned"] for package in corpus["packages"])
    rows = [
        ("blocks", f"{result['blocks']:,} of {corpus['windows']:,}", f"{paper['blocks']:,}"),
        ("tokens of the documents", f"{result['tokens']:,}", f"{paper['tokens']:,}"),
        ("on disk", size(result["bytes"]), size(paper["bytes"])),
        ("× the trained window", f"{result['ratio']['trained window']:.1f}", f"{paper['ratio']:.1f}"),
        ("× the serving window", f"{result['ratio']['serving window']:,.0f}", ""),
        ("tokens a second", _number(result["tokens_a_second"], ".0f"), ""),
        ("of that time in prefill", _number(result["prefill_share"], ".1%"), ""),
    ]
    table(("", "here", "paper"), rows, right=("here", "paper"))
    say()
    columns = ("sitting", "began", "ended", "windows", "tokens", "minutes", "tokens/s", "prefill", "probes")
    told = [
        (
            row["sitting"], row["started"], row["ended"] or "killed", f"{row['windows']:,}", f"{row['own_tokens']:,}",
            f"{row['seconds'] / 60:.1f}", _number(row["tokens_a_second"], ".0f"), _number(row["prefill_share"], ".1%"),
            _number(row["probe_share"], ".1%"),
        )
        for row in result["sittings"]
    ]  # fmt: skip
    table(columns, told, right=columns[3:], wraps=("ended",))
    levels = ", ".join(f"{number:,} {level}" for level, number in sorted(result["levels"].items()))
    reproved = result["reproved"]
    say(f"\n{levels}; {reproved['blocks']} proofs repeated from the files, {len(reproved['differ'])} differ")
    if not pinned:
        say("the documents are not those of the pinned packages", dim=True)
    for aim in result["aims"]:
        say(
            f"aim: {aim['aim']} at least {aim['limit']:,}, is {aim['value']:,.1f}: {'met' if aim['met'] else 'NOT MET'}"
        )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
