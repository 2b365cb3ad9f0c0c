"""``agentkv docs rm``: retire files of a corpus, or all of it. Loads no model.

A file that is named, and lies where it was added from as it was added, goes at once; a folder, ``--all``, and a file of
which the corpus has the only copy are asked for (or take ``--yes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.confirm import confirm
from agentkv.cli.docs.common import DEFAULT, Corpus, open_shelf
from agentkv.cli.output import count, finish, say, size, table
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.documents import Shelf


def rm(
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
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Remove files from a corpus with the windows that no other needs, and say what that freed."""
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
    text = f"{count(files, 'file')} and {count(blocks, 'stored window')} removed, {size(freed)} freed"
    finish(record, as_json, lambda: say(text))


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
        rows = [(there[key].path,) for key in sorted(doomed, key=lambda key: there[key].path)]
        confirm(what + lost, yes=yes, as_json=as_json, show=lambda: table(("file",), rows, wraps=("file",)))
