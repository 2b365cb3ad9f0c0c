"""What a turn is asked behind where all of it does not fit into the window. Decided by counts, before anything is read.

**The manual.** If it leaves no room for the last question alone, the part of the same skill that the router scores best
and that fits is taken. If none does and nobody asked for that skill by name, no manual is: an answer that says that it
had none is of more use than an agent that stops. A skill that was asked for by name is refused as before, with
WindowOverflow.

**The conversation.** If it does not fit behind the manual, the oldest turns are left out, unless the caller keeps to
all of it. The cut moves in steps of half the room, so that what is shown begins alike for several turns and can be
restored.

Each of these is a note of the turn's record, with its remedy. Knows names, messages and counts; refuses to know states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agentkv.engine.generate import room
from agentkv.engine.prompt import Message, Prompt
from agentkv.errors import WindowOverflow
from agentkv.records import Decision
from agentkv.router.routing import Routing
from agentkv.skills.pieces import owner
from agentkv.skills.stored import parts_of

PromptOf = Callable[[Sequence[Message], str | None], tuple[Prompt, str | None]]
_REMEDY = (
    "Deposit it in smaller parts (`agentkv skills deposit --max-tokens N`), or open the model with a larger window."
)


@dataclass(frozen=True)
class Fitted:
    """A turn that fits, or that nothing makes fit: then its own check raises. ``notes``: what is to be told of it."""

    prompt: Prompt
    messages: Sequence[Message]
    pick: str | None
    notes: tuple[str, ...] = ()


class Fitting:
    """Fits turns into ``window``, with room for ``max_new`` tokens of an answer (None: for the least).

    ``prompt_of``: the prompt of messages behind a name, and what there is to tell of it.
    """

    def __init__(self, prompt_of: PromptOf, routing: Routing, window: int, max_new: int | None) -> None:
        self._prompt_of, self._routing, self._window, self._max_new = prompt_of, routing, window, max_new

    def fit(self, messages: Sequence[Message], decision: Decision, *, trims: bool, drops: bool) -> Fitted:
        """The turn, made to fit if it can be. ``trims``: by leaving out old messages; ``drops``: by leaving the manual.

        Raises what ``prompt_of`` raises.
        """
        prompt, told = self._prompt_of(messages, decision.pick)
        notes: tuple[str, ...] = () if told is None else (told,)
        if self._excess(prompt) <= 0:
            return Fitted(prompt, messages, decision.pick, notes)
        pick = self._pick(messages[_last_question(messages) :], decision, drops)
        if pick != decision.pick:
            prompt, told = self._prompt_of(messages, pick)
            notes = (_note(decision.pick, pick, self._window), *(() if told is None else (told,)))
        if trims and self._excess(prompt) > 0:
            start, prompt = self._trimmed(messages, prompt, pick)
            if start:
                what = f"the first {start:,} of {len(messages):,} messages were left out, since with them the turn does"
                notes += (
                    f"{what} not fit into the window of {self._window:,} tokens; send fewer, or open a larger one",
                )
                messages = messages[start:]
        return Fitted(prompt, messages, pick, notes)

    def _pick(self, alone: Sequence[Message], decision: Decision, drops: bool) -> str | None:
        """The name behind which the last question fits: the one decided on, if it does or none does."""
        for name in (decision.pick, *self._others(decision), *([None] if drops else [])):
            if self._excess(self._prompt_of(alone, name)[0]) <= 0:
                return name
        return decision.pick

    def _others(self, decision: Decision) -> list[str]:
        """What else there is of the skill that was decided on, the best scored first."""
        if decision.pick is None:
            return []
        skill, names = owner(decision.pick), [entry.name for entry in self._routing.names()]
        inside = [name for name in (skill, *parts_of(skill, names)) if name in names and name != decision.pick]
        return sorted(inside, key=lambda name: -decision.scores.get(name, -math.inf))

    def _trimmed(self, messages: Sequence[Message], prompt: Prompt, pick: str | None) -> tuple[int, Prompt]:
        """From which message on the conversation fits, and its prompt; 0 and the given one if nothing makes it fit."""
        ends = [0, *accumulate(map(len, prompt.pieces))]
        step = max(1, (len(prompt.turn) - self._excess(prompt)) // 2)
        least = math.ceil(self._excess(prompt) / step) * step
        for start in _questions(messages):
            if ends[start] >= least or start == _last_question(messages):
                shorter, _ = self._prompt_of(messages[start:], pick)
                if self._excess(shorter) <= 0:
                    return start, shorter
        return 0, prompt

    def _excess(self, prompt: Prompt) -> int:
        """By how many tokens a turn is too long; 0 or less if it fits."""
        n_blocks = sum(map(len, prompt.blocks))
        try:
            room(n_blocks, len(prompt.turn), self._max_new, self._window)
        except WindowOverflow as overflow:
            return overflow.n_block + overflow.n_turn + overflow.max_new - overflow.window
        return 0


def _questions(messages: Sequence[Message]) -> Iterator[int]:
    """Where the user's messages are, but for a first one."""
    return (index for index, message in enumerate(messages) if index and message.role == "user")


def _last_question(messages: Sequence[Message]) -> int:
    return max(_questions(messages), default=0)


def _note(pick: str | None, other: str | None, window: int) -> str:
    what = "without a manual" if other is None else f"from {other!r}"
    return f"{pick!r} leaves no room for the question in the window of {window:,} tokens; answered {what}. {_REMEDY}"
