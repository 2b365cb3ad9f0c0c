"""``agentkv docs reindex``: the search index made anew from the records and the kept sources. Loads no model.

With an embedder also the vectors that are missing of the embedding index; what is there already is kept, and Ctrl-C
loses nothing: the same command goes on where it stopped.
"""

from __future__ import annotations

import time

from agentkv.cli import options
from agentkv.cli.docs.common import DEFAULT, Corpus, open_shelf
from agentkv.cli.docs.vectors import embedded
from agentkv.cli.output import count, finish, say


def reindex(
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    embedder: options.Embedder = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Make a corpus's search index anew, and with an embedder its embedding index, so that meaning finds too."""
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
    finish(record, as_json, lambda: say(f"{count(windows, 'window')} indexed{and_vectors} in {seconds:.1f} s"), skipped)
