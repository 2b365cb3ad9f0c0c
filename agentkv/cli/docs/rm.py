"""``agentkv docs rm``: retire files of a corpus, or all of it. It never asks. Loads no model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.docs.common import DEFAULT, Corpus, open_shelf
from agentkv.cli.output import count, finish, say, size
from agentkv.errors import UsageError


def rm(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files or folders, as `agentkv docs status` calls them.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove the whole corpus.")] = False,
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Remove files from a corpus with the windows that no other needs, and say what that freed."""
    from agentkv.documents.corpus import remove

    if bool(paths) == everything:
        raise UsageError("name files to remove, or --all for the whole corpus")
    with open_shelf(store, corpus, model) as (opened, shelf, _):
        before = opened.files.segments.all()
        bytes_before = sum(n_bytes for _, n_bytes in before)
        if everything:
            files = len(list(shelf.documents.digests()))
            blocks = shelf.remove()
        else:
            files, blocks = remove(shelf, paths or [])
        freed = bytes_before - sum(n_bytes for _, n_bytes in opened.files.segments.all())
    record: dict[str, Any] = {"corpus": corpus, "files": files, "blocks": blocks, "freed_bytes": freed}
    text = f"{count(files, 'file')} and {count(blocks, 'stored window')} removed, {size(freed)} freed"
    finish(record, as_json, lambda: say(text))
