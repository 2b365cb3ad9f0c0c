"""A text that is to make the model better at certain tasks: tried on them, and kept only if it does.

Each task is answered twice, without the text and behind it, under the same grammar (the answer's type) and with the
same budget. A text that makes the model worse, or changes nothing, is not kept, and the figures say why. Refuses to
know where the text comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkv.engine.base import Cancellation
from agentkv.errors import UsageError
from agentkv.flywheel import values
from agentkv.flywheel.checks import verifier_of
from agentkv.flywheel.gate import Compared, compare
from agentkv.flywheel.journal import NoRecorder, Recorder, turn_tokens
from agentkv.flywheel.slots import typed_grammar
from agentkv.flywheel.task import Task, TextTruth, Truth
from agentkv.memory.memory import AgentMemory
from agentkv.records import Turn

ANSWER_TOKENS = 48


@dataclass
class ProcedureTrial:
    """Tries texts on checked tasks. ``max_new``: tokens of an answer."""

    memory: AgentMemory
    recorder: Recorder = field(default_factory=NoRecorder)
    max_new: int = ANSWER_TOKENS

    def try_text(
        self,
        name: str,
        text: str,
        tasks: Sequence[Task],
        *,
        description: str = "",
        cancellation: Cancellation | None = None,
    ) -> Compared:
        """Compare, and leave the text under ``name`` only if it makes the model better.

        Raises UsageError for no tasks, for one whose check is no truth, and for a name that is taken.
        """
        if not tasks or not all(isinstance(task.check, Truth | TextTruth) for task in tasks):
            raise UsageError("a procedure is tried on tasks with a true answer, one at least")
        if self.memory.routing.find(name) is not None:
            raise UsageError(f"{name!r} is the name of something that is stored; choose another, or `agentkv rm` it")
        self.memory.deposit_text(name, text, description, cancellation=cancellation)
        kept = False
        try:
            found = compare(
                tasks,
                lambda task: self._answer(task, None, cancellation),
                lambda task: self._answer(task, name, cancellation),
                is_right,
            )
            kept = found.keeps
        finally:
            if not kept:
                self.memory.store.remove_name("text", name, self.memory.blocks.fingerprint.id)
        return found

    def _answer(self, task: Task, behind: str | None, cancellation: Cancellation | None) -> str:
        grammar = typed_grammar(task.check.answer) if isinstance(task.check, Truth) else None
        turn: Turn = self.memory.ask(
            task.prompt, skill=behind, grammar=grammar, max_new=self.max_new, cancellation=cancellation
        )
        raw = {"prompt": task.prompt, "behind": behind, "generated": turn.text, "right": is_right(task, turn.text)}
        key = f"{'without' if behind is None else 'behind'}/{task.id}"
        assert task.check is not None
        self.recorder.record(key, raw, expected=task.check.model_dump(mode="json"), tokens=turn_tokens(turn))
        return turn.text


def is_right(task: Task, text: str) -> bool:
    """Whether an answer in words is the true one: as a value, or as a text where the check is of text."""
    verifier = verifier_of(task, {})
    assert verifier is not None
    try:
        answer = values.decode(text) if isinstance(task.check, Truth) else text
    except ValueError:
        return False
    return all(question.judge(answer) for question in verifier.questions(task))
