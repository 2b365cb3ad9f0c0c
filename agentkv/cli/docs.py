"""``agentkv docs list``, ``status`` and ``rm``: corpora, their files, and retiring them, without a model.
``docs find``: the chunks that fit a question; a model is loaded only to rerank. ``docs ask``: an answer on stdout with
the quote that it rests on and where that stands; what was tried, token counts and times go to stderr. No chunk that
holds the answer is a result, not an error.

A file that is named, and lies where it was added from as it was added, goes at once; a folder, ``--all``, and a file of
which the corpus has the only copy are asked for (or take ``--yes``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import expected, record_of, say_note
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import (
    Column,
    confirm,
    count,
    cut,
    duration,
    is_terminal,
    number,
    one_line,
    picked,
    say,
    show_rows,
    size,
    tell,
)
from agentkv.cli.progress import cancelled_by_ctrl_c
from agentkv.cli.progress import status as spinner
from agentkv.errors import AgentKVError, UsageError

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.documents import Hit, Reply, Shelf
    from agentkv.documents.answer import Attempt, Evidence
    from agentkv.documents.records import CorpusRecord
    from agentkv.store.catalog import BlockStore


DEFAULT = "documents"

Corpus = Annotated[str, typer.Option("--corpus", metavar="NAME", help="The corpus meant.")]


@contextmanager
def open_shelf(store: StoreOptions, corpus: str, model: str | None) -> Iterator[tuple[BlockStore, Shelf, CorpusRecord]]:
    """A corpus without a model. Raises UnknownCorpus, UsageError."""
    from agentkv.documents import find_shelf
    from agentkv.errors import UnknownCorpus

    with store.open() as opened:
        shelf = find_shelf(opened, corpus, *_meant(opened, corpus, model))
        record = shelf.record
        if record is None:  # removed a moment ago
            raise UnknownCorpus(corpus, [])
        yield opened, shelf, record


def _meant(store: BlockStore, corpus: str, model: str | None) -> tuple[str | None, str | None]:
    """The model and the fingerprint to choose by, where several engines have a corpus of that name."""
    from agentkv.documents.shelf import differences, shelves

    called = None if model is None else name_of_model(model)
    found = [(shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None]
    found = [(shelf, record) for shelf, record in found if record.name == corpus and called in (None, record.model)]
    if len(found) > 1:
        here = expected(store, model).fingerprint
        own = [record for shelf, record in found if here is not None and _is_same(differences(shelf, record, here))]
        if len(own) == 1:
            return None, own[0].fingerprint_id
    return called, None


def name_of_model(model: str) -> str:
    """What a corpus's record calls the model that is opened so: of a file its name without the ending."""
    from agentkv.blocks.mismatch import is_openable

    return model if is_openable(model) else Path(model).stem


def _is_same(fields: Fields | None) -> bool:
    """Whether an engine is the one meant; ``v_trans`` only a loaded model shows."""
    return fields is not None and not fields.keys() - {"v_trans"}


def hit_record(hit: Hit) -> dict[str, Any]:
    """A chunk that was found, for a script."""
    return {
        "origin": hit.document.origin,
        "window": hit.number,
        "tokens": hit.chunk.n_tokens,
        "block_id": hit.chunk.block_id,
        **picked(hit, "path", "heading", "start", "stop", "score", "method", "columns", "text"),
    }


def place(path: str, start: int, stop: int, heading: str = "") -> str:
    """Where something stands, in one line."""
    where = f"{path}, bytes {start:,} to {stop:,}"
    return f"{where} ({heading})" if heading else where


# --- list -----------------------------------------------------------------------------------------


def list_(*, store: StoreOptions) -> Result:
    """List the corpora of a store, of every model."""
    from agentkv.documents.shelf import fields_of, shelves

    failures: list[AgentKVError] = []
    with store.open() as opened:
        rows, meant, of_each = [], expected(opened, None), []
        for shelf in shelves(opened, failures.append):
            record, documents = shelf.record, shelf.all().values()
            if record is not None:
                fields = fields_of(shelf, record, meant.fingerprint, meant.model)
                of_each.append((record.name, fields))
                windows = sum(len(document.chunks) for document in documents)
                rows.append(
                    {
                        **picked(record, "name", "model", "fingerprint_id", "overlap"),
                        "window": record.chunk_tokens,
                        "files": len(documents),
                        "windows": windows,
                        "stored": len(shelf.stored()),
                        "tokens": sum(document.n_tokens for document in documents),
                        "differs": record_of(fields),
                        "keep": record.keep if record.top is None else f"{record.keep} {record.top}",
                    }
                )
        note = meant.note(of_each)
    result: dict[str, Any] = {
        "store": store.path,
        "corpora": sorted(rows, key=lambda row: (row["name"], row["model"], row["fingerprint_id"])),
        "note": note or None,
    }

    def show() -> None:
        _show_list(result["corpora"])
        say_note(meant, note)

    return Result(result, show, failures)


def _show_list(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no documents yet. Run `agentkv docs add PATH`.")
        return
    show_rows(_CORPUS, rows)


_CORPUS = (
    Column("corpus", "name", wraps=True),
    Column("model", "model"),
    number("files"),
    number("chunks", "windows"),
    number("stored"),
    number("tokens"),
    number("chunk of", "window"),
    Column("keep", "keep"),
    Column("other engine by", lambda row: ", ".join(row["differs"] or ()), wraps=True, optional=True),
)


# --- status ---------------------------------------------------------------------------------------


def status(*, corpus: Corpus = DEFAULT, model: options.ModelFilter = None, store: StoreOptions) -> Result:
    """Show a corpus: files, chunks, what is stored of them, and which files have changed since they were added."""
    from agentkv.documents.embeddings import embedding_indexes
    from agentkv.documents.shelf import fields_of

    with open_shelf(store, corpus, model) as (opened, shelf, record):
        stored, there = shelf.stored(), shelf.all().values()
        documents = [
            {
                **picked(document, "path", "origin", "kind", "encoding", "encoding_by"),
                "state": shelf.origin_state(document),
                "bytes": document.n_bytes,
                "windows": len(document.chunks),
                "stored": sum(chunk.block_id in stored for chunk in document.chunks),
                "tokens": document.n_tokens,
            }
            for document in sorted(there, key=lambda document: (document.path, document.origin))
        ]
        of_corpus = record.model_dump(exclude={"format", "prefix"}, by_alias=True)
        embedded = embedding_indexes(shelf)
        meant = expected(opened, model)
        fields = fields_of(shelf, record, meant.fingerprint, meant.model)
        note = meant.note([(record.name, fields)])
    result: dict[str, Any] = {**of_corpus, "documents": documents, "embedding_indexes": embedded}
    result |= {"differs": record_of(fields), "note": note or None}

    def show() -> None:
        _show_status(result)
        say_note(meant, note)

    return Result(result, show)


_BY = {"known": "", "guessed": " ?", "given": ""}

_DOCUMENT = (
    Column("file", "path", wraps=True),
    Column("kind", "kind"),
    Column("encoding", lambda row: row["encoding"].split(",")[0] + _BY[row["encoding_by"]]),
    number("size", lambda row: size(row["bytes"])),
    number("chunks", "windows"),
    number("stored"),
    number("tokens"),
    Column("since", lambda row: "" if row["state"] == "same" else row["state"]),
)


def _show_status(result: dict[str, Any]) -> None:
    documents = result["documents"]
    show_rows(_DOCUMENT, documents)
    windows, stored = (sum(document[what] for document in documents) for what in ("windows", "stored"))
    keep = result["keep"] if result["top"] is None else f"top {result['top']}"
    say(
        f"\n{result['name']} for {result['model']}: {count(len(documents), 'file')}, {count(windows, 'chunk')} of at "
        f"most {result['window']:,} tokens, {stored:,} stored ({keep})"
    )
    for embedder, has in result["embedding_indexes"].items():
        rest = "" if has == windows else "; `agentkv docs reindex --embedder …` makes the rest"
        say(f"embedding index by embedder {embedder[:12]}: {has:,} of {count(windows, 'chunk')}{rest}")
    if any(document["encoding_by"] == "guessed" for document in documents):
        say("? an encoding that is a guess: where text comes out wrong, add the file again with --encoding NAME")
    if any(document["state"] == "changed" for document in documents):
        say("changed since they were added: run `agentkv docs add` on them again")


# --- rm -------------------------------------------------------------------------------------------


def rm(
    *,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files or folders, as `agentkv docs status` calls them.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove the whole corpus.")] = False,
    yes: options.Yes = False,
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    as_json: bool,
    store: StoreOptions,
) -> Result:
    """Remove files from a corpus with the chunks that no other needs, and say what that freed."""
    from agentkv.documents.corpus import remove

    if bool(paths) == everything:
        raise UsageError("name files to remove, or --all for the whole corpus")
    with open_shelf(store, corpus, model) as (opened, shelf, _):
        _ask(shelf, corpus, paths or [], yes=yes, as_json=as_json)
        before = opened.files.segments.all()
        bytes_before = sum(n_bytes for _, n_bytes in before)
        if everything:
            files = len(list(shelf.documents.digests()))
            blocks = shelf.remove()
        else:
            files, blocks = remove(shelf, paths or [])
        freed = bytes_before - sum(n_bytes for _, n_bytes in opened.files.segments.all())
    record: dict[str, Any] = {"corpus": corpus, "files": files, "blocks": blocks, "freed_bytes": freed}
    text = f"{count(files, 'file')} and {count(blocks, 'stored chunk')} removed, {size(freed)} freed"
    return Result(record, lambda: say(text))


def _ask(shelf: Shelf, corpus: str, paths: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Have it confirmed, if more goes than files that were named and are still there. Raises NotConfirmed."""
    from agentkv.documents.corpus import called

    there = shelf.all()
    doomed = called(there, paths) if paths else set(there)
    exact = {path.rstrip("/") for path in paths}
    apart = [there[key] for key in doomed if not {there[key].path, there[key].origin} & exact]
    only = [there[key] for key in doomed if there[key] not in apart and shelf.origin_state(there[key]) != "same"]
    what = f"{count(len(doomed), 'file')} of the corpus {corpus!r}"
    if not paths:
        confirm(f"the whole corpus {corpus!r}, {count(len(doomed), 'file')}", yes=yes, as_json=as_json)
    elif apart or only:
        lost = f", {len(only):,} of them kept nowhere else as they were added" if only else ""
        rows = sorted((there[key] for key in doomed), key=lambda document: document.path)
        confirm(what + lost, yes=yes, as_json=as_json, show=lambda: show_rows(_DOCUMENT[:1], rows))


# --- find -----------------------------------------------------------------------------------------


_WIDTH = 300

K_HELP = "Chunks to show, or to try at most."


def find(
    *,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you look for, in quotes.")],
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help=K_HELP)] = 5,
    rerank: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Let the model order the first N; a prefill for each that is not stored yet."
        ),
    ] = 0,
    corpus: Corpus = DEFAULT,
    embedder: options.Embedder = None,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Find the chunks that fit a question best, by full-text search and, with an embedder, by embedding similarity."""
    from agentkv.documents import Corpus as Opened
    from agentkv.documents.corpus import find as find_chunks

    if not question.strip():
        raise UsageError("the question is empty")
    model, settings = engine.chosen(store)
    if rerank:
        with (
            options.open_memory(store, model, settings, embedder=embedder) as memory,
            cancelled_by_ctrl_c() as cancellation,
        ):
            hits = Opened(memory, corpus).find(
                question, k, rerank_from=rerank, embed=memory.embedder, cancellation=cancellation
            )
    else:
        with open_shelf(store, corpus, engine.model) as (_, shelf, _), options.open_embedder(embedder) as opened:
            hits = find_chunks(shelf, question, k, embed=opened)
    record: dict[str, Any] = {"corpus": corpus, "question": question, "hits": [hit_record(hit) for hit in hits]}
    return Result(record, lambda: _show_find(question, hits))


def _show_find(question: str, hits: list[Hit]) -> None:
    if not hits:
        from agentkv.documents.locate import nothing_found

        say(nothing_found(question))
    for rank, hit in enumerate(hits, 1):
        say(f"{rank}. {place(hit.path, hit.start, hit.stop, hit.heading)}  {hit.score:.1f}")
        say(f"   {one_line(f'{hit.columns} … {hit.text}' if hit.columns else hit.text, _WIDTH)}", dim=True)


# --- ask ------------------------------------------------------------------------------------------


class AnswerFrom(StrEnum):
    """What an answer is said from."""

    CHUNK = "chunk"
    QUOTE = "quote"


_ORIGIN = {
    "changed": "the file has changed since: this is quoted from the version that was added",
    "gone": "the file is no longer there",
}


def ask(
    *,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help=K_HELP)] = 3,
    votes: Annotated[bool, typer.Option("--votes", help="Ask all k chunks and take what most of them say.")] = False,
    together: Annotated[
        bool, typer.Option("--together", help="Put the k chunks one after the other and answer from all of them.")
    ] = False,
    rerank: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Let the model order the first N; a prefill for each that is not stored yet."
        ),
    ] = 0,
    max_new: options.MaxNew = None,
    answer_from: Annotated[
        AnswerFrom | None,
        typer.Option(show_default="by the model's size", help="Answer after the whole chunk, or from the quote alone."),
    ] = None,
    refresh: Annotated[
        bool | None,
        typer.Option(
            "--refresh/--no-refresh",
            show_default="asks on a terminal",
            help="First add again the files that have changed since they were added.",
        ),
    ] = None,
    corpus: Corpus = DEFAULT,
    embedder: options.Embedder = None,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Answer a question from documents: find a chunk, graft it, quote it, answer."""
    from agentkv.documents import Corpus as Opened

    with (
        options.open_memory(store, *engine.chosen(store), embedder=embedder) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        opened = Opened(memory, corpus)
        asked = functools.partial(
            opened.ask,
            question,
            k,
            votes=votes,
            together=together,
            rerank_from=rerank,
            embed=memory.embedder,
            max_new=max_new,
            answer_from=None if answer_from is None else answer_from.value,
            cancellation=cancellation,
        )
        with spinner("asking"):
            reply = asked(refresh=bool(refresh))
        if reply.moved_on and refresh is None and not as_json and _wants_them_read(reply.moved_on):
            with spinner("adding what has changed"):
                reply = asked(refresh=True)
    return Result(_record(corpus, reply), lambda: _show_ask(reply))


def _wants_them_read(moved_on: Sequence[str]) -> bool:
    """Whether changed files are to be added again: asked where there is a terminal."""
    question = f"{', '.join(moved_on)} changed: add again and ask once more?"
    return is_terminal() and typer.confirm(question, default=True, err=True)


def _record(corpus: str, reply: Reply) -> dict[str, Any]:
    return {
        "corpus": corpus,
        "question": reply.question,
        "answer": reply.answer,
        "evidence": asdict(reply.evidence) if reply.evidence else None,
        "votes": reply.votes,
        "notes": list(reply.notes),
        "moved_on": list(reply.moved_on),
        "attempts": [_attempt(attempt) for attempt in reply.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        **{key: value for key, value in hit_record(attempt.hit).items() if key not in {"text", "columns"}},
        **picked(attempt, "answer", "draft", "cut_at", "confidence", "kept"),
        "read_now": attempt.prefilled_now,
        "evidence": asdict(attempt.evidence) if attempt.evidence else None,
        "tokens": attempt.tokens.model_dump(),
        "ms": {"restore": attempt.restore_ms, "answer": attempt.answer_ms},
    }


def _show_ask(reply: Reply) -> None:
    if reply.answer is None or reply.evidence is None:
        from agentkv.documents.locate import nothing_found

        say("not stated in any chunk that was tried" if reply.attempts else nothing_found(reply.question))
    else:
        say(reply.answer)
        say()
        if reply.evidence.columns:
            say(f"{reply.evidence.columns}:", dim=True)
        say(f'"{reply.evidence.quote}"')
        say(_place(reply.evidence))
    if reply.cut_at:
        tell(cut(reply.cut_at))
    for attempt in reply.attempts:
        tell(_about(attempt), dim=True)


def _place(evidence: Evidence) -> str:
    checked = "" if evidence.verified or evidence.origin == "changed" else "; NOT found there when read again"
    origin = f"; {_ORIGIN[evidence.origin]}" if evidence.origin in _ORIGIN else ""
    return f"{place(evidence.path, evidence.start, evidence.stop, evidence.heading)}{checked}{origin}"


def _about(attempt: Attempt) -> str:
    tokens = attempt.tokens
    how = "prefilled now" if attempt.prefilled_now else "grafted" if attempt.kept else "prefilled, not kept"
    stated = "" if attempt.answer is not None else ", not stated"
    return (
        f"[{attempt.hit.path} chunk {attempt.hit.number + 1} of {count(len(attempt.hit.document.chunks), 'chunk')}, "
        f"{how} in {duration(attempt.restore_ms)}{stated} | tokens: {tokens.restored:,} restored, {tokens.prefilled:,} "
        f"prefilled, {tokens.generated:,} generated | answer {duration(attempt.answer_ms)}]"
    )
