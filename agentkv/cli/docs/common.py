"""What the ``docs`` commands share: the corpus option, and how windows and places are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options

if TYPE_CHECKING:
    from agentkv.documents import Hit, Shelf
    from agentkv.documents.records import CorpusRecord
    from agentkv.store.catalog import BlockStore

DEFAULT = "documents"
Corpus = Annotated[str, typer.Option("--corpus", metavar="NAME", help="The corpus meant.")]


@contextmanager
def open_shelf(store: Path | None, corpus: str, model: str | None) -> Iterator[tuple[BlockStore, Shelf, CorpusRecord]]:
    """A corpus without a model. Raises UnknownCorpus, UsageError."""
    from agentkv.documents import find_shelf
    from agentkv.errors import UnknownCorpus

    with options.open_store(store) as opened:
        shelf = find_shelf(opened, corpus, model)
        record = shelf.record
        if record is None:  # removed a moment ago
            raise UnknownCorpus(corpus, [])
        yield opened, shelf, record


def hit_record(hit: Hit) -> dict[str, Any]:
    """A window that was found, for a script."""
    return {
        "path": hit.path,
        "origin": hit.document.origin,
        "heading": hit.heading,
        "window": hit.number,
        "start": hit.start,
        "stop": hit.stop,
        "tokens": hit.window.n_tokens,
        "score": hit.score,
        "method": hit.method,
        "block_id": hit.window.block_id,
        "columns": hit.columns,
        "text": hit.text,
    }


def place(path: str, start: int, stop: int, heading: str = "") -> str:
    """Where something stands, in one line."""
    where = f"{path}, bytes {start:,} to {stop:,}"
    return f"{where} ({heading})" if heading else where
