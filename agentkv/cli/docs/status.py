"""``agentkv docs status``: the files of a corpus, what is stored of them, what has changed. Loads no model."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.docs.common import DEFAULT, Corpus, open_shelf
from agentkv.cli.output import count, finish, say, size, table


def status(
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Show a corpus: files, windows, what is stored of them, and which files have changed since they were added."""
    from agentkv.cli.differing import expected, record_of, say_note
    from agentkv.documents.elsewhere import fields_of
    from agentkv.documents.meaning import embedding_indexes

    with open_shelf(store, corpus, model) as (opened, shelf, record):
        stored, there = shelf.stored(), shelf.all().values()
        documents = [
            {
                "path": document.path,
                "origin": document.origin,
                "state": shelf.origin_state(document),
                "kind": document.kind,
                "encoding": document.encoding,
                "encoding_by": document.encoding_by,
                "bytes": document.n_bytes,
                "windows": len(document.windows),
                "stored": sum(window.block_id in stored for window in document.windows),
                "tokens": document.n_tokens,
            }
            for document in sorted(there, key=lambda document: (document.path, document.origin))
        ]
        of_corpus = record.model_dump(exclude={"format", "prefix"})
        embedded = embedding_indexes(shelf)
        meant = expected(opened, model)
        fields = fields_of(shelf, record, meant.fingerprint, meant.model)
        note = meant.note([(record.name, fields)])
    result: dict[str, Any] = {**of_corpus, "documents": documents, "embedding_indexes": embedded}
    result |= {"differs": record_of(fields), "note": note or None}

    def show() -> None:
        _show(result)
        say_note(meant, note)

    finish(result, as_json, show)


_BY = {"known": "", "guessed": " ?", "given": ""}


def _show(result: dict[str, Any]) -> None:
    documents = result["documents"]
    right = ("size", "windows", "stored", "tokens")
    rows = [
        (
            document["path"],
            document["kind"],
            document["encoding"].split(",")[0] + _BY[document["encoding_by"]],
            size(document["bytes"]),
            *(f"{document[column]:,}" for column in ("windows", "stored", "tokens")),
            "" if document["state"] == "same" else document["state"],
        )
        for document in documents
    ]
    table(("file", "kind", "encoding", *right, "since"), rows, right=right, wraps=("file",))
    windows, stored = (sum(document[what] for document in documents) for what in ("windows", "stored"))
    keep = result["keep"] if result["top"] is None else f"top {result['top']}"
    say(
        f"\n{result['name']} for {result['model']}: {count(len(documents), 'file')}, {count(windows, 'window')} of at "
        f"most {result['window']:,} tokens, {stored:,} stored ({keep})"
    )
    for embedder, has in result["embedding_indexes"].items():
        rest = "" if has == windows else "; `agentkv docs reindex --embedder …` makes the rest"
        say(f"embedding index by embedder {embedder[:12]}: {has:,} of {count(windows, 'window')}{rest}")
    if any(document["encoding_by"] == "guessed" for document in documents):
        say("? an encoding that is a guess: where text comes out wrong, add the file again with --encoding NAME")
    if any(document["state"] == "changed" for document in documents):
        say("changed since they were added: run `agentkv docs add` on them again")
