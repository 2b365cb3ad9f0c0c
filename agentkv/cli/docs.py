"""``agentkv docs list``, ``status`` and ``rm``: corpora, their files, and retiring them. Loads no model.

A file that is named, and lies where it was added from as it was added, goes at once; a folder, ``--all``, and a file of
which the corpus has the only copy are asked for (or take ``--yes``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import expected, record_of, say_note
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, confirm, count, number, picked, say, show_rows, size
from agentkv.errors import AgentKVError, UsageError

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.documents import Hit, Shelf
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
