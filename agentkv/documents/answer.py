"""Answers with evidence: each window is asked alone, quotes a sentence of itself, and the quote is checked.

A turn behind a window: the question; a draft of the answer, freely, in one line; then the model has to go on with one
of the window's own sentences (``quote.py``), where those that share words with question and draft have a start. Of the
sentence no more is read than it takes to tell it from the others. A window whose draft is "not stated" is passed, and
the next one is tried. From there on models differ. A small one's drafts are mostly nonsense, so it says the answer once
more, in a few words, from that sentence alone (``brief.py``). A larger one's draft is the answer, but it never admits
that a window does not hold it: a draft whose words do not stand in the window counts as "not stated".
Several answers are combined by votes over their words; states are never put together.

Not guaranteed: that a small model picks the right sentence, or knows that a window does not hold the answer. What is
guaranteed of a reply is that its quote stands at the byte range given, in the file as it was added; where the file has
changed since, the evidence says so and is not verified.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentkv.documents.brief import NOTHING, said_in_a_line
from agentkv.documents.locate import Hit
from agentkv.documents.quote import NOT_STATED, Sentence, choose, is_grounded, normalised, sentences, shares_of
from agentkv.documents.readable import readable
from agentkv.documents.reading import Reader
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.documents.tables import in_a_line
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import LEAST_NEW, room
from agentkv.records import TokenCounts
from agentkv.text import folded, terms

SHARED_WORDS = 12.0
"""Nats for a sentence that holds all words of the question, in proportion for one that holds some; for the draft's
words half of that, since a draft may be nonsense. Of 35 needles gemma-3-270m quotes 35 so, 32 with both in one. Where
the draft is the answer its words count twice: of 11 questions with the right window qwen2.5-coder-1.5b quotes a right
sentence for 6, 5 with half."""
Source = Literal["window", "quote"]
"""What an answer is said from: the whole window (the draft), or the quoted sentence alone."""
FROM_WINDOW = 1_000_000_000
"""Parameters from which on a model answers from the window. gemma-3-270m's drafts are right for 12 of 60 needles, what
it says from the quote for 59. On the tuned questions of the benchmark ``questions`` qwen2.5-coder-1.5b's drafts are
right 10 times of 26, what it says from the quote 6 times; the 10 stand in their windows, of the other 23 drafts (one is
"not stated") 8 do not, five of them to questions that nothing answers."""
EVIDENCE, END = '\n"', '"\n'
_NOT_STATED = re.compile(rf"\b{NOT_STATED}\b", re.IGNORECASE)
_ARTICLES = re.compile(r"^(?:the|a|an|it is|about)\s+")


@dataclass(frozen=True)
class Evidence:
    """A quote and where it stands: source bytes ``start`` to ``stop`` of ``path``, under ``heading``.

    ``quote`` has its white space collapsed; where the source is HTML, its tags are left out and entities resolved.
    ``verified``: it was read again from the kept source at that range, the source has the digest of the file that was
    added, and that file has not moved on since. ``origin``: whether the file where it lay is still that one: ``same``,
    ``changed`` (the quote is of the version that was added) or ``gone`` (it is of the kept copy). ``encoding``: in
    which the bytes of the range decode to the quote. ``columns``: of a quote from within a table, their names, which
    are not part of the quote.
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
    """A window that was asked, maybe with others behind it.

    ``answer`` and ``evidence`` are None where it said that it is not stated.
    ``draft``: what was said before the sentence was chosen. ``confidence``: the probability of that choice among the
    sentences of the window. ``tokens.generated`` counts steps at which the model was asked; sentences it had no choice
    about are prefilled. ``kept``: whether the window is stored now. ``cut_at``: the tokens at which the answer was cut,
    0 where it is whole.
    """

    hit: Hit
    answer: str | None
    evidence: Evidence | None
    confidence: float
    tokens: TokenCounts
    restore_ms: float
    answer_ms: float
    read_now: bool
    kept: bool
    draft: str = ""
    cut_at: int = 0


@dataclass(frozen=True)
class Reply:
    """The answer to a question; None with ``attempts`` for what was tried. ``votes``: of the attempts that agree.

    ``notes``: what was passed over or has changed, and what to do about it. ``moved_on``: files of the windows found
    that have changed since they were added, as they are called.
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
        """The tokens at which the answer was cut, 0 where it is whole."""
        return next((one.cut_at for one in self.attempts if one.evidence and one.evidence is self.evidence), 0)


def ask_window(
    reader: Reader,
    hit: Hit,
    question: str,
    *,
    behind: Sequence[Hit] = (),
    max_new: int | None = None,
    answer_from: Source | None = None,
    shared_words: float = SHARED_WORDS,
    cancellation: Cancellation | None = None,
) -> Attempt:
    """Ask one window, and those ``behind`` it, which are read one after the other.

    ``answer_from``: see ``FROM_WINDOW``, by which it goes unless given. ``shared_words``: see ``SHARED_WORDS``; 0
    leaves the choice of the sentence to the model alone.

    Raises WindowOverflow, with everything untouched, StaleDocument, Cancelled.
    """
    engine = reader.memory.engine
    freely = (answer_from or ("window" if engine.info.n_params >= FROM_WINDOW else "quote")) == "window"
    hits = [hit, *behind]
    quotable = _quotable(hits)
    prompt, *others = [reader.window_prompt(one.document, one.window, question) for one in hits]
    following = [other.manual for other in others]
    n_following = sum(map(len, following))
    cue = engine.tokenize(EVIDENCE, special=False)
    longest = max((len(engine.tokenize(item.text + END, special=False)) for _, item in quotable), default=0)
    n_blocks = sum(map(len, prompt.blocks)) + n_following
    limit = room(n_blocks, len(prompt.turn) + len(cue) + longest, max_new, engine.window)
    # A draft that is not the answer only helps to choose a sentence: it need not be whole.
    drafted = limit if freely or max_new is not None else LEAST_NEW
    begun = time.perf_counter()
    with reader.live(hit.document, hit.window, question, cancellation, following) as live:
        restored_at, decoded = time.perf_counter(), engine.counters.decoded
        logits = engine.extend(prompt.turn, cancellation)
        draft, generated, cut = said_in_a_line(engine, logits, prompt.stops, drafted, cancellation)
        choice = None
        if quotable and _is_stated(draft, question, hits, freely):
            logits = engine.extend(cue, cancellation)
            texts = [item.text + END for _, item in quotable]
            bonus = _bonus(question, draft, [item for _, item in quotable], shared_words, 2.0 if freely else 0.5)
            choice = choose(engine, logits, texts, bonus, cancellation)
        prefilled = n_following + engine.counters.decoded - decoded
        prefilled -= max(0, generated - 1)  # the last one said is not read
        restored = live.manifest.n_tokens if live.manifest is not None else 0
    evidence = None if choice is None else _evidence(reader.shelf, *quotable[choice.index])
    steps = generated + (0 if choice is None else choice.asked)
    said = NOTHING
    if evidence is not None and not freely:
        sentence = f"{evidence.columns}: {evidence.quote}" if evidence.columns else evidence.quote
        said = reader.brief.say(question, sentence, limit, cancellation) or NOTHING
    prefilled, steps = prefilled + said.prefilled, steps + said.generated
    reused = live.kept and not live.created
    reader.memory.blocks.count(
        "window",
        block_id=hit.window.block_id if reused else None,
        restored=restored if reused else 0,
        read=prefilled,
        generated=steps,
        restore_ms=(restored_at - begun) * 1e3 if reused else 0.0,
    )
    return Attempt(
        hit=hit,
        answer=None if evidence is None else said.text or draft or None,
        evidence=evidence,
        confidence=0.0 if choice is None else choice.probability,
        tokens=TokenCounts(restored=restored + said.restored, prefilled=prefilled, generated=steps),
        restore_ms=(restored_at - begun) * 1e3,
        answer_ms=(time.perf_counter() - restored_at) * 1e3,
        read_now=live.created,
        kept=live.kept,
        draft=draft,
        cut_at=said.cut_at if said.text else drafted if cut and evidence is not None else 0,
    )


def _quotable(hits: Sequence[Hit]) -> list[tuple[Hit, Sentence]]:
    """The windows' sentences, each once, with where it stands; without halves that a neighbour has whole."""
    return _pieces(hits, cut=True) or _pieces(hits, cut=False)


def _pieces(hits: Sequence[Hit], cut: bool) -> list[tuple[Hit, Sentence]]:
    found: dict[str, tuple[Hit, Sentence]] = {}
    for hit in hits:
        first, last = (hit.cut[0], len(hit.text) - hit.cut[1]) if cut else (0, len(hit.text))
        for item in sentences(hit.text, code=hit.document.kind in {"code", "csv"}):
            if first <= item.start and item.stop <= last and normalised(item.text).casefold() != NOT_STATED:
                found.setdefault(item.text, (hit, item))
    return list(found.values())


def _is_stated(draft: str, question: str, hits: Sequence[Hit], freely: bool) -> bool:
    """Whether a draft counts as one. Where it is the answer, it has to stand in the windows."""
    if _NOT_STATED.search(draft):
        return False
    return not freely or (
        bool(draft)
        and is_grounded(terms(draft), terms(question), "\n".join(f"{hit.columns}\n{hit.text}" for hit in hits))
    )


def _bonus(question: str, draft: str, quotable: Sequence[Sentence], nats: float, of_draft: float) -> list[float]:
    """A start for sentences that share words of the question, and of the draft, which count ``of_draft`` times."""
    asked, said = (shares_of(terms(text), [item.text for item in quotable]) for text in (question, draft))
    return [nats * (one + of_draft * other) for one, other in zip(asked, said, strict=True)]


# --- the evidence ---------------------------------------------------------------------------------


def _evidence(shelf: Shelf, hit: Hit, sentence: Sentence) -> Evidence:
    document = shelf.readable(hit.document)
    first, _ = document.characters(hit.start, hit.stop)
    start, stop = document.byte_range(first + sentence.start, first + sentence.stop)
    trail = document.trail(first + sentence.start)
    origin = shelf.origin_state(hit.document)
    return Evidence(
        quote=sentence.text,
        path=hit.path,
        heading=" > ".join(trail),
        start=start,
        stop=stop,
        verified=origin != "changed" and stands_at(shelf, hit.document, start, stop, sentence.text),
        origin=origin,
        encoding=document.source.encoding,
        columns=in_a_line(document.columns(first + sentence.start)),
    )


def stands_at(shelf: Shelf, record: DocumentRecord, start: int, stop: int, quote: str) -> bool:
    """Whether the kept source, read anew and of the recorded digest, says ``quote`` in bytes ``start`` to ``stop``."""
    from pathlib import Path

    data = shelf.sources.load(record.sha256)
    if data is None:
        return False
    document = readable(Path(record.path), data[0], record.kind, record.encoding)
    first, last = document.characters(start, stop)
    return normalised(quote) in normalised(document.text[first:last])


# --- several windows ------------------------------------------------------------------------------


def combine(question: str, attempts: Sequence[Attempt]) -> Reply:
    """The answer that most windows give, in case of a tie the one of the window found first."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.answer is not None:
            groups.setdefault(key_of(attempt.answer), []).append(attempt)
    if not groups:
        return Reply(question, None, None, 0, tuple(attempts))
    best = max(groups.values(), key=len)
    return Reply(question, best[0].answer, best[0].evidence, len(best), tuple(attempts))


def key_of(answer: str) -> str:
    """What two answers are compared by: case, white space, articles and marks at the ends do not count."""
    return _ARTICLES.sub("", normalised(folded(answer)).casefold().strip(" .,;:!\"'`*")).strip()
