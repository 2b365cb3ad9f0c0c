"""What can be set for one turn: one list of options for ``ask``, ``stream`` and threads, each documented once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from agentkv.engine.base import Cancellation, Sampling
from agentkv.engine.prompt import Schema
from agentkv.errors import UsageError
from agentkv.records import Decision
from agentkv.router.routing import ROUTE, Pick

WhenFull = Literal["refuse", "keep-last", "summarise"]
"""What happens to a conversation that no longer fits into the context window; see :class:`TurnOptions`."""
POLICIES: tuple[WhenFull, ...] = ("refuse", "keep-last", "summarise")


class TurnOptions(TypedDict, total=False):
    """The keywords of :meth:`agentkv.AgentMemory.ask`, ``stream`` and of a :class:`~agentkv.Thread`'s.

    >>> from agentkv import AgentMemory, FakeEngine, TurnOptions
    >>> import tempfile
    >>> options: TurnOptions = {"skill": None, "max_new": 8}
    >>> with AgentMemory(tempfile.mkdtemp(), FakeEngine()) as memory:
    ...     turn = memory.ask("Who are you?", **options)
    >>> turn.tokens.generated <= 8
    True
    """

    skill: str | Pick | None
    """Name of the block to graft; None: no block; ``ROUTE``: what the router picks. Default: ``ROUTE``; in a thread,
    the skill of the turn before, ``ROUTE`` in its first. The name of a skill that was stored in parts only routes
    among those."""

    within: str | None
    """Route among the parts and references of this skill only. Default: None, among all skills."""

    decision: Decision | None
    """A decision made before with :meth:`agentkv.AgentMemory.route`; nothing is routed. Default: None."""

    graft: bool
    """False: prefill the manual instead of restoring its block; same prompt, same token ids. Default: True."""

    max_new: int | None
    """Most tokens of the answer. Default: None, for 512 tokens or as many as the context window has room for. An answer
    that was cut has ``finish == "length"`` and a note that says so."""

    sampling: Sampling | None
    """How the next token is chosen. Default: None, greedy decoding (temperature 0)."""

    stop: Sequence[str]
    """Strings that end the answer, which is given without them. Default: none but the model's own."""

    grammar: str | None
    """A GBNF grammar that the answer has to match. Default: None."""

    logprobs: bool
    """Record each generated token's natural-log probability, in ``Turn.logprobs``. Default: False."""

    cancellation: Cancellation | None
    """Stops the turn within one token, also during prefill, once it is cancelled from another thread. Default: None."""

    system: str
    """System text, placed after the memory's prefix and before the manual. Default: empty."""

    tools: Sequence[Schema]
    """JSON schemas of tools, described to the model in its own form. Default: none."""

    keep: bool
    """Store this turn's state, so that the next turn, in whatever process, prefills new tokens only; where that cannot
    be done, ``Turn.not_kept`` says why. Default: False; in a thread True."""

    conversation: str
    """The conversation's name in OpenTelemetry spans. Default: empty; in a thread its name."""

    when_full: WhenFull
    """What happens to a conversation that does not fit into the context window: ``"keep-last"`` leaves out its oldest
    turns, ``"refuse"`` raises WindowOverflow, ``"summarise"`` (threads only) shows the model a summary in their place.
    Default: ``"keep-last"``; in a thread, what it was opened with."""


@dataclass(frozen=True)
class TurnSettings:
    """:class:`TurnOptions` with their defaults. Raises UsageError for options that exclude each other."""

    skill: str | Pick | None = ROUTE
    within: str | None = None
    decision: Decision | None = None
    graft: bool = True
    max_new: int | None = None
    sampling: Sampling | None = None
    stop: Sequence[str] = ()
    grammar: str | None = None
    logprobs: bool = False
    cancellation: Cancellation | None = None
    system: str = ""
    tools: Sequence[Schema] = ()
    keep: bool = False
    conversation: str = ""
    when_full: WhenFull = "keep-last"

    def __post_init__(self) -> None:
        if self.when_full not in POLICIES:
            raise UsageError(f"when_full is {self.when_full!r}; it takes {', '.join(POLICIES)}")
        if self.within is not None and self.skill is not ROUTE:
            raise UsageError("within is for routing: pass no skill beside it")

    @property
    def routes(self) -> bool:
        """Whether the block is the router's choice, so that another may be taken where it leaves no room."""
        return self.decision is not None or (self.skill is ROUTE and self.within is None)
