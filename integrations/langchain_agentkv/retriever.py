"""``AgentKVRetriever``: the windows of documents that fit a question, as LangChain documents.

Knows LangChain's retriever protocol and :mod:`agentkv.documents`; how windows are found is that package's business.
Finding needs no model: a :class:`~agentkv.documents.Shelf` will do; only reranking reads. Not guaranteed: ``k``
documents. There are fewer where fewer windows have a word of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, model_validator

from agentkv.documents import Corpus, Hit, Shelf
from agentkv.documents.corpus import find
from agentkv.documents.locate import Embed
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.errors import UsageError
from langchain_agentkv.executor import in_executor


class AgentKVRetriever(BaseRetriever):
    """Finds in ``corpus`` by full text, best first.

    ``corpus`` is a :class:`~agentkv.documents.Corpus`; or, without any model, a :class:`~agentkv.documents.Shelf`
    (``find_shelf(BlockStore(folder), "documents")``). ``k``: most documents. ``rerank_from``: let the model order that
    many windows first, which it reads once for it; takes a corpus. ``embed``: an
    :class:`~agentkv.engine.embed.Embedder` (see :meth:`agentkv.documents.Corpus.embed`), LangChain embeddings, or a
    callable that gives vectors for texts, of which the first is the question; its order is fused with the words'. ``k``
    and ``rerank_from`` can be given for one call too, by ``invoke(question, k=...)``.

    A document's text is the window's piece of the source. Its metadata are JSON-able: ``path``, ``title``,
    ``headings`` (those in force where it begins), ``columns`` (the names of those of the table that it begins within),
    ``start`` and ``stop`` (source bytes), ``window`` (its number in the
    file, from 0), ``block_id``, ``score`` (more is better) and ``method`` (what the score is by).

    Raises UsageError, UnknownCorpus, and whatever :meth:`agentkv.documents.Corpus.find` raises.

    >>> import pathlib, tempfile
    >>> from agentkv import AgentMemory, FakeEngine
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "returns.md").write_text("# Returns\\n\\nReturns are accepted for 7 days.\\n")
    >>> corpus = Corpus(AgentMemory(folder / "store", FakeEngine()), window=256, overlap=0)
    >>> _ = corpus.add([folder / "returns.md"])
    >>> found = AgentKVRetriever(corpus=corpus, k=1).invoke("How long are returns accepted?")
    >>> [(one.metadata["path"], one.metadata["headings"], one.metadata["stop"]) for one in found]
    [('returns.md', ['Returns'], 44)]
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    corpus: Corpus | Shelf
    k: int = 5
    rerank_from: int = 0
    embed: Embeddings | Embedder | Embed | None = None

    @model_validator(mode="after")
    def _check(self) -> AgentKVRetriever:
        _checked(self.corpus, self.k, self.rerank_from)
        return self

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        rerank_from: int | None = None,
    ) -> list[Document]:
        return self._found(query, k, rerank_from, Cancellation())

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        rerank_from: int | None = None,
    ) -> list[Document]:
        return await in_executor(lambda cancellation: self._found(query, k, rerank_from, cancellation))

    def _found(self, query: str, k: int | None, rerank_from: int | None, cancellation: Cancellation) -> list[Document]:
        k = self.k if k is None else k
        rerank_from = self.rerank_from if rerank_from is None else rerank_from
        _checked(self.corpus, k, rerank_from)
        embed = embedding(self.embed)
        if isinstance(self.corpus, Shelf):
            hits = find(self.corpus, query, k, embed=embed)
        else:
            hits = self.corpus.find(query, k, rerank_from=rerank_from, embed=embed, cancellation=cancellation)
        return [as_document(hit) for hit in hits]


def as_document(hit: Hit) -> Document:
    """A window that was found, as :class:`AgentKVRetriever` gives it."""
    metadata: dict[str, Any] = {
        "path": hit.path,
        "title": hit.document.title,
        "headings": list(hit.window.trail),
        "columns": hit.columns,
        "start": hit.start,
        "stop": hit.stop,
        "window": hit.number,
        "block_id": hit.window.block_id,
        "score": hit.score,
        "method": hit.method,
    }
    return Document(hit.text, id=f"{hit.key}:{hit.number}", metadata=metadata)


def embedding(given: Embeddings | Embedder | Embed | None) -> Embedder | Embed | None:
    """LangChain's embeddings as :func:`agentkv.documents.find` takes them."""
    if not isinstance(given, Embeddings):
        return given

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [given.embed_query(texts[0]), *given.embed_documents(list(texts[1:]))]

    return embed


def _checked(corpus: Corpus | Shelf, k: int, rerank_from: int) -> None:
    if k < 1 or rerank_from < 0:
        raise UsageError(f"k = {k} and rerank_from = {rerank_from}: they are at least 1 and 0")
    if rerank_from and isinstance(corpus, Shelf):
        raise UsageError("reranking takes a model: pass a Corpus instead of a Shelf")
