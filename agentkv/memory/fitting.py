"""Turns that do not fit into the context window. Decided by token counts, before anything is prefilled.

**The manual.** If it leaves no room for the last question alone, the part of the same skill that the router scores best
and that fits is taken. If none does and nobody asked for that skill by name, no manual is: an answer that says that it
had none is of more use than an agent that stops. A skill that was asked for by name raises WindowOverflow.

**The conversation.** Its oldest turns are left out. A cut takes away more than it has to, about half of the room, so
that the prompt keeps its beginning for several turns, which go on from their checkpoints. :class:`Fitting` has no
memory of the turn before and rounds the cut up to steps; a thread knows what the turn before was shown
(:class:`Shown`), cuts down to half of the room, and may show the model's summary in place of what is left out.

Each of these is a note of the turn's record, with its remedy.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Unpack

from agentkv.engine.base import Engine
from agentkv.engine.generate import room
from agentkv.engine.prompt import Message, Prompt
from agentkv.errors import WindowOverflow
from agentkv.memory.options import TurnOptions
from agentkv.records import Decision, ThreadEntry, Turn
from agentkv.router.routing import Routing
from agentkv.skills.pieces import owner
from agentkv.skills.stored import parts_of
from agentkv.store.catalog import BlockStore

PromptOf = Callable[[Sequence[Message], str | None], tuple[Prompt, str | None]]
_REMEDY = (
    "Deposit it in smaller parts (`agentkv skills deposit --max-tokens N`), or open the model with a larger window."
)
SUMMARISE = (
    "Summarise our conversation so far in a few sentences. Keep every name, number, date, decision and open question."
)
_SUMMARY_TOKENS = 512
_NO_ROOM = "there was no room for it"


class Memory(Protocol):
    """What a thread asks of a memory; :class:`agentkv.AgentMemory` is one."""

    store: BlockStore
    engine: Engine

    def ask(self, question: str | Sequence[Message], /, **options: Unpack[TurnOptions]) -> Turn:
        """See :meth:`agentkv.AgentMemory.ask`."""
        ...

    def stream(self, question: str | Sequence[Message], /, **options: Unpack[TurnOptions]) -> Iterator[str | Turn]:
        """See :meth:`agentkv.AgentMemory.stream`."""
        ...

    def prompt(self, messages: Sequence[Message], name: str | None, /) -> Prompt:
        """See :meth:`agentkv.AgentMemory.prompt`."""
        ...


def _fewest(starts: Sequence[int], tokens_from: Callable[[int], int], limits: Iterable[int]) -> int | None:
    """The first of ``starts`` from which on a conversation takes at most the first of ``limits``, in tokens; if none
    does, the next limit. ``tokens_from``: tokens of the conversation from a start on, which fall as it grows.
    """
    sizes: dict[int, int] = {}

    def size(start: int) -> int:
        if start not in sizes:
            sizes[start] = tokens_from(start)
        return sizes[start]

    for limit in limits:
        at = bisect.bisect_left(starts, True, key=lambda start: size(start) <= limit)
        if at < len(starts):
            return starts[at]
    return None


# --- one turn ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """A turn that fits, or that nothing makes fit: then its own check raises. ``notes``: for the turn's record."""

    prompt: Prompt
    messages: Sequence[Message]
    pick: str | None
    notes: tuple[str, ...] = ()


class Fitting:
    """Fits turns into ``window`` tokens, with room for ``max_new`` tokens of an answer (None: for the least).

    ``prompt_of``: the prompt of messages after a named block, and what there is to note of it.
    """

    def __init__(self, prompt_of: PromptOf, routing: Routing, window: int, max_new: int | None) -> None:
        self._prompt_of, self._routing, self._window, self._max_new = prompt_of, routing, window, max_new

    def fit(self, messages: Sequence[Message], decision: Decision, *, trims: bool, drops: bool) -> Fitted:
        """The turn, made to fit if it can be. ``trims``: by leaving out old messages; ``drops``: by leaving the manual.

        Raises what ``prompt_of`` raises.
        """
        prompt, note = self._prompt_of(messages, decision.pick)
        notes: tuple[str, ...] = () if note is None else (note,)
        if self._excess(prompt) <= 0:
            return Fitted(prompt, messages, decision.pick, notes)
        pick = self._pick(messages[_last_question(messages) :], decision, drops)
        if pick != decision.pick:
            prompt, note = self._prompt_of(messages, pick)
            notes = (_gives_way(decision.pick, pick, self._window), *(() if note is None else (note,)))
        if trims and self._excess(prompt) > 0:
            start = self._start(messages, prompt, pick)
            if start is not None:
                prompt, _ = self._prompt_of(messages[start:], pick)
                notes += (
                    f"the first {start:,} of {len(messages):,} messages were left out, since with them the turn does "
                    f"not fit into the window of {self._window:,} tokens; send fewer, or open a larger one",
                )
                messages = messages[start:]
        return Fitted(prompt, messages, pick, notes)

    def _pick(self, question: Sequence[Message], decision: Decision, drops: bool) -> str | None:
        """The name whose block leaves room for the last question: the one decided on, if it does or none does."""
        for name in (decision.pick, *self._siblings(decision), *([None] if drops else [])):
            if self._excess(self._prompt_of(question, name)[0]) <= 0:
                return name
        return decision.pick

    def _siblings(self, decision: Decision) -> list[str]:
        """What else there is of the skill that was decided on, the best scored first."""
        if decision.pick is None:
            return []
        skill, names = owner(decision.pick), [entry.name for entry in self._routing.names()]
        inside = [name for name in (skill, *parts_of(skill, names)) if name in names and name != decision.pick]
        return sorted(inside, key=lambda name: -decision.scores.get(name, -math.inf))

    def _start(self, messages: Sequence[Message], prompt: Prompt, pick: str | None) -> int | None:
        """From which message on the conversation fits; None if nothing makes it fit."""
        excess = self._excess(prompt)
        most = len(prompt.turn) - excess
        step = max(1, most // 2)
        rounded = len(prompt.turn) - math.ceil(excess / step) * step
        return _fewest(
            list(_questions(messages)),
            lambda start: len(self._prompt_of(messages[start:], pick)[0].turn),
            (rounded, most),
        )

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


def _gives_way(pick: str | None, instead: str | None, window: int) -> str:
    what = "without a manual" if instead is None else f"from {instead!r}"
    return f"{pick!r} leaves no room for the question in the window of {window:,} tokens; answered {what}. {_REMEDY}"


# --- a thread ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """All turns of a thread but the first ``left_out``, after the ``summary`` of those where there is one."""

    left_out: int = 0
    summary: str | None = None

    def messages(self, turns: Sequence[ThreadEntry], question: Message) -> list[Message]:
        """The conversation that the model gets, the question last."""
        first = [] if self.summary is None else [Message("user", SUMMARISE), Message("assistant", self.summary)]
        return [*first, *spoken(turns[self.left_out :]), question]


def spoken(turns: Sequence[ThreadEntry]) -> list[Message]:
    """Turns as messages."""
    pairs = ((Message("user", turn.question or ""), Message("assistant", turn.answer or "")) for turn in turns)
    return [message for pair in pairs for message in pair]


class Trimming:
    """One cut of a thread of ``memory`` to what a turn has room for.

    ``turns``: the thread's so far; ``overflow``: raised by the turn as it was asked for. ``options``: the turn's, of
    which a summary takes over those that its prompt needs to begin alike.
    """

    def __init__(
        self,
        memory: Memory,
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
        least = _fewest(
            range(before.left_out + 1, len(self._turns) + 1),
            lambda left_out: self._tokens(Shown(left_out, summary)),
            (self._room // 2 - budget, self._room - budget),
        )
        if least is None:
            raise self._overflow
        return least

    def _tokens(self, shown: Shown) -> int:
        return self._count(shown.messages(self._turns, self._question))

    def _count(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation, without those of the blocks before it."""
        return len(self._memory.prompt(messages, None).turn)


def left_out_note(thread_id: str, shown: Shown, window: int, why: str | None) -> str:
    """What a turn's record says of what the model was not shown. ``window`` in tokens; ``why`` there is no summary."""
    instead = f"no summary of them was made: {why}" if why else "nothing was shown instead"
    instead = "a summary was shown instead" if shown.summary is not None else instead
    what = "turn was" if shown.left_out == 1 else f"{shown.left_out:,} turns were"
    return (
        f"of thread {thread_id!r} the first {what} not shown to the model, whose window of {window:,} tokens is full; "
        f"{instead}. The thread's log has them all; a larger window shows more."
    )
