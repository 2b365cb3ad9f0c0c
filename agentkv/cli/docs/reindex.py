"""``agentkv docs reindex``: the search index made anew from the records and the kept sources. Loads no model."""

from __future__ import annotations

import time

from agentkv.cli import options
from agentkv.cli.docs.common import DEFAULT, Corpus, open_shelf
from agentkv.cli.output import count, finish, say


def reindex(
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Make a corpus's search index anew; needed only where a search finds what it should not."""
    from agentkv.documents.index import rebuild

    start = time.perf_counter()
    with open_shelf(store, corpus, model) as (_, shelf, _):
        windows, skipped = rebuild(shelf)
    seconds = time.perf_counter() - start
    record = {"corpus": corpus, "windows": windows, "seconds": seconds, "skipped": [error.path for error in skipped]}
    finish(record, as_json, lambda: say(f"{count(windows, 'window')} indexed in {seconds:.1f} s"), skipped)
