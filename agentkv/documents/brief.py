"""The answer in a few words, from one sentence: by examples that the model has read once and that are grafted.

Behind two thousand tokens of a window a small model echoes, or goes astray; behind eight examples and the one sentence
that holds the answer it says the answer and nothing else. The examples are a block like any other, so they cost no
token: a turn is the sentence and the question. Knows sentences and questions, no documents.

Not guaranteed: that a sentence torn from its window says enough. On 60 needles of the benchmark ``needles`` with
another seed, by which the examples were chosen, and the right sentence given, gemma-3-270m gives the value alone 59
times; 13 times without examples, 41 bound to pieces of the sentence. With the window in view it says it 4 times of 27.
qwen2.5-coder-1.5b gives a right answer to 19 of the 26 tuned questions of the benchmark ``questions``, given the first
sentence of the passage; some name their subject elsewhere. The heading or term right before the sentence cures none of
these and costs four of the 60.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentkv.engine.base import Cancellation, Engine, Logits
from agentkv.engine.generate import check_window, generate
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import InexactBlock, StoreError, WindowOverflow
from agentkv.memory.memory import AgentMemory

EXAMPLES = (
    ("The parser was written by Tom Reed in 1994.", "Who is its author?", "Tom Reed"),
    ("The parser was written by Tom Reed in 1994.", "In which year was it made?", "1994"),
    ("By default the server listens on port 5432.", "Which number does a client need to connect?", "5432"),
    ("The office stands in the old harbour of Lyon.", "What city is it in?", "Lyon"),
    ("The code name of this release is Trusty Tahr.", "What do people call it?", "Trusty Tahr"),
    ("Deadlocks are found by a process that is called the lock monitor.", "What detects them?", "the lock monitor"),
    ("Hidden files are shown too with the option --all.", "How do I see hidden files?", "--all"),
    ("Releases come out on 3 June and 9 December 2021.", "On what day is the second release?", "9 December 2021"),
)
"""Sentence, question, answer; none of them from a document or a benchmark."""


@dataclass(frozen=True)
class Said:
    """An answer and what it took, in tokens; ``cut_at``: where it was cut, 0 if it is whole."""

    text: str = ""
    restored: int = 0
    prefilled: int = 0
    generated: int = 0
    cut_at: int = 0


NOTHING = Said()
"""Where nothing was asked."""


class Brief:
    """Short answers by one memory's model."""

    def __init__(self, memory: AgentMemory) -> None:
        self._blocks, self._engine = memory.blocks, memory.engine
        self._prompts = PromptBuilder(memory.engine)

    def say(self, question: str, sentence: str, max_new: int, cancellation: Cancellation | None = None) -> Said | None:
        """The answer that ``sentence`` gives; None where this model's window or exactness does not allow the examples.

        Raises Cancelled.
        """
        engine, blocks = self._engine, self._blocks
        shots, turn, stops = self._prompt(question, sentence)
        try:
            check_window(len(shots), len(turn), max_new, engine.window)
            manifest = blocks.deposit(shots, cancellation=cancellation).manifest
        except (WindowOverflow, InexactBlock):
            return None
        except StoreError:  # an answer does not need them kept
            manifest = None
        before = (engine.counters.restored, engine.counters.decoded)
        with blocks.exclusive():
            if manifest is not None:
                logits = blocks.extend_behind(manifest, turn, cancellation)
            else:
                blocks.read_parts([shots], cancellation)
                logits = engine.extend(turn, cancellation)
            restored, prefilled = engine.counters.restored - before[0], engine.counters.decoded - before[1]
            text, generated, cut = said_in_a_line(engine, logits, stops, max_new, cancellation)
        return Said(text, restored, prefilled, generated, max_new if cut else 0)

    def _prompt(self, question: str, sentence: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        said: list[Message] = []
        for text, asked, answer in EXAMPLES:
            said += [Message("user", _asked(text, asked)), Message("assistant", answer)]
        prompt = self._prompts.build("", "", [*said, Message("user", _asked(sentence, question))])
        *shots, own, opening = prompt.pieces
        before = (*prompt.prefix, *prompt.manual, *(token for piece in shots for token in piece))
        return before, (*own, *opening), prompt.stops


def _asked(sentence: str, question: str) -> str:
    return f'"{sentence}" {question}'


def said_in_a_line(
    engine: Engine, logits: Logits, stops: tuple[str, ...], max_new: int, cancellation: Cancellation | None = None
) -> tuple[str, int, bool]:
    """What the model says behind the live context, freely, up to the end of a line; how many tokens, whether cut."""
    pieces = list(generate(engine, logits, max_new=max_new, stop=(*stops, "\n"), cancellation=cancellation))
    text = "".join(piece.text for piece in pieces).strip()
    return text, sum(piece.token is not None for piece in pieces), pieces[-1].finish == "length"
