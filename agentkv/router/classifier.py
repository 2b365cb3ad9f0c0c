"""The channel classifier: which skill makes this question likely, and does it fit?

A skill's *card* is its name and description, and the question whether it fits, as the beginning of a user's message.
Its state is a small block of its own, so a candidate costs the question's tokens and those that end the message: the
candidates of a decision are read in one decode. Two things are told by it. The *channel*: log P(question | card) minus
log P(question | a card without content), in nats a token. And *fits*: log P(yes) minus log P(no), as the answer. There
is no order among candidates that could bias the pick, and a label that is not live cannot be picked.

A small model is noisy, so how alike the words are is weighed in: the question's with the card's, with the skill's whole
text, and with questions that are labelled as the skill's own. With an embedder, so is how alike they are in meaning.
Words and meaning also narrow a large library to the few candidates that the model reads. The weights were fitted on
questions that are published with the project (``agentkv bench route``), or are fitted anew on a library's own
(``weights.py``); NONE has one too, and a skill that does not reach it is not picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentkv.blocks import Blocks
from agentkv.checkpoints import Checkpoints, NotKept
from agentkv.engine.base import Logits, State
from agentkv.engine.prompt import PromptBuilder
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.defaults import default_weights
from agentkv.router.likeness import Library
from agentkv.router.vectors import Vectors
from agentkv.router.weights import FEATURES, Rows, Weights, probability

SHORTLIST, SHORTLIST_BY_MEANING = 8, 5
"""Candidates that the model reads, the nearest first: the cost of a decision does not grow with the library. Fewer with
an embedder, which finds the right one among 5 as often as words do among 16."""

MAX_QUESTION_TOKENS = 64
"""A question is scored on its first tokens; what follows is rarely what it is about."""


NARROWING = np.array([5.0, 5.0, 5.0, 10.0, 10.0])
"""What narrows the candidates: card, text, asked, meaning, asked_meaning. Words count for more here than in the score,
since they find what meaning misses: 95 of 100 questions among 5, and 93 without."""

_YES, _NO = ("Yes", "yes", " Yes", " yes"), ("No", "no", " No", " no")


def card_text(name: str, description: str) -> str:
    """The text that stands for a skill; without a name, the card without content."""
    tool = f"Tool: {name}\nDescription: {description}\n\n" if name else ""
    return f"{tool}Does this tool fit the user's request? Answer Yes or No.\n\nRequest:"


@dataclass(frozen=True)
class Features:
    """A question's candidates after narrowing, and a row of features for each; ``tokens``: evaluated for them."""

    labels: tuple[str, ...]
    rows: Rows
    tokens: int


class ChannelClassifier:
    """Scores questions behind card blocks and by words.

    ``labelled`` are questions known to belong to a label; one that is being classified must not be among them when
    the outcome is to say anything about others.
    """

    version = "3"

    def __init__(
        self,
        blocks: Blocks,
        *,
        weights: Weights | None = None,
        labelled: Mapping[str, Sequence[str]] | None = None,
        shortlist: int | None = None,
        vectors: Vectors | None = None,
    ) -> None:
        self.blocks, self.vectors = blocks, vectors
        self.shortlist = shortlist or (SHORTLIST if vectors is None else SHORTLIST_BY_MEANING)
        self.weights = weights or default_weights(blocks.engine.info.sha256, vectors is not None)
        self.labelled = {label: tuple(questions) for label, questions in (labelled or {}).items()}
        self.name = "channel+lexical" if vectors is None else f"channel+lexical+{vectors.embedder.name}"
        self._prompts = PromptBuilder(blocks.engine)
        self._checkpoints = Checkpoints(blocks)
        self._end = self._prompts.question("")[1]
        self._yes, self._no = (self._single_tokens(words) for words in (_YES, _NO))
        self._library = Library(self.labelled, vectors)

    def with_learned(self, weights: Weights, labelled: Mapping[str, Sequence[str]]) -> ChannelClassifier:
        """The same classifier with other weights and labelled questions."""
        return ChannelClassifier(
            self.blocks, weights=weights, labelled=labelled, shortlist=self.shortlist, vectors=self.vectors
        )

    def deposit_card(self, name: str, description: str, *, allow_inexact: bool = False) -> bool:
        """Store the card's block; False if it was there, which costs a hash.

        A card takes no probe of its own, which would cost more than reading it, but rests on the configuration's
        self-test; only where that fails is it proved alone.
        """
        card = self._card(name, description)[:-1]
        if self.blocks.sound(self.blocks.id_of(card)) is not None:
            return False
        try:
            with self.blocks.exclusive():
                return self._checkpoints.keep([card], self._state(card))
        except NotKept:
            return self.blocks.deposit(card, allow_inexact=allow_inexact).created

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are of the shortlist and NONE."""
        known = self.features(question, candidates)
        scores = dict(zip(known.labels, self.weights.scores(known.rows), strict=True))
        found = Classification.best({**scores, NONE: self.weights.none}, known.tokens)
        if not known.labels or not self.weights.fitted_on:
            return found
        return replace(found, confidence=probability(list(found.scores.values()), 0))

    def features(self, question: str, candidates: Mapping[str, Candidate], *, aside: bool = False) -> Features:
        """What is known of the nearest candidates. ``aside``: leave this very question out of the labelled ones."""
        engine = self.blocks.engine
        ids = engine.tokenize(" " + " ".join(question.split()), special=False)[:MAX_QUESTION_TOKENS]
        if not candidates or not ids:
            return Features((), np.zeros((0, len(FEATURES))), 0)
        labels, alike = self.nearest(question, candidates, aside=aside)
        told, tokens = self._ask({label: candidates[label].description for label in labels}, ids)
        rows = np.column_stack([[told[label] for label in labels], alike])
        return Features(labels, rows, tokens)

    def nearest(
        self, question: str, candidates: Mapping[str, Candidate], *, aside: bool = False
    ) -> tuple[tuple[str, ...], Rows]:
        """The shortlist that the model will read, nearest first, with a row of likenesses each; costs no tokens."""
        likeness = self._library.of(candidates)
        names, alike = likeness.labels, likeness.of(question, aside)
        near = alike @ NARROWING
        order = sorted(range(len(names)), key=lambda index: (-near[index], names[index]))[: self.shortlist]
        return tuple(names[index] for index in order), alike[order]

    def _ask(self, descriptions: Mapping[str, str], ids: list[int]) -> tuple[dict[str, tuple[float, float]], int]:
        """By label, channel and fits; zeros if no card fits into the window beside a question."""
        engine = self.blocks.engine
        cards = {label: self._card(label, description) for label, description in sorted(descriptions.items())}
        ids = ids[: max(0, engine.window - max(map(len, cards.values())) - len(self._end))]
        if not ids:
            return dict.fromkeys(cards, (0.0, 0.0)), 0
        empty = self._card("", "")
        with engine.lock:
            before = engine.counters.decoded
            # A card's last token is evaluated with the question, since a state holds no logits.
            states = [self._state(card[:-1]) for card in (*cards.values(), empty)]
            scored = engine.score_behind(states, [empty[-1], *ids, *self._end], len(ids))
            *found, prior = [(float(each.log_probabilities.sum()), self._says_yes(each.logits)) for each in scored]
            told = {
                label: ((likelihood - prior[0]) / len(ids), fits)
                for label, (likelihood, fits) in zip(cards, found, strict=True)
            }
            return told, engine.counters.decoded - before

    def _says_yes(self, logits: Logits) -> float:
        """log P(yes) - log P(no); 0 where the vocabulary has no such tokens."""
        if not self._yes or not self._no:
            return 0.0
        return float(np.logaddexp.reduce(logits[self._yes]) - np.logaddexp.reduce(logits[self._no]))

    def _single_tokens(self, words: Sequence[str]) -> list[int]:
        ids = (self.blocks.engine.tokenize(word, special=False) for word in words)
        return sorted({found[0] for found in ids if len(found) == 1})

    def _card(self, name: str, description: str) -> tuple[int, ...]:
        return self._prompts.question(card_text(name, description))[0]

    def _state(self, tokens: tuple[int, ...]) -> State:
        """The state of these ids, as stored, else read now."""
        stored = self.blocks.stored_chain([tokens])
        if stored:
            return self.blocks.state(stored[0])
        engine = self.blocks.engine
        engine.clear()
        engine.extend(tokens)
        return engine.capture()
