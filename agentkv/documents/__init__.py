"""Documents longer than the context window: cut into chunks that are blocks on disk, found, grafted and cited.

readers/      bytes to text, headings, tables: one module a format     split.py       chunks of at most so many tokens
gather.py     which files some paths mean                              records.py     what is kept, and its files
shelf.py      one corpus in a store; needs no model                    index.py       full-text search
embeddings.py the same by an embedder's vectors                        locate.py      from a question to chunks
chunks.py     a chunk as a block, and several in one context           quote.py       sentences, short answers
answer.py     an answer with its evidence                              adding.py      a plan and its execution
corpus.py     the facade
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv._lazy import lazily

if TYPE_CHECKING:
    from agentkv.documents.adding import AddPlan, AddReport
    from agentkv.documents.answer import Reply
    from agentkv.documents.corpus import Corpus
    from agentkv.documents.locate import Hit
    from agentkv.documents.shelf import Shelf, find_shelf

# Nothing is imported before it is asked for: a check of a store needs only which files are a corpus's.
_HOMES = {
    "AddPlan": "adding",
    "AddReport": "adding",
    "Corpus": "corpus",
    "Hit": "locate",
    "Reply": "answer",
    "Shelf": "shelf",
    "find_shelf": "shelf",
}

__all__ = [
    "AddPlan",
    "AddReport",
    "Corpus",
    "Hit",
    "Reply",
    "Shelf",
    "find_shelf",
]

__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
