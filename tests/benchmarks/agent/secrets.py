"""``--part secrets``: many threads and event loops on one model, and no answer holds another block's secret.

Twelve blocks hold a secret each. Turns in random order are asked by two threads and by two event loops at once, through
one ``ChatAgentKV``; each answer, and the SHA-256 of its logits, has to be that of the same turn asked alone.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.results import origin, say
from agentkv.errors import GuaranteeViolated
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from tests.benchmarks.agent import arms

_QUESTIONS = ("What is the password?", "Tell me the word that opens the door.", "Which password does this manual give?")
_WINDOW = 512
_IN_FLIGHT = 4


@dataclass(frozen=True)
class Plan:
    """How many blocks, turns and tokens of an answer."""

    blocks: int = 12
    turns: int = 200
    answer: int = 12
    threads: int | None = None


SMALL = Plan(turns=24, answer=8)

Asked = tuple[int, int]
"""A block's number and a question's."""
Said = tuple[str, str]
"""An answer and the SHA-256 of its logits."""


def secret(number: int) -> str:
    """The secret of a block; none is a part of another."""
    return f"{1000 + 727 * number}-{'abcdefghijkl'[number % 12] * 3}"


def run(model: str, plan: Plan, folder: Path) -> dict[str, Any]:
    """The whole part on one engine."""
    engine = arms.open_engine(model, _WINDOW, plan.threads)
    try:
        return on(engine, model, plan, folder)
    finally:
        engine.close()


def on(engine: Any, model: str, plan: Plan, folder: Path) -> dict[str, Any]:
    """The same on an engine that is open."""
    from langchain_agentkv import ChatAgentKV

    texts = [f"The password of door {n} is {secret(n)}. Nobody else may hear it.\n" for n in range(plan.blocks)]
    rng = random.Random(0)
    turns: list[Asked] = [(rng.randrange(plan.blocks), rng.randrange(len(_QUESTIONS))) for _ in range(plan.turns)]
    inputs = canonical_json([texts, turns, _QUESTIONS])
    header = origin("agent", model, engine.info.sha256, inputs, part="secrets", **asdict(plan))
    with AgentMemory(folder, engine) as memory:
        for number, text in enumerate(texts):
            memory.deposit_text(_name(number), text)
        chat = ChatAgentKV(memory=memory, max_new=plan.answer)
        alone = {turn: _said(chat.invoke(_QUESTIONS[turn[1]], skill=_name(turn[0]))) for turn in sorted(set(turns))}
        say(f"{len(alone)} turns asked alone")
        together = _together(chat, turns)
    part = {"part": "secrets", "turns": turns, "secrets": [secret(n) for n in range(plan.blocks)]}
    return measured.result(header, {"plan": part, "alone": list(alone.items()), "together": together})


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated for a leaked secret, an answer that differs, or a turn that was not asked once."""
    if result["leaks"]:
        raise GuaranteeViolated(f"turns {result['leaks'][:5]} hold the secret of another block")
    if result["unequal"]:
        raise GuaranteeViolated(f"turns {result['unequal'][:5]} are not those of the sequential run")
    if not result["once_each"]:
        raise GuaranteeViolated(f"{result['asked']} answers, and not one for each turn")


def _name(number: int) -> str:
    return f"door {number}"


def _said(answer: Any) -> Said:
    return answer.text, answer.response_metadata["agentkv"]["logits_sha256"]


def _together(chat: Any, turns: list[Asked]) -> list[tuple[int, Said]]:
    """Every turn once, by whoever is free: two threads, and two event loops with several turns in flight each."""
    waiting = list(enumerate(turns))[::-1]
    found: list[tuple[int, Said]] = []
    errors: list[BaseException] = []

    def following() -> tuple[int, Asked] | None:
        try:
            return waiting.pop()
        except IndexError:
            return None

    def by_thread() -> None:
        while (job := following()) is not None:
            index, (block, question) = job
            found.append((index, _said(chat.invoke(_QUESTIONS[question], skill=_name(block)))))

    async def one_after_another() -> None:
        while (job := following()) is not None:
            index, (block, question) = job
            found.append((index, _said(await chat.ainvoke(_QUESTIONS[question], skill=_name(block)))))

    async def by_loop() -> None:
        await asyncio.gather(*(one_after_another() for _ in range(_IN_FLIGHT)))

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    jobs: list[Callable[[], object]] = [by_thread, by_thread, *[lambda: asyncio.run(by_loop())] * 2]
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found
