"""What of a long conversation the model is shown, once all of it no longer fits into the window.

The oldest turns are left out, or the model's summary of them is shown in their place. A cut goes down to half of the
room, not to the last token that fits: so the prompt keeps its beginning until the next cut, and the turns between go on
from their checkpoints. What was said stays in the thread's log, whatever is shown. Knows messages and numbers of
tokens; refuses to know how a thread is kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv.engine.prompt import Message
from agentkv.errors import WindowOverflow
from agentkv.memory.options import TurnOptions
from agentkv.records import ThreadEntry

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory

SUMMARISE = (
    "Summarise our conversation so far in a few sentences. Keep every name, number, date, decision and open question."
)
_SUMMARY_TOKENS = 512
_NO_ROOM = "there was no room for it"


@dataclass(frozen=True)
class Shown:
    """All turns but the first ``left_out``, behind the ``summary`` of those where there is one."""

    left_out: int = 0
    summary: str | None = None

    def messages(self, turns: Sequence[ThreadEntry], question: Message) -> list[Message]:
        """The conversation that the model gets, the question last."""
        said = [] if self.summary is None else [Message("user", SUMMARISE), Message("assistant", self.summary)]
        return [*said, *spoken(turns[self.left_out :]), question]


def spoken(turns: Sequence[ThreadEntry]) -> list[Message]:
    """Turns as messages."""
    pairs = ((Message("user", turn.question or ""), Message("assistant", turn.answer or "")) for turn in turns)
    return [message for pair in pairs for message in pair]


class Trimming:
    """One cut of a conversation of ``memory`` to what a turn has room for.

    ``turns``: those said before; ``overflow``: what the turn as it was asked for said. ``options``: of the turn, of
    which a summary takes over what its prompt needs to begin alike.
    """

    def __init__(
        self,
        memory: AgentMemory,
        turns: Sequence[ThreadEntry],
        question: Message,
        overflow: WindowOverflow,
        options: TurnOptions,
    ) -> None:
        self._memory, self._turns, self._question, self._overflow = memory, turns, question, overflow
        self._room = overflow.window - overflow.n_block - overflow.max_new
        self._options = options

    def keep_last(self, before: Shown) -> Shown:
        """Leave out so many turns more that the rest takes half of the room. Raises the WindowOverflow if none fit."""
        return Shown(self._least(before, None, 0))

    def summarise(self, before: Shown) -> tuple[Shown, str | None]:
        """The same, with the model's summary of what is left out; where there is none, why.

        Raises Cancelled, and the WindowOverflow if no turn fits.
        """
        budget = max(1, min(_SUMMARY_TOKENS, self._room // 4))
        shown = before
        try:
            target = self._least(before, "?", budget)
        except WindowOverflow:
            return self.keep_last(before), _NO_ROOM
        while shown.left_out < target:
            upto = self._fitting(shown, target, self._overflow.window - self._overflow.n_block - budget)
            text = None if upto is None else self._summary(shown, upto, budget)
            if upto is None or not text:
                return self.keep_last(before), _NO_ROOM if upto is None else "the model wrote none"
            shown = Shown(upto, text)
        if self._tokens(shown) > self._room:
            return self.keep_last(before), "it was too long"
        return shown, None

    def _summary(self, shown: Shown, upto: int, budget: int) -> str:
        """The model's summary of what was shown up to a turn; it goes on from that turn's checkpoint."""
        old = shown.messages(self._turns[:upto], Message("user", SUMMARISE))
        options: TurnOptions = {"skill": self._turns[-1].skill, "max_new": budget, "when_full": "refuse"}
        for name in ("system", "tools", "graft", "cancellation", "conversation"):
            if name in self._options:
                options[name] = self._options[name]
        return self._memory.ask(old, **options).text

    def _fitting(self, shown: Shown, target: int, most: int) -> int | None:
        """Up to which turn, at most ``target``, a summary can be asked for in ``most`` tokens; None if of none."""
        request = Message("user", SUMMARISE)
        for upto in range(target, shown.left_out, -1):
            if self._count(shown.messages(self._turns[:upto], request)) <= most:
                return upto
        return None

    def _least(self, before: Shown, summary: str | None, budget: int) -> int:
        """The fewest turns to leave out for half of the room; if that cannot be, for all of it.

        ``budget``: tokens that are set aside for the summary beyond those of ``summary``.
        """
        numbers = range(before.left_out + 1, len(self._turns) + 1)
        sizes = {}
        for limit in (self._room // 2, self._room):

            def fits(number: int, most: int = limit - budget) -> bool:
                if number not in sizes:
                    sizes[number] = self._tokens(Shown(number, summary))
                return sizes[number] <= most

            at = bisect.bisect_left(numbers, True, key=fits)
            if at < len(numbers):
                return numbers[at]
        raise self._overflow

    def _tokens(self, shown: Shown) -> int:
        return self._count(shown.messages(self._turns, self._question))

    def _count(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation; those before it are the blocks'."""
        return len(self._memory.prompt(messages, None).turn)


def left_out_note(thread_id: str, shown: Shown, window: int, why: str | None) -> str:
    """What a turn's record says of what the model was not shown."""
    instead = f"no summary of them was made: {why}" if why else "nothing was shown instead"
    instead = "a summary was shown instead" if shown.summary is not None else instead
    what = "turn was" if shown.left_out == 1 else f"{shown.left_out:,} turns were"
    return (
        f"of thread {thread_id!r} the first {what} not shown to the model, whose window of {window:,} tokens is full; "
        f"{instead}. The thread's log has them all; a larger window shows more."
    )
