"""``Corpus``: documents of a memory, added, found, asked. The facade of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from agentkv.documents import compose
from agentkv.documents.adding import Adding, AddReport, Forecast, OnFile, OnWindow, Plan, Sample, Until
from agentkv.documents.answer import SHARED_WORDS, Attempt, Reply, Source, ask_window, combine
from agentkv.documents.elsewhere import why_missing
from agentkv.documents.index import Index
from agentkv.documents.locate import Embed, Hit, locate, rerank
from agentkv.documents.meaning import Meaning, OnVectors
from agentkv.documents.reading import PREFIX, TURN_TOKENS, Reader
from agentkv.documents.records import CorpusRecord, DocumentRecord, corpus_key
from agentkv.documents.shelf import Shelf, shelves
from agentkv.documents.source import checked_encoding
from agentkv.engine.base import Cancellation
from agentkv.engine.embed import Embedder
from agentkv.engine.generate import check_window
from agentkv.errors import AgentKVError, NativeRefusal, StaleDocument, UnknownCorpus, UsageError
from agentkv.io.forks import Shared
from agentkv.memory.memory import AgentMemory
from agentkv.notices import warn
from agentkv.records import Manifest

Keep = Literal["eager", "lazy", "top"]

DEFAULT_NAME = "documents"
DEFAULT_WINDOW, DEFAULT_OVERLAP = 1024, 96
_MEASURED_FROM = 4096
"""Tokens to read from which on one window is measured before a new corpus reads them all."""


class Corpus(Shared):
    """Documents under a name, in the store and for the model of ``memory``.

    ``window``, ``overlap`` (tokens), ``keep`` and ``top`` (windows) are those of the corpus if it is there, else
    defaults; given, they change it at the next :meth:`add`. ``keep``: ``eager`` reads every window when it is added,
    ``lazy`` when a question first needs it, ``top`` likewise and keeps the ``top`` most recently used. A new corpus is
    ``eager`` unless reading what is added first would take more than a minute or a gigabyte; then it is ``lazy``, with
    a warning. Raises UsageError, WindowOverflow if a window and a question would not fit the model's.

    >>> from agentkv import AgentMemory, FakeEngine
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "returns.md").write_text("# Returns\\n\\nReturns are accepted for 7 days.\\n")
    >>> with AgentMemory(folder / "store", FakeEngine()) as memory:
    ...     corpus = Corpus(memory, window=256, overlap=0)
    ...     report = corpus.add([folder / "returns.md"])
    ...     hit = corpus.find("how many days for returns?", k=1)[0]
    >>> report.read, hit.path, hit.heading, (hit.start, hit.stop)
    (1, 'returns.md', 'Returns', (0, 44))
    """

    def __init__(
        self,
        memory: AgentMemory,
        name: str = DEFAULT_NAME,
        *,
        window: int | None = None,
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
        self.record = _record(self.name, memory, before, window, overlap, keep, top)
        self.reader = Reader(memory, self.shelf, self.record)
        self._is_decided = before is not None or keep is not None or top is not None
        self._check_window()
        self._adding = Adding(self.shelf, self.reader)

    def _check_window(self) -> None:
        prefix = len(self.reader.prompt("\n").prefix)
        check_window(prefix + self.record.window, TURN_TOKENS, 0, self.memory.engine.window)

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
    ) -> Plan:
        """What :meth:`add` would do; writes nothing. Raises UsageError for a path that is not there, Cancelled."""
        known = None if encoding is None else checked_encoding(encoding)
        return self._adding.plan([Path(path) for path in paths], include, exclude, on_file, cancellation, known)

    def decide(self, plan: Plan, sample: Sample | None) -> Forecast | None:
        """What reading the plan's windows would take, by a sample; a new corpus for which nothing was said becomes
        ``lazy`` where that is much, with a warning.
        """
        forecast = plan.forecast(sample)
        if not self._is_decided and forecast is not None and forecast.is_much:
            self.record = self.reader.record = self.record.model_copy(update={"keep": "lazy"})
            warn(
                f"reading all {len(plan.missing):,} windows now would take about {forecast.seconds / 60:,.1f} minutes "
                f"and {forecast.n_bytes / 1e9:,.2f} GB on disk, so they are only indexed, and each is read when a "
                "question first needs it. To read them all now, say so: --eager --yes (in Python: keep='eager')."
            )
        self._is_decided = True
        return forecast

    def sample(self, plan: Plan, cancellation: Cancellation | None = None) -> Sample | None:
        """What reading one window of the plan takes, measured; None for a plan of few windows."""
        return self._adding.sample(plan, cancellation)

    def carry_out(
        self,
        plan: Plan,
        *,
        on_file: OnFile | None = None,
        on_window: OnWindow | None = None,
        until: Until | None = None,
        cancellation: Cancellation | None = None,
    ) -> AddReport:
        """Do what a plan says. What was done before an error, Ctrl-C or a crash stays, and the next call goes on.

        ``until`` is asked before each window: once it says so, the rest is left for another time.
        """
        if not self._is_decided and plan.missing_tokens >= _MEASURED_FROM:
            self.decide(plan, self.sample(plan, cancellation))
        self._is_decided = True
        self.shelf.write(self.record)
        report = self._adding.carry_out(
            plan,
            eager=self.record.keep == "eager",
            on_file=on_file,
            on_window=on_window,
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
        """Add files and folders, or bring them up to date: unchanged files cost a hash, changed ones are cut anew, and
        what is gone from a folder, or was added by its own path, is retired. ``encoding``: that of all these files,
        kept with them; without it what they say or look like, with a warning where that is a guess.

        Raises UsageError, Cancelled, StoreError's.
        """
        plan = self.plan(paths, include=include, exclude=exclude, cancellation=cancellation, encoding=encoding)
        return self.carry_out(plan, cancellation=cancellation)

    def refresh(self, cancellation: Cancellation | None = None) -> AddReport:
        """Read anew the files that have changed since they were added; those that are gone stay as they are.

        Raises UnknownCorpus, Cancelled, StoreError's.
        """
        self._there()
        return self.carry_out(self._adding.changed(cancellation), cancellation=cancellation)

    def take_over(
        self, other: Shelf, cancellation: Cancellation | None = None
    ) -> tuple[int, int, tuple[tuple[str, AgentKVError], ...]]:
        """Cut what another engine's corpus holds for this one, from its kept sources; files, windows, what failed.

        No window is read. Raises Cancelled, StoreFull, StoreReadError.
        """
        self.shelf.write(self.record)
        return self._adding.take_over(other, cancellation)

    def remove(self, paths: Sequence[str]) -> tuple[int, int]:
        """Retire the files called so, or below a folder called so; files and blocks that went. Raises UsageError."""
        return remove(self.shelf, paths)

    def embed(
        self, embedder: Embedder, *, on_window: OnVectors | None = None, cancellation: Cancellation | None = None
    ) -> int:
        """Make the embedding index, or bring it up to date; how many windows were new to it. Goes on where it stopped.

        Raises UnknownCorpus, Cancelled, StoreReadError.
        """
        return embed(self._there(), embedder, on_window=on_window, cancellation=cancellation)

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
        """The ``k`` windows that fit best. Raises UnknownCorpus.

        ``rerank_from``: how many hits, the best, the model puts in order; 0 for none. ``embed``: also by meaning; an
        Embedder among all windows once :meth:`embed` was called, until then, as any other callable, among those that
        the words put first.
        """
        hits = find(self._there(), query, max(k, rerank_from), embed=embed)
        if rerank_from:
            hits = [*rerank(self.reader, query, hits[:rerank_from], cancellation), *hits[rerank_from:]]
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
        """Answer from the first of the ``k`` best windows that holds the answer, or by ``votes`` of all ``k``.

        ``together``: read the ``k`` one behind the other and answer from all of them; only the first is restored.
        ``refresh``: first read anew the files that have changed since they were added; without it the reply says of
        which that is so. A window that cannot be read any more is passed over, with a note.

        ``max_new``: most tokens of the answer; None for 512, or as many as the window has room for.

        ``rerank_from``: how many hits the model puts in order first. ``answer_from``, ``shared_words``: see
        :func:`agentkv.documents.answer.ask_window`.

        Raises UnknownCorpus, UsageError, WindowOverflow, StaleDocument if no window can be read any more, Cancelled.
        """
        if not question.strip():
            raise UsageError("the question is empty")
        if together and votes:
            raise UsageError("windows that are read together give one answer: there is nothing to vote on")
        if refresh:
            self.refresh(cancellation)
        hits = self.find(question, k, rerank_from=rerank_from, embed=embed, cancellation=cancellation)
        readable, stale = self._readable(hits)
        if stale and not readable:
            raise stale[0]
        attempts: list[Attempt] = []
        for hit in readable[:1] if together else readable:
            if on_attempt is not None:
                on_attempt(hit)
            how: Any = {"max_new": max_new, "answer_from": answer_from, "shared_words": shared_words}
            how["behind"] = readable[1:] if together else ()
            how["cancellation"] = cancellation
            try:
                attempts.append(ask_window(self.reader, hit, question, **how))
            except NativeRefusal as error:
                if not self.reader.refuse(hit.document, hit.window, error.message):
                    raise
                attempts.append(ask_window(self.reader, hit, question, **how))
            self._trim()
            if attempts[-1].answer is not None and not votes:
                break
        reply = combine(question, attempts)
        cut = reply.cut_at if max_new is None else 0
        return self._noted(reply, readable, stale, cut)

    def _readable(self, hits: Sequence[Hit]) -> tuple[list[Hit], list[StaleDocument]]:
        """The windows that can be asked, and why the others cannot."""
        found: list[Hit] = []
        stale: list[StaleDocument] = []
        for hit in hits:
            try:
                self.reader.window_prompt(hit.document, hit.window)
            except StaleDocument as error:
                stale.append(error)
            else:
                found.append(hit)
        return found, stale

    def _noted(self, reply: Reply, hits: Sequence[Hit], stale: Sequence[StaleDocument], cut: int) -> Reply:
        """The reply with what a user has to be told, which is also warned of."""
        notes = [f"a window was passed over: {error.message}" for error in stale]
        documents = {hit.key: hit.document for hit in hits}
        moved_on = sorted({d.path for d in documents.values() if self.shelf.origin_state(d) == "changed"})
        if moved_on:
            names = ", ".join(moved_on)
            has, it_was, it = ("has", "it was", "it") if len(moved_on) == 1 else ("have", "they were", "them")
            notes.append(
                f"{names} {has} changed since {it_was} added: what is found in {it} is of the version that was added. "
                f"Read {it} anew: `agentkv docs ask --refresh` (in Python: refresh=True)."
            )
        if cut:
            notes.append(f"the answer was cut at {cut} tokens; raise max_new for a longer one")
        for note in dict.fromkeys(notes):
            warn(note)
        return replace(reply, notes=tuple(dict.fromkeys(notes)), moved_on=tuple(moved_on))

    def chain(self, hits: Sequence[Hit], cancellation: Cancellation | None = None) -> list[Manifest]:
        """Several windows in one context, read one behind the other: the prefix's block, then one for each."""
        prompts = [self.reader.window_prompt(hit.document, hit.window) for hit in hits]
        if not prompts:
            raise UsageError("a chain has at least one window")
        parts = [prompts[0].prefix, *(prompt.manual for prompt in prompts)]
        return compose.chain(self.memory.blocks, parts, cancellation=cancellation)

    def _there(self) -> Shelf:
        if not self.exists:
            known = sorted({record.name for shelf in shelves(self.memory.store) if (record := shelf.record)})
            raise UnknownCorpus(self.name, known, why_missing(self.memory.store, self.memory.engine, self.name))
        return self.shelf

    def _trim(self) -> None:
        """Keep only so many windows, the most recently used, where the corpus says so."""
        if self.record.keep != "top" or self.record.top is None:
            return
        stored = self.shelf.stored()
        if len(stored) > self.record.top:
            uses, written = self.memory.store.uses(), self.memory.store.files.manifests.written_at
            last = {key: max(written(key), uses[key].last if key in uses else 0.0) for key in stored}
            oldest = sorted(stored, key=lambda key: (last[key], key))[: len(stored) - self.record.top]
            self.shelf.remove_blocks(oldest, self.shelf.all())


def find(shelf: Shelf, query: str, k: int = 5, *, embed: Embed | Embedder | None = None) -> list[Hit]:
    """The ``k`` windows of a corpus that fit best; needs no model."""
    with Index(shelf) as index:
        return locate(shelf, index, query, k, embed)


def embed(
    shelf: Shelf,
    embedder: Embedder,
    *,
    on_window: OnVectors | None = None,
    cancellation: Cancellation | None = None,
) -> int:
    """The same as :meth:`Corpus.embed`; needs no model but the embedder."""
    with Index(shelf) as index, Meaning(shelf, index, embedder) as meaning:
        return meaning.fill(on_window, cancellation)


def remove(shelf: Shelf, paths: Sequence[str]) -> tuple[int, int]:
    """Retire the files called so, or below a folder called so; needs no model. Raises UsageError for one not there."""
    there = shelf.all()
    gone = called(there, paths)
    blocks = shelf.remove_blocks({window.block_id for key in gone for window in there[key].windows}, gone)
    shelf.forget(gone)
    with Index(shelf):
        return len(gone), blocks


def called(there: Mapping[str, DocumentRecord], paths: Sequence[str]) -> set[str]:
    """The keys of the documents called so, or below a folder called so. Raises UsageError for one not there."""
    found: set[str] = set()
    for path in paths:
        name = path.rstrip("/")
        mine = {key for key, record in there.items() if _is_called(record.path, record.origin, name)}
        if not mine:
            raise UsageError(f"no file of the corpus is called {path!r} or lies below it. Run `agentkv docs status`.")
        found |= mine
    return found


def _is_called(path: str, origin: str, called: str) -> bool:
    return any(name == called or name.startswith(called + "/") for name in (path, origin))


def _record(
    name: str,
    memory: AgentMemory,
    before: CorpusRecord | None,
    window: int | None,
    overlap: int | None,
    keep: Keep | None,
    top: int | None,
) -> CorpusRecord:
    if top is not None and top < 1:
        raise UsageError(f"top is the number of windows to keep, 1 or more, not {top}")
    if top is not None and keep not in (None, "top"):
        raise UsageError(f"top goes with keep='top', not {keep!r}")
    if keep == "top" and top is None:
        raise UsageError("keep='top' takes the number of windows to keep")
    known: dict[str, Any] = {} if before is None else before.model_dump()
    kept = "top" if top is not None else keep or known.get("keep", "eager")
    wide = window or known.get("window", DEFAULT_WINDOW)
    lap = overlap if overlap is not None else known.get("overlap", DEFAULT_OVERLAP) if window is None else None
    return CorpusRecord(
        name=name,
        fingerprint_id=memory.blocks.fingerprint.id,
        model=memory.engine.info.name,
        window=wide,
        overlap=min(DEFAULT_OVERLAP, wide // 4) if lap is None else lap,
        prefix=known.get("prefix", PREFIX),
        keep=kept,
        top=(top or known.get("top")) if kept == "top" else None,
    )
