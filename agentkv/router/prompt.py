"""The prompt classifier: the catalogue in one prompt, and the model says a name. The paper's one-shot way.

Kept beside the channel classifier for comparison, and because it needs nothing but a chat model. The catalogue's state
is kept in RAM, so a process reads it once for a library. What the model says is passed on unedited: a small model often
says what is no name, and that is for the fallback to deal with.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import State
from agentkv.engine.generate import check_window, generate
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import WindowOverflow
from agentkv.router.base import NONE, Candidate, Classification

MAX_NEW = 24
"""Tokens of an answer; a name is shorter."""

_ASK = "\n\nWhich one of the skills fits this message? Answer with its name alone, or with: none of these"


class PromptClassifier:
    """Asks the model for a name. No scores, no confidence."""

    name = "prompt"
    version = "1"

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._prompts = blocks, PromptBuilder(blocks.engine)
        self._kept: State | None = None

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; a catalogue over the window is answered with NONE."""
        if not candidates or not question.strip():
            return Classification(NONE, {NONE: 0.0}, 0)
        lines = [f"- {label}: {' '.join(candidates[label].description.split())}" for label in sorted(candidates)]
        catalogue = "\n".join(["An assistant has these skills:", *lines]) + "\n"
        prompt = self._prompts.build("", catalogue, [Message("user", question + _ASK)])
        engine = self._blocks.engine
        head = prompt.prefix + prompt.manual
        try:
            check_window(len(head), len(prompt.turn), MAX_NEW, engine.window)
        except WindowOverflow:
            return Classification(NONE, {NONE: 0.0}, 0)
        with engine.lock:
            before = engine.counters.decoded
            self._to_catalogue(head)
            logits = engine.extend(prompt.turn)
            pieces = generate(engine, logits, max_new=MAX_NEW, stop=(*prompt.stops, "\n"))
            said = "".join(piece.text for piece in pieces)
            engine.clear()
            tokens = engine.counters.decoded - before
        pick = NONE if said.strip().casefold().strip(".") == NONE else said
        return Classification(pick, {pick: 1.0} | ({} if pick == NONE else {NONE: 0.0}), tokens)

    def _to_catalogue(self, head: tuple[int, ...]) -> None:
        engine = self._blocks.engine
        if self._kept is not None and self._kept.tokens == head:
            engine.restore(self._kept)
            return
        engine.clear()
        engine.extend(head)
        self._kept = engine.capture()
