"""The channel classifier: which skill makes this question likely?

A skill's *card* is its name and description. The score of a skill is log P(question | card) minus
log P(question | a card without content), in nats: the second is the prior and at the same time "none of these". A
card's state is a small block of its own, so a candidate costs the question's tokens and nothing more. There is no
order among candidates that could bias the pick, and a label that is not live cannot be picked.

Measured beside a prompt that asks for a name, and label likelihood: see the README's routing table.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.blocks import Blocks, Deposit
from agentkv.engine.prompt import PromptBuilder
from agentkv.router.base import NONE, Classification

MAX_QUESTION_TOKENS = 64
"""A question is scored on its first tokens; what follows is rarely what it is about."""


def card_text(name: str, description: str) -> str:
    """The text that stands for a skill; without a name, the card without content."""
    if not name:
        return "A user sends this message to an assistant.\nMessage:"
    return f'A user sends this message to an assistant that has the skill "{name}": {description}\nMessage:'


class ChannelClassifier:
    """Scores questions behind card blocks; ``margin`` nats are asked of a skill before it beats NONE."""

    name = "channel"
    version = "1"

    def __init__(self, blocks: Blocks, *, margin: float = 0.0) -> None:
        self._blocks, self._margin = blocks, margin
        self._prompts = PromptBuilder(blocks.engine)

    def deposit_card(self, name: str, description: str) -> Deposit:
        """Store the card's block; a hash if it is there."""
        return self._blocks.deposit(self._card(name, description)[:-1])

    def classify(self, question: str, candidates: Mapping[str, str]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`."""
        engine = self._blocks.engine
        ids = engine.tokenize(" " + " ".join(question.split()), special=False)[:MAX_QUESTION_TOKENS]
        if not candidates or not ids:
            return Classification(NONE, {NONE: 0.0}, 0)
        with engine.lock:
            before = engine.counters.decoded
            prior = self._log_likelihood("", "", ids)
            scores = {name: self._log_likelihood(name, text, ids) - prior for name, text in candidates.items()}
            engine.clear()
            tokens = engine.counters.decoded - before
        best = max(scores, key=lambda name: (scores[name], name))
        raw_pick = best if scores[best] > self._margin else NONE
        ranked = sorted({**scores, NONE: 0.0}.items(), key=lambda item: (-item[1], item[0]))
        return Classification(raw_pick, dict(ranked), tokens)

    def _card(self, name: str, description: str) -> tuple[int, ...]:
        return self._prompts.document(card_text(name, description))

    def _log_likelihood(self, name: str, description: str, question: list[int]) -> float:
        """log P(question | card), in nats; the card's last token is evaluated with the question."""
        card = self._card(name, description)
        stored = self._blocks.stored_chain([card[:-1]])
        if stored:
            self._blocks.graft(stored[0])
        else:
            self._blocks.engine.clear()
            self._blocks.engine.extend(card[:-1])
        return float(self._blocks.engine.score([card[-1], *question]).sum())
