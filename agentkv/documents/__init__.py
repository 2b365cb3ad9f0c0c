"""Documents far past the context window: windows on disk, found, grafted, cited.

source.py     bytes to text, each character with its byte           html*.py     the readable text of HTML
charset.py    in which encoding a file is                           formats.py   what is no text, by its name
outline.py    headings and places to cut                            tables.py    the names of a table's columns
readable.py   what the model reads of a file                        errors.py    leaves of this room
split.py      windows of at most so many tokens                     gather.py    which files some paths mean
records.py    corpora, files, windows, as they are kept             shelf.py     where they are kept; no model
index.py      full-text search, rebuildable                         meaning.py   the same by an embedder's vectors
indexfile.py  the SQLite file under both                            locate.py    question to windows
reading.py    a window as a block                                   adding.py    a plan and its execution
quote.py      sentences as the only thing to say                    answer.py    an answer with its evidence
compose.py    several windows by sequential prefill                 corpus.py    the facade
elsewhere.py  corpora of other engines                              again.py     the same cut for this one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv._lazy import lazily

if TYPE_CHECKING:
    from agentkv.documents.adding import AddReport, Plan
    from agentkv.documents.answer import Reply
    from agentkv.documents.corpus import Corpus
    from agentkv.documents.locate import Hit
    from agentkv.documents.shelf import Shelf, find_shelf

# Nothing is imported before it is asked for: a check of a store needs only which files are a corpus's.
_HOMES = {
    "AddReport": "adding",
    "Corpus": "corpus",
    "Hit": "locate",
    "Plan": "adding",
    "Reply": "answer",
    "Shelf": "shelf",
    "find_shelf": "shelf",
}

__all__ = [
    "AddReport",
    "Corpus",
    "Hit",
    "Plan",
    "Reply",
    "Shelf",
    "find_shelf",
]

__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
