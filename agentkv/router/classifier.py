"""The channel classifier: which skill makes this question likely?

A skill's *card* is its name and description. Its channel score is log P(question | card) minus log P(question | a
card without content), in nats a token: the second is the prior. A card's state is a small block of its own, so a
candidate costs the question's tokens and nothing more. There is no order among candidates that could bias the pick,
and a label that is not live cannot be picked.

A small model's channel is noisy, so the lexical similarity of the question with the skill's whole text is added,
``lexical_weight`` nats a token for a cosine of 1. NONE scores ``margin``: a skill that does not reach it is not picked.
Measured on the repository's labelled questions; see the README's routing table, also for what was left behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.blocks import Blocks, Deposit
from agentkv.engine.prompt import PromptBuilder
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.lexical import LexicalIndex

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


class ChannelClassifier:
    """Scores questions behind card blocks and by words; ``margin`` is what a skill has to reach to beat NONE."""

    name = "channel+lexical"
    version = "1"

    def __init__(self, blocks: Blocks, *, lexical_weight: float = 10.0, margin: float = 1.2) -> None:
        self._blocks, self._lexical_weight, self._margin = blocks, lexical_weight, margin
        self._prompts = PromptBuilder(blocks.engine)
        self._index_of: tuple[dict[str, str], LexicalIndex] = ({}, LexicalIndex({}))

    def deposit_card(self, name: str, description: str, *, allow_inexact: bool = False) -> Deposit:
        """Store the card's block; a hash if it is there."""
        return self._blocks.deposit(self._card(name, description)[:-1], allow_inexact=allow_inexact)

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are in nats a token, of the shortlist and NONE."""
        engine = self._blocks.engine
        ids = engine.tokenize(" " + " ".join(question.split()), special=False)[:MAX_QUESTION_TOKENS]
        if not candidates or not ids:
            return Classification(NONE, {NONE: self._margin}, 0)
        words = self._index(candidates).similarity(question)
        shortlist = sorted(candidates, key=lambda label: (-words[label], label))[:SHORTLIST]
        cards = {label: self._card(label, candidates[label].description) for label in shortlist}
        ids = ids[: max(0, engine.window - max(map(len, cards.values())))]
        if not ids:  # no card fits beside a question: words alone decide
            return self._ranked({label: self._lexical_weight * words[label] for label in shortlist}, 0)
        with engine.lock:
            before = engine.counters.decoded
            prior = self._log_likelihood(self._card("", ""), ids)
            channel = {label: self._log_likelihood(card, ids) for label, card in cards.items()}
            engine.clear()
            tokens = engine.counters.decoded - before
        scores = {
            label: (likelihood - prior) / len(ids) + self._lexical_weight * words[label]
            for label, likelihood in channel.items()
        }
        return self._ranked(scores, tokens)

    def _ranked(self, scores: Mapping[str, float], tokens: int) -> Classification:
        ranked = sorted({**scores, NONE: self._margin}.items(), key=lambda item: (-item[1], item[0]))
        return Classification(ranked[0][0], dict(ranked), tokens)

    def _index(self, candidates: Mapping[str, Candidate]) -> LexicalIndex:
        """The index of these candidates, made anew when one of them has changed."""
        texts = {label: f"{label} {c.description} {c.text}" for label, c in candidates.items()}
        if texts != self._index_of[0]:
            self._index_of = (texts, LexicalIndex(texts))
        return self._index_of[1]

    def _card(self, name: str, description: str) -> tuple[int, ...]:
        return self._prompts.document(card_text(name, description))

    def _log_likelihood(self, card: tuple[int, ...], question: list[int]) -> float:
        """log P(question | card), in nats; the card's last token is evaluated with the question."""
        stored = self._blocks.stored_chain([card[:-1]])
        if stored:
            self._blocks.graft(stored[0])
        else:
            self._blocks.engine.clear()
            self._blocks.engine.extend(card[:-1])
        return float(self._blocks.engine.score([card[-1], *question]).sum())
