"""Two classifiers to compare the channel classifier with: by prompt, and by an embedder alone.

The prompt classifier has the catalogue in one prompt, and the model says a name: the paper's one-shot way, which needs
nothing but a chat model. The catalogue's state is kept in RAM, so a process prefills it once for a library. What the
model says is passed on unedited: a small model often says what is not a name, which the fallback deals with.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import State
from agentkv.engine.generate import check_window, generate
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import WindowOverflow
from agentkv.router.base import NONE, Candidate, Classification
from agentkv.router.similarity import Library
from agentkv.router.vectors import Vectors

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
            answer = "".join(piece.text for piece in pieces)
            engine.clear()
            tokens = engine.counters.decoded - before
        pick = NONE if answer.strip().casefold().strip(".") == NONE else answer
        return Classification(pick, {pick: 1.0} | ({} if pick == NONE else {NONE: 0.0}), tokens)

    def _to_catalogue(self, head: tuple[int, ...]) -> None:
        engine = self._blocks.engine
        if self._kept is not None and self._kept.tokens == head:
            engine.restore(self._kept)
            return
        engine.clear()
        engine.extend(head)
        self._kept = engine.capture()


class EmbeddingClassifier:
    """The label whose card is nearest, if it is nearer than ``margin`` (a cosine). Costs no tokens of a model."""

    version = "1"

    def __init__(self, vectors: Vectors, margin: float = 0.25) -> None:
        self.name = f"meaning+{vectors.embedder.name}"
        self._margin, self._library = margin, Library({}, vectors)

    def classify(self, question: str, candidates: Mapping[str, Candidate]) -> Classification:
        """See :class:`agentkv.router.base.Classifier`; scores are cosines."""
        similarity = self._library.of(candidates)
        cosines = similarity.meaning(question).tolist() if candidates else []
        return Classification.best({**dict(zip(similarity.labels, cosines, strict=True)), NONE: self._margin})
