"""The channel classifier: which skill makes this question likely?

A skill's *card* is its name and description. Its channel score is log P(question | card) minus log P(question | a
card without content), in nats a token: the second is the prior. A card's state is a small block of its own, so a
candidate costs the question's tokens and nothing more. There is no order among candidates that could bias the pick,
and a label that is not live cannot be picked.

A small model's channel is noisy, so how alike the words are is weighed in: the question's with the card's, with the
skill's whole text, and with questions that are labelled as the skill's own. The weights are set by hand or fitted
(``weights.py``); NONE has one too, and a skill that does not reach it is not picked.
Measured on the repository's labelled questions; see the README's routing table, also for what was left behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentkv.blocks import Blocks, Deposit
from agentkv.engine.prompt import PromptBuilder
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.lexical import LexicalIndex
from agentkv.router.weights import FEATURES, Rows, Weights, probability

SHORTLIST = 8
"""Candidates that the model scores, the lexically nearest first: the cost of a decision does not grow with the library.
The right skill was among the nearest 2 of 10 for each of the 148 labelled questions."""

MAX_QUESTION_TOKENS = 64
"""A question is scored on its first tokens; what follows is rarely what it is about."""


def card_text(name: str, description: str) -> str:
    """The text that stands for a skill; without a name, the card without content."""
    if not name:
        return "A user sends this message to an assistant.\nMessage:"
    return f'A user sends this message to an assistant that has the skill "{name}": {description}\nMessage:'


DEFAULT_WEIGHTS = Weights(channel=1.0, card=0.0, text=10.0, asked=0.0, none=1.2)


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

    name = "channel+lexical"
    version = "2"

    def __init__(
        self,
        blocks: Blocks,
        *,
        weights: Weights = DEFAULT_WEIGHTS,
        labelled: Mapping[str, Sequence[str]] | None = None,
        shortlist: int = SHORTLIST,
    ) -> None:
        self.blocks, self.weights, self._shortlist = blocks, weights, shortlist
        self.labelled = {label: tuple(questions) for label, questions in (labelled or {}).items()}
        self._prompts = PromptBuilder(blocks.engine)
        self._indices: tuple[Mapping[str, Candidate] | None, _Words] = (None, _Words({}, {}))

    def deposit_card(self, name: str, description: str, *, allow_inexact: bool = False) -> Deposit:
        """Store the card's block; a hash if it is there."""
        return self.blocks.deposit(self._card(name, description)[:-1], allow_inexact=allow_inexact)

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are of the shortlist and NONE."""
        known = self.features(question, candidates)
        if not known.labels:
            return Classification(NONE, {NONE: self.weights.none}, known.tokens)
        scores = dict(zip(known.labels, self.weights.scores(known.rows), strict=True))
        ranked = sorted({**scores, NONE: self.weights.none}.items(), key=lambda item: (-item[1], item[0]))
        confidence = probability([score for _, score in ranked], 0) if self.weights.fitted_on else None
        return Classification(ranked[0][0], dict(ranked), known.tokens, confidence)

    def features(self, question: str, candidates: Mapping[str, Candidate], *, aside: bool = False) -> Features:
        """What is known of the nearest candidates. ``aside``: leave this very question out of the labelled ones."""
        engine = self.blocks.engine
        ids = engine.tokenize(" " + " ".join(question.split()), special=False)[:MAX_QUESTION_TOKENS]
        if not candidates or not ids:
            return Features((), np.zeros((0, len(FEATURES))), 0)
        words = self._words(candidates).of(question, aside)
        near = {label: self._nearness(row) for label, row in words.items()}
        labels = tuple(sorted(words, key=lambda label: (-near[label], label))[: self._shortlist])
        channel, tokens = self._channel({label: candidates[label].description for label in labels}, ids)
        rows = np.array([[channel[label], *words[label]] for label in labels])
        return Features(labels, rows, tokens)

    def _nearness(self, row: tuple[float, float, float]) -> float:
        """What narrows the candidates: the words as they are weighed, and a little of each where they are not."""
        weights = (self.weights.card, self.weights.text, self.weights.asked)
        return sum((max(weight, 0.0) + 1.0) * value for weight, value in zip(weights, row, strict=True))

    def _channel(self, descriptions: Mapping[str, str], ids: list[int]) -> tuple[dict[str, float], int]:
        """Nats a token that each card makes the question likelier; zeros if no card fits beside a question."""
        engine = self.blocks.engine
        cards = {label: self._card(label, description) for label, description in descriptions.items()}
        ids = ids[: max(0, engine.window - max(map(len, cards.values())))]
        if not ids:
            return dict.fromkeys(cards, 0.0), 0
        with engine.lock:
            before = engine.counters.decoded
            prior = self._log_likelihood(self._card("", ""), ids)
            channel = {label: (self._log_likelihood(card, ids) - prior) / len(ids) for label, card in cards.items()}
            engine.clear()
            return channel, engine.counters.decoded - before

    def _words(self, candidates: Mapping[str, Candidate]) -> _Words:
        """The indices of these candidates, made anew when one of them has changed."""
        if candidates is not self._indices[0] and candidates != self._indices[0]:
            self._indices = (candidates, _Words(candidates, self.labelled))
        return self._indices[1]

    def _card(self, name: str, description: str) -> tuple[int, ...]:
        return self._prompts.document(card_text(name, description))

    def _log_likelihood(self, card: tuple[int, ...], question: list[int]) -> float:
        """log P(question | card), in nats; the card's last token is evaluated with the question."""
        stored = self.blocks.stored_chain([card[:-1]])
        if stored:
            self.blocks.graft(stored[0])
        else:
            self.blocks.engine.clear()
            self.blocks.engine.extend(card[:-1])
        return float(self.blocks.engine.score([card[-1], *question]).sum())


class _Words:
    """How alike a question and each candidate are in words: with its card, its text, its labelled questions."""

    def __init__(self, candidates: Mapping[str, Candidate], labelled: Mapping[str, Sequence[str]]) -> None:
        self._labels = tuple(candidates)
        self._cards = LexicalIndex({label: f"{label} {known.description}" for label, known in candidates.items()})
        self._texts = LexicalIndex({label: known.words(label) for label, known in candidates.items()})
        pairs = [(label, question) for label in candidates for question in labelled.get(label, ())]
        self._asked = LexicalIndex({f"{index}": question for index, (_, question) in enumerate(pairs)})
        self._pairs = pairs

    def of(self, question: str, aside: bool) -> dict[str, tuple[float, float, float]]:
        """By label: the cosines with card, text and the nearest labelled question."""
        cards, texts = self._cards.similarity(question), self._texts.similarity(question)
        nearest = dict.fromkeys(self._labels, 0.0)
        for (label, asked), likeness in zip(self._pairs, self._asked.similarity(question).values(), strict=True):
            if not (aside and asked == question):
                nearest[label] = max(nearest[label], likeness)
        return {label: (cards[label], texts[label], nearest[label]) for label in self._labels}
