"""``--part threads``: a long thread with a fork and a rewind, against fresh conversations with the same messages.

A fresh conversation is the same messages read from the first token on, nothing restored: the answer and the SHA-256 of
its logits have to be those of the thread's turn. What a thread takes on disk is ``agentkv bench size``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.results import origin, say
from agentkv.engine.prompt import Message
from agentkv.errors import GuaranteeViolated
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.memory.threads import Thread
from agentkv.records import Turn
from tests.benchmarks.agent import arms


@dataclass(frozen=True)
class Plan:
    """Turns of the thread, where it is forked and rewound, and how many turns follow each."""

    turns: int = 40
    fork: int = 10
    rewind: int = 20
    after: int = 5
    answer: int = 12
    every: int = 4
    threads: int | None = None

    @property
    def window(self) -> int:
        """Tokens of the context."""
        return 256 + 96 * (self.turns + self.answer // 12)


SMALL = Plan(turns=8, fork=2, rewind=4, after=2, every=1)

_TOPICS = ("Monday", "a river", "seven", "copper", "the moon", "bread", "a lamp", "winter", "a bridge", "paper")


def question(branch: str, number: int) -> str:
    """What is asked in a turn: each turn of each branch another thing."""
    return f"{branch} {number}: say a word about {_TOPICS[number % len(_TOPICS)]}."


def run(model: str, plan: Plan, folder: Path) -> dict[str, Any]:
    """The whole part on one engine."""
    engine = arms.open_engine(model, plan.window, plan.threads)
    try:
        return on(engine, model, plan, folder)
    finally:
        engine.close()


def on(engine: Any, model: str, plan: Plan, folder: Path) -> dict[str, Any]:
    """The same on an engine that is open. Each branch goes on in an ``AgentMemory`` of its own."""
    asked = [question(branch, n) for branch in ("main", "fork", "rewound") for n in range(plan.turns)]
    header = origin("agent", model, engine.info.sha256, canonical_json(asked), part="threads", **asdict(plan))
    turns: dict[str, list[tuple[list[Message], Turn]]] = {}
    with AgentMemory(folder, engine) as memory:
        thread = memory.thread("main")
        turns["main"] = [_ask(thread, question("main", n), plan) for n in range(plan.turns)]
        before = thread.messages
    say(f"{plan.turns} turns asked")
    with AgentMemory(folder, engine) as memory:
        fork = memory.thread("main").fork("fork", at=plan.fork)
        turns["fork"] = [_ask(fork, question("fork", n), plan) for n in range(plan.after)]
        untouched = memory.thread("main").messages == before
    with AgentMemory(folder, engine) as memory:
        thread = memory.thread("main")
        newest = thread.turns[-1].seq
        thread.rewind(plan.rewind)
        turns["rewound"] = [_ask(thread, question("rewound", n), plan) for n in range(plan.after)]
        thread.resume(newest)
        untouched = untouched and thread.messages == before
        turns["resumed"] = [_ask(thread, question("resumed", 0), plan)]
    rows = []
    with AgentMemory(folder, engine) as memory:
        for branch, said in turns.items():
            for index, (messages, turn) in enumerate(said):
                fresh = branch != "main" or index in _looked_at(plan)
                rows.append({"branch": branch, **_row(memory, index, messages, turn, plan, fresh)})
    return measured.result(header, {"plan": {"part": "threads", "original_untouched": untouched}, "rows": rows})


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless each compared turn is the fresh one and every turn but the first restored."""
    for row in result["rows"]:
        where = f"{row['branch']}, turn {row['turn'] + 1}"
        if row["equal"] is False:
            raise GuaranteeViolated(f"{where}: not what a fresh conversation says")
        if not row["restored"] and (row["branch"], row["turn"]) != ("main", 0):
            raise GuaranteeViolated(f"{where}: nothing was restored")
    if not result["original_untouched"]:
        raise GuaranteeViolated("a fork or a rewind changed the thread that it came from")


def _looked_at(plan: Plan) -> set[int]:
    """The main thread's turns that are compared: every so many, and those around the fork and the rewind."""
    around = {at + by for at in (plan.fork, plan.rewind) for by in (-1, 0)}
    return {0, plan.turns - 1, *range(0, plan.turns, plan.every), *around}


def _ask(thread: Thread, text: str, plan: Plan) -> tuple[list[Message], Turn]:
    messages = [*thread.messages, Message("user", text)]
    return messages, thread.ask(text, skill=None, max_new=plan.answer)


def _row(
    memory: AgentMemory, index: int, messages: list[Message], turn: Turn, plan: Plan, fresh: bool
) -> dict[str, Any]:
    read = memory.ask(messages, skill=None, graft=False, max_new=plan.answer) if fresh else None
    tokens = {"restored": turn.tokens.restored, "prefilled": turn.tokens.prefilled}
    return {"turn": index, **tokens, "thread": _said(turn), "fresh": None if read is None else _said(read)}


def _said(turn: Turn) -> dict[str, Any]:
    return {"text": turn.text, "token_ids": list(turn.token_ids), "logits_sha256": turn.logits_sha256}
