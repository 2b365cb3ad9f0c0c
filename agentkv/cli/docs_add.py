"""``agentkv docs add``: bring files and folders into a corpus, or bring it up to date with them.

First the plan, with what it will cost by one measured chunk; then the work, which Ctrl-C and worse may cut short: the
same command goes on where it stopped. One bad file keeps no other out.

``agentkv docs reindex``: the search index made again from the records and the kept sources, and with an embedding model
the vectors that are missing of the embedding index.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.docs import DEFAULT, Corpus, open_shelf
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import console, count, is_terminal, one_line, picked, say, size, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, prefill_bar, status, steps
from agentkv.errors import AgentKVError, Interrupted, UsageError

if TYPE_CHECKING:
    from agentkv.documents import Shelf
    from agentkv.documents.adding import AddPlan, AddReport, Forecast
    from agentkv.documents.corpus import Corpus as CorpusOf
    from agentkv.documents.corpus import Keep
    from agentkv.documents.records import ChunkRecord, DocumentRecord
    from agentkv.engine.base import Cancellation
    from agentkv.engine.embed import Embedder


_SHOWN = 5
_LOOKED_INTO = 1000


def add(
    *,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, and folders of files.")],
    corpus: Corpus = DEFAULT,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", metavar="N", show_default="1,024", help="Most tokens of one chunk."),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="96", help="Tokens that a chunk shares with the one before it."),
    ] = None,
    eager: Annotated[
        bool, typer.Option("--eager", help="Prefill every chunk now (the default up to a minute and a gigabyte).")
    ] = False,
    lazy: Annotated[bool, typer.Option("--lazy", help="Index now, prefill a chunk when a question needs it.")] = False,
    top: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Like --lazy, and keep only the N chunks used last.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Of folders, only files like this; may be given again.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Of folders, no files like this; may be given again.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default="what the files say or look like", help="How these files are encoded."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=options.YES_HELP)] = False,
    embedder: options.Embedder = None,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Cut files into chunks, index them, and prefill each once; unchanged files cost a hash.

    With an embedder the chunks are also indexed by their embeddings.
    """
    from agentkv.documents import Corpus as Opened

    keep = _keep(eager, lazy, top)
    place = store.path
    _check(place, paths)
    with contextlib.ExitStack() as held:
        is_thrown_away = dry_run and not place.exists()  # the plan for a new store
        if is_thrown_away:
            store = StoreOptions(Path(held.enter_context(tempfile.TemporaryDirectory(prefix="agentkv-"))) / "store")
        create = is_thrown_away or not dry_run
        memory = held.enter_context(options.open_memory(store, *engine.chosen(store), create=create, embedder=embedder))
        opened = Opened(memory, corpus, chunk_tokens=tokens, overlap=overlap, keep=keep, top=top)
        wish = _Wish(include or [], exclude or [], encoding, dry_run, yes, as_json)
        plan, forecast, report = _work(opened, paths, wish)
        vectors = None
        if memory.embedder is not None and not dry_run:
            vectors = embedded(opened.shelf, memory.embedder)
        whole = [chunk.block_id for document in opened.shelf.all().values() for chunk in document.chunks]
        stored = len(whole), len(opened.shelf.stored())
    record = {**_record(opened, plan, forecast, report, stored), "store": place, "embedded": vectors}
    failures: list[AgentKVError] = list(plan.failed)
    if report is not None:
        failures += [*report.skipped, *([report.stopped] if report.stopped else [])]
    return Result(record, lambda: _show(record, report), failures)


def _check(place: Path, paths: list[Path]) -> None:
    """Before any model is loaded: each path is there, or was, as a file of a corpus of the store."""
    from agentkv.documents.gather import root_of
    from agentkv.documents.shelf import shelves

    absent = [path for path in paths if not path.exists()]
    known: set[str] = set()
    if absent and place.exists():
        with options.open_store(place) as opened:
            known = {document.origin for shelf in shelves(opened) for document in shelf.all().values()}
    for path in absent:
        if root_of(path) not in known:
            raise UsageError(f"{path} is not a file or directory. Name the files or folders to add")


class _Wish(NamedTuple):
    include: list[str]
    exclude: list[str]
    encoding: str | None
    dry_run: bool
    yes: bool
    as_json: bool


def _keep(eager: bool, lazy: bool, top: int | None) -> Keep | None:
    if eager + lazy + (top is not None) > 1:
        raise UsageError("--eager, --lazy and --top exclude each other")
    return "eager" if eager else "lazy" if lazy else "top" if top is not None else None


def _work(corpus: CorpusOf, paths: list[Path], wish: _Wish) -> tuple[AddPlan, Forecast | None, AddReport | None]:
    plan: AddPlan | None = None
    started = 0
    try:
        with cancelled_by_ctrl_c() as cancellation:
            with _files("cutting") as on_file:
                plan = corpus.plan(
                    [*paths],
                    include=wish.include,
                    exclude=wish.exclude,
                    encoding=wish.encoding,
                    on_file=on_file,
                    cancellation=cancellation,
                )
            sample = None
            if corpus.record.keep == "eager":
                with status("measuring one chunk"):
                    sample = corpus.sample(plan, cancellation)
            forecast = corpus.decide(plan, sample)
            if not wish.as_json:
                _show_plan(corpus, plan, forecast)
            if wish.dry_run:
                return plan, forecast, None
            if corpus.record.keep == "eager" and forecast is not None and forecast.is_much and not wish.yes:
                _agreed(_cost(forecast))
            started = len(plan.missing)
            return plan, forecast, _carry_out(corpus, plan, cancellation)
    except KeyboardInterrupt:
        raise _interrupted(corpus, plan, started) from None


def _agreed(cost: str) -> None:
    """Have the user agree, where a terminal can ask one. Raises ReadingNotConfirmed."""
    from agentkv.errors import ReadingNotConfirmed

    question = f"The prefill of every chunk now would take {cost}. Go on?"
    if not (is_terminal() and typer.confirm(question, default=False, err=True)):
        raise ReadingNotConfirmed(cost)


def _carry_out(corpus: CorpusOf, plan: AddPlan, cancellation: Cancellation) -> AddReport:
    counters = corpus.memory.engine.counters
    reads = corpus.record.keep == "eager"
    with prefill_bar(plan.missing_tokens if reads else 0, lambda: counters.decoded) as bar:

        def on_chunk(document: DocumentRecord, chunk: ChunkRecord) -> None:
            bar.begin(document.path, chunk.n_tokens)

        return corpus.carry_out(plan, on_chunk=on_chunk, cancellation=cancellation)


@contextlib.contextmanager
def _files(what: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """A line on a terminal that says which file is looked at."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    with screen.status(what) as line:
        yield lambda done, total, path: line.update(f"{what} {done + 1:,} of {total:,}: {one_line(path, 60)}")


def _interrupted(corpus: CorpusOf, plan: AddPlan | None, started: int) -> Interrupted:
    if plan is None or not started:
        return Interrupted("interrupted; what was stored before stays")
    stored = corpus.memory.store.exists
    done = started - sum(not stored(chunk.block_id) for _, chunk in plan.missing)
    return Interrupted(
        f"interrupted: {done:,} of {count(started, 'chunk')} were prefilled and stay; the same command does the rest",
        done=done,
        total=started,
    )


# --- the screen -----------------------------------------------------------------------------------


_CHANGES = {"new": "new", "changed": "changed", "recut": "converted otherwise by this version"}


def _show_passed_over(paths: Sequence[Path]) -> None:
    """What of folders is not added, by what it is: a format that is refused, or nothing that is known."""
    from agentkv.documents.readers.formats import what_it_is

    formats = {path: what for path in paths[:_LOOKED_INTO] if (what := what_it_is(path)) is not None}
    if formats:
        tell(f"passed over: {_listed([f'{path.name} ({what})' for path, what in formats.items()])}", dim=True)
        tell("  add one by its own path to see what makes text of it", dim=True)
    others = [path.name for path in paths if path not in formats]
    if others:
        tell(f"passed over, of unknown kind (--include '*' takes them as text): {_listed(others)}", dim=True)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _show_plan(corpus: CorpusOf, plan: AddPlan, forecast: Forecast | None) -> None:
    changes = dict.fromkeys(_CHANGES, 0)
    for item in plan.planned:
        changes[item.change] += 1
    parts = [f"{number:,} {_CHANGES[what]}" for what, number in changes.items() if number]
    parts += [f"{len(plan.unchanged):,} unchanged"] if plan.unchanged else []
    parts += [f"{len(plan.removed):,} gone"] if plan.removed else []
    tell(f"{count(len(plan.documents), 'file')} ({', '.join(parts) or 'nothing to do'})")
    tell(f"{count(plan.n_chunks, 'chunk')} of at most {corpus.record.chunk_tokens:,} tokens, {plan.n_tokens:,} in all")
    _show_passed_over(plan.passed_over)
    if corpus.record.keep != "eager":
        tell(f"{corpus.record.keep}: chunks are prefilled when a question first needs them")
    elif plan.missing:
        cost = f"; {_cost(forecast)}, by one chunk measured" if forecast else ""
        tell(f"to prefill: {count(len(plan.missing), 'chunk')}, {plan.missing_tokens:,} tokens{cost}")


def _cost(forecast: Forecast) -> str:
    return f"about {size(forecast.n_bytes)} on disk and {_time(forecast.seconds)}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _record(
    corpus: CorpusOf, plan: AddPlan, forecast: Forecast | None, report: AddReport | None, whole: tuple[int, int]
) -> dict[str, Any]:
    estimate = {"seconds": forecast.seconds, "bytes": forecast.n_bytes} if forecast else None
    return {
        "corpus": corpus.name,
        **picked(corpus.record, "model", "overlap", "keep", "top"),
        "window": corpus.record.chunk_tokens,
        "files": len(plan.documents),
        "new": [item.record.path for item in plan.planned if item.change == "new"],
        "changed": [item.record.path for item in plan.planned if item.change == "changed"],
        "reread": [item.record.path for item in plan.planned if item.change == "recut"],
        "guessed": [{"path": record.path, "encoding": record.encoding} for record in plan.guessed],
        "unchanged": len(plan.unchanged),
        "removed": [record.path for record in plan.removed.values()],
        "failed": [{"path": error.path, "reason": error.reason} for error in plan.failed],
        "passed_over": list(plan.passed_over),
        "windows": plan.n_chunks,
        "tokens": plan.n_tokens,
        "missing": len(plan.missing),
        "estimate": estimate,
        "dry_run": report is None,
        "read": report.prefilled if report else 0,
        "read_tokens": report.prefilled_tokens if report else 0,
        "retired_blocks": report.retired_blocks if report else 0,
        "seconds": report.seconds if report else 0.0,
        "stopped": report.stopped.message if report and report.stopped else None,
        "corpus_windows": whole[0],
        "stored": whole[1],
    }


def _show(record: dict[str, Any], report: AddReport | None) -> None:
    if report is None:
        say("nothing was changed (--dry-run)")
        return
    parts = [f"{count(record['files'], 'file')} in {record['corpus']}"]
    if report.prefilled:
        rate = report.prefilled_tokens / max(report.seconds, 1e-6)
        tokens = f"{report.prefilled_tokens:,} tokens, {rate:,.0f}/s"
        parts.append(f"{count(report.prefilled, 'chunk')} prefilled ({tokens})")
    if record["removed"]:
        parts.append(f"{count(len(record['removed']), 'file')} retired")
    if report.retired_blocks:
        parts.append(f"{count(report.retired_blocks, 'old chunk')} removed")
    parts.append(f"{record['stored']:,} of {record['corpus_windows']:,} chunks stored")
    if record["embedded"]:
        parts.append(f"{count(record['embedded'], 'chunk')} embedded")
    say("; ".join(parts))
    if report.stopped is not None:
        say("stopped early: the rest is indexed, and prefilled when a question needs it")


# --- the embedding index --------------------------------------------------------------------------


def embedded(shelf: Shelf, embedder: Embedder) -> int:
    """Give every chunk its vectors; how many had none. Raises Interrupted, and what :func:`embed` raises."""
    from agentkv.documents.corpus import embed

    done, total = 0, 0
    try:
        with steps("embedding chunk") as show, cancelled_by_ctrl_c() as cancellation:

            def on_chunk(at: int, of: int, path: str) -> None:
                nonlocal done, total
                done, total = at, of
                show(at, of, path)

            return embed(shelf, embedder, on_chunk=on_chunk, cancellation=cancellation)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: {done:,} of {total:,} chunks are embedded and stay; the same command does the rest",
            done=done,
            total=total,
        ) from None


# --- reindex --------------------------------------------------------------------------------------


def reindex(
    *,
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    embedder: options.Embedder = None,
    store: StoreOptions,
) -> Result:
    """Make a corpus's search index again, and with an embedder its embedding index."""
    from agentkv.documents.index import rebuild

    start = time.perf_counter()
    with open_shelf(store, corpus, model) as (_, shelf, _):
        windows, skipped = rebuild(shelf)
        vectors = None
        with options.open_embedder(embedder) as opened:
            if opened is not None:
                vectors = embedded(shelf, opened)
    seconds = time.perf_counter() - start
    record = {
        "corpus": corpus,
        "windows": windows,
        "embedded": vectors,
        "seconds": seconds,
        "skipped": [error.path for error in skipped],
    }
    and_vectors = "" if vectors is None else f", {vectors:,} of them new to the embedding index,"
    return Result(record, lambda: say(f"{count(windows, 'chunk')} indexed{and_vectors} in {seconds:.1f} s"), skipped)
