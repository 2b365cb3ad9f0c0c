"""``AgentKVRetriever``, the chunks of documents that fit a question, and ``search_documents``, an agent's tool.

Finding needs no model: a :class:`~agentkv.documents.Shelf` will do; only reranking and answering use one. Not
guaranteed: ``k`` documents; there are fewer where fewer chunks have a word of the question.

The tool's content is what the model reads; its artifact has the same as data. A question that cannot be asked (an
empty one, one too long for the context window) is reported to the model; any other fault is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import StructuredTool, ToolException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from agentkv.documents import Corpus, Hit, Reply, Shelf
from agentkv.documents.answer import Evidence
from agentkv.documents.corpus import find
from agentkv.documents.locate import Embed, nothing_found
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.errors import UsageError, WindowOverflow
from langchain_agentkv.executor import in_executor


class AgentKVRetriever(BaseRetriever):
    """Finds in ``corpus`` by full text, best first.

    ``corpus`` is a :class:`~agentkv.documents.Corpus`; or, without any model, a :class:`~agentkv.documents.Shelf`
    (``find_shelf(BlockStore(folder), "documents")``). ``k``: most documents. ``rerank_from``: let the model order that
    many chunks first, each prefilled once; takes a corpus. ``embed``: an :class:`~agentkv.engine.embed.Embedder` (see
    :meth:`agentkv.documents.Corpus.embed`), LangChain embeddings, or a callable that gives vectors for texts, of which
    the first is the question; combined with full text by reciprocal rank fusion. ``k`` and ``rerank_from`` can be given
    for one call too, by ``invoke(question, k=...)``.

    A document's text is the chunk's part of the source. Its metadata are JSON-able: ``path``, ``title``, ``headings``
    (those in force where it begins), ``columns`` (the names of those of the table that it begins within), ``start`` and
    ``stop`` (source bytes), ``window`` (the chunk's number in the file, from 0), ``block_id``, ``score`` (more is
    better) and ``method`` (what the score is by).

    Raises UsageError, UnknownCorpus, and whatever :meth:`agentkv.documents.Corpus.find` raises.

    >>> import pathlib, tempfile
    >>> from agentkv import AgentMemory, FakeEngine
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "returns.md").write_text("# Returns\\n\\nReturns are accepted for 7 days.\\n")
    >>> corpus = Corpus(AgentMemory(folder / "store", FakeEngine()), chunk_tokens=256, overlap=0)
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
    """A chunk that was found, as :class:`AgentKVRetriever` returns it."""
    metadata: dict[str, Any] = {
        "path": hit.path,
        "title": hit.document.title,
        "headings": list(hit.chunk.heading_path),
        "columns": hit.columns,
        "start": hit.start,
        "stop": hit.stop,
        "window": hit.number,
        "block_id": hit.chunk.block_id,
        "score": hit.score,
        "method": hit.method,
    }
    return Document(hit.text, id=f"{hit.key}:{hit.number}", metadata=metadata)


def embedding(given: Embeddings | Embedder | Embed | None) -> Embedder | Embed | None:
    """LangChain's embeddings as :func:`agentkv.documents.corpus.find` takes them."""
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


# --- the tool -------------------------------------------------------------------------------------

Result = tuple[str, Any]
"""A tool's content and artifact."""

_FINDS = (
    "Search the documents. Returns the passages that fit best, each with its file, headings and text. "
    "Use it before answering questions about them."
)
_ASKS = (
    "Ask the documents one question. Returns a short answer with the sentence that it rests on and where that stands, "
    "or says that they do not state it."
)
_ORIGIN = {"changed": "the file has changed since it was read", "gone": "the file is no longer there"}


class SearchInput(BaseModel):
    """What the model passes to the tool."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="The question, or the words to look for."
    )


def search_documents(
    corpus: Corpus | Shelf,
    *,
    ask: bool = False,
    k: int = 3,
    votes: bool = False,
    rerank_from: int = 0,
    embed: Embeddings | Embedder | Embed | None = None,
    max_new: int | None = None,
    name: str = "search_documents",
    description: str | None = None,
) -> StructuredTool:
    """A tool over ``corpus``, which takes one ``query``; sync and async.

    Without ``ask`` it finds: its content are the ``k`` best passages, its artifact is their list of LangChain
    documents, as :class:`~langchain_agentkv.AgentKVRetriever` gives them; a Shelf will do, without a model. With
    ``ask`` the memory's own model answers from up to ``k`` chunks, each grafted by itself, and the agent gets a
    sentence or two instead of the passages; the artifact is a dict of ``answer`` (or None), ``evidence`` (quote, path,
    heading, start, stop, verified, origin; or None), ``votes``, ``notes`` (what was skipped or has changed),
    ``cut_at`` (tokens, 0 for a whole answer) and ``documents``, the chunks that were tried. ``votes``, ``max_new``
    (tokens) and ``rerank_from`` (hits) are those of :meth:`agentkv.documents.Corpus.ask`, the rest is as for the
    retriever.

    ``description`` is what the agent's model sees; name in it what the documents are about. Raises UsageError; the
    tool raises whatever finding and asking raise, but for UsageError and WindowOverflow, which the model sees.

    >>> import pathlib, tempfile
    >>> from agentkv import AgentMemory, FakeEngine
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "returns.md").write_text("# Returns\\n\\nReturns are accepted for 7 days.\\n")
    >>> corpus = Corpus(AgentMemory(folder / "store", FakeEngine()), chunk_tokens=256, overlap=0)
    >>> _ = corpus.add([folder / "returns.md"])
    >>> print(search_documents(corpus).invoke({"query": "How long are returns accepted?"}))
    [1] returns.md > Returns, bytes 0 to 44
    # Returns
    <BLANKLINE>
    Returns are accepted for 7 days.
    """
    retriever = AgentKVRetriever(corpus=corpus, k=k, rerank_from=rerank_from, embed=embed)
    if ask and isinstance(corpus, Shelf):
        raise UsageError("asking takes a model: pass a Corpus instead of a Shelf")
    if max_new is not None and max_new < 1:
        raise UsageError(f"max_new must be at least 1, not {max_new}")

    def run(query: str, cancellation: Cancellation) -> Result:
        if not ask or isinstance(corpus, Shelf):
            return _found(query, retriever._found(query, None, None, cancellation))
        return _replied(
            corpus.ask(
                query,
                k,
                votes=votes,
                rerank_from=rerank_from,
                embed=embedding(embed),
                max_new=max_new,
                cancellation=cancellation,
            )
        )

    def search(query: str) -> Result:
        return _reported(run, query, Cancellation())

    async def asearch(query: str) -> Result:
        return await in_executor(lambda cancellation: _reported(run, query, cancellation))

    return StructuredTool(
        name=name,
        description=description or (_ASKS if ask else _FINDS),
        args_schema=SearchInput,
        func=search,
        coroutine=asearch,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def _reported(run: Callable[[str, Cancellation], Result], query: str, cancellation: Cancellation) -> Result:
    try:
        return run(query, cancellation)
    except (UsageError, WindowOverflow) as error:
        raise ToolException(str(error)) from error


# --- what the model reads -------------------------------------------------------------------------


def _found(query: str, documents: list[Document]) -> Result:
    if not documents:
        return _nothing(query), documents
    passages = (
        f"[{number}] {_place(one.metadata, one.metadata['headings'])}\n{_with_columns(one)}"
        for number, one in enumerate(documents, 1)
    )
    return "\n\n".join(passages), documents


def _nothing(query: str) -> str:
    sentence = nothing_found(query, "passage of the documents")
    return f"{sentence[0].upper()}{sentence[1:]}. Try other words."


def _with_columns(passage: Document) -> str:
    """A passage; one from within a table follows the names of its columns."""
    columns = passage.metadata["columns"]
    return f"{columns}\n{passage.page_content.strip()}" if columns else passage.page_content.strip()


def _replied(reply: Reply) -> Result:
    tried = [as_document(attempt.hit) for attempt in reply.attempts]
    artifact = {
        "answer": reply.answer,
        "evidence": None if reply.evidence is None else asdict(reply.evidence),
        "votes": reply.votes,
        "cut_at": reply.cut_at,
        "notes": list(reply.notes),
        "documents": tried,
    }
    if not tried:
        return _nothing(reply.question), artifact
    if reply.answer is None or reply.evidence is None:
        places = "; ".join(_place(one.metadata, one.metadata["headings"]) for one in tried)
        return f"The documents do not state it in the passages that were read: {places}.", artifact
    cut = f" (cut at {reply.cut_at} tokens)" if reply.cut_at else ""
    return f"{reply.answer}{cut}\n\n{_quoted(reply.evidence)}", artifact


def _quoted(evidence: Evidence) -> str:
    is_checked = evidence.verified or evidence.origin == "changed"
    notes = [] if is_checked else ["the quote was not found there when it was checked"]
    notes += [_ORIGIN[evidence.origin]] if evidence.origin in _ORIGIN else []
    place = _place(asdict(evidence), [evidence.heading] if evidence.heading else [])
    return f'"{evidence.quote}"\n' + "; ".join([place, *notes])


def _place(where: dict[str, Any], headings: list[str]) -> str:
    return f"{' > '.join([where['path'], *headings])}, bytes {where['start']} to {where['stop']}"
