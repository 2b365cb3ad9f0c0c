"""The gate by margin: one direct answer in a few tokens instead of several programs.

The model is asked for the answer itself, greedily, bound to the answer's type. The *margin* of a token is the natural
log of the ratio of its probability to that of the best other token, before the grammar has a say; the margin of an
answer is the least of its tokens', the end of the answer included. A large one says that the model would hardly have
said anything else; it does not say that it is right. Costs some tens of tokens; agreement over programs costs hundreds,
and lets the model compute. Knows one model by its memory; refuses to know where deposits go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentkv.engine.base import Cancellation, Logits
from agentkv.engine.generate import generate
from agentkv.engine.prompt import Message
from agentkv.errors import UsageError
from agentkv.flywheel import values
from agentkv.flywheel.blocktext import answer_question
from agentkv.flywheel.gate import Gate, Judged, Observe, Own
from agentkv.flywheel.procedure import ANSWER_TOKENS, is_right
from agentkv.flywheel.slots import any_grammar, typed_grammar
from agentkv.flywheel.solution import Provenance
from agentkv.flywheel.solvers import Attempt
from agentkv.flywheel.task import Task, TextTruth, Truth
from agentkv.memory.memory import AgentMemory


@dataclass(frozen=True)
class Said:
    """A direct answer: its text, the value in it (``is_value``: there is one), its margin in nats, its tokens."""

    text: str
    value: Any
    is_value: bool
    margin: float
    tokens: int


def say(memory: AgentMemory, task: Task, cancellation: Cancellation | None = None) -> Said:
    """The model's direct answer, behind no block. Raises what a turn raises."""
    grammar = typed_grammar(task.check.answer) if isinstance(task.check, Truth) else any_grammar()
    prompt = memory.prompt([Message("user", answer_question(task.prompt))], None)
    seen: list[Logits] = []
    with memory.blocks.exclusive():
        logits = memory.engine.extend(prompt.tokens, cancellation)
        pieces = list(
            generate(
                memory.engine,
                logits,
                max_new=ANSWER_TOKENS,
                stop=prompt.stops,
                grammar=grammar,
                cancellation=cancellation,
                observe=seen.append,
            )
        )
    text = "".join(piece.text for piece in pieces).strip()
    margins = [margin(row, piece.token) for row, piece in zip(seen, pieces, strict=True) if piece.token is not None]
    try:
        value, is_value = values.decode(text), pieces[-1].finish != "length"
    except ValueError:
        value, is_value = None, False
    return Said(text, value, is_value, min(margins), len(pieces))


def margin(logits: Logits, token: int) -> float:
    """By how many nats ``token`` is likelier than the best other token; below 0 if it is not."""
    others = np.delete(logits, token)
    return float(logits[token]) - float(others.max())


@dataclass
class MarginGate(Gate):
    """A gate that asks ``memory`` for a direct answer first.

    ``margin``: from how many nats on an answer counts as confident. A task whose check is no true answer is left to
    agreement; so is the model's own answer when it is asked for one.
    """

    memory: AgentMemory | None = None
    margin: float = 2.0

    def __post_init__(self) -> None:
        if self.memory is None:
            raise UsageError("a gate by margin needs the memory whose model it asks")

    def judge(self, task: Task, *, observe: Observe | None = None, cancellation: Cancellation | None = None) -> Judged:
        """Whether the model lacks the task: it does if it is not confident, or is refuted by the check."""
        if task.check is not None and not isinstance(task.check, Truth | TextTruth):
            return super().judge(task, observe=observe, cancellation=cancellation)
        assert self.memory is not None
        said = say(self.memory, task, cancellation)
        if observe is not None:
            observe(_attempt(self.memory, task, said), None, said.value)
        confident = said.is_value and said.margin >= self.margin
        right = task.check is not None and said.is_value and is_right(task, _as_text(task, said))
        own = Own(said.value, said.is_value, int(said.is_value), 1, right, said.tokens, (), None)
        how = f"a direct answer with a margin of {said.margin:.1f} nats" if said.is_value else "no direct answer"
        if right:
            return Judged(False, f"the model answers it directly, rightly: {how}, nothing to gain", own)
        if task.check is None:
            return Judged(not confident, f"{how}, and nothing checks the task", own)
        return Judged(True, f"{how}, which the check refuses" if said.is_value else how, own)


def _attempt(memory: AgentMemory, task: Task, said: Said) -> Attempt:
    """As it is recorded: it proposes no candidate."""
    by = Provenance(
        solver=f"direct answer {memory.engine.info.name}",
        fingerprint_id=memory.blocks.fingerprint.id,
        tokens=said.tokens,
        note=f"margin {said.margin:.3f} nats",
    )
    return Attempt(None, by, answer_question(task.prompt), said.text)


def _as_text(task: Task, said: Said) -> str:
    return said.value if isinstance(task.check, TextTruth) and isinstance(said.value, str) else said.text
