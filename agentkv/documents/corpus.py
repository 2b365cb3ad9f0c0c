"""``Corpus``: documents of a memory, added, found, asked. The facade of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from agentkv.documents.adding import Adding, AddPlan, AddReport, Forecast, OnChunk, OnFile, Sample, Until
from agentkv.documents.answer import SHARED_WORDS, Attempt, Reply, Source, ask_chunk, combine
from agentkv.documents.chunks import PREFIX, TURN_TOKENS, Chunks, chain
from agentkv.documents.embeddings import EmbeddingIndex, OnVectors
from agentkv.documents.index import Index
from agentkv.documents.locate import Embed, Hit, locate, rerank
from agentkv.documents.readers.decoding import checked_encoding
from agentkv.documents.records import CorpusRecord, DocumentRecord, corpus_key
from agentkv.documents.shelf import Shelf, lacking, shelves, why_missing
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.engine.generate import check_window
from agentkv.errors import AgentKVError, Cancelled, NativeRefusal, StaleDocument, StoreFull, UnknownCorpus, UsageError
from agentkv.io.forks import Shared
from agentkv.memory.memory import AgentMemory
from agentkv.notices import warn
from agentkv.records import Manifest

Keep = Literal["eager", "lazy", "top"]

DEFAULT_NAME = "documents"
DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP = 1024, 96
_MEASURED_FROM = 4096
"""With so many tokens to prefill, one chunk is measured before a new corpus prefills them all."""


class Corpus(Shared):
    """Documents under a name, in the store and for the model of ``memory``.

    ``chunk_tokens`` and ``overlap`` (tokens), ``keep`` and ``top`` (chunks) default to those of the existing corpus;
    given, they change it at the next :meth:`add`. ``keep``: ``eager`` prefills and stores every chunk when it is added,
    ``lazy`` when a question first needs it, ``top`` likewise, keeping the ``top`` most recently used. A new corpus is
    ``eager`` unless prefilling what is added first would take more than a minute or a gigabyte; then it is ``lazy``,
    with a warning. Raises UsageError, WindowOverflow if a chunk and a question would not fit the context window.

    >>> from agentkv import AgentMemory, FakeEngine
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "returns.md").write_text("# Returns\\n\\nReturns are accepted for 7 days.\\n")
    >>> with AgentMemory(folder / "store", FakeEngine()) as memory:
    ...     corpus = Corpus(memory, chunk_tokens=256, overlap=0)
    ...     report = corpus.add([folder / "returns.md"])
    ...     hit = corpus.find("how many days for returns?", k=1)[0]
    >>> report.prefilled, hit.path, hit.heading, (hit.start, hit.stop)
    (1, 'returns.md', 'Returns', (0, 44))
    """

    def __init__(
        self,
        memory: AgentMemory,
        name: str = DEFAULT_NAME,
        *,
        chunk_tokens: int | None = None,
        overlap: int | None = None,
        keep: Keep | None = None,
        top: int | None = None,
    ) -> None:
        if not name.strip():
            raise UsageError("a corpus has a name")
        self.memory, self.name = memory, name.strip()
        fingerprint_id = memory.blocks.fingerprint.id
        self.shelf = Shelf(memory.store, corpus_key(self.name, fingerprint_id))
        before = self.shelf.record_or_none()
        self.record = _record(self.name, memory, before, chunk_tokens, overlap, keep, top)
        self.chunks = Chunks(memory, self.shelf, self.record)
        self._is_decided = before is not None or keep is not None or top is not None
        self._check_window()
        self._adding = Adding(self.shelf, self.chunks)

    def _check_window(self) -> None:
        prefix = len(self.chunks.prompt("\n").prefix)
        check_window(prefix + self.record.chunk_tokens, TURN_TOKENS, 0, self.memory.engine.window)

    @property
    def exists(self) -> bool:
        """Whether anything was ever added."""
        return self.shelf.record_or_none() is not None or bool(self.shelf.all())

    # --- adding -----------------------------------------------------------------------------------

    def plan(
        self,
        paths: Sequence[str | Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        on_file: OnFile | None = None,
        cancellation: Cancellation | None = None,
        encoding: str | None = None,
    ) -> AddPlan:
        """What :meth:`add` would do; writes nothing. Raises UsageError for a path that does not exist, Cancelled."""
        known = None if encoding is None else checked_encoding(encoding)
        return self._adding.plan([Path(path) for path in paths], include, exclude, on_file, cancellation, known)

    def decide(self, plan: AddPlan, sample: Sample | None) -> Forecast | None:
        """What prefilling the plan's chunks would take, by a sample.

        A new corpus without a ``keep`` becomes ``lazy`` where that is much, with a warning.
        """
        forecast = plan.forecast(sample)
        if not self._is_decided and forecast is not None and forecast.is_much:
            self.record = self.chunks.record = self.record.model_copy(update={"keep": "lazy"})
            minutes, gigabytes = forecast.seconds / 60, forecast.n_bytes / 1e9
            warn(
                f"prefilling all {len(plan.missing):,} chunks now would take about {minutes:,.1f} minutes and "
                f"{gigabytes:,.2f} GB on disk, so they are only indexed, and each is prefilled when a question first "
                "needs it. To prefill them all now: --eager --yes (in Python: keep='eager')."
            )
        self._is_decided = True
        return forecast

    def sample(self, plan: AddPlan, cancellation: Cancellation | None = None) -> Sample | None:
        """What prefilling one chunk of the plan takes, measured; None for a plan of few chunks."""
        return self._adding.sample(plan, cancellation)

    def carry_out(
        self,
        plan: AddPlan,
        *,
        on_file: OnFile | None = None,
        on_chunk: OnChunk | None = None,
        until: Until | None = None,
        cancellation: Cancellation | None = None,
    ) -> AddReport:
        """Do what a plan says. What was done before an error, Ctrl-C or a crash stays, and the next call continues.

        ``until`` is called before each chunk; once it returns true, the rest is left for another call.
        """
        if not self._is_decided and plan.missing_tokens >= _MEASURED_FROM:
            self.decide(plan, self.sample(plan, cancellation))
        self._is_decided = True
        self.shelf.write(self.record)
        report = self._adding.carry_out(
            plan,
            eager=self.record.keep == "eager",
            on_file=on_file,
            on_chunk=on_chunk,
            until=until,
            cancellation=cancellation,
        )
        self._trim()
        return report

    def add(
        self,
        paths: Sequence[str | Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        cancellation: Cancellation | None = None,
        encoding: str | None = None,
    ) -> AddReport:
        """Add files and folders, or update them: unchanged files cost a hash, changed ones are cut again, and files
        that are gone are removed from the corpus. ``encoding``: of all these files; without it what they declare, or a
        guess, with a warning.

        Raises UsageError, Cancelled, StoreError's.
        """
        plan = self.plan(paths, include=include, exclude=exclude, cancellation=cancellation, encoding=encoding)
        return self.carry_out(plan, cancellation=cancellation)

    def refresh(self, cancellation: Cancellation | None = None) -> AddReport:
        """Cut again the files that have changed since they were added; files that are gone stay as they were.

        Raises UnknownCorpus, Cancelled, StoreError's.
        """
        self._there()
        return self.carry_out(self._adding.changed(cancellation), cancellation=cancellation)

    def take_over(
        self, other: Shelf, cancellation: Cancellation | None = None
    ) -> tuple[int, int, tuple[tuple[str, AgentKVError], ...]]:
        """Cut another engine's corpus for this one, from its kept sources; how many files and chunks, and what failed.

        Nothing is prefilled. The corpus's record comes last, so that one that was cut short is taken over again. Raises
        Cancelled, StoreFull, StoreReadError.
        """
        done = self._adding.take_over(other, cancellation)
        self.shelf.write(self.record)
        return done

    def remove(self, paths: Sequence[str]) -> tuple[int, int]:
        """Remove files, or folders, by their names in the corpus; how many files and blocks went. Raises UsageError."""
        return remove(self.shelf, paths)

    def embed(
        self, embedder: Embedder, *, on_chunk: OnVectors | None = None, cancellation: Cancellation | None = None
    ) -> int:
        """Make or update the embedding index; how many chunks were new to it. Continues an interrupted call.

        Raises UnknownCorpus, Cancelled, StoreReadError.
        """
        return embed(self._there(), embedder, on_chunk=on_chunk, cancellation=cancellation)

    # --- finding and asking -----------------------------------------------------------------------

    def find(
        self,
        query: str,
        k: int = 5,
        *,
        rerank_from: int = 0,
        embed: Embed | Embedder | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Hit]:
        """The ``k`` chunks that fit best. Raises UnknownCorpus.

        ``rerank_from``: how many hits, the best, the model puts in order; 0 for none. ``embed``: use embeddings too, of
        all chunks with an Embedder for which :meth:`embed` was called; else of the first ones of the full-text search.
        """
        hits = find(self._there(), query, max(k, rerank_from), embed=embed)
        if rerank_from:
            hits = [*rerank(self.chunks, query, hits[:rerank_from], cancellation), *hits[rerank_from:]]
            self._trim()
        return hits[:k]

    def ask(
        self,
        question: str,
        k: int = 3,
        *,
        votes: bool = False,
        together: bool = False,
        rerank_from: int = 0,
        embed: Embed | Embedder | None = None,
        max_new: int | None = None,
        answer_from: Source | None = None,
        shared_words: float = SHARED_WORDS,
        on_attempt: Callable[[Hit], None] | None = None,
        refresh: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Reply:
        """Answer from the first of the ``k`` best chunks that holds the answer, or by ``votes`` of all ``k``.

        ``together``: prefill the ``k`` one after the other and answer from all of them; only the first is restored.
        ``refresh``: first cut again the files that have changed since they were added; without it the reply notes
        them. A chunk whose source is gone is passed over, with a note. ``max_new``: most tokens of the answer; None for
        512, or as many as fit the context window. ``rerank_from``: how many hits the model puts in order first.
        ``answer_from``, ``shared_words``: see
        :func:`agentkv.documents.answer.ask_chunk`.

        Raises UnknownCorpus, UsageError, WindowOverflow, StaleDocument if no source is left, Cancelled.
        """
        if not question.strip():
            raise UsageError("the question is empty")
        if together and votes:
            raise UsageError("chunks that are prefilled together give one answer: there is nothing to vote on")
        if refresh:
            self.refresh(cancellation)
        hits = self.find(question, k, rerank_from=rerank_from, embed=embed, cancellation=cancellation)
        readable, stale = self._readable(hits)
        if stale and not readable:
            raise stale[0]
        attempt = partial(
            ask_chunk,
            self.chunks,
            question=question,
            after=readable[1:] if together else (),
            max_new=max_new,
            answer_from=answer_from,
            shared_words=shared_words,
            cancellation=cancellation,
        )
        attempts: list[Attempt] = []
        for hit in readable[:1] if together else readable:
            if on_attempt is not None:
                on_attempt(hit)
            try:
                attempts.append(attempt(hit))
            except NativeRefusal as error:
                if not self.chunks.refuse(hit.document, hit.chunk, error.message):
                    raise
                attempts.append(attempt(hit))
            self._trim()
            if attempts[-1].answer is not None and not votes:
                break
        reply = combine(question, attempts)
        cut = reply.cut_at if max_new is None else 0
        return self._noted(reply, readable, stale, cut)

    def _readable(self, hits: Sequence[Hit]) -> tuple[list[Hit], list[StaleDocument]]:
        """The hits whose source is there, and the errors of the others."""
        found: list[Hit] = []
        stale: list[StaleDocument] = []
        for hit in hits:
            try:
                self.chunks.chunk_prompt(hit.document, hit.chunk)
            except StaleDocument as error:
                stale.append(error)
            else:
                found.append(hit)
        return found, stale

    def _noted(self, reply: Reply, hits: Sequence[Hit], stale: Sequence[StaleDocument], cut: int) -> Reply:
        """The reply with its notes, which are warnings too."""
        notes = [f"a chunk was passed over: {error.message}" for error in stale]
        documents = {hit.key: hit.document for hit in hits}
        moved_on = sorted({d.path for d in documents.values() if self.shelf.origin_state(d) == "changed"})
        if moved_on:
            names = ", ".join(moved_on)
            has, it_was, it = ("has", "it was", "it") if len(moved_on) == 1 else ("have", "they were", "them")
            notes.append(
                f"{names} {has} changed since {it_was} added: what is found in {it} is of the version that was added. "
                f"To add the new version: `agentkv docs ask --refresh` (in Python: refresh=True)."
            )
        if cut:
            notes.append(f"the answer was cut at {cut} tokens; raise max_new for a longer one")
        for note in dict.fromkeys(notes):
            warn(note)
        return replace(reply, notes=tuple(dict.fromkeys(notes)), moved_on=tuple(moved_on))

    def chain(self, hits: Sequence[Hit], cancellation: Cancellation | None = None) -> list[Manifest]:
        """Several chunks in one context, prefilled one after the other: the prefix's block, then one for each."""
        prompts = [self.chunks.chunk_prompt(hit.document, hit.chunk) for hit in hits]
        if not prompts:
            raise UsageError("a chain has at least one chunk")
        parts = [prompts[0].prefix, *(prompt.manual for prompt in prompts)]
        return chain(self.memory.blocks, parts, cancellation=cancellation)

    def _there(self) -> Shelf:
        if not self.exists:
            known = sorted({record.name for shelf in shelves(self.memory.store) if (record := shelf.record)})
            raise UnknownCorpus(self.name, known, why_missing(self.memory.store, self.memory.engine, self.name))
        return self.shelf

    def _trim(self) -> None:
        """With ``keep="top"``, remove all stored chunks but the most recently used."""
        if self.record.keep != "top" or self.record.top is None:
            return
        stored = self.shelf.stored()
        if len(stored) > self.record.top:
            uses, written = self.memory.store.uses(), self.memory.store.files.manifests.written_at
            last = {key: max(written(key), uses[key].last if key in uses else 0.0) for key in stored}
            oldest = sorted(stored, key=lambda key: (last[key], key))[: len(stored) - self.record.top]
            self.shelf.remove_blocks(oldest, self.shelf.all())


def find(shelf: Shelf, query: str, k: int = 5, *, embed: Embed | Embedder | None = None) -> list[Hit]:
    """The ``k`` chunks of a corpus that fit best; needs no model."""
    with Index(shelf) as index:
        return locate(shelf, index, query, k, embed)


def embed(
    shelf: Shelf,
    embedder: Embedder,
    *,
    on_chunk: OnVectors | None = None,
    cancellation: Cancellation | None = None,
) -> int:
    """The same as :meth:`Corpus.embed`; needs no model but the embedder."""
    with Index(shelf) as index, EmbeddingIndex(shelf, index, embedder) as meaning:
        return meaning.fill(on_chunk, cancellation)


def remove(shelf: Shelf, paths: Sequence[str]) -> tuple[int, int]:
    """The same as :meth:`Corpus.remove`; needs no model."""
    there = shelf.all()
    gone = called(there, paths)
    blocks = shelf.remove_blocks({chunk.block_id for key in gone for chunk in there[key].chunks}, gone)
    shelf.forget(gone)
    with Index(shelf):
        return len(gone), blocks


def called(there: Mapping[str, DocumentRecord], paths: Sequence[str]) -> set[str]:
    """The keys of the documents with these names, or below folders with these names. Raises UsageError."""
    found: set[str] = set()
    for path in paths:
        name = path.rstrip("/")
        mine = {key for key, record in there.items() if _is_called(record.path, record.origin, name)}
        if not mine:
            raise UsageError(f"no file of the corpus is named {path!r} or below it. Run `agentkv docs status`.")
        found |= mine
    return found


def _is_called(path: str, origin: str, called: str) -> bool:
    return any(name == called or name.startswith(called + "/") for name in (path, origin))


def _record(
    name: str,
    memory: AgentMemory,
    before: CorpusRecord | None,
    chunk_tokens: int | None,
    overlap: int | None,
    keep: Keep | None,
    top: int | None,
) -> CorpusRecord:
    if top is not None and top < 1:
        raise UsageError(f"top is the number of chunks to keep, 1 or more, not {top}")
    if top is not None and keep not in (None, "top"):
        raise UsageError(f"top goes with keep='top', not {keep!r}")
    if keep == "top" and top is None:
        raise UsageError("keep='top' takes the number of chunks to keep")
    known: dict[str, Any] = {} if before is None else before.model_dump()
    kept = "top" if top is not None else keep or known.get("keep", "eager")
    wide = chunk_tokens or known.get("chunk_tokens", DEFAULT_CHUNK_TOKENS)
    lap = overlap if overlap is not None else known.get("overlap", DEFAULT_OVERLAP) if chunk_tokens is None else None
    return CorpusRecord(
        name=name,
        fingerprint_id=memory.blocks.fingerprint.id,
        model=memory.engine.info.name,
        chunk_tokens=wide,
        overlap=min(DEFAULT_OVERLAP, wide // 4) if lap is None else lap,
        prefix=known.get("prefix", PREFIX),
        keep=kept,
        top=(top or known.get("top")) if kept == "top" else None,
    )


# --- the same cut for this engine -----------------------------------------------------------------


@dataclass(frozen=True)
class Recut:
    """A corpus that was cut again: how many files and chunks, and by path why others failed."""

    name: str
    files: int
    chunks: int
    failed: tuple[tuple[str, AgentKVError], ...]


def deposit_again(
    memory: AgentMemory,
    *,
    on_work: Callable[[str], None] = lambda _: None,
    cancellation: Cancellation | None = None,
) -> list[Recut]:
    """Cut for this engine the corpora that only other engines have, from the kept sources.

    A corpus belongs to one engine, since its chunks' ids do, but its sources are the store's, wherever the files are
    now. Chunks are prefilled when a question first needs them, or by ``docs add``. An error in one file or corpus does
    not affect others. Of several with one name the one written last is taken. Raises Cancelled, StoreFull.
    """
    done = []
    for shelf, record in lacking(memory.store, memory.blocks.fingerprint.id):
        if cancellation is not None and cancellation.requested:
            raise Cancelled("cutting documents again")
        on_work(record.name)
        try:
            corpus = Corpus(
                memory,
                record.name,
                chunk_tokens=record.chunk_tokens,
                overlap=record.overlap,
                keep=record.keep,
                top=record.top,
            )
            done.append(Recut(record.name, *corpus.take_over(shelf, cancellation)))
        except (Cancelled, StoreFull):
            raise
        except AgentKVError as error:
            done.append(Recut(record.name, 0, 0, ((record.name, error),)))
    return done
