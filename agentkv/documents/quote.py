"""Quotes: one of a chunk's own sentences, chosen by the model; and the short answer from that sentence.

The choice runs down a tree of token ids, one path a sentence: at each fork the likeliest child is taken, and where
there is only one child, no logits are needed. So a quote is a sentence of the chunk by construction, on any engine and
without a grammar, and most of it costs one prefill instead of a decode step a token.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentkv.engine.base import Cancellation, Engine, Logits
from agentkv.engine.generate import check_window, generate
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import InexactBlock, StoreError, WindowOverflow
from agentkv.memory.memory import AgentMemory
from agentkv.text import words

NOT_STATED = "not stated"
"""What the model is to say where the chunk does not hold the answer."""

MAX_QUOTE, MIN_QUOTE = 400, 3
"""Characters of a sentence that can be quoted; longer ones are offered in parts."""

_END = re.compile(
    r"(?<=[.!?…])[)\]\"'”’]*\s+(?=[\"'“‘(\[]?[A-Z0-9`*_\u00c0-\uffff-])|(?<=[。！？｡।॥۔؟።၊။។։])"
    r"|\n[ \t\r]*\n|\n(?=[ \t]*[-*+•|#>])|\n(?=[^\n|]* \| )"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|Dr|Mr|Ms|Mrs|St|No|Fig|Sec|approx)\.|\b[A-Z]\.)[)\]\"'”’]*\s+$"
)
_CODE_LINE = re.compile(r"\n")
_WORD = re.compile(r"\s+")
_VERDICTS = ("yes", "no")
_SUFFIX, _STEM = re.compile(r"(?:ings?|e[dr]s?|es|s|ly)$"), 5


@dataclass(frozen=True)
class Sentence:
    """Characters ``start`` to ``stop`` of a text, and the same with white space collapsed."""

    start: int
    stop: int
    text: str


def sentences(text: str, *, code: bool = False) -> list[Sentence]:
    """The pieces of a text that can be quoted, in order; in source code its lines."""
    found = []
    for start, stop in parts(text, code):
        whole = text[start:stop]
        first = start + len(whole) - len(whole.lstrip())
        last = stop - (len(whole) - len(whole.rstrip()))
        for begin, end in _short(text, first, last):
            flat = normalised(text[begin:end])
            if len(flat) >= MIN_QUOTE:
                found.append(Sentence(begin, end, flat))
    return found


def parts(text: str, code: bool) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text, or the lines of code, begin and end; they tile it."""
    start = 0
    for match in (_CODE_LINE if code else _END).finditer(text):
        if not code and _ABBREVIATION.search(text[max(start, match.start() - 12) : match.end()]):
            continue
        if match.end() > start:
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _short(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while stop - start > MAX_QUOTE:
        cuts = [match.end() for match in _WORD.finditer(text, start, start + MAX_QUOTE)]
        cut = next((cut for cut in reversed(cuts) if cut > start + MAX_QUOTE // 2), start + MAX_QUOTE)
        yield start, cut
        start = cut
    if stop > start:
        yield start, stop


def normalised(text: str) -> str:
    """White space collapsed to single blanks, none at the ends: what two quotes are compared by."""
    return " ".join(text.split())


# --- the choice -----------------------------------------------------------------------------------


@dataclass
class _Node:
    children: dict[int, _Node] = field(default_factory=dict)
    bonus: float = 0.0
    only: int = -1
    """The only text that goes on from here; -1 where there are several."""


@dataclass(frozen=True)
class Choice:
    """Which of the texts was chosen; ``probability``: the product over the forks, among what was allowed at each.

    ``asked``: how many forks there were.
    """

    index: int
    probability: float
    asked: int


def choose(
    engine: Engine,
    logits: Logits,
    texts: Sequence[str],
    bonus: Sequence[float] | None = None,
    cancellation: Cancellation | None = None,
) -> Choice:
    """Let the model continue with exactly one of ``texts``, token by token, greedily.

    ``texts``: at least one, all different, none the beginning of another. ``bonus``: nats for each; at a fork the
    largest of a child's texts is added to its logit. ``logits``: those of the live context, shape (n_vocab,). On return
    the context ends with as much of the chosen text as it took to distinguish it from the others.
    """
    node, pending, probability, asked = _tree(engine, texts, bonus or [0.0] * len(texts)), list[int](), 1.0, 0
    while node.only < 0:
        if len(node.children) == 1:
            ((token, node),) = node.children.items()
        else:
            if pending:
                logits, pending = engine.extend(pending, cancellation), []
            asked += 1
            tokens = list(node.children)
            wide = logits[tokens].astype(np.float64) + [node.children[token].bonus for token in tokens]
            best = int(wide.argmax())
            probability *= float(1 / np.exp(wide - wide[best]).sum())
            token, node = tokens[best], node.children[tokens[best]]
        pending.append(token)
    return Choice(node.only, probability, asked)


def _tree(engine: Engine, texts: Sequence[str], bonus: Sequence[float]) -> _Node:
    root = _Node(only=0 if len(texts) == 1 else -1)
    for index, text in enumerate(texts):
        node = root
        for token in engine.tokenize(text, special=False):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Node(bonus=bonus[index], only=index)
            elif child.only != index:
                child.only = -1
            child.bonus = max(child.bonus, bonus[index])
            node = child
    return root


def shares_of(query: Sequence[str], texts: Sequence[str]) -> list[float]:
    """How much of the words of ``query`` each text holds, 0 to 1, each word weighted by how few texts hold it.

    Words are compared without the commonest English endings. A word that no text holds has no weight: of a question in
    other words than the text, the name that both share counts in full.
    """
    stems = [stemmed(word) for word in query]
    held = [set(map(stemmed, words(text))) for text in texts]
    holding = [sum(stem in known for known in held) for stem in stems]
    weights = [math.log((len(texts) + 1) / (1 + count)) if count else 0.0 for count in holding]
    total = sum(weights) or 1.0
    return [sum(w for stem, w in zip(stems, weights, strict=True) if stem in known) / total for known in held]


def is_grounded(answer: Sequence[str], question: Sequence[str], text: str) -> bool:
    """Whether a text holds more than half of the words that an answer adds to its question; true if it adds none."""
    known = {stemmed(word) for word in (*question, *_VERDICTS)}
    new = [stem for stem in map(stemmed, answer) if stem not in known]
    held = set(map(stemmed, words(text)))
    return not new or sum(stem in held for stem in new) > len(new) / 2


def stemmed(word: str) -> str:
    """A word in lower case without the commonest English endings."""
    return word if len(word) < _STEM else _SUFFIX.sub("", word)


# --- the short answer -----------------------------------------------------------------------------

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
class ShortAnswer:
    """An answer and what it took, in tokens; ``cut_at``: where it was cut, 0 if it is complete."""

    text: str = ""
    restored: int = 0
    prefilled: int = 0
    generated: int = 0
    cut_at: int = 0


NO_ANSWER = ShortAnswer()
"""Where no short answer was generated."""


class ShortAnswers:
    """Answers in a few words from one sentence, after examples that are restored.

    After two thousand tokens of a chunk a small model echoes or drifts; after eight examples and the one sentence that
    holds the answer it gives the answer and nothing else. The examples are a block like any other, so they cost no
    prefill: a turn is the sentence and the question.

    Not guaranteed: that one sentence without its chunk is enough. On 60 needles of the benchmark ``needles`` (with
    another seed than the one by which the examples were chosen) and the right sentence given, gemma-3-270m gives the
    value alone 59 times; 13 times without examples, 41 constrained to pieces of the sentence; 4 times of 27 with the
    whole chunk in the context. qwen2.5-coder-1.5b gives a right answer to 19 of the 26 tuned questions of the benchmark
    ``questions``, given the first sentence of the passage; some name their subject elsewhere. Adding the heading or the
    term before the sentence cures none of these and costs four of the 60.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._blocks, self._engine = memory.blocks, memory.engine
        self._prompts = PromptBuilder(memory.engine)

    def answer(
        self, question: str, sentence: str, max_new: int, cancellation: Cancellation | None = None
    ) -> ShortAnswer | None:
        """The answer in ``sentence``; None where the examples do not fit the context window or are not exact.

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
            text, generated, cut = generate_line(engine, logits, stops, max_new, cancellation)
        return ShortAnswer(text, restored, prefilled, generated, max_new if cut else 0)

    def _prompt(self, question: str, sentence: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        messages: list[Message] = []
        for text, asked, answer in EXAMPLES:
            messages += [Message("user", _asked(text, asked)), Message("assistant", answer)]
        prompt = self._prompts.build("", "", [*messages, Message("user", _asked(sentence, question))])
        *shots, own, opening = prompt.pieces
        before = (*prompt.prefix, *prompt.manual, *(token for piece in shots for token in piece))
        return before, (*own, *opening), prompt.stops


def _asked(sentence: str, question: str) -> str:
    return f'"{sentence}" {question}'


def generate_line(
    engine: Engine, logits: Logits, stops: tuple[str, ...], max_new: int, cancellation: Cancellation | None = None
) -> tuple[str, int, bool]:
    """The model's continuation of the live context up to the end of a line, its tokens, and whether it was cut."""
    pieces = list(generate(engine, logits, max_new=max_new, stop=(*stops, "\n"), cancellation=cancellation))
    text = "".join(piece.text for piece in pieces).strip()
    return text, sum(piece.token is not None for piece in pieces), pieces[-1].finish == "length"
