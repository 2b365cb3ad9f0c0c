"""The channel classifier: which skill makes this question likely, and does it fit?

A skill's *card* is its name and description, and the question whether it fits, as the beginning of a user's message.
Its state is a small block of its own, so a candidate costs the question's tokens and those that end the message: the
candidates of a decision are scored in one decode. It gives two features. The *noisy-channel score*: log P(question |
card) minus log P(question | a card without content), in nats a token. And *fits*: log P(yes) minus log P(no), as the
answer; where that has no weight, it is not asked for. There is no order among candidates that could bias the pick, and
a label that is not live cannot be picked.

A small model is noisy, so lexical similarity is weighed in: the question's with the card, with the skill's whole text,
and with questions that are labelled as the skill's own; and, with an embedder, embedding similarity. Both also narrow a
library of any size to the candidates that the model scores: at most a shortlist, and of that those within the prune
ratio of the likeliest. The weights were fitted on questions that are published with the project
(``agentkv bench route``), or are fitted on a library's own (``weights.py``); NONE has one too, and a skill that
does not reach it is not picked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agentkv.blocks.blocks import Blocks
from agentkv.blocks.checkpoints import Checkpoints, NotKept
from agentkv.blocks.restoring import MENDS
from agentkv.engine.base import Logits, Scored, State
from agentkv.engine.prompt import PromptBuilder
from agentkv.errors import InvalidState, NativeRefusal, StoreError
from agentkv.notices import warn
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.similarity import Library
from agentkv.router.vectors import Vectors
from agentkv.router.weights import (
    FEATURES,
    NARROWING,
    NARROWING_BY_EMBEDDING,
    Rows,
    Weights,
    default_prune_ratio,
    default_weights,
    probability,
)

SHORTLIST, SHORTLIST_BY_EMBEDDING = 8, 6
"""Candidates that the model may read, the nearest first: the cost of a decision does not grow with the library. Fewer
with an embedder, which finds the right one among 5 as often as words do among 16; of the 288 questions that weights
were fitted on it is among 4 for 240, among 5 for 245, among 6 for 250. Scored are those within the prune ratio."""

MAX_QUESTION_TOKENS = 64
"""A question is scored on its first tokens; what follows is rarely what it is about."""

FEWEST_TOKENS = 4
"""A channel of fewer tokens is taken as if the others said nothing: the mean over one or two is chance ("hello")."""

_YES, _NO = ("Yes", "yes", " Yes", " yes"), ("No", "no", " No", " no")


def card_text(name: str, description: str) -> str:
    """The text that stands for a skill; without a name, the card without content."""
    tool = f"Tool: {name}\nDescription: {description}\n\n" if name else ""
    return f"{tool}Does this tool fit the user's request? Answer Yes or No.\n\nRequest:"


@dataclass(frozen=True)
class Shortlist:
    """The nearest candidates, nearest first: a row of likenesses each, and what these say alone, in nats."""

    labels: tuple[str, ...]
    rows: Rows
    near: tuple[float, ...]

    def within(self, ratio: float) -> int:
        """How many of them are at least ``ratio`` times as likely as the first."""
        return sum(near >= self.near[0] + math.log(ratio) for near in self.near) if ratio > 0 else len(self.labels)


@dataclass(frozen=True)
class Features:
    """The candidates that were read, and a row of features for each; ``tokens``: evaluated for them.

    ``unread``: the rest of the shortlist, with how much less each scores than the last that was read, in nats, by
    similarity.
    """

    labels: tuple[str, ...]
    rows: Rows
    tokens: int
    unread: Mapping[str, float] = field(default_factory=dict)


class ChannelClassifier:
    """Scores questions on top of card blocks, and by similarity.

    ``labelled`` are questions known to belong to a label; one that is being classified must not be among them when
    the outcome is to say anything about others. ``doubt``: how likely a candidate has to be beside the likeliest, by
    words and meaning, to be read; 0 reads the whole shortlist. ``whole``: what a question says beyond all texts counts
    against them (``similarity.py``).
    """

    version = "5"

    def __init__(
        self,
        blocks: Blocks,
        *,
        weights: Weights | None = None,
        labelled: Mapping[str, Sequence[str]] | None = None,
        shortlist: int | None = None,
        vectors: Vectors | None = None,
        prune_ratio: float | None = None,
        whole: bool = True,
    ) -> None:
        self.blocks, self.vectors, self.whole = blocks, vectors, whole
        self.prune_ratio = default_prune_ratio(blocks.engine.info.sha256) if prune_ratio is None else prune_ratio
        self.shortlist = shortlist or (SHORTLIST if vectors is None else SHORTLIST_BY_EMBEDDING)
        self.weights = weights or default_weights(blocks.engine.info.sha256, vectors is not None)
        self.labelled = {label: tuple(questions) for label, questions in (labelled or {}).items()}
        self.name = "channel+lexical" if vectors is None else f"channel+lexical+{vectors.embedder.name}"
        self._narrowing = (NARROWING if vectors is None else NARROWING_BY_EMBEDDING).vector[2:]
        self._prompts = PromptBuilder(blocks.engine)
        self._checkpoints = Checkpoints(blocks)
        self._end = self._prompts.question("")[1]
        self._yes, self._no = (self._single_tokens(words) for words in (_YES, _NO))
        self._library = Library(self.labelled, vectors, whole=whole)

    def with_learned(self, weights: Weights, labelled: Mapping[str, Sequence[str]]) -> ChannelClassifier:
        """The same classifier with other weights and labelled questions."""
        return ChannelClassifier(
            self.blocks,
            weights=weights,
            labelled=labelled,
            shortlist=self.shortlist,
            vectors=self.vectors,
            prune_ratio=self.prune_ratio,
            whole=self.whole,
        )

    def deposit_card(self, name: str, description: str, *, allow_inexact: bool = False) -> bool:
        """Store the card's block; False if it was there, which costs a hash.

        A card takes no probe of its own, which would cost more than reading it, but rests on the configuration's
        self-test; only where that fails is it proved alone.
        """
        card = self._card(name, description)[:-1]
        if self.blocks.valid(self.blocks.id_of(card)) is not None:
            return False
        try:
            with self.blocks.exclusive():
                return self._checkpoints.keep([card], self._state(card))
        except NotKept:
            return self.blocks.deposit(card, allow_inexact=allow_inexact).created

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are of the shortlist and NONE.

        What was not read is ranked below what was, by as much as similarity ranks it lower.
        """
        known = self.features(question, candidates)
        scores = dict(zip(known.labels, self.weights.scores(known.rows), strict=True))
        last = min(scores.values(), default=0.0)
        scores.update((label, last - lower) for label, lower in known.unread.items())
        found = Classification.best({**scores, NONE: self.weights.none}, known.tokens)
        if not known.labels or not self.weights.fitted_on:
            return found
        return replace(found, confidence=probability(list(found.scores.values()), 0))

    def features(self, question: str, candidates: Mapping[str, Candidate], *, leave_one_out: bool = False) -> Features:
        """What is known of the nearest candidates.

        ``leave_one_out``, for learning: leave this very question out of the labelled ones, read the whole shortlist,
        and ask whether each fits.
        """
        engine = self.blocks.engine
        ids = engine.tokenize(" " + " ".join(question.split()), special=False)[:MAX_QUESTION_TOKENS]
        if not candidates or not ids:
            return Features((), np.zeros((0, len(FEATURES))), 0)
        short = self.nearest(question, candidates, leave_one_out=leave_one_out)
        n = len(short.labels) if leave_one_out else short.within(self.prune_ratio)
        asks = leave_one_out or self.weights.fits > 0
        scored, tokens = self._ask({label: candidates[label].description for label in short.labels[:n]}, ids, asks)
        rows = np.column_stack([[scored[label] for label in short.labels[:n]], short.rows[:n]])
        unread = {short.labels[index]: short.near[n - 1] - short.near[index] for index in range(n, len(short.labels))}
        return Features(short.labels[:n], rows, tokens, unread)

    def nearest(self, question: str, candidates: Mapping[str, Candidate], *, leave_one_out: bool = False) -> Shortlist:
        """The candidates that the model may read; costs no tokens."""
        similarity = self._library.of(candidates)
        names, alike = similarity.labels, similarity.of(question, leave_one_out)
        near = alike @ self._narrowing
        order = sorted(range(len(names)), key=lambda index: (-near[index], names[index]))[: self.shortlist]
        return Shortlist(tuple(names[index] for index in order), alike[order], tuple(near[order].tolist()))

    def _ask(
        self, descriptions: Mapping[str, str], ids: list[int], asks: bool
    ) -> tuple[dict[str, tuple[float, float]], int]:
        """By label, channel and, if ``asks``, fits; zeros if no card fits into the window beside a question."""
        engine = self.blocks.engine
        cards = {label: self._card(label, description) for label, description in sorted(descriptions.items())}
        end = self._end if asks else self._end[:1]  # one token: an engine tells what lies before the last one
        ids = ids[: max(0, engine.window - max(map(len, cards.values())) - len(end))]
        if not ids:
            return dict.fromkeys(cards, (0.0, 0.0)), 0
        empty = self._card("", "")
        with engine.lock:
            before = engine.counters.decoded
            # A card's last token is evaluated with the question, since a state holds no logits.
            cards_read, tail = [card[:-1] for card in (*cards.values(), empty)], [empty[-1], *ids, *end]
            try:
                scored = engine.score_after([self._state(card) for card in cards_read], tail, len(ids))
            except (InvalidState, NativeRefusal):
                scored = [self._by_reading(card, tail, len(ids)) for card in cards_read]
            yes = [self._says_yes(each.logits) if asks else 0.0 for each in scored]
            *found, prior = zip((float(each.log_probabilities.sum()) for each in scored), yes, strict=True)
            features = {
                label: ((likelihood - prior[0]) / max(len(ids), FEWEST_TOKENS), fits)
                for label, (likelihood, fits) in zip(cards, found, strict=True)
            }
            return features, engine.counters.decoded - before

    def _says_yes(self, logits: Logits) -> float:
        """log P(yes) - log P(no); 0 where the vocabulary has no such tokens."""
        if not self._yes or not self._no:
            return 0.0
        return float(np.logaddexp.reduce(logits[self._yes]) - np.logaddexp.reduce(logits[self._no]))

    def _single_tokens(self, spellings: Sequence[str]) -> list[int]:
        ids = (self.blocks.engine.tokenize(word, special=False) for word in spellings)
        return sorted({found[0] for found in ids if len(found) == 1})

    def _card(self, name: str, description: str) -> tuple[int, ...]:
        return self._prompts.question(card_text(name, description))[0]

    def _state(self, tokens: tuple[int, ...]) -> State:
        """The state of these ids, as stored, else read now."""
        try:
            for stored in self.blocks.stored_chain([tokens]):
                self.blocks.store.require_not_refused(stored)
                return self.blocks.state(stored)
        except (StoreError, InvalidState) as error:
            warn(f"a router card was prefilled instead of restored: {error.message} {MENDS}")
        return self._fresh(tokens)

    def _fresh(self, tokens: tuple[int, ...]) -> State:
        engine = self.blocks.engine
        engine.clear()
        engine.extend(tokens)
        return engine.capture()

    def _by_reading(self, tokens: tuple[int, ...], tail: Sequence[int], scored: int) -> Scored:
        """What :meth:`Engine.score_after` gives for one card; one that the engine refuses is noted, and prefilled."""
        engine = self.blocks.engine
        try:
            engine.restore(self._state(tokens))
            return Scored(engine.score(tail[: scored + 1]), engine.extend(tail[scored + 1 :]))
        except (InvalidState, NativeRefusal) as error:
            for manifest in self.blocks.stored_chain([tokens]):
                self.blocks.refuse(manifest, error.message)
            warn(f"a router card was prefilled instead of restored: {error.message} {MENDS}")
        engine.clear()
        engine.extend(tokens)
        return Scored(engine.score(tail[: scored + 1]), engine.extend(tail[scored + 1 :]))
