"""``--part threads``: a long thread with a fork and a rewind, against fresh conversations with the same messages.

A fresh conversation is the same messages prefilled from the first token on, nothing restored: the answer and the
SHA-256 of its logits have to be those of the thread's turn. What a thread takes on disk is ``agentkv bench size``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench.base import Row
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.engine.base import Engine
from agentkv.engine.prompt import Message
from agentkv.errors import GuaranteeViolated
from agentkv.memory.memory import AgentMemory
from agentkv.memory.threads import Thread
from agentkv.records import Turn
from tests.benchmarks.agent.part import Lengths, Measured, Part


@dataclass(frozen=True)
class Plan(Lengths):
    """And where the thread is forked and rewound, how many turns follow each, and which are compared."""

    turns: int = 40
    answer: int = 12
    fork: int = 10
    rewind: int = 20
    after: int = 5
    every: int = 4

    @property
    def window(self) -> int:
        """Tokens of the context."""
        return 256 + 96 * (self.turns + self.answer // 12)

    @property
    def compared(self) -> set[int]:
        """The main thread's turns that are compared: every so many, and those around the fork and the rewind."""
        around = {at + by for at in (self.fork, self.rewind) for by in (-1, 0)}
        return {0, self.turns - 1, *range(0, self.turns, self.every), *around}


class Answer(Row):
    """What a turn gave."""

    text: str
    token_ids: list[int]
    logits_sha256: str

    @classmethod
    def of(cls, turn: Turn) -> Answer:
        """From its record."""
        return cls(text=turn.text, token_ids=list(turn.token_ids), logits_sha256=turn.logits_sha256)


class Seen(Row):
    """The raw record of one turn: tokens, the thread's answer, and a fresh conversation's where it was compared."""

    branch: str
    turn: int
    restored: int
    prefilled: int
    thread: Answer
    fresh: Answer | None


class Compared(Row):
    """The figures of one turn."""

    branch: str
    turn: int
    restored: int
    prefilled: int
    equal: bool | None
    logits_sha256: str

    @classmethod
    def of(cls, seen: Seen) -> Compared:
        """From its raw record."""
        return cls(
            **seen.model_dump(exclude={"thread", "fresh"}),
            equal=None if seen.fresh is None else seen.fresh == seen.thread,
            logits_sha256=seen.thread.logits_sha256,
        )


_TOPICS = ("Monday", "a river", "seven", "copper", "the moon", "bread", "a lamp", "winter", "a bridge", "paper")


def question(branch: str, number: int) -> str:
    """What is asked in a turn: each turn of each branch another thing."""
    return f"{branch} {number}: say a word about {_TOPICS[number % len(_TOPICS)]}."


class Threads(Part[Plan]):
    """See the module's text."""

    model = "smollm2-135m"
    usual, small = Plan(), Plan(turns=8, fork=2, rewind=4, after=2, every=1)

    def run(self, folder: Path) -> Measured:
        """The whole part on one engine; each branch goes on in an ``AgentMemory`` of its own."""
        plan = self.lengths
        with self.open(plan.window) as engine:
            turns, untouched = self._branches(folder, engine)
            rows = []
            with AgentMemory(folder, engine) as memory:
                for branch, asked in turns.items():
                    for index, (messages, turn) in enumerate(asked):
                        compared = branch != "main" or index in plan.compared
                        row = self._row(memory, branch, index, turn, messages if compared else None)
                        rows.append(row.model_dump())
            digest = engine.info.sha256
        inputs = [question(branch, n) for branch in ("main", "fork", "rewound") for n in range(plan.turns)]
        raw = {"plan": {"part": "threads", "original_untouched": untouched}, "rows": rows}
        return Measured(raw, digest, inputs)

    def _branches(self, folder: Path, engine: Engine) -> tuple[dict[str, list[tuple[list[Message], Turn]]], bool]:
        """Messages and record of each turn, by branch; and whether the first thread is as it was."""
        plan = self.lengths
        turns: dict[str, list[tuple[list[Message], Turn]]] = {}
        with AgentMemory(folder, engine) as memory:
            thread = memory.thread("main")
            turns["main"] = [self._ask(thread, question("main", n)) for n in range(plan.turns)]
            before = thread.messages
        say(f"{plan.turns} turns asked")
        with AgentMemory(folder, engine) as memory:
            fork = memory.thread("main").fork("fork", at=plan.fork)
            turns["fork"] = [self._ask(fork, question("fork", n)) for n in range(plan.after)]
            untouched = memory.thread("main").messages == before
        with AgentMemory(folder, engine) as memory:
            thread = memory.thread("main")
            newest = thread.turns[-1].seq
            thread.rewind(plan.rewind)
            turns["rewound"] = [self._ask(thread, question("rewound", n)) for n in range(plan.after)]
            thread.resume(newest)
            untouched = untouched and thread.messages == before
            turns["resumed"] = [self._ask(thread, question("resumed", 0))]
        return turns, untouched

    def _ask(self, thread: Thread, text: str) -> tuple[list[Message], Turn]:
        messages = [*thread.messages, Message("user", text)]
        return messages, thread.ask(text, skill=None, max_new=self.lengths.answer)

    def _row(self, memory: AgentMemory, branch: str, index: int, turn: Turn, messages: list[Message] | None) -> Seen:
        """``messages``: of a turn that is compared."""
        cold = messages and memory.ask(messages, skill=None, graft=False, max_new=self.lengths.answer)
        return Seen(
            branch=branch,
            turn=index,
            restored=turn.tokens.restored,
            prefilled=turn.tokens.prefilled,
            thread=Answer.of(turn),
            fresh=Answer.of(cold) if cold else None,
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``rows``: which turns are those of a fresh conversation, and how many tokens each prefilled."""
        rows = [Compared.of(Seen.model_validate(record)) for record in raw["rows"]]
        equal = [row.equal for row in rows if row.equal is not None]
        return {
            "rows": [row.model_dump() for row in rows],
            "original_untouched": raw["plan"]["original_untouched"],
            "turns": len(rows),
            "compared": {"k": sum(equal), "n": len(equal)},
            "most_prefilled": max(row.prefilled for row in rows[1:]),
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Each compared turn is the fresh one, and every turn but the first restored something."""
        for row in map(Compared.model_validate, result["rows"]):
            where = f"{row.branch}, turn {row.turn + 1}"
            if row.equal is False:
                raise GuaranteeViolated(f"{where}: not what a fresh conversation gives")
            if not row.restored and (row.branch, row.turn) != ("main", 0):
                raise GuaranteeViolated(f"{where}: nothing was restored")
        if not result["original_untouched"]:
            raise GuaranteeViolated("a fork or a rewind changed the thread that it came from")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Every figure."""
        settings, compared = result["settings"], result["compared"]
        yield (
            f"{settings['turns']} turns, a fork at {settings['fork']}, a rewind to {settings['rewind']}, "
            f"{settings['after']} turns after each"
        )
        yield f"as in a fresh conversation, prefilled from its first token: {compared['k']} of {compared['n']} turns"
        yield f"most tokens prefilled in a turn: {result['most_prefilled']}"
        yield f"the original thread is {'untouched' if result['original_untouched'] else 'CHANGED'}"
