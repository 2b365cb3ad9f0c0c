"""Answers with evidence: each chunk is asked alone, quotes one of its sentences, and the quote is checked.

After the chunk come the question and a draft of the answer, generated freely up to the end of a line. Then the model
has to continue with one of the chunk's own sentences (``quote.py``), where those that share words with question and
draft get a bonus. A chunk whose draft is "not stated" is passed over, and the next one is tried. From there on it
depends on the model's size. A small one's drafts are mostly nonsense, so it gives a short answer from that sentence
alone. A larger one's draft is the answer, but it never admits that a chunk does not hold it: a draft whose words are
not in the chunk counts as "not stated". Several answers are combined by majority; states are never put together.

Not guaranteed: that a small model picks the right sentence, or knows that a chunk does not hold the answer. Guaranteed:
the quote is at the byte range given, in the file as it was added; where the file has changed since, the evidence is not
verified.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentkv.documents.chunks import Chunks, Live
from agentkv.documents.locate import Hit
from agentkv.documents.quote import (
    NO_ANSWER,
    NOT_STATED,
    Choice,
    Sentence,
    choose,
    generate_line,
    is_grounded,
    normalised,
    sentences,
    shares_of,
)
from agentkv.documents.readers import readable
from agentkv.documents.readers.tables import in_a_line
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.engine.base import Cancellation, Engine
from agentkv.engine.generate import LEAST_NEW, room
from agentkv.engine.prompt import Prompt
from agentkv.records import TokenCounts
from agentkv.text import folded, terms

SHARED_WORDS = 12.0
"""Bonus in nats for a sentence that holds all words of the question, in proportion for one that holds some. The draft's
words count half, since a draft may be nonsense: so gemma-3-270m quotes the right sentence for 35 of 35 needles, with
both counted as one for 32. Where the draft is the answer its words count twice: of 11 questions with the right chunk
qwen2.5-coder-1.5b quotes a right sentence for 6, for 5 with half."""
Source = Literal["chunk", "quote"]
"""What an answer is generated from: the whole chunk (the draft), or the quoted sentence alone."""
FROM_CHUNK = 1_000_000_000
"""Parameters from which on a model answers from the chunk. gemma-3-270m's drafts are right for 12 of 60 needles, its
answers from the quote for 59. On the tuned questions of the benchmark ``questions`` qwen2.5-coder-1.5b's drafts are
right 10 times of 26, its answers from the quote 6 times. Those 10 are in their chunks; of the other 23 drafts (one is
"not stated") 8 are not, five of them to questions that nothing answers."""
EVIDENCE, END = '\n"', '"\n'
_NOT_STATED = re.compile(rf"\b{NOT_STATED}\b", re.IGNORECASE)
_ARTICLES = re.compile(r"^(?:the|a|an|it is|about)\s+")


@dataclass(frozen=True)
class Evidence:
    """A quote and its place: source bytes ``start`` to ``stop`` of ``path``, under ``heading``.

    ``quote`` has its white space collapsed; of HTML, tags are left out and entities resolved. ``verified``: the kept
    source, whose digest is that of the file that was added, says it at that range, and the file has not changed since.
    ``origin``: whether the file is still the one that was added: ``same``, ``changed`` or ``gone``. ``encoding``: in
    which the bytes of the range decode to the quote. ``columns``: the column names of a quote from within a table,
    which are not part of the quote.
    """

    quote: str
    path: str
    heading: str
    start: int
    stop: int
    verified: bool
    origin: str
    encoding: str = "utf-8"
    columns: str = ""


@dataclass(frozen=True)
class Attempt:
    """A chunk that was asked, maybe with others after it.

    ``answer`` and ``evidence`` are None where the draft was "not stated". ``draft``: what was generated before the
    sentence was chosen. ``confidence``: the probability of that choice among the sentences of the chunk.
    ``tokens.generated`` counts decode steps; what followed without a choice was prefilled. ``prefilled_now``: the
    chunk was prefilled and stored for this question; ``kept``: it is stored now. ``cut_at``: the number of tokens at
    which the answer was cut, 0 if it is complete.
    """

    hit: Hit
    answer: str | None
    evidence: Evidence | None
    confidence: float
    tokens: TokenCounts
    restore_ms: float
    answer_ms: float
    prefilled_now: bool
    kept: bool
    draft: str = ""
    cut_at: int = 0


@dataclass(frozen=True)
class Reply:
    """The answer to a question; None if no chunk gave one. ``votes``: attempts that agree on it.

    ``notes``: what was passed over or has changed, and what to do about it. ``moved_on``: paths of the files found that
    have changed since they were added.
    """

    question: str
    answer: str | None
    evidence: Evidence | None
    votes: int
    attempts: tuple[Attempt, ...]
    notes: tuple[str, ...] = ()
    moved_on: tuple[str, ...] = ()

    @property
    def cut_at(self) -> int:
        """The number of tokens at which the answer was cut, 0 if it is complete."""
        return next((one.cut_at for one in self.attempts if one.evidence and one.evidence is self.evidence), 0)


@dataclass(frozen=True)
class _Request:
    """A question to a chunk, laid out in tokens. ``following``: the other chunks' ids, after the first one's."""

    hits: list[Hit]
    prompt: Prompt
    following: list[tuple[int, ...]]
    quotable: list[tuple[Hit, Sentence]]
    from_chunk: bool
    max_new: int
    max_draft: int


@dataclass(frozen=True)
class _Draft:
    """What the model generated with the chunk in the context, and the sentence it chose; counts are tokens."""

    text: str
    choice: Choice | None
    generated: int
    prefilled: int
    was_cut: bool


def ask_chunk(
    chunks: Chunks,
    hit: Hit,
    question: str,
    *,
    after: Sequence[Hit] = (),
    max_new: int | None = None,
    answer_from: Source | None = None,
    shared_words: float = SHARED_WORDS,
    cancellation: Cancellation | None = None,
) -> Attempt:
    """Ask one chunk, and those that come ``after`` it in the same context, which are prefilled.

    ``answer_from``: by ``FROM_CHUNK`` unless given. ``shared_words``: see ``SHARED_WORDS``; 0 leaves the choice of the
    sentence to the model alone. Raises WindowOverflow, with everything untouched, StaleDocument, Cancelled.
    """
    request = _request(chunks, [hit, *after], question, max_new, answer_from)
    started = time.perf_counter()
    with chunks.live(hit.document, hit.chunk, question, cancellation, request.following) as live:
        restored_at = time.perf_counter()
        draft = _draft(chunks.memory.engine, request, question, shared_words, cancellation)
        restored = live.manifest.n_tokens if live.manifest is not None else 0
    evidence = None if draft.choice is None else _evidence(chunks.shelf, *request.quotable[draft.choice.index])
    short = NO_ANSWER
    if evidence is not None and not request.from_chunk:
        sentence = f"{evidence.columns}: {evidence.quote}" if evidence.columns else evidence.quote
        short = chunks.short_answers.answer(question, sentence, request.max_new, cancellation) or NO_ANSWER
    forks = 0 if draft.choice is None else draft.choice.asked
    tokens = TokenCounts(
        restored=restored + short.restored,
        prefilled=draft.prefilled + short.prefilled,
        generated=draft.generated + forks + short.generated,
    )
    restore_ms = (restored_at - started) * 1e3
    _count(chunks, hit, live, restored, tokens, restore_ms)
    cut_at = request.max_draft if draft.was_cut and evidence is not None else 0
    return Attempt(
        hit=hit,
        answer=None if evidence is None else short.text or draft.text or None,
        evidence=evidence,
        confidence=0.0 if draft.choice is None else draft.choice.probability,
        tokens=tokens,
        restore_ms=restore_ms,
        answer_ms=(time.perf_counter() - restored_at) * 1e3,
        prefilled_now=live.created,
        kept=live.kept,
        draft=draft.text,
        cut_at=short.cut_at if short.text else cut_at,
    )


def _request(
    chunks: Chunks, hits: list[Hit], question: str, max_new: int | None, answer_from: Source | None
) -> _Request:
    """Raises WindowOverflow, StaleDocument."""
    engine = chunks.memory.engine
    from_chunk = (answer_from or ("chunk" if engine.info.n_params >= FROM_CHUNK else "quote")) == "chunk"
    quotable = _quotable(hits)
    prompt, *others = [chunks.chunk_prompt(hit.document, hit.chunk, question) for hit in hits]
    following = [other.manual for other in others]
    longest = max((len(engine.tokenize(item.text + END, special=False)) for _, item in quotable), default=0)
    n_turn = len(prompt.turn) + len(engine.tokenize(EVIDENCE, special=False)) + longest
    limit = room(sum(map(len, (*prompt.blocks, *following))), n_turn, max_new, engine.window)
    # A draft that is not the answer only helps to choose a sentence: it need not be complete.
    max_draft = limit if from_chunk or max_new is not None else LEAST_NEW
    return _Request(hits, prompt, following, quotable, from_chunk, limit, max_draft)


def _draft(
    engine: Engine, request: _Request, question: str, shared_words: float, cancellation: Cancellation | None
) -> _Draft:
    """Draft an answer on top of the live context, then choose a sentence unless the draft is "not stated"."""
    before = engine.counters.decoded
    logits = engine.extend(request.prompt.turn, cancellation)
    draft, generated, was_cut = generate_line(engine, logits, request.prompt.stops, request.max_draft, cancellation)
    choice = None
    if request.quotable and _is_stated(draft, question, request.hits, request.from_chunk):
        logits = engine.extend(engine.tokenize(EVIDENCE, special=False), cancellation)
        sentences = [sentence for _, sentence in request.quotable]
        bonus = _bonus(question, draft, sentences, shared_words, 2.0 if request.from_chunk else 0.5)
        choice = choose(engine, logits, [sentence.text + END for sentence in sentences], bonus, cancellation)
    prefilled = sum(map(len, request.following)) + engine.counters.decoded - before
    return _Draft(draft, choice, generated, prefilled - max(0, generated - 1), was_cut)  # the last token is not decoded


def _count(chunks: Chunks, hit: Hit, live: Live, restored: int, tokens: TokenCounts, restore_ms: float) -> None:
    """The attempt's line in the store's turn log."""
    reused = live.kept and not live.created
    chunks.memory.blocks.count(
        "window",
        block_id=hit.chunk.block_id if reused else None,
        restored=restored if reused else 0,
        read=tokens.prefilled,
        generated=tokens.generated,
        restore_ms=restore_ms if reused else 0.0,
    )


def _quotable(hits: Sequence[Hit]) -> list[tuple[Hit, Sentence]]:
    """The chunks' sentences, each once; without halves that a neighbour has in full."""
    return _sentences(hits, whole=True) or _sentences(hits, whole=False)


def _sentences(hits: Sequence[Hit], *, whole: bool) -> list[tuple[Hit, Sentence]]:
    found: dict[str, tuple[Hit, Sentence]] = {}
    for hit in hits:
        first, last = (hit.cut[0], len(hit.text) - hit.cut[1]) if whole else (0, len(hit.text))
        for item in sentences(hit.text, code=hit.document.kind in {"code", "csv"}):
            if first <= item.start and item.stop <= last and normalised(item.text).casefold() != NOT_STATED:
                found.setdefault(item.text, (hit, item))
    return list(found.values())


def _is_stated(draft: str, question: str, hits: Sequence[Hit], from_chunk: bool) -> bool:
    """Whether a draft counts as an answer. If it is to be the answer, its words have to be in the chunks."""
    if _NOT_STATED.search(draft):
        return False
    return not from_chunk or (
        bool(draft)
        and is_grounded(terms(draft), terms(question), "\n".join(f"{hit.columns}\n{hit.text}" for hit in hits))
    )


def _bonus(question: str, draft: str, quotable: Sequence[Sentence], nats: float, of_draft: float) -> list[float]:
    """Nats for sentences that share words with the question, and with the draft, which count ``of_draft`` times."""
    by_question, by_draft = (shares_of(terms(text), [item.text for item in quotable]) for text in (question, draft))
    return [nats * (one + of_draft * other) for one, other in zip(by_question, by_draft, strict=True)]


# --- the evidence ---------------------------------------------------------------------------------


def _evidence(shelf: Shelf, hit: Hit, sentence: Sentence) -> Evidence:
    document = shelf.readable(hit.document)
    first, _ = document.characters(hit.start, hit.stop)
    start, stop = document.byte_range(first + sentence.start, first + sentence.stop)
    origin = shelf.origin_state(hit.document)
    return Evidence(
        quote=sentence.text,
        path=hit.path,
        heading=" > ".join(document.heading_path(first + sentence.start)),
        start=start,
        stop=stop,
        verified=origin != "changed" and stands_at(shelf, hit.document, start, stop, sentence.text),
        origin=origin,
        encoding=document.source.encoding,
        columns=in_a_line(document.columns(first + sentence.start)),
    )


def stands_at(shelf: Shelf, record: DocumentRecord, start: int, stop: int, quote: str) -> bool:
    """Whether the kept source, read from disk again, has ``quote`` in bytes ``start`` to ``stop``."""
    data = shelf.sources.load(record.sha256)
    if data is None:
        return False
    document = readable(Path(record.path), data[0], record.kind, record.encoding)
    first, last = document.characters(start, stop)
    return normalised(quote) in normalised(document.text[first:last])


# --- several chunks ------------------------------------------------------------------------------


def combine(question: str, attempts: Sequence[Attempt]) -> Reply:
    """The answer that most chunks give, in case of a tie the one of the chunk found first."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.answer is not None:
            groups.setdefault(key_of(attempt.answer), []).append(attempt)
    if not groups:
        return Reply(question, None, None, 0, tuple(attempts))
    best = max(groups.values(), key=len)
    return Reply(question, best[0].answer, best[0].evidence, len(best), tuple(attempts))


def key_of(answer: str) -> str:
    """The form in which answers are compared: without case, extra white space, articles and marks at the ends."""
    return _ARTICLES.sub("", normalised(folded(answer)).casefold().strip(" .,;:!\"'`*")).strip()
