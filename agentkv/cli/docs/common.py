"""What the ``docs`` commands share: the corpus option, and how windows and places are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
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
        shelf = find_shelf(opened, corpus, *_meant(opened, corpus, model))
        record = shelf.record
        if record is None:  # removed a moment ago
            raise UnknownCorpus(corpus, [])
        yield opened, shelf, record


def _meant(store: BlockStore, corpus: str, model: str | None) -> tuple[str | None, str | None]:
    """The model and the fingerprint to choose by, where several engines have a corpus of that name."""
    from agentkv.cli.differing import expected
    from agentkv.documents.elsewhere import differences
    from agentkv.documents.shelf import shelves

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
